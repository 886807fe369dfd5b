//! `phalanx job list`.

use super::ask::{self, ask_failure, past_mains};
use crate::args::DomainArgs;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use clap::Args;
use phalanx_jobs::{Asker, Outcome, PastMain};
use phalanx_types::JobId;
use phalanx_wire::jobs::{JobAnswer, JobInfo, JobQuery};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx job list --all")]
pub(crate) struct ListArgs {
    /// List jobs that have ended, too.
    #[arg(long)]
    all: bool,
    /// List at most so many jobs of each main node.
    #[arg(long, default_value_t = 1_000)]
    limit: u32,
    #[command(flatten)]
    domain: DomainArgs,
}

/// A job as listings show it.
#[derive(Debug, Serialize)]
pub(super) struct JobRow {
    pub(super) job: String,
    pub(super) kind: String,
    state: &'static str,
    /// Why it waits or failed, or where it runs.
    why: String,
    priority: i32,
    pub(super) attempts: u32,
    age_ms: u64,
}

impl JobRow {
    /// One sentence: `waiting: no node of this domain handles "train"`.
    pub(super) fn state_and_why(&self) -> String {
        if self.why.is_empty() { self.state.to_owned() } else { format!("{}: {}", self.state, self.why) }
    }
}

pub(super) fn row(main: &str, info: &JobInfo) -> JobRow {
    JobRow {
        job: format!("{}@{main}", info.job),
        kind: info.kind.to_string(),
        state: info.state.name(),
        why: info.state.why(),
        priority: info.priority,
        attempts: info.attempts,
        age_ms: info.age_ms,
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
        None => {
            let why = format!("its main node {} is gone; submit its journal again to go on", past.name);
            ("waiting", why)
        }
    };
    Some(JobRow {
        job: format!("{job}@{}", past.name),
        kind: known.spec.kind.to_string(),
        state,
        why,
        priority: known.spec.priority,
        attempts: known.attempts,
        age_ms: 0,
    })
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct JobTable {
    rows: Vec<JobRow>,
    /// Whether those that have ended are among them.
    #[serde(skip)]
    all: bool,
}

impl Render for JobTable {
    fn table(&self) -> String {
        if self.rows.is_empty() {
            let none =
                if self.all { "no jobs" } else { "no unfinished jobs; --all lists those that have ended" };
            return none.to_owned();
        }
        let rows = self.rows.iter().map(|j| {
            [j.job.clone(), j.kind.clone(), j.state.to_owned(), j.why.clone(), j.attempts.to_string()]
        });
        listing(["job", "kind", "state", "why", "attempts"], rows)
    }

    fn quiet(&self) -> String {
        self.rows.iter().map(|j| j.job.as_str()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) async fn run(args: ListArgs, output: Output) -> Result<(), Failure> {
    let mut asker = ask::start(&args.domain).await?;
    let mut rows = Vec::new();
    for main in asker.mains().to_vec() {
        rows.extend(jobs_of(&mut asker, &main, &args).await?);
    }
    for past in past_mains(&args.domain, asker.mains()) {
        let jobs = past.history.jobs.keys().filter(|job| args.all || past.outcome(**job).is_none());
        rows.extend(jobs.take(args.limit as usize).filter_map(|job| past_row(&past, *job)));
    }
    asker.stop().await;
    output.print(&JobTable { rows, all: args.all })
}

async fn jobs_of(
    asker: &mut Asker,
    main: &phalanx_types::NodeId,
    args: &ListArgs,
) -> Result<Vec<JobRow>, Failure> {
    let mut rows = Vec::new();
    let mut after = JobId(0);
    loop {
        let left = args.limit - u32::try_from(rows.len()).unwrap_or(u32::MAX).min(args.limit);
        let query = JobQuery::List { after, limit: left, all: args.all };
        let (jobs, more) = match asker.ask(main, &query).await.map_err(ask_failure)? {
            Some(JobAnswer::Jobs { jobs, more }) => (jobs, more),
            Some(JobAnswer::Cancelled { .. } | JobAnswer::NoSuchJob { .. }) => return Ok(rows),
            // Its journal tells all, also what was listed so far.
            None => return Ok(Vec::new()),
        };
        let Some(last) = jobs.last() else { return Ok(rows) };
        after = last.job;
        rows.extend(jobs.iter().map(|info| row(main.as_str(), info)));
        if !more || rows.len() >= args.limit as usize {
            return Ok(rows);
        }
    }
}
