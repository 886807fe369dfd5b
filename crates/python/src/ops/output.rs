//! Tensors that operations made.

use crate::memory::typestr;
use phalanx_ops::{DType, OutputTensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A tensor that an operation made. `numpy.asarray` gives an array that shares its memory, keeps it alive, and can be
/// written.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct OpsOutput {
    dtype: DType,
    shape: Vec<u64>,
    rows: Vec<u64>,
    address: usize,
    /// Only Python reads and writes it, by its address.
    _bytes: Vec<u8>,
}

impl OpsOutput {
    pub(super) fn new(tensor: OutputTensor) -> Self {
        let OutputTensor { spec, mut bytes, rows } = tensor;
        let address = bytes.as_mut_ptr() as usize;
        Self { dtype: spec.dtype, shape: spec.shape, rows, address, _bytes: bytes }
    }
}

#[pymethods]
impl OpsOutput {
    /// How many rows came from each rank.
    #[getter]
    fn rows(&self) -> Vec<u64> {
        self.rows.clone()
    }

    /// bfloat16 is given as the integers of its bits.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        let read_only = false;
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr(self.dtype))?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.address, read_only))?;
        Ok(interface)
    }
}
