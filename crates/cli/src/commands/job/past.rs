//! Jobs of main nodes that are gone: from the ledger, or from their journals where there is none.

use super::ask::past_mains;
use super::list::JobRow;
use crate::args::DomainArgs;
use crate::commands::ledger::{jobs_ledger, ledger_failure};
use crate::failure::Failure;
use crate::paths;
use phalanx_jobs::{Outcome, PastMain};
use phalanx_ledger::Ledger;
use phalanx_types::{JobId, NodeId};

/// What listings ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Those that have ended, too.
    pub(super) all: bool,
    /// The most jobs of each main node; the newest of them.
    pub(super) limit: usize,
}

/// The jobs of main nodes that are not among `live`. With a ledger those of other hosts that share it are among them.
pub(super) fn past_jobs(
    domain: &DomainArgs,
    live: &[NodeId],
    wanted: Wanted,
) -> Result<Vec<JobRow>, Failure> {
    let journals = paths::job_journals(&domain.domain);
    match journals.ok().and_then(|journals| jobs_ledger(domain.domain.as_str(), &journals)) {
        Some(ledger) => from_ledger(&ledger, domain, live, wanted),
        None => Ok(past_mains(domain, live).iter().flat_map(|past| from_journal(past, wanted)).collect()),
    }
}

fn from_ledger(
    ledger: &Ledger,
    domain: &DomainArgs,
    live: &[NodeId],
    wanted: Wanted,
) -> Result<Vec<JobRow>, Failure> {
    let live: Vec<String> = live.iter().map(ToString::to_string).collect();
    let mut rows = Vec::new();
    for journal in ledger.journals(Some(domain.domain.as_str())).map_err(ledger_failure)? {
        if journal.is_of(&live) {
            continue;
        }
        let mut jobs = ledger.jobs(&[&journal], wanted.limit, wanted.all).map_err(ledger_failure)?;
        jobs.sort_by_key(|job| job.job);
        rows.extend(jobs.into_iter().map(row));
    }
    Ok(rows)
}

fn from_journal(past: &PastMain, wanted: Wanted) -> Vec<JobRow> {
    let jobs = past.history.jobs.keys().filter(|job| wanted.all || past.outcome(**job).is_none());
    let mut newest: Vec<JobRow> =
        jobs.rev().take(wanted.limit).filter_map(|job| past_row(past, *job)).collect();
    newest.reverse();
    newest
}

fn gone(main: &str) -> String {
    format!("its main node {main} is gone; submit its journal again to go on")
}

fn row(job: phalanx_ledger::JobRow) -> JobRow {
    let why = match (job.state.as_str(), job.reason) {
        ("waiting", _) => gone(&job.main),
        (_, reason) => reason.unwrap_or_default(),
    };
    JobRow {
        job: format!("{}@{}", JobId(job.job), job.main),
        kind: job.kind,
        state: job.state,
        why,
        priority: i32::try_from(job.priority).unwrap_or(0),
        attempts: u32::try_from(job.attempts).unwrap_or(u32::MAX),
        age_ms: 0,
        node: job.node,
        submitted_ms: job.submitted_ms,
        ended_ms: job.ended_ms,
    }
}

/// The row of a job whose main node is gone.
pub(super) fn past_row(past: &PastMain, job: JobId) -> Option<JobRow> {
    let known = past.history.jobs.get(&job)?;
    let (state, why) = match &known.outcome {
        Some(Outcome::Solved(_) | Outcome::Kept { .. }) => ("solved", String::new()),
        Some(Outcome::Failed(reason)) => ("failed", reason.to_string()),
        Some(Outcome::Cancelled) => ("cancelled", String::new()),
        Some(Outcome::Expired) => ("expired", String::new()),
        None => ("waiting", gone(&past.name)),
    };
    Some(JobRow {
        job: format!("{job}@{}", past.name),
        kind: known.spec.kind.to_string(),
        state: state.to_owned(),
        why,
        priority: known.spec.priority,
        attempts: known.attempts,
        age_ms: 0,
        node: known.solver.as_ref().map(ToString::to_string),
        submitted_ms: known.submitted_unix_ms,
        ended_ms: known.ended_unix_ms,
    })
}
