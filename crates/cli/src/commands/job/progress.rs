//! What people see while jobs run: a bar, and why nothing moves when nothing moves.

use crate::output::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use phalanx_fabric::NodeState;
use phalanx_jobs::MainNode;
use phalanx_ledger::FeederHandle;
use phalanx_types::JobId;
use phalanx_wire::jobs::{JobAnswer, JobQuery, JobState};
use std::time::{Duration, Instant};

/// Nothing is said about waiting before nothing has moved for this long.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// The progress of one command's jobs, on standard error.
#[derive(Debug)]
pub(super) struct Watcher {
    bar: ProgressBar,
    last_reason: Option<String>,
    moved: Instant,
    /// Brings what the journal tells into the ledger.
    feeder: Option<FeederHandle>,
}

impl Watcher {
    pub(super) fn new(output: Output, feeder: Option<FeederHandle>) -> Self {
        let counts = "{wide_bar} {pos}/{len} jobs, {rate}, {eta} left  {msg}";
        let style = ProgressStyle::with_template(counts)
            .unwrap_or_else(|_bad| ProgressStyle::default_bar())
            .with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                // What cannot be drawn is not worth an error.
                let _drawn = write!(out, "{:.0}/s", state.per_sec());
            });
        // Drawn only on a terminal; programs that read the results see none of it.
        let target =
            if output == Output::Quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target).with_style(style);
        Self { bar, last_reason: None, moved: Instant::now(), feeder }
    }

    /// Says how many jobs there are, once they are recorded or are about to be.
    pub(super) fn expect(&self, total: u64) {
        self.bar.set_length(total);
        self.feeder.iter().for_each(FeederHandle::wake);
    }

    pub(super) fn ended(&mut self, jobs: u64) {
        self.bar.inc(jobs);
        self.moved = Instant::now();
        self.feeder.iter().for_each(FeederHandle::wake);
    }

    /// Shows who works, or why nobody does.
    pub(super) async fn look(&mut self, main: &MainNode) {
        let stuck = self.moved.elapsed() >= STUCK_AFTER;
        let reason = if stuck { first_wait(main).await } else { None };
        match &reason {
            Some(reason) => self.bar.set_message(format!("waiting: {reason}")),
            None => self.bar.set_message(working(main)),
        }
        if reason.is_some() && reason != self.last_reason && self.bar.is_hidden() {
            tracing::warn!("waiting: {}", reason.as_deref().unwrap_or_default());
        }
        self.last_reason = reason;
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Why the first unfinished job waits, if it does.
async fn first_wait(main: &MainNode) -> Option<String> {
    let query = JobQuery::List { after: JobId(0), limit: 1, all: false };
    let Ok(JobAnswer::Jobs { jobs, .. }) = main.query(query).await else { return None };
    match &jobs.first()?.state {
        JobState::Waiting(reason) => Some(reason.to_string()),
        _ => None,
    }
}

fn working(main: &MainNode) -> String {
    let nodes = main.fabric().nodes();
    let computing = || nodes.iter().filter(|n| n.kind.solves());
    let live = computing().filter(|n| n.state.is_live()).count();
    let lost = computing().filter(|n| matches!(n.state, NodeState::Lost(_))).count();
    if lost == 0 { format!("{live} nodes") } else { format!("{live} nodes, {lost} lost") }
}
