//! Jobs of main nodes that are gone, and the ends of others: from the ledger, or from journals where there is none.

use super::ask::past_mains;
use super::list::JobRow;
use crate::args::DomainArgs;
use crate::commands::ledger::{jobs_ledger, ledger_failure};
use crate::failure::Failure;
use crate::paths;
use phalanx_jobs::{JobRef, Outcome, PastMain};
use phalanx_ledger::Ledger;
use phalanx_types::{JobId, NodeId};
use std::collections::BTreeMap;

/// What listings ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Those that have ended, too.
    pub(super) all: bool,
    /// The most jobs of each main node; the newest of them.
    pub(super) limit: usize,
}

/// Adds the jobs of main nodes that are not among `live` to a listing of the others, and to those what is known of
/// their end. With a ledger jobs of other hosts that share it are among them.
pub(super) fn add_known(
    rows: &mut Vec<JobRow>,
    domain: &DomainArgs,
    live: &[NodeId],
    wanted: Wanted,
) -> Result<(), Failure> {
    let journals = paths::job_journals(&domain.domain);
    match journals.ok().and_then(|journals| jobs_ledger(domain.domain.as_str(), &journals)) {
        Some(ledger) => add_from_ledger(rows, &ledger, domain, live, wanted),
        None => {
            rows.extend(past_mains(domain, live).iter().flat_map(|past| from_journal(past, wanted)));
            Ok(())
        }
    }
}

/// A job of a main node that is gone, wherever its journal was, as the ledger has it.
pub(super) fn known(domain: &DomainArgs, live: &[NodeId], job: &JobRef) -> Result<Option<JobRow>, Failure> {
    let mut rows = Vec::new();
    add_known(&mut rows, domain, live, Wanted { all: true, limit: u32::MAX as usize })?;
    let is_it = |row: &JobRow| {
        let (number, main) = row.job.split_once('@').unwrap_or((&row.job, ""));
        number == job.job.to_string() && job.may_have_been_at(main)
    };
    Ok(rows.into_iter().rev().find(is_it))
}

fn add_from_ledger(
    rows: &mut Vec<JobRow>,
    ledger: &Ledger,
    domain: &DomainArgs,
    live: &[NodeId],
    wanted: Wanted,
) -> Result<(), Failure> {
    let live: Vec<String> = live.iter().map(ToString::to_string).collect();
    for journal in ledger.journals(Some(domain.domain.as_str())).map_err(ledger_failure)? {
        let main = live.iter().find(|main| journal.is_of(std::slice::from_ref(*main)));
        if main.is_some() && !wanted.all {
            continue;
        }
        let mut jobs = ledger.jobs(&[&journal], wanted.limit, wanted.all).map_err(ledger_failure)?;
        jobs.sort_by_key(|job| job.job);
        match main {
            Some(main) => fill_in(rows, main, jobs),
            None => rows.extend(jobs.into_iter().map(row)),
        }
    }
    Ok(())
}

/// Adds solvers and times to the jobs of a main node that is there.
fn fill_in(rows: &mut [JobRow], main: &str, jobs: Vec<phalanx_ledger::JobRow>) {
    let name = |job: u64| format!("{}@{main}", JobId(job));
    let mut known: BTreeMap<String, phalanx_ledger::JobRow> =
        jobs.into_iter().map(|job| (name(job.job), job)).collect();
    for row in rows {
        if let Some(job) = known.remove(&row.job) {
            row.node = row.node.take().or(job.node);
            (row.submitted_ms, row.ended_ms) = (job.submitted_ms, job.ended_ms);
        }
    }
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
