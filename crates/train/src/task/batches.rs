//! Whether a model can be computed in the batches that it will get.

use crate::config::RunConfig;
use crate::error::TrainError;
use phalanx_graph::{Graph, Node, Op};

/// The batch that a model is made for, if it takes no other.
pub fn fixed_batch(graph: &Graph) -> Option<usize> {
    graph.shape(*graph.inputs.first()?).dims().first()?.fixed()
}

/// Checks every batch that a pass over so many samples has.
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

/// A node that cannot do with one sample at a time.
pub fn needs_several(graph: &Graph) -> Option<&Node> {
    graph.nodes.iter().find(|node| has_one_row(graph, node, 1))
}

/// Whether a node needs the spread of values of which there is one per channel.
fn has_one_row(graph: &Graph, node: &Node, batch: usize) -> bool {
    let Some(input) = node.inputs.first().filter(|_| matches!(node.op, Op::BatchNorm { .. })) else {
        return false;
    };
    let shape = graph.shape(*input).at(batch);
    let rows = shape.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, d)| *d);
    rows.fold(1, usize::saturating_mul) <= 1
}
