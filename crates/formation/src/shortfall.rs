use crate::reason::count;
use phalanx_types::{ByteSize, Class};

/// What is missing for a formation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Shortfall {
    #[error("the model has no operators")]
    EmptyModel,
    #[error("the pool has no nodes")]
    EmptyPool,
    #[error("{what} of {of} is {value}, which nothing can be planned with")]
    Senseless { what: &'static str, of: String, value: f64 },
    #[error(
        "the model needs {} in training, {} {} in all",
        ByteSize(*needs),
        these(*nodes),
        ByteSize(*has)
    )]
    Memory { needs: u64, has: u64, nodes: usize },
    #[error(
        "{part} alone needs {}, the largest node ({largest}) has {}",
        ByteSize(*needs),
        ByteSize(*has)
    )]
    Part { part: String, needs: u64, largest: String, has: u64 },
    #[error(
        "{} of {} {} {}, the pool has {has}",
        count(*replicas, "replica", "replicas"),
        count(*stages, "stage", "stages"),
        if *replicas == 1 { "needs" } else { "need" },
        count(replicas.saturating_mul(*stages), "node", "nodes")
    )]
    Nodes { replicas: usize, stages: usize, has: usize },
    #[error("the model can be cut into {} at most, not {stages}", count(*most, "stage", "stages"))]
    Cuts { stages: usize, most: usize },
    #[error("a batch of {batch} cannot be shared by {}", count(*replicas, "replica", "replicas"))]
    Batch { batch: usize, replicas: usize },
    #[error(
        "no way was found to fit the model into memory, of which {} {} in all",
        these(*nodes),
        ByteSize(*has)
    )]
    NoFit { nodes: usize, has: u64 },
    #[error("stage {stage} of replica {replica} needs {}, {node} has {}", ByteSize(*needs), ByteSize(*has))]
    Stage { replica: usize, stage: usize, node: String, needs: u64, has: u64 },
    #[error("replica {replica} of the formation given does not hold the model once from end to end: {why}")]
    Shape { replica: usize, why: &'static str },
}

impl Shortfall {
    /// Whether there could be a formation if there were more nodes, or larger ones.
    pub fn ends_with_more_nodes(&self) -> bool {
        match self {
            Self::EmptyPool | Self::Memory { .. } | Self::Part { .. } | Self::Nodes { .. } => true,
            Self::NoFit { .. } | Self::Stage { .. } => true,
            Self::EmptyModel | Self::Senseless { .. } | Self::Cuts { .. } => false,
            Self::Batch { .. } | Self::Shape { .. } => false,
        }
    }

    pub fn class(&self) -> Class {
        Class::Fatal
    }
}

fn these(nodes: usize) -> String {
    if nodes == 1 { "this node has".to_owned() } else { format!("these {nodes} nodes have") }
}
