//! `phalanx launch`: ranks of one's own program.

use crate::args::duration;
use crate::exec_shim;
use crate::failure::Failure;
use crate::output::{Output, Render};
use crate::own_program::own_program;
use crate::stop::StopSignals;
use anyhow::anyhow;
use clap::Args;
use phalanx_launch::{
    ElasticLimits, LaunchControl, LaunchFailure, LaunchSize, LaunchSpec, LaunchSummary, ProcessExit, launch,
};
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Debug, Args)]
#[command(
    after_help = "Ranks find each other by the variables that they are started with, and compute together by the
operations of the Phalanx library. What they print gets the number of the rank in front.
When a rank fails all others are ended, and the exit code is that of the first failure. With --min or --max the
program is elastic: a rank that dies is started again, and the others are told, form a new group and go on.

Examples:
  phalanx launch -n 4 -- python train.py --epochs 3
  phalanx launch -n 4 --min 2 --reset-limit 10 -- python train.py    goes on without ranks that die
  phalanx launch -n 2 --compat -- python train.py                    a program that imports horovod"
)]
pub(crate) struct LaunchArgs {
    /// How many ranks to start on this machine.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    ranks: u32,
    /// Elastic: the fewest ranks that go on.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    min: Option<u32>,
    /// Elastic: the most ranks at a time.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
    /// Elastic: how often ranks may be lost before all ends; any number when not given.
    #[arg(long, value_name = "COUNT")]
    reset_limit: Option<u32>,
    /// How long ranks may take to end by themselves before they are killed.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    grace: Duration,
    /// How many cores the ranks share; all of this machine when not given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// Pass lines on without the number of the rank.
    #[arg(long)]
    no_prefix: bool,
    /// Let Python programs import packages of other tools, such as horovod, from Phalanx.
    #[arg(long)]
    compat: bool,
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

pub(crate) async fn run(args: LaunchArgs, output: Output) -> Result<(), Failure> {
    let elastic =
        (args.min.is_some() || args.max.is_some() || args.reset_limit.is_some()).then_some(ElasticLimits {
            min: args.min.unwrap_or(1),
            max: args.max.unwrap_or(args.ranks),
            reset_limit: args.reset_limit,
        });
    let mut wrapper: Vec<OsString> = exec_shim::wrapper().into_iter().map(OsString::from).collect();
    if args.compat {
        wrapper.extend(["env".into(), compat_path()?]);
    }
    let spec = LaunchSpec {
        size: LaunchSize { ranks: args.ranks, elastic, grace: args.grace },
        command: args.command,
        wrapper,
        cores: args.cores,
        prefix: !args.no_prefix,
    };
    let mut stop = StopSignals::new()?;
    let (started, control) = oneshot::channel::<LaunchControl>();
    let mut launched = tokio::task::spawn_blocking(move || {
        // The receiver waits until it has it.
        launch(&spec, |control| drop(started.send(control)))
    });
    let control = control.await.ok();
    let summary = loop {
        tokio::select! {
            ended = &mut launched => break ended.map_err(Failure::infrastructure)?,
            () = stop.next() => control.iter().for_each(LaunchControl::interrupt),
        }
    };
    let summary = summary.map_err(|error| {
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

/// The variable by which interpreters of ranks find the packages of other tools. Only the command of the Python package
/// has them.
fn compat_path() -> Result<OsString, Failure> {
    let program = own_program();
    let package = program.words().last().map(Path::new).and_then(Path::parent);
    let site = package.map(|package| package.join("compat").join("_site")).filter(|site| site.is_dir());
    let site = site.ok_or_else(|| {
        let missing = anyhow!("--compat needs the command `phalanx` of the Python package");
        Failure::usage(missing).hint_if(Some("say: python -m phalanx launch --compat …"))
    })?;
    let mut path = OsString::from("PYTHONPATH=");
    path.push(site);
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|before| !before.is_empty()) {
        path.push(":");
        path.push(before);
    }
    Ok(path)
}

fn told(failure: LaunchFailure) -> String {
    let ended = |exit: ProcessExit| match exit {
        ProcessExit::Code(code) => format!("exit code {code}"),
        ProcessExit::Signal(signal) => format!("signal {signal}"),
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
