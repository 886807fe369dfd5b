//! `phalanx job show` and `phalanx job explain`.

use super::ask::{self, ask_failure, kept_solution, past_mains, solution};
use super::list::{JobRow, row};
use super::past::{known, past_row};
use crate::args::DomainArgs;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::anyhow;
use clap::Args;
use phalanx_jobs::JobRef;
use phalanx_wire::jobs::{JobAnswer, JobQuery, JobState};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx job show 17")]
pub(crate) struct ShowArgs {
    /// The job, as `phalanx job list` names it.
    job: JobRef,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx job explain 17@main-4f2a")]
pub(crate) struct ExplainArgs {
    /// The job, as `phalanx job list` names it.
    job: JobRef,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    row: JobRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    solution: Option<String>,
}

impl Render for Shown {
    fn table(&self) -> String {
        let r = &self.row;
        let mut rows = vec![
            ("job", r.job.clone()),
            ("kind", r.kind.clone()),
            ("state", r.state_and_why()),
            ("attempts", r.attempts.to_string()),
        ];
        rows.extend(r.node.iter().map(|node| ("node", node.clone())));
        let times = [("submitted", r.submitted()), ("took", r.took())];
        rows.extend(times.into_iter().filter(|(_, time)| !time.is_empty()));
        rows.extend(self.solution.iter().map(|s| ("solution", s.clone())));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.solution.clone().unwrap_or_else(|| self.row.state_and_why())
    }
}

async fn look(job: &JobRef, domain: &DomainArgs) -> Result<Shown, Failure> {
    let mut asker = ask::start(domain).await?;
    let live = match asker.find(job).await.map_err(ask_failure)? {
        Some(main) => match asker.ask(&main, &JobQuery::Show { job: job.job }).await.map_err(ask_failure)? {
            Some(JobAnswer::Jobs { jobs, .. }) => jobs.first().map(|info| Shown {
                row: row(main.as_str(), info),
                solution: match info.state {
                    JobState::Solved => kept_solution(domain, &main, info.job),
                    _ => None,
                },
            }),
            Some(JobAnswer::Cancelled { .. } | JobAnswer::NoSuchJob { .. }) | None => None,
        },
        None => None,
    };
    let mut shown = live.or_else(|| {
        let past = past_mains(domain, asker.mains());
        past.iter().rev().filter(|p| job.may_have_been_at(&p.name)).find_map(|past| {
            Some(Shown { row: past_row(past, job.job)?, solution: solution(past.outcome(job.job)) })
        })
    });
    if shown.is_none() {
        shown = known(domain, asker.mains(), job)?.map(|row| Shown { row, solution: None });
    }
    asker.stop().await;
    shown.ok_or_else(|| {
        Failure::usage(anyhow!("no main node of domain {} has a job {job}", domain.domain))
            .hint("`phalanx job list --all` names the jobs there are")
    })
}

pub(crate) async fn run(args: ShowArgs, output: Output) -> Result<(), Failure> {
    output.print(&look(&args.job, &args.domain).await?)
}

#[derive(Debug, Serialize)]
struct Explained {
    #[serde(flatten)]
    row: JobRow,
}

impl Render for Explained {
    fn table(&self) -> String {
        self.row.state_and_why()
    }

    fn quiet(&self) -> String {
        self.row.state_and_why()
    }
}

pub(crate) async fn explain(args: ExplainArgs, output: Output) -> Result<(), Failure> {
    let Shown { row, .. } = look(&args.job, &args.domain).await?;
    output.print(&Explained { row })
}
