//! Checks that outputs and labels can be compared, and what they mean.

use super::{check_input, fixed_batch};
use crate::error::{Dims, TrainError};
use phalanx_data::{Dataset, Extent, LabelCheck, Target as LabelsAre, Transform};
use phalanx_engine::{Loss, Metric, Objective, Target, Threads};
use phalanx_graph::Graph;

/// How the labels of a dataset fit the outputs of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The shape of one label, transformed.
    pub y_shape: Vec<usize>,
    /// The shape of one sample's output.
    pub output: Vec<usize>,
    /// The number of classes, if labels are classes.
    pub classes: Option<usize>,
    /// The requirement for labels, for [`Dataset::with_label_check`].
    pub labels: LabelCheck,
}

/// How many labels are checked before a run starts; the rest are checked as they are read.
const LABELS_AT_FIRST: usize = 256;

impl Fit {
    /// Checks samples and labels against a model and a loss.
    ///
    /// Some labels, spread from the first to the last, are checked here, so that most mistakes are reported before
    /// anything is written. All others are checked as they are read, by a dataset with [`Fit::labels`] as its check.
    ///
    /// # Errors
    /// They do not fit, or a label is not one of the classes.
    pub fn new(
        graph: &Graph,
        data: &Dataset,
        transform: &Transform,
        objective: &Objective,
        threads: &Threads,
    ) -> Result<Self, TrainError> {
        check_input(graph, data, transform)?;
        let prepared = transform.prepare(data)?;
        let no_labels = || TrainError::NoLabels { origin: data.origin().to_string() };
        let y_shape = prepared.y_shape().ok_or_else(no_labels)?.to_vec();
        let [output] = graph.outputs.as_slice() else {
            return Err(TrainError::Outputs { count: graph.outputs.len() });
        };
        // Two samples if possible, so that the batch is not mistaken for an axis that may be dropped.
        let batch = fixed_batch(graph).unwrap_or(2);
        let output = graph.shape(*output).at(batch);
        let target: Vec<usize> = std::iter::once(batch).chain(y_shape.iter().copied()).collect();
        let fits = match objective {
            Objective::Named(loss) => accepts(*loss, &output, &target, threads),
            // A custom loss checks its own inputs.
            Objective::Own(_) => true,
        };
        let output = output.get(1..).unwrap_or_default().to_vec();
        if !fits {
            let (loss, target) = (name_of(objective), Dims(y_shape));
            return Err(TrainError::TargetShape { loss, output: Dims(output), target });
        }
        let classes = match (transform.one_hot, objective) {
            (Some(classes), _) => Some(classes),
            (None, Objective::Named(loss)) => classes(&output, &y_shape, *loss),
            (None, Objective::Own(_)) if data.target() == LabelsAre::Classes => {
                classes(&output, &y_shape, Loss::Mse)
            }
            (None, Objective::Own(_)) => None,
        };
        let labels = match (classes, objective.named()) {
            (Some(classes), _) => LabelCheck::Classes(classes),
            (None, Some(Loss::Bce | Loss::BceWithLogits)) => LabelCheck::Shares,
            (None, _) => LabelCheck::Finite,
        };
        if matches!(data.extent(), Extent::Fixed(_)) {
            data.check_labels(labels, LABELS_AT_FIRST)?;
        }
        Ok(Self { y_shape, output, classes, labels })
    }

    /// The metrics to compute: those the user asked for, and accuracy wherever it is meaningful.
    pub fn metrics(&self, objective: &Objective, asked: &[Metric]) -> Vec<Metric> {
        let single = self.output.iter().product::<usize>() == 1;
        let usual = match objective.named() {
            Some(Loss::Bce) if single => Some(Metric::BinaryAccuracy { threshold: 0.5 }),
            Some(Loss::BceWithLogits) if single => Some(Metric::BinaryAccuracy { threshold: 0.0 }),
            Some(Loss::CrossEntropy { .. } | Loss::Nll) => Some(Metric::Accuracy),
            _ => self.classes.map(|_| Metric::Accuracy),
        };
        let more = asked.iter().copied().filter(|metric| Some(*metric) != usual);
        usual.into_iter().chain(more).collect()
    }
}

/// Whether a loss accepts these outputs with these labels.
fn accepts(loss: Loss, output: &[usize], target: &[usize], threads: &Threads) -> bool {
    let zeros = |shape: &[usize]| vec![0.0; shape.iter().product()];
    let (y, outputs) = (zeros(target), zeros(output));
    loss.evaluate(threads, &outputs, output, Target { data: &y, shape: target }, 1.0, None).is_ok()
}

/// The name of a loss in a run file; a custom loss has the user's name.
pub(crate) fn name_of(objective: &Objective) -> String {
    let loss = match objective {
        Objective::Named(loss) => loss,
        Objective::Own(own) => return own.name().to_owned(),
    };
    let json = serde_json::to_value(loss).unwrap_or_default();
    json["name"].as_str().or(json.as_str()).unwrap_or_default().to_owned()
}

/// The number of classes, if labels have the shape of outputs without the axis of classes, which is the last or the
/// first of a sample.
fn classes(output: &[usize], label: &[usize], loss: Loss) -> Option<usize> {
    let dense = |shape: &[usize]| shape.iter().copied().filter(|d| *d != 1).collect::<Vec<_>>();
    let of_classes = matches!(loss, Loss::CrossEntropy { .. } | Loss::Nll);
    if output == label || (!of_classes && dense(output) == dense(label)) {
        return None;
    }
    let without = |axis: usize| {
        let rest = output.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d);
        let one = output.iter().enumerate().map(|(i, d)| if i == axis { 1 } else { *d });
        rest.eq(label.iter().copied()) || one.eq(label.iter().copied())
    };
    let last = output.len().checked_sub(1)?;
    [last, 0].into_iter().find(|axis| without(*axis)).map(|axis| output[axis])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_on_the_last_axis_or_the_first() {
        let entropy = Loss::CrossEntropy { smoothing: 0.0 };
        for (output, label, loss, expected) in [
            (&[10][..], &[][..], entropy, Some(10)),
            (&[10], &[], Loss::Mse, Some(10)),
            (&[10], &[1], entropy, Some(10)),
            (&[10], &[10], Loss::Mse, None),
            (&[1], &[], Loss::Mse, None),
            (&[128, 1000], &[128], entropy, Some(1000)),
            (&[5, 8, 9], &[8, 9], entropy, Some(5)),
            (&[3, 4], &[3, 4], entropy, None),
        ] {
            assert_eq!(classes(output, label, loss), expected, "{output:?} {label:?} {loss:?}");
        }
    }

    #[test]
    fn losses_are_called_as_they_are_written() {
        assert_eq!(name_of(&Loss::Mse.into()), "mse");
        assert_eq!(name_of(&Loss::CrossEntropy { smoothing: 0.1 }.into()), "cross_entropy");
    }
}
