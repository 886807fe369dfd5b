//! The MNIST format: a magic number, dimensions and big-endian elements, optionally in gzip.

use crate::array::{Array, Layout};
use crate::error::{DataError, Fault, Origin};
use crate::inflate;
use crate::limit::Budget;
use crate::map::map;
use crate::spec::Format;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use phalanx_types::DType;
use std::path::Path;

pub(super) fn open(file: &Path, budget: &Budget) -> Result<Array, DataError> {
    let origin = Origin::file(file);
    let bytes = map(file)?;
    let read = if bytes.starts_with(&[0x1f, 0x8b]) { compressed(&bytes, budget) } else { plain(&bytes) };
    match read {
        Ok((layout, data)) => Array::new(origin, Format::Idx, layout, data),
        Err(fault) => Err(DataError::Malformed { format: Format::Idx, fault, origin }),
    }
}

fn plain(bytes: &Bytes) -> Result<(Layout, Bytes), Fault> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(Fault::Magic)?;
    let (dtype, axes) = element(*magic)?;
    let dimensions = rest.get(..axes * 4).ok_or(Fault::Header { what: "it ends early" })?;
    Ok((layout(dtype, dimensions), bytes.slice(4 + axes * 4..)))
}

fn compressed(bytes: &Bytes, budget: &Budget) -> Result<(Layout, Bytes), Fault> {
    let mut decoder = MultiGzDecoder::new(&bytes[..]);
    let mut next = |len| inflate::read_exactly(&mut decoder, len);
    let magic = next(4)?;
    let (dtype, axes) = element(*magic.first_chunk().ok_or(Fault::Magic)?)?;
    let dimensions = next(axes * 4)?;
    let layout = layout(dtype, &dimensions);
    let len = layout.fits(inflate::most(bytes.len() as u64))?;
    budget.take(len as u64)?;
    let data = next(len)?;
    match inflate::rest(&mut decoder) {
        Some(0) => Ok((layout, data.into())),
        Some(extra) => Err(Fault::Trailing { extra }),
        None => Err(Fault::Compressed),
    }
}

/// The type of the elements and the number of dimensions.
fn element(magic: [u8; 4]) -> Result<(DType, usize), Fault> {
    let [0, 0, code, axes] = magic else { return Err(Fault::Magic) };
    let dtype = match code {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0b => DType::I16,
        0x0c => DType::I32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        _ => return Err(Fault::Magic),
    };
    Ok((dtype, usize::from(axes)))
}

fn layout(dtype: DType, dimensions: &[u8]) -> Layout {
    let (dimensions, _) = dimensions.as_chunks();
    let shape = dimensions.iter().map(|d| u32::from_be_bytes(*d) as usize).collect();
    Layout { dtype, big_endian: true, fortran: false, shape }
}
