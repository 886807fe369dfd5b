//! Where a rank reports to: the driver of its run, or the records of a run in this process.

use super::worker::Report;
use crate::error::RankError;
use phalanx_protocol::Wish;
use std::cell::RefCell;
use std::fmt;

/// Reports to a driver, with the number of the rank they come from.
#[derive(Debug, Clone)]
pub(crate) struct Reports {
    pub(super) number: u64,
    pub(super) to: tokio::sync::mpsc::Sender<(u64, Report)>,
}

impl Reports {
    /// Blocks while the shell has not taken the reports before. For threads other than the runtime's.
    pub(super) fn say(&self, report: Report) {
        // A shell that has ended wants to hear nothing.
        drop(self.to.blocking_send((self.number, report)));
    }

    /// The same for a task of the runtime, which must not block.
    pub(super) async fn say_later(&self, report: Report) {
        drop(self.to.send((self.number, report)).await);
    }
}

/// Records what happens in a run of this process.
pub(crate) trait Recorder {
    fn record(&mut self, report: Report) -> Result<(), RankError>;

    /// What the user wants to happen at the next boundary between steps.
    fn wish(&self) -> Wish;
}

/// Where a rank reports to.
pub(crate) enum Outlet<'a> {
    Driver(Reports),
    Here {
        recorder: RefCell<&'a mut dyn Recorder>,
        /// Why something could not be recorded.
        problem: RefCell<Option<RankError>>,
    },
}

impl fmt::Debug for Outlet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(reports) => f.debug_tuple("Driver").field(reports).finish(),
            Self::Here { .. } => f.debug_struct("Here").finish_non_exhaustive(),
        }
    }
}

impl<'a> Outlet<'a> {
    pub(crate) fn here(recorder: &'a mut dyn Recorder) -> Self {
        Self::Here { recorder: RefCell::new(recorder), problem: RefCell::new(None) }
    }

    pub(super) fn say(&self, report: Report) {
        match self {
            Self::Driver(reports) => reports.say(report),
            Self::Here { recorder, problem } => {
                if let Err(error) = recorder.borrow_mut().record(report) {
                    problem.borrow_mut().get_or_insert(error);
                }
            }
        }
    }

    /// What could not be recorded ends a run.
    ///
    /// # Errors
    /// Something could not be recorded since the last call.
    pub(super) fn check(&self) -> Result<(), RankError> {
        match self {
            Self::Driver(_) => Ok(()),
            Self::Here { problem, .. } => problem.borrow_mut().take().map_or(Ok(()), Err),
        }
    }

    /// What the user of a run in this process wishes.
    pub(super) fn wish(&self) -> Wish {
        match self {
            Self::Driver(_) => Wish::GoOn,
            Self::Here { recorder, .. } => recorder.borrow().wish(),
        }
    }

    pub(super) fn is_driver(&self) -> bool {
        matches!(self, Self::Driver(_))
    }

    /// For threads that report by themselves.
    pub(super) fn driver(&self) -> Option<Reports> {
        match self {
            Self::Driver(reports) => Some(reports.clone()),
            Self::Here { .. } => None,
        }
    }
}
