//! `phalanx job submit`: a main node for the jobs of one command.

use super::background;
use super::progress::Watcher;
use super::spec::{check_journal, spec, unfinished_journal};
use super::summary::{Sink, Summary};
use crate::args::{DomainArgs, duration, node_name, start_failure};
use crate::commands::ledger::feed_journal;
use crate::failure::Failure;
use crate::output::Output;
use crate::own_program::own_program;
use crate::stop::StopSignals;
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_fabric::NodeKind;
use phalanx_jobs::{JobSpec, JournalError, MainError, MainNode, MainOptions, Outcomes};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_types::ByteSize;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Jobs handed to the main node in one go.
const CHUNK: u64 = 10_000;
/// The payload file that means standard input.
pub(super) const STDIN: &str = "-";

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  phalanx job submit --kind upper --arg hello --wait
  phalanx job submit --kind sleep --arg 5ms --count 1000 --local 3 --wait
  phalanx job submit --kind exec --payload in.txt --wait -- wc -l
  phalanx job submit --kind sleep --arg 1s --count 500 --journal jobs.journal --wait")]
pub(crate) struct SubmitArgs {
    /// Which handler solves the jobs: echo, upper, sleep, fail, exec, or one of your own.
    ///
    /// Without it, the jobs that a journal holds are finished.
    #[arg(long, required_unless_present = "journal")]
    pub(super) kind: Option<String>,
    /// A file to send with each job; - reads standard input.
    #[arg(long, value_name = "FILE", requires = "kind")]
    pub(super) payload: Option<PathBuf>,
    /// A text to send with each job; for exec a command line for the shell.
    #[arg(long, value_name = "TEXT", requires = "kind")]
    pub(super) arg: Option<String>,
    /// How many jobs.
    #[arg(long, default_value_t = 1, requires = "kind", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: u64,
    /// Stay until all have ended; otherwise a main node in the background sees to them.
    #[arg(long)]
    wait: bool,
    /// Start this many nodes on this machine while this command lasts; implies --wait.
    ///
    /// They and this command are in a domain of their own, unless --domain names another than
    /// "default", or --key, --connect or --relay is given: then they are nodes of that domain like
    /// any other, and may solve jobs of others, too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    local: Option<u32>,
    /// Jobs of higher priority go first.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, requires = "kind")]
    pub(super) priority: i32,
    /// A job that has not ended this long after its submission is expired.
    #[arg(long, value_name = "DURATION", value_parser = duration, requires = "kind")]
    pub(super) deadline: Option<Duration>,
    /// How many times a job may be run when nodes are lost with it.
    #[arg(long, default_value_t = 5, requires = "kind", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) attempts: u32,
    /// The memory each job needs.
    #[arg(long, value_name = "SIZE", default_value = "0B", requires = "kind")]
    pub(super) memory: ByteSize,
    /// The cores each job needs.
    #[arg(long, default_value_t = 1, requires = "kind", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) cores: u32,
    /// Record everything here; the same command goes on where a killed one stopped.
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// Record what the main node is told here, for `phalanx replay`; beside the journal if not given.
    #[arg(long, value_name = "FILE")]
    recording: Option<PathBuf>,
    /// Write each solution to a file in this directory, named after its job: 1.out, 2.out, …
    #[arg(long, value_name = "DIR")]
    solutions: Option<PathBuf>,
    /// A name to know the main node by; random digits are added.
    #[arg(long, default_value = "main", value_parser = node_name)]
    pub(super) name: String,
    /// Print one line as soon as all jobs are recorded.
    #[arg(long, hide = true)]
    announce: bool,
    #[command(flatten)]
    pub(super) domain: DomainArgs,
    /// The command for exec jobs, after --.
    #[arg(last = true, value_name = "COMMAND", requires = "kind")]
    pub(super) command: Vec<String>,
}

impl SubmitArgs {
    pub(super) fn reads_stdin(&self) -> bool {
        self.payload.as_deref() == Some(Path::new(STDIN))
    }
}

pub(crate) async fn run(mut args: SubmitArgs, output: Output) -> Result<(), Failure> {
    // Before anything is read: what standard input holds is for the process that submits it.
    if !args.wait && args.local.is_none() {
        return background::submit(&args, output);
    }
    let spec = spec(&args)?;
    let runs_commands = match (&args.journal, &spec) {
        (Some(journal), Some(spec)) => {
            check_journal(journal, spec, args.count)?;
            spec.kind == "exec"
        }
        (Some(journal), None) => unfinished_journal(journal)?.iter().any(|kind| kind == "exec"),
        (None, spec) => spec.as_ref().is_some_and(|spec| spec.kind == "exec"),
    };
    // Jobs of a private domain are found under the name that their user knows.
    let known_as = args.domain.domain.to_string();
    if args.local.is_some() && args.domain.is_default() {
        args.domain.domain = private_domain().map_err(Failure::infrastructure)?;
    }
    if let Some(dir) = &args.solutions {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("could not make {}", dir.display()))
            .map_err(Failure::usage)?;
    }
    let mut stops = StopSignals::new()?;
    let config = args.domain.fabric(&args.name, NodeKind::Main)?;
    let options = MainOptions { journal: args.journal.clone(), recording: args.recording.clone() };
    let main = MainNode::start(config, options).await.map_err(main_failure)?;
    let nodes = match args.local {
        Some(count) => Some(start_nodes(&args, count, runs_commands)?),
        None => None,
    };
    let feeder = args.journal.as_deref().and_then(|journal| feed_journal(&known_as, journal));
    let watcher = Watcher::new(output, feeder.clone());
    let result = solve_all(&main, &args, spec, &mut stops, watcher).await;
    main.shutdown().await;
    drop(nodes);
    if let Some(feeder) = feeder {
        // What it does not bring in time comes with the next look.
        let _all = feeder.finish();
    }
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

pub(crate) fn main_failure(error: MainError) -> Failure {
    match error {
        MainError::Journal(error) => {
            let hint = error.hint();
            match &error {
                JournalError::Io { source, .. } if !is_wrong_path(source.kind()) => {
                    Failure::infrastructure(error).hint_if(hint)
                }
                JournalError::Io { .. } => {
                    let hint = hint.unwrap_or("give --journal a file in a directory that is there");
                    Failure::usage(error).hint(hint)
                }
                _ => Failure::usage(error).hint_if(hint),
            }
        }
        other => start_failure(other),
    }
}

/// Whether a file could not be opened because there can be none of that name.
fn is_wrong_path(kind: ErrorKind) -> bool {
    use ErrorKind::{InvalidFilename, InvalidInput, IsADirectory, NotADirectory, NotFound};
    matches!(kind, NotFound | NotADirectory | IsADirectory | InvalidInput | InvalidFilename)
}

/// Starts the nodes of `--local`.
fn start_nodes(args: &SubmitArgs, count: u32, allow_exec: bool) -> Result<LocalNodes, Failure> {
    let spec = LocalSpec {
        key: args.domain.key_file(),
        heartbeat: Some(args.domain.heartbeat),
        allow_exec,
        ..LocalSpec::new(own_program(), args.domain.domain.clone(), count)
    };
    LocalNodes::start(&spec).map_err(Failure::infrastructure)
}

async fn solve_all(
    main: &MainNode,
    args: &SubmitArgs,
    spec: Option<JobSpec>,
    stops: &mut StopSignals,
    mut watcher: Watcher,
) -> Result<(Summary, bool), Failure> {
    let started = Instant::now();
    let mut outcomes = main.outcomes().await.map_err(main_failure)?;
    let recovered = main.take_recovered();
    let single = if spec.is_some() { args.count == 1 } else { recovered.len() == 1 };
    let mut sink = Sink::new(args.solutions.as_deref(), single);
    for (job, outcome) in &recovered {
        if let Some(outcome) = outcome {
            sink.take(*job, outcome)?;
        }
    }
    let before = recovered.iter().filter(|(_, outcome)| outcome.is_some()).count() as u64;
    let total = if spec.is_some() { args.count } else { recovered.len() as u64 };
    watcher.expect(total);
    let known = recovered.len() as u64;
    let submitted = match &spec {
        Some(spec) => submit_rest(main, spec, total.saturating_sub(known), stops).await?,
        None => true,
    };
    if args.announce && submitted {
        background::announce(main.id(), total)?;
    }
    let interrupted =
        !submitted || collect(main, &mut outcomes, &mut sink, &mut watcher, stops, total - before).await?;
    if interrupted {
        if args.journal.is_none() {
            main.cancel_all().await.map_err(main_failure)?;
        }
        take_rest(main, &mut outcomes, &mut sink, stops).await?;
    }
    watcher.finish();
    let counts = main.counts().await.map_err(main_failure)?;
    Ok((Summary::new(counts, before, started.elapsed(), sink), interrupted))
}

/// Submits what the journal does not hold yet; `false` when the user has had enough before the end.
async fn submit_rest(
    main: &MainNode,
    spec: &JobSpec,
    mut left: u64,
    stops: &mut StopSignals,
) -> Result<bool, Failure> {
    while left > 0 {
        let chunk = left.min(CHUNK);
        let specs = (0..chunk).map(|_| spec.clone()).collect();
        tokio::select! {
            submitted = main.submit_many(specs) => submitted.map_err(main_failure)?,
            () = stops.next() => return Ok(false),
        };
        left -= chunk;
    }
    Ok(true)
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
            batch = outcomes.next_batch() => {
                let Some(batch) = batch else {
                    return Err(Failure::infrastructure(anyhow!("the main node ended")));
                };
                for (job, outcome) in &batch {
                    sink.take(*job, outcome)?;
                }
                let ended = batch.len() as u64;
                left = left.saturating_sub(ended);
                watcher.ended(ended);
            }
            _ = tick.tick() => watcher.look(main).await,
            () = stops.next() => return Ok(true),
        }
    }
    Ok(false)
}

/// Takes what ended before the user had enough and was not taken yet.
async fn take_rest(
    main: &MainNode,
    outcomes: &mut Outcomes,
    sink: &mut Sink<'_>,
    stops: &mut StopSignals,
) -> Result<(), Failure> {
    let ended = main.counts().await.map_err(main_failure)?.ended();
    while sink.taken < ended {
        let batch = tokio::select! {
            batch = outcomes.next_batch() => batch,
            () = stops.next() => None,
        };
        let Some(batch) = batch else { break };
        for (job, outcome) in &batch {
            sink.take(*job, outcome)?;
        }
    }
    Ok(())
}
