//! Checks that a run fits into the memory of this machine, before anything is allocated.

use crate::config::TrainConfig;
use crate::error::TrainError;
use phalanx_graph::Graph;
use phalanx_types::ByteSize;

/// Refuses a run that needs more memory than there is.
pub(super) fn check(graph: &Graph, train: &TrainConfig) -> Result<(), TrainError> {
    compare(needed(graph, train), phalanx_data::memory())
}

fn compare(needed: u64, have: Option<ByteSize>) -> Result<(), TrainError> {
    match have {
        Some(have) if needed > have.0 => Err(TrainError::Memory { needed: ByteSize(needed), have }),
        _ => Ok(()),
    }
}

/// An estimate; recomputed activations do not count.
fn needed(graph: &Graph, train: &TrainConfig) -> u64 {
    of_batch(graph, train, train.batch)
}

/// The same with this many samples at once.
pub(super) fn of_batch(graph: &Graph, train: &TrainConfig, batch: usize) -> u64 {
    let per_parameter = 4 * train.optimizer.state_names().len() as u64;
    let batch = if train.recompute { 1 } else { batch as u64 };
    graph.cost().training_bytes(batch, per_parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let have = Some(ByteSize(2 << 20));
        assert!(compare(2 << 20, have).is_ok());
        assert!(matches!(compare((2 << 20) + 1, have), Err(TrainError::Memory { .. })));
        assert!(compare(u64::MAX, None).is_ok());
    }
}
