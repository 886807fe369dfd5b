//! What people see of a search: a bar on a terminal, else a line for every result.

use super::short;
use crate::escape::one_line;
use crate::output::{Output, say};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use phalanx_search::core::record::{SearchRecord, TrialEnd, TrialId};
use phalanx_search_driver::{RESULTS, SearchObserver, SearchPlan};
use phalanx_search_results::{EventLine, ResultsWriter, SearchTable};
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two writings of tables and plots while the search goes on.
const REFRESH: Duration = Duration::from_secs(10);

/// The progress of a search, on standard error.
pub(super) struct Progress {
    /// Only on a terminal.
    bar: Option<ProgressBar>,
    silent: bool,
    trials: u64,
    writer: Option<Writer>,
}

/// Writes tables and plots on a thread of its own, so that the search does not wait.
struct Writer {
    tables: std::sync::mpsc::Sender<SearchTable>,
    thread: std::thread::JoinHandle<()>,
    written: Instant,
}

impl Progress {
    pub(super) fn new(output: Output, plan: &SearchPlan, dir: &Path) -> Self {
        let silent = output == Output::Quiet;
        let bar = (!silent && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} trials  {msg}");
            let style = style.unwrap_or_else(|_bad| ProgressStyle::default_bar());
            let bar = ProgressBar::with_draw_target(Some(plan.about().trials), ProgressDrawTarget::stderr());
            bar.with_style(style)
        });
        Self { bar, silent, trials: plan.about().trials, writer: Writer::start(&dir.join(RESULTS)) }
    }

    pub(super) fn begin(&self, recorded: usize) {
        if recorded > 0 {
            self.say(&format!("going on from {recorded} records"));
        }
    }

    pub(super) fn say(&self, line: &str) {
        if self.silent {
            return;
        }
        match &self.bar {
            Some(bar) => bar.println(one_line(line)),
            None => say(line),
        }
    }

    /// Ends the display; what is still being written is written.
    pub(super) fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(Writer { tables, thread, .. }) = self.writer {
            drop(tables);
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}

impl Writer {
    fn start(results: &Path) -> Option<Self> {
        let mut writer = ResultsWriter::new(results);
        let (tables, received) = std::sync::mpsc::channel::<SearchTable>();
        let write = move || {
            while let Ok(mut table) = received.recv() {
                // Only the newest counts.
                while let Ok(newer) = received.try_recv() {
                    table = newer;
                }
                if let Err(error) = writer.write(&table) {
                    tracing::warn!(error = phalanx_records::with_causes(&error), "results cannot be written");
                }
            }
        };
        let thread = std::thread::Builder::new().name("results".to_owned()).spawn(write).ok()?;
        Some(Self { tables, thread, written: Instant::now() })
    }
}

impl SearchObserver for Progress {
    fn on_lines(&mut self, table: &SearchTable, lines: &[EventLine]) {
        let mut results = false;
        for line in lines {
            results |= matches!(line.record, SearchRecord::TrialReached { .. });
            if let Some(text) = told(table, &line.record) {
                self.say(&text);
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position((table.rows().len() as u64).min(self.trials));
            let front = table.front().trials.len();
            bar.set_message(format!("{} on the front", front));
        }
        if let Some(writer) =
            self.writer.as_mut().filter(|writer| results && writer.written.elapsed() >= REFRESH)
        {
            writer.written = Instant::now();
            // A thread that has ended has said why.
            let _sent = writer.tables.send(table.clone());
        }
    }

    fn on_waiting(&mut self, why: Option<&str>) {
        if let Some(why) = why {
            self.say(&format!("waiting: {why}"));
        }
    }
}

/// A record that people want to hear of, in a line.
fn told(table: &SearchTable, record: &SearchRecord) -> Option<String> {
    let name = |trial: &TrialId| {
        let archid = table.row(*trial).map(|row| row.archid.clone()).unwrap_or_default();
        format!("{trial} {archid}")
    };
    match record {
        SearchRecord::TrialReached { trial, budget, values, seconds } => {
            let objectives = table.about().objectives.iter();
            let known = table.row(*trial).map(|row| &row.known);
            let value =
                |name: &str| values.get(name).or_else(|| known.and_then(|known| known.get(name))).copied();
            let values: Vec<String> = objectives
                .filter_map(|objective| {
                    Some(format!("{} {}", objective.name, short(value(&objective.name)?)))
                })
                .collect();
            let unit = &table.about().budget_unit;
            Some(format!(
                "{} after {} {unit}: {} ({seconds:.1} s)",
                name(trial),
                short(*budget),
                values.join(", ")
            ))
        }
        SearchRecord::TrialEnded { trial, end } => match end {
            TrialEnd::Failed { why } => Some(format!("{} failed: {why}", name(trial))),
            TrialEnd::Infeasible { why } => Some(format!("{} is infeasible: {why}", name(trial))),
            TrialEnd::Stopped { why } => Some(format!("{} stopped: {why}", name(trial))),
            TrialEnd::Completed | TrialEnd::Partial => None,
        },
        _ => None,
    }
}
