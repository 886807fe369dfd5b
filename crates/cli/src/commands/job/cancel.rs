//! `phalanx job cancel`.

use super::ask::{self, ask_failure};
use crate::args::DomainArgs;
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::anyhow;
use clap::Args;
use phalanx_jobs::JobRef;
use phalanx_wire::jobs::{JobAnswer, JobQuery};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx job cancel 17 18
  phalanx job cancel --all")]
pub(crate) struct CancelArgs {
    /// The jobs, as `phalanx job list` names them.
    #[arg(required_unless_present = "all")]
    jobs: Vec<JobRef>,
    /// End every unfinished job of every main node in the domain.
    #[arg(long, conflicts_with = "jobs")]
    all: bool,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Serialize)]
struct Cancelled {
    cancelled: u64,
}

impl Render for Cancelled {
    fn table(&self) -> String {
        format!("{} jobs cancelled", self.cancelled)
    }

    fn quiet(&self) -> String {
        self.cancelled.to_string()
    }
}

pub(crate) async fn run(args: CancelArgs, output: Output) -> Result<(), Failure> {
    let mut asker = ask::start(&args.domain).await?;
    let mut queries = Vec::new();
    if args.all {
        queries.extend(asker.mains().iter().map(|main| (main.clone(), JobQuery::CancelAll)));
    }
    for job in &args.jobs {
        let main = asker.find(job).await.map_err(ask_failure)?.ok_or_else(|| {
            Failure::usage(anyhow!("no main node of domain {} has a job {job}", args.domain.domain))
                .hint("`phalanx job list` names the jobs there are")
        })?;
        queries.push((main, JobQuery::Cancel { jobs: vec![job.job] }));
    }
    let mut cancelled = 0;
    for (main, query) in &queries {
        if let Some(JobAnswer::Cancelled { jobs }) = asker.ask(main, query).await.map_err(ask_failure)? {
            cancelled += jobs;
        }
    }
    asker.stop().await;
    output.print(&Cancelled { cancelled })
}
