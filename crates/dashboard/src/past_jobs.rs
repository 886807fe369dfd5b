//! Jobs of main nodes that are gone, from the ledger.

use crate::domain::PastJob;
use crate::error::ApiError;
use phalanx_ledger::{JobRow, JournalRow, Ledger};
use std::path::PathBuf;

/// How many of these jobs are shown.
const MOST_JOBS: usize = 500;

/// Where main nodes in the background keep their journals, and the name of their domain.
#[derive(Debug, Clone)]
pub struct Journals {
    pub domain: String,
    pub dir: PathBuf,
}

/// The jobs of main nodes that are not among `live`, of a domain or of all.
///
/// # Errors
/// The ledger cannot be used.
pub(crate) fn past_jobs(
    ledger: &Ledger,
    journals: Option<&Journals>,
    domain: Option<&str>,
    live: &[String],
) -> Result<Vec<PastJob>, ApiError> {
    if let Some(Journals { domain, dir }) = journals {
        for (journal, why) in ledger.catch_up_journals(domain, dir)?.failed {
            tracing::debug!(journal = %journal.display(), why, "a journal is not read");
        }
    }
    let known = ledger.journals(domain)?;
    let past: Vec<&JournalRow> = known.iter().filter(|journal| !journal.is_of(live)).collect();
    Ok(ledger.jobs(&past, MOST_JOBS, true)?.into_iter().map(past_job).collect())
}

fn past_job(job: JobRow) -> PastJob {
    let gone = || format!("its main node {} is gone", job.main);
    let why = if job.state == "waiting" { gone() } else { job.reason.unwrap_or_default() };
    PastJob {
        job: format!("{}@{}", job.job, job.main),
        kind: job.kind,
        state: job.state,
        why,
        node: job.node,
        attempts: job.attempts,
        submitted_ms: job.submitted_ms,
        ended_ms: job.ended_ms,
    }
}
