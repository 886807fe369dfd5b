//! From `tracing` to Python's `logging`, without calling Python where something is logged.
//!
//! Events wait in a bounded queue until the thread that waits for the library delivers them.

use pyo3::prelude::*;
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Records that wait at most; later ones are counted only.
const MOST: usize = 10_000;

static QUEUE: Mutex<Queue> = Mutex::new(Queue { records: VecDeque::new(), lost: 0 });
/// What the logger wants, as a level of Python.
static THRESHOLD: AtomicU8 = AtomicU8::new(30);

#[derive(Debug)]
struct Queue {
    records: VecDeque<LogRecord>,
    lost: u64,
}

#[derive(Debug)]
struct LogRecord {
    logger: String,
    level: u8,
    message: String,
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Levels of Python; `TRACE` is below `DEBUG`.
fn python_level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// Begins to collect events, and asks the logger which ones it wants.
pub(crate) fn listen(py: Python<'_>) -> PyResult<()> {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        // Fails only if a command of this process logs to standard error already.
        let _taken = tracing::subscriber::set_global_default(Collector);
    });
    let logger = py.import("logging")?.call_method1("getLogger", ("phalanx",))?;
    let level: u64 = logger.call_method0("getEffectiveLevel")?.extract()?;
    THRESHOLD.store(u8::try_from(level).unwrap_or(u8::MAX), Ordering::Relaxed);
    Ok(())
}

/// Hands what has been logged to Python's loggers.
pub(crate) fn deliver(py: Python<'_>) -> PyResult<()> {
    loop {
        // The queue is free while Python runs: a handler may call the library.
        let (record, lost) = {
            let mut queue = queue();
            (queue.records.pop_front(), std::mem::take(&mut queue.lost))
        };
        if lost > 0 {
            let message = format!("{lost} log records were lost: too many came at once");
            log(py, &LogRecord { logger: "phalanx".to_owned(), level: 30, message })?;
        }
        match record {
            Some(record) => log(py, &record)?,
            None => return Ok(()),
        }
    }
}

fn log(py: Python<'_>, record: &LogRecord) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (&record.logger,))?;
    logger.call_method1("log", (record.level, "%s", &record.message))?;
    Ok(())
}

/// Puts events into the queue. Spans are not followed.
#[derive(Debug)]
struct Collector;

impl Subscriber for Collector {
    /// The logger's level may change at any time.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target().starts_with("phalanx");
        ours && metadata.is_event() && python_level(*metadata.level()) >= THRESHOLD.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &SpanRecord<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let logger = event.metadata().target().replacen("phalanx_", "phalanx.", 1).replace("::", ".");
        let level = python_level(*event.metadata().level());
        let mut queue = queue();
        match queue.records.len() < MOST {
            true => queue.records.push_back(LogRecord { logger, level, message: text.finish() }),
            false => queue.lost += 1,
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message and the fields of an event.
#[derive(Debug, Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn finish(self) -> String {
        format!("{}{}", self.message, self.fields)
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string cannot fail.
        let _written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
