//! What a trainer tells while it works; it prints nothing itself.

use crate::run_dir::{StepRecord, ValidRecord};
use std::path::Path;

/// Something that happened in a run.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    Started {
        run_dir: &'a Path,
        model: &'a str,
        parameters: usize,
        /// Samples of one pass.
        samples: usize,
        batches_per_pass: u64,
        total_steps: u64,
        /// The steps that were done before, when it was resumed.
        done: u64,
    },
    /// Replicas begin to train together.
    Formed {
        epoch: u64,
        nodes: &'a [String],
        /// Steps that are done.
        step: u64,
        /// How many of the nodes each replica is cut over, when they are.
        stages: &'a [usize],
        /// How long a step should take, where that was predicted.
        predicted_ms: Option<f64>,
    },
    /// Nothing moves, and why.
    Waiting(&'a str),
    Step(&'a StepRecord),
    Validated(&'a ValidRecord),
    Saved {
        step: u64,
        path: &'a Path,
    },
    /// Something to know.
    Note(&'a str),
    /// Something is not as it should be, but the run goes on.
    Warning(&'a str),
}

/// Is told what happens in a run.
pub trait Observer {
    fn on(&mut self, event: &Event<'_>);
}

/// Nobody looks.
impl Observer for () {
    fn on(&mut self, _event: &Event<'_>) {}
}
