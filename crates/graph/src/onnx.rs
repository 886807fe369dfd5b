//! ONNX files, in and out.
//!
//! ```text
//! bytes ─► proto ─► lower (inline functions, fold what is known) ─► rewrite (patterns) ─► names ─► Graph + Weights
//! ```
//! A file may come from anywhere: nothing in it can make the importer panic, read files elsewhere, or use memory out
//! of proportion to its size. What is not supported is refused by the name of the operator and of the node.

mod attributes;
mod error;
mod eval;
mod export;
mod import;
mod initial;
mod lit;
mod lower;
mod names;
mod proto;
mod rewrite;
mod scope;
mod tensor;

pub use error::{At, BadTensor, OnnxError};

use crate::{Graph, Weights};
use bytes::Bytes;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

/// A model without its weights is small; with them it is at most as large as protobuf allows, and a little.
const MOST_BYTES: u64 = 4 << 30;

/// What a file does not say itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// The name of the graph; else the file's.
    pub name: String,
    /// The sizes of dimensions the file leaves open, by their names, or as `input[axis]`; the batch stays open.
    pub dims: BTreeMap<String, usize>,
    /// Names of tensors that must not be trained, though nothing in the file says so.
    pub constants: BTreeSet<String>,
}

/// A model from a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    pub graph: Graph,
    pub weights: Weights,
    /// What the user should know: names that were not found, a batch that stays fixed.
    pub notes: Vec<String>,
}

/// Imports a file; tensors may lie in other files of its folder.
///
/// # Errors
/// The file cannot be read, is malformed, or uses something that is not supported.
pub fn import(path: &Path, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let wrap = |source| OnnxError::Read { path: path.into(), source };
    let file = std::fs::File::open(path).map_err(wrap)?;
    let bytes = file.metadata().map_err(wrap)?.len();
    if bytes > MOST_BYTES {
        return Err(OnnxError::TooLarge { bytes, most: MOST_BYTES });
    }
    let mut data = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut data).map_err(wrap)?;
    let folder = path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    decode(data.into(), folder, options)
}

/// Imports a model that holds all its tensors itself.
///
/// # Errors
/// As [`import()`].
pub fn import_bytes(data: Bytes, options: &ImportOptions) -> Result<Imported, OnnxError> {
    decode(data, None, options)
}

fn decode(data: Bytes, folder: Option<&Path>, options: &ImportOptions) -> Result<Imported, OnnxError> {
    let bytes = data.len();
    let model = proto::ModelProto::decode(data).map_err(OnnxError::Decode)?;
    let reader = tensor::Reader::new(folder);
    import::import(&model, &reader, options, bytes)
}

/// Writes a graph and its weights for evaluation; the file is whole or not there.
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
    Ok(export::export(graph, weights)?.encode_to_vec())
}
