//! `phalanx job list`.

use super::ask::{self, ask_failure};
use super::past::{Wanted, add_known};
use crate::args::DomainArgs;
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of};
use crate::times::rfc3339;
use clap::Args;
use phalanx_jobs::Asker;
use phalanx_types::JobId;
use phalanx_wire::jobs::{JobAnswer, JobInfo, JobQuery, JobState};
use serde::Serialize;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx job list --all")]
pub(crate) struct ListArgs {
    /// List jobs that have ended, too, with the node that solved each, and when.
    ///
    /// Those of main nodes that are gone come from the ledger, or from their journals where there is none.
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
    pub(super) state: String,
    /// Why it waits or failed, or where it runs.
    pub(super) why: String,
    pub(super) priority: i32,
    pub(super) attempts: u32,
    /// 0 if its main node is gone.
    pub(super) age_ms: u64,
    /// The node that runs it, or solved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<String>,
    /// In milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) submitted_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended_ms: Option<u64>,
}

impl JobRow {
    /// When it was submitted, if that is known.
    pub(super) fn submitted(&self) -> String {
        self.submitted_ms.map_or_else(String::new, rfc3339)
    }

    /// How long it took from its submission to its end, if both are known.
    pub(super) fn took(&self) -> String {
        let took = self.ended_ms.zip(self.submitted_ms).map(|(ended, came)| ended.saturating_sub(came));
        took.map_or_else(String::new, |took| {
            humantime::format_duration(Duration::from_millis(took)).to_string()
        })
    }

    /// One sentence: `waiting: no node of this domain handles "train"`.
    pub(super) fn state_and_why(&self) -> String {
        if self.why.is_empty() {
            self.state.clone()
        } else {
            format!("{}: {}", self.state, one_line(&self.why))
        }
    }
}

pub(super) fn row(main: &str, info: &JobInfo) -> JobRow {
    JobRow {
        job: format!("{}@{main}", info.job),
        kind: info.kind.to_string(),
        state: info.state.name().to_owned(),
        why: info.state.why(),
        priority: info.priority,
        attempts: info.attempts,
        age_ms: info.age_ms,
        node: match &info.state {
            JobState::Leased { node } | JobState::Running { node, .. } => Some(node.to_string()),
            _ => None,
        },
        submitted_ms: None,
        ended_ms: None,
    }
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
            let row = [&j.job, &j.kind, &j.state, &j.why].map(String::clone);
            let mut row = Vec::from(row);
            row.push(j.attempts.to_string());
            if self.all {
                row.extend([j.node.clone().unwrap_or_default(), j.submitted(), j.took()]);
            }
            row
        });
        let header = ["job", "kind", "state", "why", "attempts", "node", "submitted", "took"];
        listing_of(if self.all { &header } else { &header[..5] }, rows)
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
    let wanted = Wanted { all: args.all, limit: args.limit as usize };
    add_known(&mut rows, &args.domain, asker.mains(), wanted)?;
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
