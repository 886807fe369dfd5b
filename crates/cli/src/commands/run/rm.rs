//! `phalanx run rm`.

use super::run_path;
use crate::commands::ledger::forget;
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_records::run_dir::{RUN_FILE, RunDir, is_run, run_uid};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx run rm first
  phalanx run rm runs/2026-11-16-141502-3fa9 second --yes")]
pub(crate) struct RemoveArgs {
    /// Runs: their directories, or their names in runs/. A run that is being trained stays.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// What is deleted, or was.
#[derive(Debug, Serialize)]
struct Removed {
    run: PathBuf,
    files: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct AllRemoved(Vec<Removed>);

impl Removed {
    fn shown(&self) -> String {
        let Self { run, files, bytes } = self;
        format!("{}: {files} files, {}", run.display(), phalanx_types::ByteSize(*bytes))
    }
}

impl Render for AllRemoved {
    fn table(&self) -> String {
        self.0.iter().map(|removed| format!("deleted {}", removed.shown())).collect::<Vec<_>>().join("\n")
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|removed| removed.run.display().to_string()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &RemoveArgs, output: Output) -> Result<(), Failure> {
    // All or nothing: every run is looked at, and held, before the first is deleted.
    let mut held = Vec::new();
    for given in &args.runs {
        let path = run_path(given);
        if held.iter().any(|(_, removed): &(RunDir, Removed)| removed.run == path) {
            continue;
        }
        // Fails for a run that is being trained; from here on no process can begin to.
        let dir = RunDir::open(&path).map_err(train_failure)?;
        let (files, bytes) = size_of(&path);
        held.push((dir, Removed { run: path, files, bytes }));
    }
    if !args.yes {
        let removed: Vec<&Removed> = held.iter().map(|(_, removed)| removed).collect();
        ask(&removed)?;
    }
    let mut done = Vec::new();
    for (dir, removed) in held {
        let uid = run_uid(dir.path()).ok();
        delete(dir.path()).map_err(Failure::infrastructure)?;
        drop(dir);
        forget(&removed.run, uid.as_deref());
        done.push(removed);
    }
    output.print(&AllRemoved(done))
}

/// Deletes a directory; the run file goes first, so that what is left after a kill is no run.
fn delete(run: &Path) -> anyhow::Result<()> {
    let failed = || format!("could not delete {}", run.display());
    std::fs::remove_file(run.join(RUN_FILE)).with_context(failed)?;
    std::fs::remove_dir_all(run).with_context(failed)?;
    debug_assert!(!is_run(run));
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a question to the user, who answers on the terminal")]
fn ask(removed: &[&Removed]) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        let all: Vec<String> = removed.iter().map(|removed| removed.shown()).collect();
        let error = anyhow!("this deletes {}", all.join("; "));
        return Err(Failure::usage(error).hint("add --yes"));
    }
    for removed in removed {
        eprintln!("{}", removed.shown());
    }
    eprint!("delete with all checkpoints and models? [y/N] ");
    let mut answer = String::new();
    let flushed = std::io::stderr().flush();
    let read = flushed.and_then(|()| std::io::stdin().lock().read_line(&mut answer));
    read.map_err(Failure::infrastructure)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::usage(anyhow!("nothing was deleted"))),
    }
}

/// The files of a directory and their bytes.
fn size_of(dir: &Path) -> (u64, u64) {
    let mut total = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let (files, bytes) = match kind.is_dir() {
            true => size_of(&entry.path()),
            false => (1, entry.metadata().map_or(0, |file| file.len())),
        };
        total = (total.0 + files, total.1 + bytes);
    }
    total
}
