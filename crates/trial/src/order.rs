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

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::ByteSize;
    use phalanx_wire::trial::TrialFile;

    fn order() -> TrialOrder {
        TrialOrder {
            search: "s".to_owned(),
            trial: 1,
            attempt: 1,
            work: TrialWork::Program {
                argv: vec!["sh".to_owned()],
                genes: [("lr".to_owned(), "1".to_owned())].into(),
            },
            from: 0.0,
            to: 0.5,
            full: 1.0,
            values: vec!["accuracy".to_owned()],
            latency_trials: 3,
            cores: 1,
            memory: ByteSize(0),
            keep: true,
        }
    }

    #[test]
    fn budgets_ascend_within_a_whole_training() {
        assert_eq!(check(&order()), Ok(()));
        let budgets = [
            (-1.0, 1.0, 1.0),
            (0.5, 0.5, 1.0),
            (0.0, 2.0, 1.0),
            (0.0, 0.0, 0.0),
            (f64::NAN, 1.0, 1.0),
            (0.0, f64::NAN, 1.0),
            (0.0, 1.0, f64::NAN),
            (0.0, 1.0, f64::INFINITY),
        ];
        for (from, to, full) in budgets {
            assert!(matches!(
                check(&TrialOrder { from, to, full, ..order() }),
                Err(OrderError::Budget { .. })
            ));
        }
    }

    #[test]
    fn orders_of_a_hostile_peer_are_refused() {
        let program = |argv: &[&str]| TrialWork::Program {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            genes: [].into(),
        };
        let genes = |name: &str, value: &str| TrialWork::Program {
            argv: vec!["sh".to_owned()],
            genes: [(name.to_owned(), value.to_owned())].into(),
        };
        let wrong = [
            TrialOrder { cores: 0, ..order() },
            TrialOrder { cores: u32::MAX, ..order() },
            TrialOrder { latency_trials: u32::MAX, ..order() },
            TrialOrder { search: String::new(), ..order() },
            TrialOrder { values: vec!["x".repeat(257)], ..order() },
            TrialOrder { values: vec!["x".to_owned(); MAX_COUNT + 1], ..order() },
            TrialOrder { work: program(&[]), ..order() },
            TrialOrder { work: program(&[""]), ..order() },
            TrialOrder { work: program(&["sh", "a\0b"]), ..order() },
            TrialOrder { work: genes("a=b", "1"), ..order() },
            TrialOrder { work: genes("a", "\0"), ..order() },
            TrialOrder { work: TrialWork::Train { run: " ".repeat(MAX_TEXT + 1), model: None }, ..order() },
        ];
        for order in wrong {
            let order_words = format!("{:.200?}", order.values);
            assert!(check(&order).is_err(), "{order_words}");
        }
        let file = TrialFile { key: "a\nb".to_owned(), path: String::new(), bytes: 0, sha256: [0; 32] };
        assert!(check_task(&TrialTask { order: order(), files: vec![file] }).is_err());
    }
}
