//! Checks that a model can be computed in the batches it will get.

use crate::config::RunConfig;
use crate::error::TrainError;
use phalanx_graph::{Graph, Node, Op};

/// The batch size of a model, if it is fixed.
pub fn fixed_batch(graph: &Graph) -> Option<usize> {
    graph.shape(*graph.inputs.first()?).dims().first()?.fixed()
}

/// Checks every batch size of a pass over `samples` samples.
pub(super) fn check(graph: &Graph, config: &RunConfig, samples: usize) -> Result<(), TrainError> {
    let (batch, drop_last) = (config.train.batch, config.data.drop_last);
    let rest = if drop_last { 0 } else { samples % batch.max(1) };
    if let Some(model) = fixed_batch(graph) {
        if batch != model {
            return Err(TrainError::FixedBatch { model, batch });
        }
        if rest != 0 {
            return Err(TrainError::PartialBatch { model, samples, rest });
        }
    }
    let smallest = if rest == 0 { batch } else { rest };
    let alone = graph.nodes.iter().find(|node| has_one_row(graph, node, smallest));
    match alone {
        Some(node) => Err(TrainError::OneRow { node: node.name.clone(), samples, batch }),
        None => Ok(()),
    }
}

/// A node that cannot compute a single sample.
pub fn needs_several(graph: &Graph) -> Option<&Node> {
    graph.nodes.iter().find(|node| has_one_row(graph, node, 1))
}

/// Whether a node needs a variance but has only one value per channel.
fn has_one_row(graph: &Graph, node: &Node, batch: usize) -> bool {
    let Some(input) = node.inputs.first().filter(|_| matches!(node.op, Op::BatchNorm { .. })) else {
        return false;
    };
    let shape = graph.shape(*input).at(batch);
    let rows = shape.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, d)| *d);
    rows.fold(1, usize::saturating_mul) <= 1
}
