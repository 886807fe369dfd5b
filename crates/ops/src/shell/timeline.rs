//! When operations waited and computed, as a Chrome trace.

use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// More events are not kept.
const MOST: usize = 2_000_000;

/// Records while it is on.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    on: AtomicBool,
    recording: Mutex<Option<Recording>>,
}

#[derive(Debug)]
struct Recording {
    path: PathBuf,
    rank: u32,
    origin: Instant,
    events: Vec<Event>,
}

/// One event of the trace, as its viewers name the fields.
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    cat: &'static str,
    ph: &'static str,
    ts: u64,
    dur: u64,
    pid: u32,
    tid: &'static str,
}

impl Timeline {
    /// Begins a recording; one that was on is written first.
    pub(super) fn start(&self, path: &Path, rank: u32) -> io::Result<()> {
        self.stop()?;
        // The file is there from the start, so that a path that cannot be written is an error now.
        File::create(path)?;
        let recording = Recording { path: path.to_owned(), rank, origin: Instant::now(), events: Vec::new() };
        *self.recording.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the recording and writes it.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.on.store(false, Ordering::Release);
        let taken = self.recording.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(recording) = taken else { return Ok(()) };
        let mut file = BufWriter::new(File::create(&recording.path)?);
        serde_json::to_writer(&mut file, &recording.events)?;
        file.flush()
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Notes what happened to an operation between two moments.
    pub(super) fn note(&self, name: &str, phase: &'static str, began: Instant, ended: Instant) {
        if !self.is_on() {
            return;
        }
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(recording) = recording.as_mut().filter(|recording| recording.events.len() < MOST) else {
            return;
        };
        let micros = |moment: Instant| {
            let since = moment.saturating_duration_since(recording.origin).as_micros();
            u64::try_from(since).unwrap_or(u64::MAX)
        };
        let (ts, end) = (micros(began), micros(ended));
        let (pid, name) = (recording.rank, name.to_owned());
        let event = Event { name, cat: "ops", ph: "X", ts, dur: end - ts, pid, tid: phase };
        recording.events.push(event);
    }
}
