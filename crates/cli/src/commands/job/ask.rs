//! How listings ask main nodes, and where their journals are.

use crate::args::{DomainArgs, start_failure};
use crate::failure::Failure;
use crate::paths;
use phalanx_fabric::NodeKind;
use phalanx_jobs::{AskError, Asker, Outcome, PastMain};
use phalanx_types::{JobId, NodeId};

pub(super) async fn start(domain: &DomainArgs) -> Result<Asker, Failure> {
    Asker::start(domain.fabric("look", NodeKind::Observer)?).await.map_err(ask_failure)
}

/// An error of asking with its exit code and what to do about it.
pub(super) fn ask_failure(error: AskError) -> Failure {
    match error {
        AskError::Start(error) => start_failure(error),
        AskError::Several { job, ref mains } => {
            let names: Vec<String> = mains.iter().map(|main| format!("{job}@{main}")).collect();
            let hint = format!("name one of {}", names.join(", "));
            Failure::usage(error).hint(hint)
        }
        error => Failure::infrastructure(error),
    }
}

/// The journals of background main nodes that are not among `live`, newest name last.
pub(super) fn past_mains(domain: &DomainArgs, live: &[NodeId]) -> Vec<PastMain> {
    let journals = paths::job_journals(&domain.domain);
    journals.map_or_else(|_homeless| Vec::new(), |dir| phalanx_jobs::past_mains(&dir, live))
}

/// The solution of a job whose main node is there, when that keeps its journal in the usual place.
pub(super) fn kept_solution(domain: &DomainArgs, main: &NodeId, job: JobId) -> Option<String> {
    let dir = paths::job_journals(&domain.domain).ok()?;
    solution(phalanx_jobs::kept_outcome(&dir, main, job).as_ref())
}

/// A solution as text.
pub(super) fn solution(outcome: Option<&Outcome>) -> Option<String> {
    match outcome? {
        Outcome::Solved(parcel) => Some(String::from_utf8_lossy(&parcel.bytes).into_owned()),
        Outcome::Kept { .. } | Outcome::Failed(_) | Outcome::Cancelled | Outcome::Expired => None,
    }
}
