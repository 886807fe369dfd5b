//! NumPy arrays as tensors without a copy, and numbers for NumPy.

use crate::errors::Failure;
use bytes::Bytes;
use phalanx::Dataset;
use phalanx_types::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict};

/// The memory of an array, which stays for as long as this does.
struct ArrayMemory {
    address: usize,
    len: usize,
    _owner: Py<PyAny>,
}

impl AsRef<[u8]> for ArrayMemory {
    #[expect(
        unsafe_code,
        reason = "the limited interface of Python 3.9 has no buffers: an array tells its address"
    )]
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `borrow` took address and length from a `numpy.ndarray` itself, not from a subclass or another
        // object, which is in one piece and owns or keeps alive this memory for as long as `_owner` lives. Arrays are
        // not resized while there are other references to them. Callers must not write to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

fn dtype(kind: &str) -> Option<DType> {
    Some(match kind {
        "<f4" => DType::F32,
        "<f8" => DType::F64,
        "<f2" => DType::F16,
        "|i1" => DType::I8,
        "<i2" => DType::I16,
        "<i4" => DType::I32,
        "<i8" => DType::I64,
        "|u1" => DType::U8,
        "<u2" => DType::U16,
        "<u4" => DType::U32,
        "<u8" => DType::U64,
        "|b1" => DType::Bool,
        _ => return None,
    })
}

/// How NumPy calls a type of elements.
pub(crate) fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::F16 => "float16",
        // NumPy has no such type; the bits are given.
        DType::Bf16 | DType::U16 => "uint16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
    }
}

/// An array as a tensor that shares its memory.
pub(crate) fn borrow(array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let ndarray = array.py().import("numpy")?.getattr("ndarray")?;
    if !array.get_type().is(&ndarray) {
        return Err(
            Failure::input(format!("expected a NumPy array, not {}", array.get_type().name()?)).into()
        );
    }
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let item = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        interface.get_item(name)?.ok_or_else(|| PyErr::from(Failure::input("the array has no memory")))
    };
    let kind: String = item("typestr")?.extract()?;
    let shape: Vec<u64> = item("shape")?.extract()?;
    let (address, _read_only): (usize, bool) = item("data")?.extract()?;
    let Some(dtype) = dtype(&kind) else {
        return Err(Failure::input(format!("arrays of type {kind} cannot be used")).into());
    };
    let strided = interface.get_item("strides")?.is_some_and(|strides| !strides.is_none());
    if strided {
        return Err(Failure::input("the array does not lie in one piece").into());
    }
    let len: usize = array.getattr("nbytes")?.extract()?;
    let memory = ArrayMemory { address, len, _owner: array.clone().unbind() };
    Tensor::new(dtype, shape, Bytes::from_owner(memory))
        .map_err(|error| Failure::from(phalanx::Error::from(error)).into())
}

/// Samples, and labels where there are any.
pub(crate) fn dataset(x: &Bound<'_, PyAny>, y: Option<&Bound<'_, PyAny>>) -> PyResult<Dataset> {
    let (x, y) = (borrow(x)?, y.map(borrow).transpose()?);
    Dataset::from_arrays(x, y).map_err(|error| Failure::from(phalanx::Error::from(error)).into())
}

/// Numbers as memory of Python, of which NumPy makes an array.
pub(crate) fn to_python<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyByteArray> {
    PyByteArray::new(py, bytemuck::cast_slice(values))
}
