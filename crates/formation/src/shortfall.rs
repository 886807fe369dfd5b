use crate::reason::count;
use phalanx_types::{ByteSize, Class};

/// Why no formation is possible: what is missing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Shortfall {
    #[error("the model has no operators")]
    EmptyModel,
    #[error("the pool has no nodes")]
    EmptyPool,
    #[error("{what} of {of} is {value}, which nothing can be planned with")]
    Senseless { what: &'static str, of: String, value: f64 },
    /// `has` is the memory of `nodes`: the largest of the pool, if the model cannot be cut for more of them.
    #[error(
        "the model needs {} in training, {} {} in all{}",
        ByteSize(*needs),
        largest(*nodes, *of),
        ByteSize(*has),
        if nodes < of { ", and it cannot be spread over more" } else { "" }
    )]
    Memory { needs: u64, has: u64, nodes: usize, of: usize },
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
    /// `lacks` is the additional memory per node that would suffice, if it was found out.
    #[error(
        "no way was found to fit the model, which needs {} at least, into memory, of which {} {} in all{}",
        ByteSize(*needs),
        these(*nodes),
        ByteSize(*has),
        more(*nodes, *lacks)
    )]
    NoFit { nodes: usize, has: u64, needs: u64, lacks: Option<u64> },
    #[error("stage {stage} of replica {replica} needs {}, {node} has {}", ByteSize(*needs), ByteSize(*has))]
    Stage { replica: usize, stage: usize, node: String, needs: u64, has: u64 },
    #[error("replica {replica} of the formation given does not hold the model once from end to end: {why}")]
    Shape { replica: usize, why: &'static str },
}

impl Shortfall {
    /// Whether more nodes, or larger ones, could make a formation possible.
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

fn largest(nodes: usize, of: usize) -> String {
    match nodes {
        _ if nodes == of => these(nodes),
        1 => format!("the largest of {of} nodes has"),
        _ => format!("the {nodes} largest of {of} nodes have"),
    }
}

fn more(nodes: usize, lacks: Option<u64>) -> String {
    let each = if nodes == 1 { "" } else { " on each" };
    lacks.map_or_else(String::new, |lacks| format!("; about {} more{each} would be enough", ByteSize(lacks)))
}
