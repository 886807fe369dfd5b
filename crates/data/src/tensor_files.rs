//! Files of named tensors, whole and of any element type: npy, npz, safetensors.

use crate::array::Layout;
use crate::error::{DataError, Fault, Origin};
use crate::formats::{self, Elements};
use crate::limit::{Budget, Limit};
use crate::spec::Format;
use ::safetensors::tensor::TensorView;
use bytes::Bytes;
use phalanx_types::{DType, Tensor};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use zip::write::SimpleFileOptions;

/// Reads all tensors of a file, with their names. A file of one array calls it by the name of the file.
///
/// # Errors
/// The file cannot be read, is none of these formats, lies about its contents, or takes more than half of the memory.
pub fn read_tensors(file: &Path) -> Result<Vec<(String, Tensor)>, DataError> {
    read_tensors_within(file, Limit::default())
}

/// The same with another limit of memory.
///
/// # Errors
/// As [`read_tensors`].
pub fn read_tensors_within(file: &Path, limit: Limit) -> Result<Vec<(String, Tensor)>, DataError> {
    let budget = Budget::new(limit);
    let (format, arrays) = formats::open_elements(file, budget.clone())?;
    let tensor = |(name, elements): (String, Elements)| {
        let tensor = row_major(&Origin::array(file, &name), format, elements, &budget)?;
        Ok((name, tensor))
    };
    arrays.into_iter().map(tensor).collect()
}

fn row_major(
    origin: &Origin,
    format: Format,
    (layout, data): Elements,
    budget: &Budget,
) -> Result<Tensor, DataError> {
    let fault = |fault| DataError::Malformed { format, fault, origin: origin.clone() };
    let needed = layout.fits(data.len() as u64).map_err(fault)?;
    if data.len() > needed {
        return Err(fault(Fault::Trailing { extra: (data.len() - needed) as u64 }));
    }
    let shape: Vec<u64> = layout.shape.iter().map(|len| *len as u64).collect();
    let size = layout.dtype.size();
    let mut data = data;
    if layout.big_endian && size > 1 {
        let mut swapped = budget.vec(data.len()).map_err(fault)?;
        swapped.extend_from_slice(&data);
        swapped.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        data = swapped.into();
    }
    if layout.fortran && layout.shape.len() > 1 {
        data = transposed(&layout, &data, budget.vec(data.len()).map_err(fault)?);
    }
    Tensor::new(layout.dtype, shape, data).map_err(|e| fault(Fault::Decoder { what: e.to_string() }))
}

/// The elements with the last index varying fastest instead of the first.
fn transposed(layout: &Layout, data: &Bytes, mut out: Vec<u8>) -> Bytes {
    let size = layout.dtype.size();
    let mut steps = Vec::with_capacity(layout.shape.len());
    let mut step = 1;
    for len in &layout.shape {
        steps.push(step);
        step *= len;
    }
    let mut index = vec![0; layout.shape.len()];
    for _ in 0..data.len() / size.max(1) {
        let at: usize = index.iter().zip(&steps).map(|(i, step)| i * step).sum();
        out.extend_from_slice(data.get(at * size..(at + 1) * size).unwrap_or_default());
        for (i, len) in index.iter_mut().zip(&layout.shape).rev() {
            *i += 1;
            if *i < *len {
                break;
            }
            *i = 0;
        }
    }
    out.into()
}

/// Why tensors could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteTensorsError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Zip(#[from] zip::result::ZipError),
    #[error(transparent)]
    Safetensors(#[from] ::safetensors::SafeTensorError),
    #[error("an npy file has one array, not {count}")]
    OneArray { count: usize },
    #[error("{dtype:?} is no type of NumPy; safetensors files have it")]
    DType { dtype: DType },
    #[error("the name must end in .npy, .npz or .safetensors")]
    Name,
}

/// Writes tensors; the name of the file says in which format.
///
/// # Errors
/// The file cannot be written, or its format cannot hold them.
pub fn write_tensors(file: &Path, tensors: &[(String, Tensor)]) -> Result<(), WriteTensorsError> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => {
            let [(_, tensor)] = tensors else {
                return Err(WriteTensorsError::OneArray { count: tensors.len() });
            };
            let mut out = BufWriter::new(File::create(file)?);
            write_npy(&mut out, tensor)?;
            Ok(out.flush()?)
        }
        Some("npz") => {
            let mut archive = zip::ZipWriter::new(BufWriter::new(File::create(file)?));
            for (name, tensor) in tensors {
                let options = SimpleFileOptions::default()
                    .compression_method(zip::CompressionMethod::Stored)
                    .large_file(tensor.data().len() > 1 << 30);
                archive.start_file(format!("{name}.npy"), options)?;
                write_npy(&mut archive, tensor)?;
            }
            Ok(archive.finish()?.flush()?)
        }
        Some("safetensors") => {
            let views = tensors.iter().map(|(name, tensor)| {
                let shape = tensor.shape().iter().map(|len| usize::try_from(*len).unwrap_or(usize::MAX));
                let view = TensorView::new(tensor.dtype().into(), shape.collect(), tensor.data())?;
                Ok((name.as_str(), view))
            });
            let views = views.collect::<Result<Vec<_>, ::safetensors::SafeTensorError>>()?;
            Ok(std::fs::write(file, ::safetensors::serialize(views, None)?)?)
        }
        _ => Err(WriteTensorsError::Name),
    }
}

fn write_npy(out: &mut impl Write, tensor: &Tensor) -> Result<(), WriteTensorsError> {
    let dtype = numpy_type(tensor.dtype()).ok_or(WriteTensorsError::DType { dtype: tensor.dtype() })?;
    let shape: Vec<usize> =
        tensor.shape().iter().map(|len| usize::try_from(*len).unwrap_or(usize::MAX)).collect();
    out.write_all(&npy_header(dtype, &shape))?;
    Ok(out.write_all(tensor.data())?)
}

/// What stands before the elements of an npy file; `dtype` as NumPy writes it.
pub fn npy_header(dtype: &str, shape: &[usize]) -> Vec<u8> {
    let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let dict = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // Magic, version, length; then the whole is a multiple of 64 and ends with a line break.
    let before = 6 + 2 + 2;
    let padding = 64 - (before + dict.len() + 1) % 64;
    let header = format!("{dict}{}\n", " ".repeat(padding % 64));
    let len = u16::try_from(header.len()).unwrap_or(u16::MAX);
    [b"\x93NUMPY\x01\x00".as_slice(), &len.to_le_bytes(), header.as_bytes()].concat()
}

fn numpy_type(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::Bf16 => return None,
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(String, Tensor)> {
        let types = DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bf16).enumerate();
        let tensor = |(i, dtype): (usize, DType)| {
            let data: Vec<u8> = (0..6 * dtype.size()).map(|byte| (byte % 2) as u8).collect();
            (format!("t{i:02}"), Tensor::new(dtype, vec![2, 3], data.into()).unwrap())
        };
        types.map(tensor).collect()
    }

    #[test]
    fn tensors_of_all_types_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["all.npz", "all.safetensors"] {
            let file = dir.path().join(name);
            write_tensors(&file, &all()).unwrap();
            assert_eq!(read_tensors(&file).unwrap(), all());
        }
        let scalar = vec![("one".to_owned(), Tensor::from_f32(vec![], &[2.5]).unwrap())];
        let file = dir.path().join("one.npy");
        write_tensors(&file, &scalar).unwrap();
        assert_eq!(read_tensors(&file).unwrap(), scalar);
        assert!(matches!(write_tensors(&file, &all()), Err(WriteTensorsError::OneArray { count: 12 })));
        assert!(matches!(write_tensors(&dir.path().join("x.csv"), &all()), Err(WriteTensorsError::Name)));
        assert!(matches!(read_tensors(&dir.path().join("no.npy")), Err(DataError::Open { .. })));
    }

    #[test]
    fn arrays_of_other_machines_and_languages_are_put_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f.npy");
        let header = npy_header("<i2", &[2, 3]);
        let (fixed, text) = header.split_at(10);
        // As many letters as before: the header has its length in front.
        let text = str::from_utf8(text).unwrap().replace("<i2", ">i2").replace("False", "True ");
        let header = [fixed, text.as_bytes()].concat();
        let elements = [0i16, 3, 1, 4, 2, 5].iter().flat_map(|v| v.to_be_bytes());
        std::fs::write(&file, header.into_iter().chain(elements).collect::<Vec<_>>()).unwrap();
        let expected: Vec<u8> = [0i16, 1, 2, 3, 4, 5].iter().flat_map(|v| v.to_le_bytes()).collect();
        let read = read_tensors(&file).unwrap();
        assert_eq!((read[0].1.shape(), &read[0].1.data()[..]), (&[2, 3][..], &expected[..]));
    }
}
