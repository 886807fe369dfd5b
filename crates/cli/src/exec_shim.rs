//! Ties a job's command to the life of the node that runs it: `kill -9` of the node ends it too.
//!
//! The node starts this binary, which asks the kernel to be killed with its parent and then
//! becomes the command.

use crate::failure::Failure;
use anyhow::anyhow;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

const NAME: &str = "exec-shim";

/// What a node puts before each command.
pub(crate) fn wrapper() -> Vec<String> {
    let me = crate::own_program::own_program();
    let words = me.words().map(|word| word.to_string_lossy().into_owned());
    words.chain([NAME.to_owned(), std::process::id().to_string()]).collect()
}

/// Becomes the command if this process was started by [`wrapper`]; comes back only if it cannot.
pub(crate) fn run_if_asked(arguments: &[OsString]) -> Option<Failure> {
    let mut words = arguments.iter().cloned();
    (words.next()? == NAME).then(|| become_command(words))
}

fn become_command(mut words: impl Iterator<Item = OsString>) -> Failure {
    let parent = words.next().and_then(|p| p.to_str()?.parse().ok());
    let (Some(parent), Some(program)) = (parent, words.next()) else {
        return Failure::usage(anyhow!("{NAME} is for the node's own use"));
    };
    match die_with_parent(parent, rustix::process::Signal::KILL) {
        Err(failure) => failure,
        Ok(false) => Failure::infrastructure(anyhow!("the node that started this has ended")),
        Ok(true) => {
            let error = Command::new(&program).args(words).exec();
            let what = format!("could not execute {}", program.display());
            Failure::usage(anyhow::Error::new(error).context(what))
        }
    }
}

/// Asks the kernel to signal this process when its parent ends; `false` when it has ended already.
pub(crate) fn die_with_parent(parent: u32, signal: rustix::process::Signal) -> Result<bool, Failure> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(signal)).map_err(Failure::infrastructure)?;
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
    Ok(has_parent(parent))
}

/// Whether this process is still a child of that one.
pub(crate) fn has_parent(parent: u32) -> bool {
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    now == Some(parent)
}
