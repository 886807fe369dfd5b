//! Checks that the last layer of a model fits the loss.

use phalanx_engine::Loss;
use phalanx_graph::{Graph, Node, Op, Unary, ValueId};

/// A note for the user if the last layer and the loss do the same thing twice.
pub(super) fn note(graph: &Graph, loss: Loss) -> Option<String> {
    let [output] = graph.outputs.as_slice() else { return None };
    let last = last_layer(graph, *output)?;
    let name = &last.name;
    match (&last.op, loss) {
        (Op::Softmax { axis }, Loss::CrossEntropy { .. }) => {
            let least = classes(graph, last, *axis).map_or_else(String::new, |classes| {
                // The least log-sum-exp minus the maximum for numbers from 0 to 1 that add up to 1.
                let least = ((classes - 1.0) / std::f64::consts::E).ln_1p();
                format!(" and the loss cannot fall below {least:.2}")
            });
            Some(format!(
                "the model ends in Softmax `{name}`, and `cross_entropy` applies softmax itself: training will be \
                 slow{least}; leave that layer out, or end in LogSoftmax with loss = \"nll\" (\"mse\" takes \
                 probabilities as they are)"
            ))
        }
        (Op::Softmax { .. }, Loss::Nll) => Some(format!(
            "the model ends in Softmax `{name}`, but `nll` takes logarithms of probabilities: the loss will be \
             negative and training slow; end in LogSoftmax, or leave that layer out with loss = \"cross_entropy\""
        )),
        (Op::Unary(Unary::Sigmoid), Loss::BceWithLogits) => {
            let least = (-1.0_f64).exp().ln_1p();
            Some(format!(
                "the model ends in Sigmoid `{name}`, and `bce_with_logits` applies sigmoid itself: training will be \
                 slow and the loss cannot fall below {least:.2}; leave that layer out, or use loss = \"bce\", which \
                 takes probabilities"
            ))
        }
        _ => None,
    }
}

/// The node that computes the numbers of a value, ignoring nodes that only rearrange them.
fn last_layer(graph: &Graph, mut value: ValueId) -> Option<&Node> {
    loop {
        let node = graph.nodes.iter().find(|node| node.outputs.contains(&value))?;
        match node.op {
            Op::Reshape { .. } | Op::Transpose { .. } => value = *node.inputs.first()?,
            _ => return Some(node),
        }
    }
}

/// The number of classes that add up to 1.
fn classes(graph: &Graph, softmax: &Node, axis: usize) -> Option<f64> {
    let size = graph.shape(*softmax.outputs.first()?).dims().get(axis)?.fixed()?;
    Some(size as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_engine::{Target, Threads};
    use phalanx_graph::Builder;

    const CROSS_ENTROPY: Loss = Loss::CrossEntropy { smoothing: 0.0 };

    /// A layer of ten outputs, followed by `end`.
    fn graph(end: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> Graph {
        let mut b = Builder::new("small");
        let x = b.input("x", &[4]);
        let x = b.linear("fc", x, 10);
        let x = end(&mut b, x);
        b.output(x);
        b.finish().unwrap()
    }

    fn log_softmax(b: &mut Builder, x: ValueId) -> ValueId {
        b.op("log_softmax_1", Op::LogSoftmax { axis: 1 }, &[x])
    }

    fn sigmoid(b: &mut Builder, x: ValueId) -> ValueId {
        b.unary(x, Unary::Sigmoid)
    }

    #[test]
    fn softmax_under_cross_entropy_is_told_also_behind_a_reshape() {
        let plain = graph(Builder::softmax);
        let arranged = graph(|b, x| {
            let x = b.softmax(x);
            let x = b.reshape(x, &[2, 5]);
            let x = b.transpose(x, &[0, 2, 1]);
            b.flatten(x)
        });
        for graph in [plain, arranged] {
            let note = note(&graph, Loss::CrossEntropy { smoothing: 0.1 }).unwrap();
            for words in ["Softmax `softmax_1`", "cannot fall below 1.46", "LogSoftmax", "\"nll\""] {
                assert!(note.contains(words), "{words} is not in {note}");
            }
            assert_eq!(super::note(&graph, Loss::Mse), None);
        }
    }

    #[test]
    fn softmax_under_nll_and_sigmoid_under_logits_are_told() {
        let told = note(&graph(Builder::softmax), Loss::Nll).unwrap();
        assert!(told.contains("`nll` takes logarithms") && told.contains("\"cross_entropy\""), "{told}");
        let told = note(&graph(sigmoid), Loss::BceWithLogits).unwrap();
        assert!(told.contains("Sigmoid `sigmoid_1`") && told.contains("below 0.31"), "{told}");
        assert!(told.contains("\"bce\", which takes probabilities"), "{told}");
    }

    #[test]
    fn nothing_is_told_of_models_that_end_as_their_loss_expects() {
        let inside = graph(|b, x| {
            let x = b.softmax(x);
            let x = sigmoid(b, x);
            b.linear("head", x, 10)
        });
        for loss in [CROSS_ENTROPY, Loss::Nll, Loss::BceWithLogits] {
            assert_eq!(note(&inside, loss), None);
            assert_eq!(note(&graph(|_, x| x), loss), None);
        }
        // Cross-entropy leaves log-probabilities unchanged.
        assert_eq!(note(&graph(log_softmax), Loss::Nll), None);
        assert_eq!(note(&graph(log_softmax), CROSS_ENTROPY), None);
        assert_eq!(note(&graph(sigmoid), Loss::Bce), None);
        let identity = Graph { outputs: graph(|_, x| x).inputs, ..graph(|_, x| x) };
        assert_eq!(note(&identity, CROSS_ENTROPY), None);
    }

    #[test]
    fn reported_bounds_match_the_losses() {
        let threads = Threads::new(1);
        let loss = |loss: Loss, output: &[f32], target: &[f32]| {
            let (shape, target_shape) = ([1, output.len()], [1, target.len()]);
            let target = Target { data: target, shape: &target_shape };
            loss.evaluate(&threads, output, &shape, target, 1.0, None).unwrap()
        };
        let mut certain = [0.0; 10];
        certain[3] = 1.0;
        let least = loss(CROSS_ENTROPY, &certain, &certain);
        assert!((least - (9.0 / std::f64::consts::E).ln_1p()).abs() < 1e-6, "{least}");
        assert!(note(&graph(Builder::softmax), CROSS_ENTROPY).unwrap().contains(&format!("{least:.2}")));
        let least = loss(Loss::BceWithLogits, &[1.0], &[1.0]);
        assert!((least - (-1.0_f64).exp().ln_1p()).abs() < 1e-6, "{least}");
    }
}
