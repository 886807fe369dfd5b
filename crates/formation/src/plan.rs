use crate::{Choice, Mode, WhyLeftOut};
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// Which node holds which part of the model, and the expected performance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    pub replicas: Vec<ReplicaPlan>,
    /// Micro-batches of each replica's share; a replica with fewer samples has one for each sample.
    pub micro_batches: usize,
    pub mode: Mode,
    pub predicted: Prediction,
    pub left_out: Vec<LeftOut>,
    pub why: Vec<Choice>,
    pub method: Method,
}

/// One replica: a whole model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaPlan {
    pub stages: Vec<StagePlan>,
    /// Samples of each batch.
    pub samples: usize,
    pub micro_batches: usize,
    /// Seconds for its share of a batch.
    pub step_s: f64,
}

/// A part of a model on a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StagePlan {
    pub node: usize,
    pub ops: Range<usize>,
    /// Bytes needed of the node's memory.
    pub memory: u64,
    /// Seconds of computing in a step.
    pub busy_s: f64,
    /// The part of `busy_s` for the update after the step.
    pub update_s: f64,
    /// Fraction of a step in which it computes, from 0 to 1.
    pub utilisation: f64,
}

/// The expected performance of a formation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Without the exchange.
    pub step_s: f64,
    /// One exchange, after every step or less often.
    pub exchange_s: f64,
    /// Exchanges included.
    pub samples_per_s: f64,
    /// Seconds until every node has fetched what it does not hold yet.
    pub moving_s: f64,
    pub bottleneck: Bottleneck,
    /// The planners' objective: seconds for a step with its part of an exchange and of moving.
    pub score: f64,
}

/// The bottleneck of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Bottleneck {
    Stage { replica: usize, stage: usize, node: String },
    Link { replica: usize, from: String, to: String },
    RoundTrip { replica: usize, from: String, to: String },
    Host { host: String },
    Exchange { node: String },
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stage { replica, stage, node } => {
                write!(f, "the computing of {node} (replica {replica}, stage {stage})")
            }
            Self::Link { replica, from, to } => {
                write!(f, "the link from {from} to {to} (replica {replica})")
            }
            Self::RoundTrip { replica, from, to } => {
                write!(f, "the way from {from} to {to} and back (replica {replica})")
            }
            Self::Host { host } => write!(f, "the cores of {host}"),
            Self::Exchange { node } => write!(f, "the exchange between replicas, at {node}"),
        }
    }
}

/// A node that holds nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LeftOut {
    pub node: usize,
    pub why: WhyLeftOut,
}

/// How a plan was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Proved to be optimal.
    Exact,
    Genetic,
    Greedy,
    /// Given by the caller and only evaluated.
    Given,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Exact => "exact",
            Self::Genetic => "genetic",
            Self::Greedy => "greedy",
            Self::Given => "given",
        })
    }
}

/// A formation given by the caller: for each replica, its stages in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    pub replicas: Vec<Vec<ShapeStage>>,
    pub micro_batches: usize,
}

/// A node and the operators it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShapeStage {
    pub node: usize,
    pub ops: Range<usize>,
}

impl Plan {
    /// Which node holds what, without the predictions.
    pub fn shape(&self) -> Shape {
        let stage = |s: &StagePlan| ShapeStage { node: s.node, ops: s.ops.clone() };
        let replicas = self.replicas.iter().map(|r| r.stages.iter().map(stage).collect()).collect();
        Shape { replicas, micro_batches: self.micro_batches }
    }

    /// Seconds for a step with its part of an exchange, for comparing plans.
    pub fn seconds_per_batch(&self) -> f64 {
        self.replicas.iter().map(|r| r.samples as f64).sum::<f64>() / self.predicted.samples_per_s
    }
}
