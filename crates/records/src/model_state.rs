//! All that a model and its optimizer are after some steps, and how it travels.

use bytes::Bytes;
use phalanx_data::map_open;
use phalanx_engine::OptimizerSpec;
use phalanx_graph::weights::Later;
use phalanx_graph::{Graph, Value, ValueKind, Weights, weights};
use phalanx_types::{DType, Tensor};
use phalanx_wire::state_frame::StateHead;
use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Write};

/// States of this size and more are kept in a file.
const LARGE: u64 = 1 << 20;

/// Bytes that are no state of a model, or a state that cannot be packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no state of a model: {what}")]
pub struct StateError {
    pub what: String,
}

/// Parameters, buffers and the optimizer's state, in the user's names and order of elements.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelState {
    pub optimizer_steps: u64,
    pub weights: Weights,
    /// Named `<parameter>.<state>`.
    pub optimizer: Weights,
}

impl ModelState {
    /// Steps of the run that are behind it: every step moves the optimizer once.
    pub fn steps(&self) -> u64 {
        self.optimizer_steps
    }

    /// Bytes of all its tensors.
    pub fn tensor_bytes(&self) -> u64 {
        tensor_bytes(&self.weights) + tensor_bytes(&self.optimizer)
    }

    /// What it has of these parameters and buffers.
    pub fn only(&self, names: &BTreeSet<String>) -> Self {
        let of = |key: &str| names.contains(parameter_of(key));
        let weights = self.weights.iter().filter(|(name, _)| names.contains(*name));
        let optimizer = self.optimizer.iter().filter(|(key, _)| of(key));
        let cloned = |(name, tensor): (&String, &Tensor)| (name.clone(), tensor.clone());
        Self {
            optimizer_steps: self.optimizer_steps,
            weights: weights.map(cloned).collect(),
            optimizer: optimizer.map(cloned).collect(),
        }
    }

    /// Takes over what another has of these names.
    pub fn extend_by(&mut self, other: Self, names: &BTreeSet<String>) {
        let of = |key: &str| names.contains(parameter_of(key));
        self.weights.extend(other.weights.into_iter().filter(|(name, _)| names.contains(name)));
        self.optimizer.extend(other.optimizer.into_iter().filter(|(key, _)| of(key)));
    }

    /// Two files of safetensors after each other, behind a [`StateHead`].
    ///
    /// # Errors
    /// A name or a size is more than such a file can hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let unwritable = |source: weights::WeightsError| StateError { what: source.to_string() };
        let first = weights::to_bytes(&self.weights).map_err(unwritable)?;
        let second = weights::to_bytes(&self.optimizer).map_err(unwritable)?;
        let head = StateHead { optimizer_steps: self.optimizer_steps, weights_bytes: first.len() as u64 };
        let mut bytes = Vec::with_capacity(StateHead::LEN + first.len() + second.len());
        bytes.extend_from_slice(&head.to_bytes());
        bytes.extend_from_slice(&first);
        bytes.extend_from_slice(&second);
        Ok(bytes)
    }

    /// # Errors
    /// These bytes are no state.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, StateError> {
        let Some((head, weights, optimizer)) = StateHead::split(&bytes) else {
            return Err(StateError { what: "it ends too early".to_owned() });
        };
        let unreadable = |source: weights::WeightsError| StateError { what: source.to_string() };
        Ok(Self {
            optimizer_steps: head.optimizer_steps,
            weights: weights::from_bytes(bytes.slice(weights)).map_err(unreadable)?,
            optimizer: weights::from_bytes(bytes.slice(optimizer)).map_err(unreadable)?,
        })
    }
}

/// Bytes of all tensors.
pub fn tensor_bytes(weights: &Weights) -> u64 {
    weights.values().map(|tensor| tensor.data().len() as u64).sum()
}

/// The parameter that a state of the optimizer belongs to, which is named `<parameter>.<state>`.
pub fn parameter_of(key: &str) -> &str {
    key.rsplit_once('.').map_or(key, |(parameter, _)| parameter)
}

/// The bytes of a state of which no more than one tensor is ever in memory: they lie in a file without a name.
///
/// # Errors
/// There is no room for such a file.
pub fn pack_later(steps: u64, parts: [&[Later<'_>]; 2]) -> Result<Bytes, StateError> {
    let failed = |what: String| StateError { what };
    let io = |error: std::io::Error| failed(format!("could not be packed: {error}"));
    let written = |source: weights::WeightsError| failed(source.to_string());
    let mut file = tempfile::tempfile().map_err(io)?;
    let [weights, optimizer] = parts;
    // How long the weights are is known when they are written.
    let head = StateHead { optimizer_steps: steps, weights_bytes: 0 };
    file.write_all(&head.to_bytes()).map_err(io)?;
    let weights_bytes = weights::write_later(&mut file, weights).map_err(written)?;
    weights::write_later(&mut file, optimizer).map_err(written)?;
    let head = StateHead { weights_bytes, ..head };
    file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&head.to_bytes())).map_err(io)?;
    map_open(&file).map_err(io)
}

/// An upper limit for the bytes of a model's state: the outer optimizer may have a state, too, and every tensor has a
/// name.
pub fn state_bytes_limit(graph: &Graph, optimizer: &OptimizerSpec) -> u64 {
    let kept =
        graph.values.iter().filter(|v| matches!(v.kind, ValueKind::Parameter(_) | ValueKind::Buffer(_)));
    let one = |value: &Value| {
        let elements = value.shape.at(1).iter().map(|size| *size as u64).product::<u64>();
        elements.saturating_mul(8).saturating_add(value.name.len() as u64 + 1024)
    };
    let all = kept.map(one).fold(0, u64::saturating_add);
    all.saturating_mul(2 + optimizer.state_names().len() as u64).saturating_add(1 << 20)
}

/// Reads exactly `len` bytes; large states into a file without a name.
///
/// # Errors
/// There is no room for them, or they are not what was announced.
pub fn read_exactly(from: impl Read, len: u64) -> std::io::Result<Bytes> {
    // What is announced is not believed: memory grows with what arrives.
    let mut from = from.take(len);
    let bytes = if len < LARGE {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        bytes.into()
    } else {
        let mut file = tempfile::tempfile()?;
        std::io::copy(&mut from, &mut file)?;
        map_open(&file)?
    };
    match bytes.len() as u64 == len {
        true => Ok(bytes),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Sets the buffers in which batch normalisation counts the batches it has seen: engines do not need them, but
/// programs that load the weights may.
pub fn count_batches(graph: &Graph, start: &Weights, batches: u64, weights: &mut Weights) {
    let counters = graph.buffers().map(|(_, value)| value);
    for value in counters.filter(|v| v.dtype == DType::I64 && v.name.ends_with("num_batches_tracked")) {
        let before = start.get(&value.name).and_then(|tensor| tensor.data().as_chunks::<8>().0.first());
        let count = before.map_or(0, |bytes| i64::from_le_bytes(*bytes)) + batches as i64;
        if let Ok(tensor) = Tensor::new(DType::I64, Vec::new(), count.to_le_bytes().to_vec().into()) {
            weights.insert(value.name.clone(), tensor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_way_and_what_is_cut_off_is_noticed() {
        let tensor = |x: f32| Tensor::from_f32(vec![2], &[x, x + 1.0]).unwrap();
        let weights = Weights::from_iter([("a".to_owned(), tensor(1.0)), ("b".to_owned(), tensor(3.0))]);
        let optimizer = Weights::from_iter([("a.momentum".to_owned(), tensor(5.0))]);
        let state = ModelState { optimizer_steps: 7, weights, optimizer };
        let bytes = state.to_bytes().unwrap();
        assert_eq!(ModelState::from_bytes(bytes.clone().into()).unwrap(), state);
        for len in [0, 8, 15, 40, bytes.len() - 1] {
            assert!(ModelState::from_bytes(Bytes::copy_from_slice(&bytes[..len])).is_err(), "{len}");
        }
    }
}
