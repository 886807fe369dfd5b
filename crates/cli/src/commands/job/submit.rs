//! `phalanx job submit`: a main node for the jobs of one command.

use super::background;
use super::progress::Watcher;
use crate::args::{DomainArgs, duration, start_failure};
use crate::failure::Failure;
use crate::local::{LocalNodes, private_domain};
use crate::output::{Output, Render, summary};
use crate::stop::StopSignals;
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_fabric::NodeKind;
use phalanx_jobs::{
    JobSpec, MainCounts, MainError, MainNode, MainOptions, Outcome, Outcomes, builtin, read_journal,
};
use phalanx_types::{ByteSize, JobId, Needs, Parcel};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Jobs handed to the main node in one go.
const CHUNK: u64 = 10_000;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  phalanx job submit --kind upper --arg hello --wait
  phalanx job submit --kind sleep --arg 5ms --count 1000 --local 3 --wait
  phalanx job submit --kind exec --payload in.txt --wait -- wc -l
  phalanx job submit --kind sleep --arg 1s --count 500 --journal jobs.journal --wait")]
pub(crate) struct SubmitArgs {
    /// Which handler solves the jobs: echo, upper, sleep, fail, exec, or one of your own.
    #[arg(long, required_unless_present = "journal")]
    kind: Option<String>,
    /// A file to send with each job; - reads standard input.
    #[arg(long, value_name = "FILE")]
    payload: Option<PathBuf>,
    /// A text to send with each job; for exec a command line for the shell.
    #[arg(long, value_name = "TEXT")]
    arg: Option<String>,
    /// How many jobs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Stay until all have ended; otherwise a main node in the background sees to them.
    #[arg(long)]
    wait: bool,
    /// Start this many nodes on this machine, for these jobs only; implies --wait.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    local: Option<u32>,
    /// Jobs of higher priority go first.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true)]
    priority: i32,
    /// A job that has not ended this long after its submission is expired.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Duration>,
    /// How many times a job may be run when nodes are lost with it.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    attempts: u32,
    /// The memory each job needs.
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    memory: ByteSize,
    /// The cores each job needs.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cores: u32,
    /// Record everything here; the same command goes on where a killed one stopped.
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    /// Write each solution to a file in this directory, named after its job.
    #[arg(long, value_name = "DIR")]
    solutions: Option<PathBuf>,
    /// The name of the main node.
    #[arg(long, default_value = "main")]
    pub(super) name: String,
    /// Print one line as soon as all jobs are recorded.
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    pub(super) domain: DomainArgs,
    /// The command for exec jobs, after --.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What became of the jobs.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    submitted: u64,
    solved: u64,
    failed: u64,
    cancelled: u64,
    expired: u64,
    reruns: u64,
    wall_s: f64,
    jobs_per_s: f64,
    /// Only for a single job.
    #[serde(skip_serializing_if = "Option::is_none")]
    solution: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_failure: Option<String>,
}

impl Render for Summary {
    fn table(&self) -> String {
        let mut rows = vec![
            ("submitted", self.submitted.to_string()),
            ("solved", self.solved.to_string()),
            ("failed", self.failed.to_string()),
            ("cancelled", self.cancelled.to_string()),
            ("expired", self.expired.to_string()),
            ("reruns", self.reruns.to_string()),
            ("wall", format!("{:.2} s", self.wall_s)),
            ("jobs/s", format!("{:.0}", self.jobs_per_s)),
        ];
        rows.extend(self.first_failure.iter().map(|f| ("first failure", f.clone())));
        rows.extend(self.solution.iter().map(|s| ("solution", s.clone())));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.solution.clone().unwrap_or_default()
    }
}

pub(crate) async fn run(mut args: SubmitArgs, output: Output) -> Result<(), Failure> {
    let spec = spec(&args)?;
    if let (Some(journal), Some(spec)) = (&args.journal, &spec) {
        check_journal(journal, spec, args.count)?;
    }
    if !args.wait && args.local.is_none() {
        return background::submit(&args, output);
    }
    if args.local.is_some() && args.domain.domain.as_str() == "default" {
        args.domain.domain = private_domain()?;
    }
    if let Some(dir) = &args.solutions {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("could not make {}", dir.display()))
            .map_err(Failure::usage)?;
    }
    let mut stops = StopSignals::new()?;
    let config = args.domain.fabric(&args.name, NodeKind::Main)?;
    let options = MainOptions { journal: args.journal.clone() };
    let main = MainNode::start(config, options).await.map_err(main_failure)?;
    let extra: &[&str] = if args.kind.as_deref() == Some("exec") { &["--allow-exec"] } else { &[] };
    let nodes = args.local.map(|n| LocalNodes::start(&args.domain.domain, n, None, extra)).transpose()?;
    let result = solve_all(&main, &args, spec, &mut stops, output).await;
    main.shutdown().await;
    drop(nodes);
    let (summary, interrupted) = result?;
    output.print(&summary)?;
    if interrupted {
        let failure = Failure::work(anyhow!("stopped before all jobs had ended"));
        return Err(match &args.journal {
            Some(_) => failure.hint("the same command goes on from the journal"),
            None => failure,
        });
    }
    match summary.submitted - summary.solved {
        0 => Ok(()),
        n => Err(Failure::work(anyhow!("{n} of {} jobs were not solved", summary.submitted))),
    }
}

/// The job that is submitted `count` times; none when a journal says what to do.
fn spec(args: &SubmitArgs) -> Result<Option<JobSpec>, Failure> {
    let Some(kind) = &args.kind else { return Ok(None) };
    let stdin = match &args.payload {
        None => Vec::new(),
        Some(path) => read_payload(path).map_err(Failure::usage)?,
    };
    let payload = if kind == "exec" {
        let argv = match (&args.arg, args.command.is_empty()) {
            (Some(line), true) => vec!["sh".to_owned(), "-c".to_owned(), line.clone()],
            (None, false) => args.command.clone(),
            _ => {
                return Err(Failure::usage(anyhow!("exec needs either --arg or a command after --"))
                    .hint("phalanx job submit --kind exec --wait -- wc -l"));
            }
        };
        builtin::exec_payload(&argv, stdin).map_err(Failure::usage)?
    } else {
        match (&args.arg, args.payload.is_some(), args.command.is_empty()) {
            (_, _, false) => return Err(Failure::usage(anyhow!("only exec jobs take a command after --"))),
            (Some(_), true, _) => {
                return Err(Failure::usage(anyhow!("a job takes either --payload or --arg, not both")));
            }
            (Some(text), false, _) => Parcel::from_bytes(text.clone()),
            (None, _, _) => Parcel::from_bytes(stdin),
        }
    };
    let mut spec = JobSpec::new(kind.as_str(), payload);
    spec.priority = args.priority;
    spec.deadline = args.deadline;
    spec.max_attempts = args.attempts;
    spec.needs = Needs { cores: args.cores, memory: args.memory };
    Ok(Some(spec))
}

/// Refuses a journal of other jobs than these before anything is done with it.
fn check_journal(path: &Path, spec: &JobSpec, count: u64) -> Result<(), Failure> {
    // One that is not there yet is fine; one that cannot be used is refused when it is opened.
    let Ok(history) = read_journal(path) else { return Ok(()) };
    let other = |error| {
        Err(Failure::usage(error).hint("name another journal, or leave out --kind to finish this one"))
    };
    let alike = |known: &JobSpec| {
        (&known.kind, &known.payload, known.needs) == (&spec.kind, &spec.payload, spec.needs)
    };
    if let Some((job, _)) = history.jobs.iter().find(|(_, known)| !alike(&known.spec)) {
        return other(anyhow!("the journal is of other jobs: its job {job} is not like these"));
    }
    let known = history.jobs.len() as u64;
    if known > count {
        return other(anyhow!("the journal holds {known} jobs, more than the {count} asked for"));
    }
    Ok(())
}

fn read_payload(path: &Path) -> anyhow::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("could not read the payload from standard input")?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("could not read the payload from {}", path.display()))
}

pub(crate) fn main_failure(error: MainError) -> Failure {
    match error {
        MainError::Journal(error) => {
            let hint = error.hint();
            let failure = Failure::usage(error);
            match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            }
        }
        other => start_failure(other),
    }
}

/// Where solutions go as they come.
struct Sink<'a> {
    dir: Option<&'a Path>,
    single: bool,
    solution: Option<String>,
    first_failure: Option<String>,
}

impl Sink<'_> {
    fn take(&mut self, job: JobId, outcome: &Outcome) -> Result<(), Failure> {
        match outcome {
            Outcome::Solved(parcel) => {
                if let Some(dir) = self.dir {
                    let path = dir.join(format!("{job}.out"));
                    std::fs::write(&path, &parcel.bytes)
                        .with_context(|| format!("could not write solution {}", path.display()))
                        .map_err(Failure::infrastructure)?;
                } else if self.single {
                    self.solution = Some(String::from_utf8_lossy(&parcel.bytes).into_owned());
                }
            }
            Outcome::Failed(reason) => {
                self.first_failure.get_or_insert_with(|| format!("job {job}: {reason}"));
            }
            Outcome::Cancelled | Outcome::Expired => {}
        }
        Ok(())
    }
}

async fn solve_all(
    main: &MainNode,
    args: &SubmitArgs,
    spec: Option<JobSpec>,
    stops: &mut StopSignals,
    output: Output,
) -> Result<(Summary, bool), Failure> {
    let started = Instant::now();
    let mut outcomes = main.outcomes().await.map_err(main_failure)?;
    let recovered = main.take_recovered();
    let single = if spec.is_some() { args.count == 1 } else { recovered.len() == 1 };
    let mut sink = Sink { dir: args.solutions.as_deref(), single, solution: None, first_failure: None };
    for (job, outcome) in &recovered {
        if let Some(outcome) = outcome {
            sink.take(*job, outcome)?;
        }
    }
    let before = recovered.iter().filter(|(_, outcome)| outcome.is_some()).count() as u64;
    let total = match &spec {
        Some(spec) => submit_rest(main, args, spec, recovered.len() as u64).await?,
        None => recovered.len() as u64,
    };
    if args.announce {
        background::announce(main.id(), total)?;
    }
    let mut watcher = Watcher::new(total, output);
    let interrupted = collect(main, &mut outcomes, &mut sink, &mut watcher, stops, total - before).await?;
    if interrupted && args.journal.is_none() {
        main.cancel_all().await.map_err(main_failure)?;
    }
    watcher.finish();
    let counts = main.counts().await.map_err(main_failure)?;
    Ok((summarise(counts, before, started.elapsed(), sink), interrupted))
}

/// Submits what the journal does not hold yet; gives the number of jobs in all.
async fn submit_rest(main: &MainNode, args: &SubmitArgs, spec: &JobSpec, known: u64) -> Result<u64, Failure> {
    let mut left = args.count.saturating_sub(known);
    while left > 0 {
        let chunk = left.min(CHUNK);
        let specs = (0..chunk).map(|_| spec.clone()).collect();
        main.submit_many(specs).await.map_err(main_failure)?;
        left -= chunk;
    }
    Ok(args.count)
}

/// Takes outcomes until all are there or the user has had enough; tells whether it was the latter.
async fn collect(
    main: &MainNode,
    outcomes: &mut Outcomes,
    sink: &mut Sink<'_>,
    watcher: &mut Watcher,
    stops: &mut StopSignals,
    mut left: u64,
) -> Result<bool, Failure> {
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    while left > 0 {
        tokio::select! {
            outcome = outcomes.next() => {
                let Some((job, outcome)) = outcome else {
                    return Err(Failure::infrastructure(anyhow!("the main node ended")));
                };
                sink.take(job, &outcome)?;
                left -= 1;
                watcher.ended(1);
            }
            _ = tick.tick() => watcher.look(main).await,
            () = stops.next() => return Ok(true),
        }
    }
    Ok(false)
}

fn summarise(counts: MainCounts, before: u64, wall: Duration, sink: Sink<'_>) -> Summary {
    let wall_s = wall.as_secs_f64();
    let ended = counts.ended().saturating_sub(before);
    Summary {
        submitted: counts.submitted,
        solved: counts.solved,
        failed: counts.failed,
        cancelled: counts.cancelled,
        expired: counts.expired,
        reruns: counts.reruns,
        wall_s,
        jobs_per_s: if wall_s > 0.0 { ended as f64 / wall_s } else { 0.0 },
        solution: sink.solution,
        first_failure: sink.first_failure,
    }
}
