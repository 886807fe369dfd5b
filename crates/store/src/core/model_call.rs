use super::value::Model;
use bytes::Bytes;
use phalanx_types::{Tensor, Time};
use std::sync::Arc;
use std::time::Duration;

/// A model that is to be run, with everything it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// Where the model lies.
    pub key: Bytes,
    /// The model.
    pub model: Arc<Model>,
    /// Its inputs, in order.
    pub inputs: Vec<Arc<Tensor>>,
    /// The keys that its outputs get, in order.
    pub outputs: Vec<Bytes>,
    /// How long the client waits.
    pub timeout: Option<Duration>,
    /// When it was asked for.
    pub began: Time,
    /// Whether the client ignores the shape of the reply, so that a slow one may begin with padding.
    pub padding: bool,
}

/// How often a model was run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunStatistics {
    pub(crate) duration: Duration,
    pub(crate) samples: u64,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
}
