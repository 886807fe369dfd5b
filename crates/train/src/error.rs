//! Why a run cannot start or go on.

use crate::config::ConfigError;
use crate::source::ModelError;
use crate::stream::FeedError;
use phalanx_data::DataError;
use phalanx_engine::{
    CompileError, DiagnoseReport, LossError, RunError, StageError, StateError as OptimizerError, WeightsError,
};
use phalanx_records::run_dir::RunDirError;
use phalanx_records::{Blame, RecordError, StateError};
use phalanx_types::{ByteSize, Class};
use std::fmt;

/// Why a run cannot start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Model(Box<ModelError>),
    #[error(transparent)]
    Data(Box<DataError>),
    #[error(transparent)]
    Feed(Box<FeedError>),
    #[error("this model cannot be trained")]
    Compile(#[from] CompileError),
    #[error("this part of the model cannot be trained")]
    Stage(#[from] StageError),
    #[error("weights do not fit the model")]
    Weights(#[from] WeightsError),
    #[error("the state of the optimizer does not fit the model")]
    OptimizerState(#[from] OptimizerError),
    #[error("the model could not be run")]
    Run(#[from] RunError),
    #[error("the loss could not be computed")]
    Loss(#[from] LossError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the model takes {count} inputs, but a source of samples has one")]
    Inputs { count: usize },
    #[error("the model has {count} outputs; training needs one")]
    Outputs { count: usize },
    #[error("samples of {origin} have shape {data}, but the model takes {model}")]
    InputShape { origin: String, data: Dims, model: Dims },
    #[error("{loss} cannot compare labels of shape {target} with outputs of shape {output}")]
    TargetShape { loss: String, output: Dims, target: Dims },
    #[error("the samples of {origin} have no labels")]
    NoLabels { origin: String },
    #[error(
        "there are fewer samples ({samples}) than one batch has ({batch}), and short batches are left out"
    )]
    NoBatch { samples: usize, batch: usize },
    #[error("the model is made for batches of {model}, not {batch}")]
    FixedBatch { model: usize, batch: usize },
    #[error("the model is made for batches of {model}, but the last batch of {samples} samples has {rest}")]
    PartialBatch { model: usize, samples: usize, rest: usize },
    #[error(
        "BatchNorm `{node}` needs more than one value per channel, but {samples} samples in batches of {batch} leave \
         a batch of one"
    )]
    OneRow { node: String, samples: usize, batch: usize },
    #[error("training needs about {needed} of memory, but this machine has {have}")]
    Memory { needed: ByteSize, have: ByteSize },
    #[error("{0}")]
    NotFinite(Box<NotFinite>),
    #[error("the checkpoint does not hold `{name}`")]
    MissingState { name: String },
    #[error(transparent)]
    State(#[from] StateError),
    #[error("the model is made for batches of {model}, but replicas share out every batch")]
    FixedReplicas { model: usize },
    #[error("the model is made for batches of {model}, and passes over a stream may end with a smaller one")]
    FixedStream { model: usize },
    #[error("`data.{what}` has {here} samples here, where the run is driven {there}")]
    OtherData { what: &'static str, here: u64, there: u64 },
}

impl From<RunDirError> for TrainError {
    fn from(error: RunDirError) -> Self {
        Self::Record(error.into())
    }
}

impl From<DataError> for TrainError {
    fn from(error: DataError) -> Self {
        Self::Data(Box::new(error))
    }
}

impl From<FeedError> for TrainError {
    fn from(error: FeedError) -> Self {
        Self::Feed(Box::new(error))
    }
}

impl From<ModelError> for TrainError {
    fn from(error: ModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

impl TrainError {
    pub fn class(&self) -> Class {
        match self {
            Self::Config(error) => error.class(),
            Self::Data(error) => error.class(),
            Self::Record(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFinite(_) => Blame::Work,
            Self::Record(error) => error.blame(),
            Self::Feed(error) => error.blame(),
            Self::Data(error) if matches!(**error, DataError::Thread { .. } | DataError::ReaderDied) => {
                Blame::Machine
            }
            _ => Blame::Input,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Config(error) => return error.hint(),
            Self::Data(error) => return error.hint(),
            Self::Feed(error) => return error.hint(),
            Self::Record(error) => return error.hint(),
            Self::Model(error) => return error.hint(),
            Self::InputShape { data, model, .. } if data.order_for(model).is_some() => {
                let order = data.order_for(model).unwrap_or_default();
                let axes: String = order.iter().map(|axis| format!(", {}", axis + 1)).collect();
                format!("the axes are in another order; write the file with them transposed, in NumPy x.transpose(0{axes})")
            }
            Self::InputShape { data, model, .. } if data.elements() == model.elements() => {
                format!("say `reshape = {:?}` in [data]", model.0)
            }
            Self::InputShape { data, .. } => {
                format!("give the model other samples, or say `input = {:?}` in [model] if it can take them", data.0)
            }
            Self::TargetShape { .. } => {
                "labels are one class for each sample, or have the shape of the output; `classes` in [model] changes \
                 the number of outputs"
                    .to_owned()
            }
            Self::NoLabels { .. } => "name the array or column with the labels: y = \"y_train\"".to_owned(),
            Self::NoBatch { .. } => "say a smaller `batch` in [train], or `drop_last = false` in [data]".to_owned(),
            Self::Run(RunError::BatchTooSmall { .. }) => {
                "say `drop_last = true` in [data], or another `batch`".to_owned()
            }
            Self::FixedBatch { model, .. } => {
                format!("say `batch = {model}` in [train], or export the model with a batch that is left open")
            }
            Self::OtherData { .. } => "every node of a run needs the same data".to_owned(),
            Self::FixedReplicas { .. } => {
                "export the model with a batch that is left open, or train with one replica".to_owned()
            }
            Self::PartialBatch { .. } => {
                "say `drop_last = true` in [data], or export the model with a batch that is left open".to_owned()
            }
            Self::OneRow { .. } => "say `drop_last = true` in [data], or another `batch` in [train]".to_owned(),
            Self::Memory { .. } => {
                "say a smaller `batch` in [train], with `accumulate` for steps of the same size, or `recompute = true`"
                    .to_owned()
            }
            Self::NotFinite(_) => "try a smaller learning rate, or `clip_norm` in [train]".to_owned(),
            _ => return None,
        })
    }
}

/// A shape, written `[1, 8, 8]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dims(pub Vec<usize>);

impl Dims {
    fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// The permutation of axes, if this has the axes of another shape in another order.
    fn order_for(&self, other: &Self) -> Option<Vec<usize>> {
        if self.0.len() != other.0.len() {
            return None;
        }
        let mut order: Vec<usize> = Vec::new();
        for size in &other.0 {
            let free = (0..self.0.len()).find(|axis| self.0[*axis] == *size && !order.contains(axis));
            order.push(free?);
        }
        Some(order)
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A loss or gradient that is NaN or infinite, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct NotFinite {
    pub what: &'static str,
    pub value: f64,
    pub step: u64,
    /// Counted from 1, like epochs.
    pub pass: u64,
    /// Counted from 0 in the pass.
    pub batch: u64,
    /// The indices of the batch's samples in the dataset; empty if it is not a batch of the training data.
    pub samples: Vec<u64>,
    pub found: Culprit,
}

/// What produced the non-finite value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Culprit {
    /// Not searched for.
    Unknown,
    /// None of the model's operators.
    NoOperator,
    Operator(DiagnoseReport),
}

/// From the result of a diagnosis.
impl From<Option<DiagnoseReport>> for Culprit {
    fn from(found: Option<DiagnoseReport>) -> Self {
        found.map_or(Self::NoOperator, Self::Operator)
    }
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let Self { what, value, step, pass, batch, samples, found } = self;
        write!(f, "the {what} is {value} at step {step}")?;
        match found {
            Culprit::Operator(DiagnoseReport { node, op, backward, found, sample }) => {
                let way = if *backward { "backward" } else { "forward" };
                write!(f, ": {op} `{node}` made {found} in its {way} pass")?;
                let place = sample.and_then(|sample| samples.get(sample));
                if let Some(place) = place {
                    write!(f, " for sample {place}")?;
                }
            }
            Culprit::NoOperator => write!(f, ": no operator of the model made it")?,
            Culprit::Unknown if samples.is_empty() => return write!(f, ", in pass {pass}"),
            Culprit::Unknown => {}
        }
        if samples.is_empty() {
            return write!(f, "; batch {batch} of pass {pass}");
        }
        let shown: Vec<String> = samples.iter().take(SHOWN).map(u64::to_string).collect();
        let more = samples.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        write!(f, "; batch {batch} of pass {pass}, samples {}{more}", shown.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_in_another_order_are_not_reshaped() {
        let hint = |data: &[usize], model: &[usize]| {
            let (origin, data, model) = (String::new(), Dims(data.to_vec()), Dims(model.to_vec()));
            TrainError::InputShape { origin, data, model }.hint().unwrap()
        };
        assert!(hint(&[32, 32, 3], &[3, 32, 32]).ends_with("x.transpose(0, 3, 1, 2)"));
        assert!(hint(&[64], &[1, 8, 8]).contains("reshape = [1, 8, 8]"));
    }
}
