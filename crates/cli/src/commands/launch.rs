//! `phalanx launch`: ranks of one's own program.

use crate::args::{DomainArgs, duration, start_failure};
use crate::exec_shim;
use crate::failure::Failure;
use crate::output::{Output, Render, say};
use crate::own_program::own_program;
use crate::stop::StopSignals;
use anyhow::anyhow;
use clap::Args;
use phalanx_fabric::{Fabric, NodeKind};
use phalanx_launch::{
    DomainPlace, ElasticLimits, LaunchControl, LaunchError, LaunchFailure, LaunchNotice, LaunchPlace,
    LaunchSize, LaunchSpec, LaunchSummary, NodeChoice, ProcessExit, launch,
};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[derive(Debug, Args)]
#[command(
    after_help = "Ranks find each other by the variables that they are started with, and compute together by the
operations of the Phalanx library. What they print gets the number of the rank in front.
When a rank fails all others are ended, and the exit code is that of the first failure. With --min or --max the
program is elastic: a rank that dies is started again, and the others are told, form a new group and go on. On a domain
ranks are also added, up to --max, when nodes have room for them.

With --domain or --nodes ranks run on nodes of a domain that were started with --allow-exec. Files are not copied: the
program must be on every node. All ranks start together, once the nodes have free cores for them.

Examples:
  phalanx launch -n 4 -- python train.py --epochs 3
  phalanx launch -n 4 --min 2 --reset-limit 10 -- python train.py    goes on without ranks that die
  phalanx launch -n 2 --compat -- python train.py                    a program that imports horovod
  phalanx launch -n 8 --domain lab --cores-per-rank 4 -- python train.py
  phalanx launch --min 2 --max 8 --domain lab -- python train.py     begins with 2, grows as nodes come
  phalanx launch -n 4 --nodes gpu1,gpu2 -- python train.py           on nodes with these names"
)]
pub(crate) struct LaunchArgs {
    /// How many ranks to start; --min, or 1, when not given.
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: Option<u32>,
    /// Elastic: the fewest ranks that go on.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    min: Option<u32>,
    /// Elastic: the most ranks at a time. On a domain ranks are added up to this when nodes have room.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1024))]
    max: Option<u32>,
    /// Elastic: how often ranks may be lost before all ends; any number when not given.
    #[arg(long, value_name = "COUNT")]
    reset_limit: Option<u32>,
    /// How long ranks may take to end by themselves before they are killed.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    grace: Duration,
    /// On this machine: how many cores the ranks share; all when not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// On a domain: nodes to use, by name, or how many; all that run programs when not given.
    #[arg(long, value_name = "NAMES|COUNT", value_parser = node_choice)]
    nodes: Option<NodeChoice>,
    /// On a domain: how many cores each rank takes of its node; 1 when not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    cores_per_rank: Option<u32>,
    /// On a domain: a variable for the ranks; its value here when none is given. May be given several times.
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = variable)]
    env: Vec<(String, OsString)>,
    /// On a domain: where the program runs; the current directory, as it is called here, when not given.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Pass lines on without the number of the rank.
    #[arg(long)]
    no_prefix: bool,
    /// Let Python programs import packages of other tools, such as horovod, from Phalanx.
    #[arg(long)]
    compat: bool,
    #[command(flatten)]
    domain: DomainArgs,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Debug, Serialize)]
struct Summary(LaunchSummary);

impl Render for Summary {
    /// The ranks have said what there is to say.
    fn table(&self) -> String {
        String::new()
    }

    fn quiet(&self) -> String {
        String::new()
    }
}

/// Reads `4` or `gpu1,gpu2`.
fn node_choice(text: &str) -> Result<NodeChoice, String> {
    if let Ok(count) = text.parse::<u32>() {
        return if count > 0 {
            Ok(NodeChoice::Count(count))
        } else {
            Err("expected at least 1 node".to_owned())
        };
    }
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err("expected names of nodes, like gpu1,gpu2, or how many".to_owned());
    }
    Ok(NodeChoice::Named(names))
}

/// Reads `NAME=VALUE`, or `NAME` with the value that it has here.
fn variable(text: &str) -> Result<(String, OsString), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, OsString::from(value)),
        None => (text, std::env::var_os(text).ok_or_else(|| format!("{text} is not set here"))?),
    };
    if name.is_empty() { Err("expected a name".to_owned()) } else { Ok((name.to_owned(), value)) }
}

impl LaunchArgs {
    fn size(&self) -> LaunchSize {
        let ranks = self.ranks.or(self.min).unwrap_or(1);
        let elastic = self.min.is_some() || self.max.is_some() || self.reset_limit.is_some();
        let limits = ElasticLimits {
            min: self.min.unwrap_or(1),
            max: self.max.unwrap_or(ranks),
            reset_limit: self.reset_limit,
        };
        LaunchSize { ranks, elastic: elastic.then_some(limits), grace: self.grace }
    }

    fn is_on_domain(&self) -> bool {
        self.nodes.is_some() || !self.domain.is_default()
    }

    /// What the place of the ranks has no use for.
    fn check(&self) -> Result<(), Failure> {
        if self.is_on_domain() {
            let refused = self.cores.map(|_| anyhow!("--cores is for ranks on this machine"));
            return refused.map_or(Ok(()), |error| {
                Err(Failure::usage(error)
                    .hint("--cores-per-rank says how many cores a rank takes of its node"))
            });
        }
        let unused = [
            ("--cores-per-rank", self.cores_per_rank.is_some()),
            ("--env", !self.env.is_empty()),
            ("--directory", self.directory.is_some()),
        ];
        match unused.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::usage(anyhow!("{option} is for ranks on nodes of a domain"))
                .hint("--domain or --nodes starts them there")),
            None => Ok(()),
        }
    }

    async fn place(&self) -> Result<LaunchPlace, Failure> {
        if !self.is_on_domain() {
            let mut wrapper: Vec<OsString> = exec_shim::wrapper().into_iter().map(OsString::from).collect();
            if self.compat {
                let mut path = OsString::from("PYTHONPATH=");
                path.push(compat_path()?);
                wrapper.extend(["env".into(), path]);
            }
            return Ok(LaunchPlace::Here { wrapper, cores: self.cores });
        }
        let directory = match &self.directory {
            Some(directory) => std::path::absolute(directory),
            None => std::env::current_dir(),
        };
        let mut variables: Vec<_> =
            self.env.iter().map(|(name, value)| (name.into(), value.clone())).collect();
        if self.compat {
            variables.push(("PYTHONPATH".into(), compat_path()?));
        }
        let config = self.domain.fabric("launch", NodeKind::Main)?;
        Ok(LaunchPlace::Domain(DomainPlace {
            directory: directory.map_err(Failure::infrastructure)?,
            fabric: Fabric::start(config).await.map_err(start_failure)?,
            runtime: Handle::current(),
            nodes: self.nodes.clone().unwrap_or_default(),
            cores_per_rank: self.cores_per_rank.unwrap_or(1),
            variables,
        }))
    }
}

pub(crate) async fn run(args: LaunchArgs, output: Output) -> Result<(), Failure> {
    args.check()?;
    let mut stop = StopSignals::new()?;
    let place = args.place().await?;
    let fabric = match &place {
        LaunchPlace::Domain(domain) => Some(domain.fabric.clone()),
        LaunchPlace::Here { .. } => None,
    };
    let spec = LaunchSpec { size: args.size(), command: args.command, prefix: !args.no_prefix, place };
    let (started, control) = oneshot::channel::<LaunchControl>();
    let launched = tokio::task::spawn_blocking(move || {
        // The receiver waits until it has it.
        launch(&spec, |control| drop(started.send(control)), &mut |notice| tell(&notice, output))
    });
    let summary = ended(launched, control.await.ok(), &mut stop).await;
    if let Some(fabric) = fabric {
        fabric.shutdown().await;
    }
    let summary = summary?.map_err(|error| {
        let hint = error.hint();
        Failure::usage(error).hint_if(hint)
    })?;
    let (failure, code) = (summary.failure, summary.exit_code);
    if output == Output::Json {
        output.print(&Summary(summary))?;
    }
    match failure {
        None => Ok(()),
        Some(failure) => Err(Failure::work(anyhow!(told(failure))).exit_code(code)),
    }
}

/// Where interpreters of ranks find the packages of other tools, as `PYTHONPATH` has it. Only the command of the Python
/// package has them.
fn compat_path() -> Result<OsString, Failure> {
    let program = own_program();
    let package = program.words().last().map(Path::new).and_then(Path::parent);
    let site = package.map(|package| package.join("compat").join("_site")).filter(|site| site.is_dir());
    let site = site.ok_or_else(|| {
        let missing = anyhow!("--compat needs the command `phalanx` of the Python package");
        Failure::usage(missing).hint_if(Some("say: python -m phalanx launch --compat …"))
    })?;
    let mut path = site.into_os_string();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    Ok(path)
}

/// Waits for the end of a launch, and passes on what it is asked meanwhile.
async fn ended(
    mut launched: JoinHandle<Result<LaunchSummary, LaunchError>>,
    control: Option<LaunchControl>,
    stop: &mut StopSignals,
) -> Result<Result<LaunchSummary, LaunchError>, Failure> {
    loop {
        tokio::select! {
            ended = &mut launched => return ended.map_err(Failure::infrastructure),
            () = stop.next() => control.iter().for_each(LaunchControl::interrupt),
        }
    }
}

/// Tells on standard error what ranks wait for and where they run.
fn tell(notice: &LaunchNotice, output: Output) {
    if output == Output::Quiet {
        return;
    }
    let line = match notice {
        LaunchNotice::Waiting { reason, .. } => {
            let hint = reason.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("waiting: {reason}{hint}")
        }
        LaunchNotice::Placed { nodes } => {
            let placed = nodes.iter().map(|(rank, node)| format!("rank {rank} on {node}"));
            format!("placed: {}", placed.collect::<Vec<_>>().join(", "))
        }
        LaunchNotice::NodeLost { worker, node } => format!("lost: rank {worker} with node {node}"),
    };
    say(&line);
}

fn told(failure: LaunchFailure) -> String {
    let ended = |exit: ProcessExit| match exit {
        ProcessExit::Code(code) => format!("exit code {code}"),
        ProcessExit::Signal(signal) => format!("signal {signal}"),
        ProcessExit::Lost => "the loss of its node".to_owned(),
    };
    match failure {
        LaunchFailure::Process { worker, exit } => {
            format!("rank {worker} ended with {}; all others were ended", ended(exit))
        }
        LaunchFailure::TooFew { left, min, exit } => {
            format!("{left} ranks are left and {min} are needed; the last ended with {}", ended(exit))
        }
        LaunchFailure::ResetLimit { limit, exit } => {
            format!("ranks were lost more than {limit} times; the last ended with {}", ended(exit))
        }
        LaunchFailure::Interrupted => "interrupted; all ranks were ended".to_owned(),
    }
}
