//! Import and export of ONNX files.
//!
//! ```text
//! bytes ─► proto ─► lower (inline functions, fold what is known) ─► rewrite (patterns) ─► names ─► Graph + Weights
//! ```
//! Files are not trusted: no file can make the importer panic, read files elsewhere, or use memory out of proportion to
//! its size. Unsupported operators are refused with the name of the operator and of the node.

mod attributes;
mod error;
mod eval;
mod export;
mod implied;
mod import;
mod initial;
mod lit;
mod lower;
mod names;
mod proto;
mod rewrite;
mod scope;
mod source_line;
mod tensor;

pub use error::{At, BadTensor, OnnxError};

use crate::{Graph, Weights, regular};
use bytes::Bytes;
use export::Purpose;
use phalanx_types::ByteSize;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The largest file that is read; protobuf's own limit is 2 GiB.
const MOST_BYTES: u64 = 4 << 30;

/// Import options for what a file does not say itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The name of the graph; the file's name if empty.
    pub name: String,
    /// The sizes of dimensions that the file leaves open, by name or as `input[axis]`; the batch stays open.
    pub dims: BTreeMap<String, usize>,
    /// Names of tensors that must not be trained, although the file does not say so.
    pub constants: BTreeSet<String>,
    /// The most memory that the file and its tensors may take; 4 GiB if it is not said.
    pub limit: Option<ByteSize>,
}

/// An imported model.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    pub graph: Graph,
    pub weights: Weights,
    /// Notes for the user: names that were not found, a batch size that stays fixed.
    pub notes: Vec<String>,
}

/// Imports a file; tensors may be in other files of its folder.
///
/// # Errors
/// The file cannot be read, is malformed, or uses something that is not supported.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let wrap = |source| OnnxError::Read { path: path.into(), source };
    let (file, bytes) = regular::open(path).map_err(wrap)?;
    if bytes > MOST_BYTES {
        return Err(OnnxError::TooLarge { bytes, most: MOST_BYTES });
    }
    check(bytes, options)?;
    let data = regular::read(file, bytes).map_err(wrap)?;
    let folder = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    decode(data.into(), folder, options)
}

/// Imports a model that contains all its tensors.
///
/// # Errors
/// As [`import()`].
pub fn import_bytes(data: Bytes, options: &ImportOptions) -> Result<Imported, OnnxError> {
    decode(data, None, options)
}

fn decode(data: Bytes, folder: Option<&Path>, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let bytes = data.len();
    let implied = implied::implied(&data);
    if implied.nodes > lower::MOST_NODES as u64 {
        return Err(OnnxError::Limit { what: "nodes", most: lower::MOST_NODES });
    }
    let taken = implied.bytes.saturating_add(bytes as u64);
    check(taken, options)?;
    let model = proto::ModelProto::decode(data).map_err(OnnxError::Decode)?;
    let left = limit(options).0 - taken;
    let reader = tensor::Reader::new(folder, left);
    import::import(&model, &reader, options, bytes)
}

fn limit(options: &ImportOptions) -> ByteSize {
    options.limit.unwrap_or(ByteSize(MOST_BYTES))
}

/// Refuses what would take more memory than allowed.
fn check(implied: u64, options: &ImportOptions) -> Result<(), OnnxError> {
    let limit = limit(options);
    if implied > limit.0 {
        return Err(OnnxError::Memory { implied: ByteSize(implied), limit });
    }
    Ok(())
}

/// Writes a graph and its weights for evaluation, atomically.
///
/// # Errors
/// A weight is missing, an operator has no counterpart, or the file cannot be written.
pub fn export(graph: &Graph, weights: &Weights, path: &Path) -> Result<(), OnnxError> {
    let data = export_bytes(graph, weights)?;
    crate::weights::replace(path, &data).map_err(|source| OnnxError::Write { path: path.into(), source })
}

/// The bytes that [`export()`] writes.
///
/// # Errors
/// As [`export()`].
pub fn export_bytes(graph: &Graph, weights: &Weights) -> Result<Vec<u8>, OnnxError> {
    Ok(export::export(graph, weights, Purpose::Evaluation)?.encode_to_vec())
}

/// Writes a graph and its weights for training, atomically: with its dropout.
///
/// # Errors
/// As [`export()`].
pub fn export_for_training(graph: &Graph, weights: &Weights, path: &Path) -> Result<(), OnnxError> {
    let data = export_training_bytes(graph, weights)?;
    crate::weights::replace(path, &data).map_err(|source| OnnxError::Write { path: path.into(), source })
}

/// The bytes that [`export_for_training()`] writes.
///
/// # Errors
/// As [`export()`].
pub fn export_training_bytes(graph: &Graph, weights: &Weights) -> Result<Vec<u8>, OnnxError> {
    Ok(export::export(graph, weights, Purpose::Training)?.encode_to_vec())
}
