//! Why a stretch of a trial came to nothing, and whether it is worth another attempt.

use phalanx_jobs::Outcome;
use phalanx_records::with_causes;
use phalanx_trial::{BundleError, TrialError};
use phalanx_types::Parcel;
use phalanx_wire::reason::FailReason;
use std::io::ErrorKind;
use std::time::Duration;

/// Why a stretch of a trial came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrialFailure {
    #[error("{0}")]
    Job(FailReason),
    #[error("its solution stayed at its node")]
    Kept,
    #[error("its job was cancelled")]
    Cancelled,
    #[error("its job has expired")]
    Expired,
    #[error("it had not reached its budget after its deadline of {}", humantime::format_duration(*limit))]
    Deadline { limit: Duration },
    #[error("it could not be ordered: {why}")]
    NotOrdered { why: String },
    /// `here`: for a reason of this machine's, not of the solution.
    #[error("its solution could not be taken in: {why}")]
    NotTakenIn { why: String, here: bool },
}

impl TrialFailure {
    /// Whether another attempt may succeed. When all nodes that trained it were lost, the attempts are used up.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        match self {
            Self::Kept | Self::Job(FailReason::Unreadable { .. }) => true,
            Self::NotTakenIn { here, .. } => *here,
            Self::Job(_)
            | Self::Cancelled
            | Self::Expired
            | Self::Deadline { .. }
            | Self::NotOrdered { .. } => false,
        }
    }

    /// A trial that could not be ordered or taken in; `Err` if the search cannot go on either.
    pub(crate) fn of_error(error: TrialError, ordering: bool) -> Result<Self, TrialError> {
        let source = match &error {
            TrialError::Main(_) => return Err(error),
            TrialError::Read { source, .. }
            | TrialError::Write { source, .. }
            | TrialError::Bundle(BundleError::Io { source, .. }) => Some(source.kind()),
            _ => None,
        };
        match source {
            // Nothing can be recorded either. Once there is room the search can be resumed.
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Err(error),
            _ if ordering => Ok(Self::NotOrdered { why: with_causes(&error) }),
            kind => Ok(Self::NotTakenIn { why: with_causes(&error), here: kind.is_some() }),
        }
    }
}

/// The solution of a job that has one.
pub(crate) fn solution_of(outcome: Outcome) -> Result<Parcel, TrialFailure> {
    match outcome {
        Outcome::Solved(parcel) => Ok(parcel),
        Outcome::Kept { .. } => Err(TrialFailure::Kept),
        Outcome::Failed(reason) => Err(TrialFailure::Job(reason)),
        Outcome::Cancelled => Err(TrialFailure::Cancelled),
        Outcome::Expired => Err(TrialFailure::Expired),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::PathBuf;

    fn write_failed(kind: ErrorKind) -> TrialError {
        BundleError::Io { what: "write", path: PathBuf::from("t1"), source: io::Error::from(kind) }.into()
    }

    #[test]
    fn one_write_that_fails_is_of_its_trial_and_a_full_disk_is_of_the_search() {
        let denied = TrialFailure::of_error(write_failed(ErrorKind::PermissionDenied), false).unwrap();
        assert!(denied.is_worth_a_retry() && denied.to_string().contains("t1"), "{denied}");
        assert!(TrialFailure::of_error(write_failed(ErrorKind::StorageFull), false).is_err());
        let bad = TrialError::Bundle(BundleError::Twice { name: "run.toml".to_owned() });
        let bad = TrialFailure::of_error(bad, false).unwrap();
        assert!(!bad.is_worth_a_retry(), "the same solution would come again");
    }

    #[test]
    fn what_may_succeed_elsewhere_is_tried_again() {
        let lost = FailReason::NodesLost { attempts: 4, nodes: Vec::new() };
        assert!(!TrialFailure::Job(lost).is_worth_a_retry(), "its attempts are used up");
        let unreadable = FailReason::Unreadable { message: "gone".to_owned() };
        assert!(TrialFailure::Job(unreadable).is_worth_a_retry());
        let slow = TrialFailure::Deadline { limit: Duration::from_secs(600) };
        assert!(!slow.is_worth_a_retry());
        assert_eq!(slow.to_string(), "it had not reached its budget after its deadline of 10m");
        assert_eq!(solution_of(Outcome::Expired), Err(TrialFailure::Expired));
    }
}
