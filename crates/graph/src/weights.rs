//! Weights in safetensors files.
//!
//! A file is checked against its graph before anything is taken from it, and all errors are reported at once. Files are
//! written under a temporary name and renamed, so they are complete or absent.

use crate::{Graph, Value, ValueId, ValueKind, Weights, regular};
use bytes::Bytes;
use phalanx_types::{DType, Tensor};
use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors, View, serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The largest header: it lists every tensor, and even the largest models stay far below this.
const HEADER_BYTES: u64 = 100_000_000;

/// Why weights could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    #[error("could not read weights from {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not write weights to {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("not a safetensors file")]
    Format(#[source] SafeTensorError),
    #[error("tensor `{name}` has elements of a type that is not supported: {dtype}")]
    DType { name: String, dtype: String },
    #[error("{bytes} bytes are more than this model's weights can take, which is {most}")]
    TooLarge { bytes: u64, most: u64 },
    #[error("the weights are not those of model `{model}`: {}", list(mismatches))]
    Mismatch { model: String, mismatches: Vec<Mismatch> },
}

/// One way in which weights do not match a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    Missing {
        name: String,
    },
    Unexpected {
        name: String,
    },
    Shape {
        name: String,
        wanted: Vec<u64>,
        got: Vec<u64>,
    },
    DType {
        name: String,
        wanted: DType,
        got: DType,
    },
    /// Two names of one parameter with different values.
    Untied {
        name: String,
        of: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Missing { name } => write!(f, "`{name}` is missing"),
            Mismatch::Unexpected { name } => write!(f, "`{name}` is unexpected"),
            Mismatch::Shape { name, wanted, got } => {
                write!(f, "`{name}` has shape {got:?} instead of {wanted:?}")
            }
            Mismatch::DType { name, wanted, got } => {
                write!(f, "`{name}` holds {got:?} instead of {wanted:?}")
            }
            Mismatch::Untied { name, of } => {
                write!(f, "`{name}` differs from `{of}`, though both are the same parameter")
            }
        }
    }
}

fn list(mismatches: &[Mismatch]) -> String {
    const SHOWN: usize = 20;
    let mut text: Vec<String> = mismatches.iter().take(SHOWN).map(Mismatch::to_string).collect();
    if mismatches.len() > SHOWN {
        text.push(format!("and {} more", mismatches.len() - SHOWN));
    }
    text.join("; ")
}

/// Writes weights to a file, atomically.
///
/// # Errors
/// The file could not be written.
pub fn save(path: &Path, weights: &Weights) -> Result<(), WeightsError> {
    let bytes = to_bytes(weights)?;
    replace(path, &bytes).map_err(|source| WeightsError::Write { path: path.into(), source })
}

/// Reads the weights of a graph; they must be exactly its parameters and buffers.
///
/// A tied weight may be in the file under any of its names, or under several; it is returned under its first.
///
/// # Errors
/// The file cannot be read, is not a safetensors file, or has other tensors.
pub fn load(path: &Path, graph: &Graph) -> Result<Weights, WeightsError> {
    let wrap = |source| WeightsError::Read { path: path.into(), source };
    let (file, bytes) = regular::open(path).map_err(wrap)?;
    let again = graph.aliases.iter().map(|(_, v)| graph.value(*v));
    let needed = kept(graph).chain(again).filter_map(size).fold(0u64, u64::saturating_add);
    let most = needed.saturating_add(HEADER_BYTES);
    if bytes > most {
        return Err(WeightsError::TooLarge { bytes, most });
    }
    let data = regular::read(file, bytes).map_err(wrap)?;
    let weights = from_bytes(data.into())?;
    check(graph, &weights)?;
    Ok(graph.without_aliases(weights))
}

/// Checks that these are exactly the parameters and buffers of the graph; tied weights may have any of their names.
///
/// # Errors
/// They differ; the error lists all differences.
pub fn check(graph: &Graph, weights: &Weights) -> Result<(), WeightsError> {
    let mut mismatches = Vec::new();
    let mut known = BTreeSet::new();
    let mut aliases: BTreeMap<ValueId, Vec<&str>> = BTreeMap::new();
    for (alias, v) in &graph.aliases {
        known.insert(alias.as_str());
        aliases.entry(*v).or_default().push(alias);
    }
    for (i, value) in graph.values.iter().enumerate().filter(|(_, v)| is_kept(v)) {
        known.insert(value.name.as_str());
        let name = value.name.clone();
        let others = aliases.get(&ValueId(i as u32)).into_iter().flatten();
        let mut found = std::iter::once(value.name.as_str())
            .chain(others.copied())
            .filter_map(|n| Some((n, weights.get(n)?)));
        let first = found.next();
        let differs = found.filter(|(_, other)| first.is_some_and(|(_, tensor)| tensor != *other));
        let of = first.map_or("", |(n, _)| n);
        mismatches.extend(differs.map(|(n, _)| Mismatch::Untied { name: n.into(), of: of.into() }));
        let Some((_, tensor)) = first else {
            mismatches.push(Mismatch::Missing { name });
            continue;
        };
        let wanted: Vec<u64> = value.shape.as_fixed().unwrap_or_default().iter().map(|d| *d as u64).collect();
        if tensor.shape() != wanted {
            mismatches.push(Mismatch::Shape { name, wanted, got: tensor.shape().to_vec() });
        } else if tensor.dtype() != value.dtype {
            mismatches.push(Mismatch::DType { name, wanted: value.dtype, got: tensor.dtype() });
        }
    }
    let unexpected = weights.keys().filter(|k| !known.contains(k.as_str()));
    mismatches.extend(unexpected.map(|k| Mismatch::Unexpected { name: k.clone() }));
    if mismatches.is_empty() {
        return Ok(());
    }
    Err(WeightsError::Mismatch { model: graph.name.clone(), mismatches })
}

fn kept(graph: &Graph) -> impl Iterator<Item = &Value> {
    graph.values.iter().filter(|v| is_kept(v))
}

fn is_kept(value: &Value) -> bool {
    matches!(value.kind, ValueKind::Parameter(_) | ValueKind::Buffer(_))
}

fn size(value: &Value) -> Option<u64> {
    value.shape.count()?.factor.checked_mul(value.dtype.size()).map(|n| n as u64)
}

/// The bytes of a safetensors file.
///
/// # Errors
/// Never for valid weights.
pub fn to_bytes(weights: &Weights) -> Result<Vec<u8>, WeightsError> {
    let written =
        weights.iter().map(|(name, t)| (name, Written(t, t.shape().iter().map(|d| *d as usize).collect())));
    serialize(written, None).map_err(WeightsError::Format)
}

/// A function that writes something.
pub type WriteTo<'a> = dyn Fn(&mut dyn Write) -> std::io::Result<()> + 'a;

/// A tensor that is created when it is written.
pub struct Later<'a> {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<usize>,
    /// Creates the tensor and writes its bytes.
    pub write: Box<WriteTo<'a>>,
}

impl fmt::Debug for Later<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("name", &self.name).field("shape", &self.shape).finish_non_exhaustive()
    }
}

/// Writes a safetensors file of tensors that are created one after the other, so that at most one is in memory. Returns
/// its length.
///
/// # Errors
/// It could not be written.
pub fn write_later(out: &mut dyn Write, tensors: &[Later<'_>]) -> Result<u64, WeightsError> {
    let mut sorted: Vec<&Later<'_>> = tensors.iter().collect();
    // Large element types first, so that all are aligned.
    sorted.sort_by(|a, b| Dtype::from(b.dtype).cmp(&a.dtype.into()).then(a.name.cmp(&b.name)));
    let mut end = 0;
    let info = |tensor: &&Later<'_>| {
        let start = end;
        end += tensor.shape.iter().product::<usize>() * tensor.dtype.size();
        let (dtype, shape) = (Dtype::from(tensor.dtype), tensor.shape.clone());
        (tensor.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let infos = sorted.iter().map(info).collect();
    let metadata = Metadata::new(None, infos).map_err(WeightsError::Format)?;
    let header = serde_json::to_vec(&metadata).map_err(|error| WeightsError::Format(error.into()))?;
    let padded = header.len().next_multiple_of(8);
    let written = |source| WeightsError::Write { path: PathBuf::from("a file without a name"), source };
    out.write_all(&(padded as u64).to_le_bytes()).map_err(written)?;
    out.write_all(&header).map_err(written)?;
    out.write_all(&b"        "[..padded - header.len()]).map_err(written)?;
    for tensor in sorted {
        (tensor.write)(out).map_err(written)?;
    }
    Ok(8 + padded as u64 + end as u64)
}

/// All tensors in the bytes of a safetensors file, without copying.
///
/// # Errors
/// The bytes are not a safetensors file, or have unsupported types.
pub fn from_bytes(data: Bytes) -> Result<Weights, WeightsError> {
    let file = SafeTensors::deserialize(&data).map_err(WeightsError::Format)?;
    let mut weights = Weights::new();
    for (name, view) in file.iter() {
        let dtype = DType::from_safetensors(view.dtype())
            .ok_or_else(|| WeightsError::DType { name: name.into(), dtype: format!("{:?}", view.dtype()) })?;
        let shape = view.shape().iter().map(|d| *d as u64).collect();
        let tensor = Tensor::new(dtype, shape, data.slice_ref(view.data()));
        let Ok(tensor) = tensor else { return Err(WeightsError::Format(SafeTensorError::TensorInvalidInfo)) };
        weights.insert(name.into(), tensor);
    }
    Ok(weights)
}

struct Written<'a>(&'a Tensor, Vec<usize>);

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        self.0.dtype().into()
    }

    fn shape(&self) -> &[usize] {
        &self.1
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.0.data())
    }

    fn data_len(&self) -> usize {
        self.0.data().len()
    }
}

/// Writes a temporary file next to the target and renames it.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = temporary(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// A temporary file with the permissions of ordinary new files, instead of only for this user.
fn temporary(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

#[cfg(test)]
mod tests;
