//! Copies of a model's parameters at some step.

use crate::buffer::Buffer;

/// All parameters of a model at one moment, each in the engine's element order.
///
/// An asynchronous pipeline keeps one set for every batch in flight: backward needs the parameters that its forward
/// used.
#[derive(Debug, Default)]
pub struct ParameterSet {
    buffers: Vec<Buffer>,
}

impl ParameterSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The parameters, in the model's order.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.buffers.iter().map(Buffer::as_slice)
    }

    /// Bytes it holds.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(|b| b.len() * 4).sum()
    }

    /// Copies these parameters; reuses its memory.
    pub(crate) fn copy(&mut self, parameters: &[Buffer]) {
        self.buffers.resize_with(parameters.len(), Buffer::default);
        for (into, from) in self.buffers.iter_mut().zip(parameters) {
            if into.len() != from.len() {
                *into = Buffer::new(from.len());
            }
            into.as_mut().copy_from_slice(from.as_slice());
        }
    }

    /// Swaps with these parameters.
    pub(crate) fn swap(&mut self, parameters: &mut Vec<Buffer>) {
        let sizes = |buffers: &[Buffer]| buffers.iter().map(Buffer::len).collect::<Vec<_>>();
        assert_eq!(sizes(&self.buffers), sizes(parameters), "parameters of another model");
        std::mem::swap(&mut self.buffers, parameters);
    }
}
