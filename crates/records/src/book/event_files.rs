//! The event files for TensorBoard: a run goes on without them when they cannot be written.

use crate::events::{Event, Events};
use crate::run_dir::{StepRecord, ValidRecord};
use crate::tensorboard::TensorBoard;
use std::io;
use std::path::Path;

/// Switches the event files off, if it is `off` or `0`.
const SWITCH: &str = "PHALANX_TENSORBOARD";

/// The event file of this process; `None` if it is switched off or cannot be written any more.
#[derive(Debug)]
pub(super) struct EventFiles(Option<TensorBoard>);

impl EventFiles {
    /// Begins a file whose first step will be `first`.
    pub(super) fn begin(run: &Path, first: u64, events: &mut Events<'_>) -> Self {
        if std::env::var(SWITCH).is_ok_and(|set| matches!(set.as_str(), "off" | "0")) {
            return Self(None);
        }
        let file = TensorBoard::begin(run, first).inspect_err(|error| tell(error, events));
        Self(file.ok())
    }

    /// Steps from `first` on come again.
    pub(super) fn restart(&mut self, first: u64, events: &mut Events<'_>) {
        self.write(events, |file| file.restart(first));
    }

    pub(super) fn step(&mut self, record: &StepRecord, events: &mut Events<'_>) {
        let values = [
            ("loss", f64::from(record.loss)),
            ("lr", f64::from(record.lr)),
            ("grad_norm", f64::from(record.grad_norm)),
            ("samples_per_s", record.samples_per_s),
        ];
        self.write(events, |file| file.scalars(record.step, values));
    }

    pub(super) fn validation(&mut self, record: &ValidRecord, events: &mut Events<'_>) {
        let accuracy = record.val_acc.map(|accuracy| ("val_acc", accuracy));
        let others = record.metrics.iter().map(|(name, value)| (name.as_str(), *value));
        let values = [("val_loss", record.val_loss)].into_iter().chain(accuracy).chain(others);
        self.write(events, |file| file.scalars(record.step, values).and_then(|()| file.flush()));
    }

    /// Writes everything: a checkpoint, a wait or the end comes.
    pub(super) fn flush(&mut self, events: &mut Events<'_>) {
        self.write(events, TensorBoard::flush);
    }

    /// After a failure the file ends: what is in it stays readable.
    fn write(&mut self, events: &mut Events<'_>, write: impl FnOnce(&mut TensorBoard) -> io::Result<()>) {
        if let Some(file) = &mut self.0
            && let Err(error) = write(file)
        {
            tell(&error, events);
            self.0 = None;
        }
    }
}

fn tell(error: &io::Error, events: &mut Events<'_>) {
    events.on(Event::Warning(format!("no more event files for TensorBoard are written: {error}")));
}
