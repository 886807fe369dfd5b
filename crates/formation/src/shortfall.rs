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
        "the model needs {} in training, these {nodes} nodes have {} in all",
        ByteSize(*needs),
        ByteSize(*has)
    )]
    Memory { needs: u64, has: u64, nodes: usize },
    #[error(
        "{part} alone needs {}, the largest node ({largest}) has {}",
        ByteSize(*needs),
        ByteSize(*has)
    )]
    Part { part: String, needs: u64, largest: String, has: u64 },
    #[error("{replicas} replicas of {stages} stages need {needs} nodes, the pool has {has}", needs = replicas * stages)]
    Nodes { replicas: usize, stages: usize, has: usize },
    #[error("the model can be cut into {most} stages at most, not {stages}")]
    Cuts { stages: usize, most: usize },
    #[error("a batch of {batch} cannot be shared by {replicas} replicas")]
    Batch { batch: usize, replicas: usize },
    #[error("no way was found to fit the model into the memory of these {nodes} nodes, of {} in all", ByteSize(*has))]
    NoFit { nodes: usize, has: u64 },
    #[error("stage {stage} of replica {replica} needs {}, {node} has {}", ByteSize(*needs), ByteSize(*has))]
    Stage { replica: usize, stage: usize, node: String, needs: u64, has: u64 },
    #[error("replica {replica} of the formation given does not hold the model once from end to end: {why}")]
    Shape { replica: usize, why: &'static str },
}

impl Shortfall {
    pub fn class(&self) -> Class {
        Class::Fatal
    }
}
