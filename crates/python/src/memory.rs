//! Tensors of the library as memory that NumPy reads without a copy.

use crate::arrays::numpy_name;
use phalanx_types::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A tensor. `numpy.asarray` gives an array that shares its memory, keeps it alive, and cannot be written.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct Memory(Tensor);

impl Memory {
    pub(crate) fn new(tensor: Tensor) -> Self {
        Self(tensor)
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.0.shape().to_vec()
    }

    /// How NumPy calls the type of elements.
    #[getter]
    fn dtype(&self) -> &'static str {
        numpy_name(self.0.dtype())
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.0.data().len()
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let read_only = true;
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr(self.0.dtype()))?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, self.0.shape())?)?;
        interface.set_item("data", (self.0.data().as_ptr() as usize, read_only))?;
        Ok(interface)
    }
}

/// The type of elements as arrays tell each other.
pub(crate) fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::Bf16 | DType::U16 => "<u2",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::Bool => "|b1",
    }
}
