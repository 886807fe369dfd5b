//! Hugging Face's safetensors: named tensors.

use super::{Elements, malformed, named};
use crate::array::{Array, Layout};
use crate::arrays::Arrays;
use crate::error::{DataError, Fault, Origin};
use crate::map::map;
use crate::spec::{Format, SourceSpec};
use ::safetensors::tensor::Metadata;
use ::safetensors::{Dtype, SafeTensors};
use bytes::Bytes;
use phalanx_types::DType;
use std::path::Path;

pub(super) fn open(file: &Path, spec: &SourceSpec) -> Result<Arrays, DataError> {
    let tensors = Tensors::open(file)?;
    named(file, Format::Safetensors, spec, &tensors.names, |name| {
        let (layout, data) = tensors.elements(file, name)?;
        Array::new(Origin::array(file, name), Format::Safetensors, layout, data)
    })
}

/// All tensors of a file, as they lie there.
pub(super) fn open_elements(file: &Path) -> Result<Vec<(String, Elements)>, DataError> {
    let tensors = Tensors::open(file)?;
    tensors.names.iter().map(|name| Ok((name.clone(), tensors.elements(file, name)?))).collect()
}

/// The tensors of a file, by name.
struct Tensors {
    bytes: Bytes,
    header: usize,
    metadata: Metadata,
    names: Vec<String>,
}

impl Tensors {
    fn open(file: &Path) -> Result<Self, DataError> {
        let bytes = map(file)?;
        let decoder = |what: String| malformed(Format::Safetensors, file, Fault::Decoder { what });
        let (header, metadata) = SafeTensors::read_metadata(&bytes).map_err(|e| decoder(e.to_string()))?;
        let mut names = metadata.offset_keys();
        names.sort();
        Ok(Self { bytes, header, metadata, names })
    }

    fn elements(&self, file: &Path, name: &str) -> Result<Elements, DataError> {
        let Self { bytes, header, metadata, names } = self;
        let decoder = |what: String| malformed(Format::Safetensors, file, Fault::Decoder { what });
        let origin = Origin::array(file, name);
        let info = metadata.info(name).ok_or_else(|| super::unknown(name, names, file))?;
        let dtype = element(info.dtype).ok_or_else(|| DataError::UnsupportedType {
            dtype: format!("{:?}", info.dtype),
            origin: origin.clone(),
        })?;
        let (start, end) = info.data_offsets;
        let tensors = bytes.len().min(8 + *header);
        let (start, end) = (tensors.saturating_add(start), tensors.saturating_add(end));
        if start > end || end > bytes.len() {
            return Err(decoder("a tensor lies outside of the file".to_owned()));
        }
        Ok((Layout::row_major(dtype, info.shape.clone()), bytes.slice(start..end)))
    }
}

fn element(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::U16 => DType::U16,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 => DType::I32,
        Dtype::U32 => DType::U32,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::U64 => DType::U64,
        _ => return None,
    })
}
