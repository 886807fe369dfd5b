//! Why a run cannot start or go on.

use crate::config::ConfigError;
use crate::core::VoteError;
use crate::costs::NoCut;
use crate::run_dir::RunDirError;
use crate::source::ModelError;
use phalanx_collective::CollectiveError;
use phalanx_data::DataError;
use phalanx_engine::{CompileError, DiagnoseReport, LossError, RunError, StateError, WeightsError};
use phalanx_formation::Shortfall;
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
    #[error("could not go on together with the other replicas")]
    Together(#[from] CollectiveError),
    #[error("the replicas do not agree")]
    Vote(#[from] VoteError),
    #[error(transparent)]
    NoCut(Box<NoCut>),
    #[error("the model cannot be cut there")]
    Cut(#[from] phalanx_graph::CutError),
    #[error("this model cannot be trained")]
    Compile(#[from] CompileError),
    #[error("this part of the model cannot be trained")]
    Stage(#[from] phalanx_engine::StageError),
    #[error("weights do not fit the model")]
    Weights(#[from] WeightsError),
    #[error("the state of the optimizer does not fit the model")]
    OptimizerState(#[from] StateError),
    #[error("the model could not be run")]
    Run(#[from] RunError),
    #[error("the loss could not be computed")]
    Loss(#[from] LossError),
    #[error(transparent)]
    RunDir(Box<RunDirError>),
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
    #[error("this is no state of a model: {what}")]
    State { what: String },
    #[error("the model is made for batches of {model}, but replicas share out every batch")]
    FixedReplicas { model: usize },
    #[error("the model cannot be trained in these stages: {0}")]
    NoFormation(#[source] Shortfall),
    #[error(
        "BatchNorm `{node}` needs more than one sample at a time, but of a batch of {whole} a replica computes its {own} \
         one by one"
    )]
    OneSample { node: String, whole: usize, own: usize },
    #[error("`data.{what}` has {here} samples here, where the run is driven {there}")]
    OtherData { what: &'static str, here: u64, there: u64 },
    #[error("rank {rank} holds other parameters than rank 0 before step {step}")]
    Differs { rank: usize, step: u64 },
    #[error("{reason}")]
    Replica { reason: String },
    /// A node found that the data of the run are wrong.
    #[error("{reason}")]
    Input { reason: String, hint: Option<String> },
    #[error("could not {what} the node that drives the run")]
    Fabric { what: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

impl From<RunDirError> for TrainError {
    fn from(error: RunDirError) -> Self {
        Self::RunDir(Box::new(error))
    }
}

impl From<DataError> for TrainError {
    fn from(error: DataError) -> Self {
        Self::Data(Box::new(error))
    }
}

impl From<ModelError> for TrainError {
    fn from(error: ModelError) -> Self {
        Self::Model(Box::new(error))
    }
}

/// Whose fault something is, and so which exit code it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// What the user gave.
    Input,
    /// The training itself.
    Work,
    /// Disks, memory, processes.
    Machine,
}

impl TrainError {
    pub fn class(&self) -> Class {
        match self {
            Self::Config(error) => error.class(),
            Self::Data(error) => error.class(),
            Self::RunDir(error) => error.class(),
            _ => Class::Fatal,
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFinite(_) | Self::Replica { .. } | Self::Differs { .. } | Self::NoFormation(_) => {
                Blame::Work
            }
            Self::Fabric { .. } | Self::Together(_) => Blame::Machine,
            Self::RunDir(error) if matches!(**error, RunDirError::Io { .. }) => Blame::Machine,
            Self::Data(error) if matches!(**error, DataError::Thread { .. } | DataError::ReaderDied) => {
                Blame::Machine
            }
            _ => Blame::Input,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Config(error) => return error.hint(),
            Self::Input { hint, .. } => return hint.clone(),
            Self::Data(error) => return error.hint(),
            Self::RunDir(error) => return error.hint(),
            Self::Model(error) => return error.hint(),
            Self::NoCut(error) => error.hint(),
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
            Self::NoFormation(shortfall) => return shortfall_hint(shortfall).map(str::to_owned),
            Self::OneSample { .. } => {
                "say fewer `formation.micro_batches`, a larger `train.batch`, or `data.drop_last = true`".to_owned()
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

    /// Which axis goes where, if this has the axes of another shape in another order.
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

/// What to do when no formation fits.
pub fn shortfall_hint(shortfall: &Shortfall) -> Option<&'static str> {
    match shortfall {
        Shortfall::Memory { .. } | Shortfall::NoFit { .. } => Some(
            "add nodes or memory; a smaller `train.batch`, more `formation.micro_batches`, or an optimizer that keeps \
             less need less of it",
        ),
        Shortfall::Part { .. } => {
            Some("a node of the pool must hold at least that; a smaller `train.batch` needs less")
        }
        Shortfall::Nodes { .. } => Some("add nodes, or say fewer `formation.stages` or `formation.replicas`"),
        Shortfall::Cuts { .. } => {
            Some("say fewer `formation.stages`, or let it be cut at more `formation.cuts`")
        }
        Shortfall::Batch { .. } => Some("say a larger `train.batch`, or fewer `formation.replicas`"),
        _ => None,
    }
}

/// A loss or gradient that is NaN or infinite, and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct NotFinite {
    pub what: &'static str,
    pub value: f64,
    pub step: u64,
    /// Counted from 1, as people count epochs.
    pub pass: u64,
    /// Counted from 0 in the pass.
    pub batch: u64,
    /// The places of the batch's samples in the dataset; none when it is of no batch of the training data.
    pub samples: Vec<u64>,
    pub found: Culprit,
}

/// What made a number that is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Culprit {
    /// Nobody looked.
    Unknown,
    /// None of the model's operators did.
    NoOperator,
    Operator(DiagnoseReport),
}

/// Of somebody who looked.
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

    #[test]
    fn a_validation_is_named_without_samples() {
        let (what, samples) = ("validation loss", Vec::new());
        let error =
            NotFinite { what, value: f64::NAN, step: 7, pass: 2, batch: 0, samples, found: Culprit::Unknown };
        assert_eq!(error.to_string(), "the validation loss is NaN at step 7, in pass 2");
    }
}
