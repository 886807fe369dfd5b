//! What is to be submitted: from the options, or from a journal.

use super::submit::{STDIN, SubmitArgs, main_failure};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use phalanx_jobs::{JobSpec, JournalError, builtin, read_journal};
use phalanx_types::{Needs, Parcel};
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// The job that is submitted `count` times; none when a journal says what to do.
pub(super) fn spec(args: &SubmitArgs) -> Result<Option<JobSpec>, Failure> {
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

/// The kinds of job in a journal that says what to do.
pub(super) fn unfinished_journal(path: &Path) -> Result<BTreeSet<SmolStr>, Failure> {
    match read_journal(path) {
        Ok(history) => Ok(history.jobs.into_values().map(|job| job.spec.kind).collect()),
        Err(JournalError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            let error = anyhow!("there is no journal {} to go on from", path.display());
            Err(Failure::usage(error).hint("give --kind to submit jobs, or another --journal"))
        }
        Err(error) => Err(main_failure(error.into())),
    }
}

/// Refuses a journal of other jobs than these before anything is done with it.
pub(super) fn check_journal(path: &Path, spec: &JobSpec, count: u64) -> Result<(), Failure> {
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
    if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("could not read the payload from standard input")?;
        return Ok(bytes);
    }
    std::fs::read(path).with_context(|| format!("could not read the payload from {}", path.display()))
}
