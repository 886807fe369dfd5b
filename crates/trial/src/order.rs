//! What an order must be, before anything is done for it.

use crate::error::TrialError;
use phalanx_train::config::RunConfig;
use phalanx_wire::trial::{TrialOrder, TrialTask, TrialWork};

/// The longest name of a value, a gene or a search.
const MAX_NAME: usize = 256;
/// The most values, genes, arguments or files of an order.
const MAX_COUNT: usize = 4096;
/// The longest run file, file of layers or argument.
const MAX_TEXT: usize = 16 << 20;
const MAX_CORES: u32 = 4096;
const MAX_LATENCY_TRIALS: u32 = 1_000_000;
/// The largest budget. Fractions of a pass can be told apart up to here.
const MAX_BUDGET: f64 = 1e9;

/// Why an order cannot be carried out by any node.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    #[error(
        "a trial goes from a budget of at least 0 to a greater one, within a whole training: not from {from} to {to} of {full}"
    )]
    Budget { from: f64, to: f64, full: f64 },
    #[error("a trial uses from 1 to {MAX_CORES} cores, not {cores}")]
    Cores { cores: u32 },
    #[error("{what} of a trial must be {wanted}")]
    Part { what: &'static str, wanted: &'static str },
}

/// Checks what does not depend on a node.
pub(crate) fn check(order: &TrialOrder) -> Result<(), OrderError> {
    let TrialOrder { from, to, full, cores, .. } = *order;
    let sound = from >= 0.0 && from < to && to <= full && full <= MAX_BUDGET;
    if !sound {
        return Err(OrderError::Budget { from, to, full });
    }
    if !(1..=MAX_CORES).contains(&cores) {
        return Err(OrderError::Cores { cores });
    }
    let wrong = |what, wanted| Err(OrderError::Part { what, wanted });
    if order.latency_trials > MAX_LATENCY_TRIALS {
        return wrong("the runs for latency", "at most a million");
    }
    if !is_name(&order.search) {
        return wrong("the search", "a short name");
    }
    if order.values.len() > MAX_COUNT || !order.values.iter().all(|name| is_name(name)) {
        return wrong("the values", "short names, at most 4096 of them");
    }
    check_work(&order.work)
}

fn check_work(work: &TrialWork) -> Result<(), OrderError> {
    let wrong = |what, wanted| Err(OrderError::Part { what, wanted });
    match work {
        TrialWork::Train { run, model } => {
            let model = model.as_ref().map_or(0, String::len);
            match run.len().max(model) > MAX_TEXT {
                true => wrong("the run file and the layers", "texts of at most 16 MiB"),
                false => Ok(()),
            }
        }
        TrialWork::Program { argv, genes } => {
            let words = argv.iter().chain(genes.values());
            let sound = |word: &String| word.len() <= MAX_TEXT && !word.contains('\0');
            if argv.first().is_none_or(String::is_empty) || argv.len() > MAX_COUNT {
                return wrong("the command", "a program and at most 4095 arguments");
            }
            if genes.len() > MAX_COUNT || !genes.keys().all(|name| is_name(name)) {
                return wrong("the genes", "short names with values, at most 4096 of them");
            }
            match words.into_iter().all(sound) {
                true => Ok(()),
                false => wrong("arguments and genes", "texts without a zero byte"),
            }
        }
    }
}

/// Checks a task that came from a peer.
pub(crate) fn check_task(task: &TrialTask) -> Result<(), OrderError> {
    check(&task.order)?;
    let sound = task.files.len() <= MAX_COUNT && task.files.iter().all(|file| is_name(&file.key));
    match sound {
        true => Ok(()),
        false => Err(OrderError::Part { what: "the files", wanted: "named by keys of the run file" }),
    }
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.contains(['\0', '\n', '='])
}

/// Checks that one node can train this in passes of known length.
pub(crate) fn check_run(config: &RunConfig) -> Result<(), TrialError> {
    if config.formation.is_distributed() {
        return Err(TrialError::Unsuitable { asked: "several nodes: leave out [formation]" });
    }
    if config.data.stream.is_some() {
        return Err(TrialError::Unsuitable { asked: "a stream: name files in [data]" });
    }
    Ok(())
}
