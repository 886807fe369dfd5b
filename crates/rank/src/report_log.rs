//! A rank's [`phalanx_protocol::ReportLog`], whose reports go to the driver as [`Report`]s.

use super::worker::Report;
use phalanx_protocol::{ReportLog as Log, Unheard};
use phalanx_types::Epoch;
use phalanx_wire::train::Recorded;
use std::ops::{Deref, DerefMut};

#[derive(Debug, Default)]
pub(super) struct ReportLog(Log);

impl ReportLog {
    /// What is not recorded, of the steps up to `done`, as reports of a group.
    pub(super) fn unheard(&self, epoch: Epoch, recorded: Recorded, done: u64) -> Vec<Report> {
        let Unheard { steps, validations } = self.0.unheard(recorded, done);
        let steps = (!steps.is_empty()).then_some(Report::Steps { epoch, steps });
        let validated = |(step, sums)| Report::Validated { epoch, step, sums };
        steps.into_iter().chain(validations.into_iter().map(validated)).collect()
    }
}

impl Deref for ReportLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.0
    }
}

impl DerefMut for ReportLog {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.0
    }
}
