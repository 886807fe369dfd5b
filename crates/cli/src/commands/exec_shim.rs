//! Ties a command to the life of the node that runs it: `kill -9` of the node ends it too.

use crate::failure::Failure;
use anyhow::{Context, anyhow};
use clap::Args;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[derive(Debug, Args)]
pub(crate) struct ExecShimArgs {
    /// The process that must live.
    parent: u32,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Asks the kernel to kill this process when its parent ends; `false` when it has ended already.
pub(crate) fn die_with_parent(parent: u32, signal: rustix::process::Signal) -> Result<bool, Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Failure::infrastructure)?;
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    Ok(now == Some(parent))
}

pub(crate) fn run(args: &ExecShimArgs) -> Result<(), Failure> {
    if !die_with_parent(args.parent, rustix::process::Signal::KILL)? {
        return Err(Failure::infrastructure(anyhow!("the node that started this has ended")));
    }
    let (program, rest) = args.command.split_first().ok_or_else(|| Failure::usage(anyhow!("no command")))?;
    let error = Command::new(program).args(rest).exec();
    Err::<(), _>(error).with_context(|| format!("could not execute {program}")).map_err(Failure::usage)
}
