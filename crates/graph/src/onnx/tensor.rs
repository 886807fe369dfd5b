//! Tensors of a file: inline bytes, inline numbers, or bytes of an external file.

use super::error::{BadTensor, OnnxError};
use super::proto::TensorProto;
use crate::regular;
use bytes::Bytes;
use phalanx_types::{ByteSize, DType, Tensor};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

const EXTERNAL: i32 = 1;
/// How often the bytes of an external file may be read.
const MOST_TIMES: u64 = 8;
/// The most dimensions of a tensor.
pub(super) const MOST_DIMENSIONS: usize = 64;

/// Our type for ONNX's number of it.
pub(super) fn dtype_of(code: i32) -> Option<DType> {
    Some(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::Bf16,
        _ => return None,
    })
}

/// ONNX's number of a type.
pub(super) fn code_of(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::Bf16 => 16,
    }
}

/// Reads tensors; external files only from `folder`.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    folder: Option<PathBuf>,
    taken: Rc<RefCell<ExternalReads>>,
}

/// What was read from external files.
#[derive(Debug, Default)]
struct ExternalReads {
    bytes: u64,
    /// The sizes of the files.
    files: BTreeMap<PathBuf, u64>,
    /// The most bytes that all of them may take.
    most: u64,
}

impl ExternalReads {
    /// Many tensors may be in one file, but not all of them at the same place.
    fn take(&mut self, path: PathBuf, size: u64, bytes: u64) -> Result<(), BadTensor> {
        self.files.insert(path, size);
        let there = self.files.values().fold(0, |n: u64, size| n.saturating_add(*size));
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.most {
            return Err(BadTensor::Memory { implied: ByteSize(self.bytes), left: ByteSize(self.most) });
        }
        if self.bytes > there.saturating_mul(MOST_TIMES) {
            return Err(BadTensor::Repeated { most: MOST_TIMES });
        }
        Ok(())
    }
}

impl Reader {
    /// External tensors may take `most` bytes.
    pub(super) fn new(folder: Option<&Path>, most: u64) -> Self {
        let taken = ExternalReads { most, ..ExternalReads::default() };
        Self { folder: folder.map(Path::to_owned), taken: Rc::new(RefCell::new(taken)) }
    }

    pub(super) fn read(&self, proto: &TensorProto) -> Result<Tensor, OnnxError> {
        self.tensor(proto)
            .map_err(|why| OnnxError::Tensor { tensor: proto.name.clone().unwrap_or_default(), why })
    }

    fn tensor(&self, proto: &TensorProto) -> Result<Tensor, BadTensor> {
        let code = proto.data_type.unwrap_or(0);
        let dtype = dtype_of(code).ok_or(BadTensor::Type { code })?;
        let uncountable = || BadTensor::Shape { dims: proto.dims.clone() };
        let shape: Option<Vec<u64>> = proto.dims.iter().map(|d| u64::try_from(*d).ok()).collect();
        let shape = shape.filter(|s| s.len() <= MOST_DIMENSIONS).ok_or_else(uncountable)?;
        let count = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).ok_or_else(uncountable)?;
        let needed =
            count.checked_mul(dtype.size() as u64).filter(|n| *n < 1 << 48).ok_or_else(uncountable)?;
        let data = if proto.data_location == Some(EXTERNAL) {
            self.external(proto, needed)?
        } else if let Some(raw) = &proto.raw_data {
            raw.clone()
        } else {
            numbers(proto, dtype)
        };
        let got = data.len() as u64;
        Tensor::new(dtype, shape, data).ok().ok_or(BadTensor::Length { needed, got })
    }

    fn external(&self, proto: &TensorProto, needed: u64) -> Result<Bytes, BadTensor> {
        let folder = self.folder.as_deref().ok_or(BadTensor::NoFolder)?;
        let field = |key: &str| {
            let entry = proto.external_data.iter().find(|e| e.key.as_deref() == Some(key));
            entry.and_then(|e| e.value.as_deref())
        };
        let number = |key| match field(key) {
            None => Ok(None),
            Some(text) => text
                .parse::<u64>()
                .map(Some)
                .ok()
                .ok_or(BadTensor::Reference { what: "offset or length is no number" }),
        };
        let location = field("location").ok_or(BadTensor::Reference { what: "it has no location" })?;
        let path = inside(folder, location)?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if length.is_some_and(|l| l != needed) {
            return Err(BadTensor::Length { needed, got: length.unwrap_or(0) });
        }
        let failed = |e: std::io::Error| BadTensor::Read { path: location.into(), kind: e.kind() };
        let (mut file, size) = regular::open(&path).map_err(failed)?;
        let left = size.saturating_sub(offset);
        if left < needed {
            return Err(BadTensor::Length { needed, got: left });
        }
        self.taken.borrow_mut().take(path, size, needed)?;
        file.seek(SeekFrom::Start(offset)).map_err(failed)?;
        Ok(regular::read(file, needed).map_err(failed)?.into())
    }
}

/// The path of a file inside the folder, also after following links.
fn inside(folder: &Path, location: &str) -> Result<PathBuf, BadTensor> {
    let outside = || BadTensor::Outside { path: location.into() };
    let plain =
        Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !plain || location.is_empty() || location.contains('\0') {
        return Err(outside());
    }
    let failed = |e: std::io::Error| BadTensor::Read { path: location.into(), kind: e.kind() };
    let folder = folder.canonicalize().map_err(failed)?;
    let path = folder.join(location).canonicalize().map_err(failed)?;
    if !path.starts_with(&folder) || !path.is_file() {
        return Err(outside());
    }
    Ok(path)
}

/// The bytes of numbers in a typed field.
fn numbers(proto: &TensorProto, dtype: DType) -> Bytes {
    let ints = &proto.int32_data;
    let data: Vec<u8> = match dtype {
        DType::F32 => proto.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::F64 => proto.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I64 => proto.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I32 => ints.iter().flat_map(|x| x.to_le_bytes()).collect(),
        DType::I8 | DType::U8 => ints.iter().map(|x| *x as u8).collect(),
        DType::Bool => ints.iter().map(|x| u8::from(*x != 0)).collect(),
        DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => {
            ints.iter().flat_map(|x| (*x as u16).to_le_bytes()).collect()
        }
        DType::U32 => proto.uint64_data.iter().flat_map(|x| (*x as u32).to_le_bytes()).collect(),
        DType::U64 => proto.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    data.into()
}

/// A tensor as a message, with inline bytes.
pub(super) fn write(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: tensor.shape().iter().map(|d| *d as i64).collect(),
        data_type: Some(code_of(tensor.dtype())),
        raw_data: Some(tensor.data().clone()),
        ..TensorProto::default()
    }
}
