//! Computing a step: the model with its optimizer, and the batches it takes.

mod stepper;

pub use stepper::{Cut, OutputGradients, Ready, StepInput, Stepped, Stepper, StepperOptions};

use crate::task::Task;
use phalanx_data::{LoaderOptions, Position};
use phalanx_protocol::progress::Place;

/// The batches of a run from a position on; a step is one batch, however it is divided for computing.
pub fn loader_options(task: &Task, place: Place) -> LoaderOptions {
    let train = &task.config.train;
    LoaderOptions {
        batch: train.batch * train.accumulate,
        seed: train.seed.derive("data").0,
        shuffle: task.config.data.shuffle,
        drop_last: task.config.data.drop_last,
        start: Position { pass: place.pass, batch: place.batch },
        passes: u64::MAX - place.pass,
        train: true,
        prefetch: 2,
        shard: None,
        part: None,
    }
}
