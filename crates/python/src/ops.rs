//! Collectives of ranks on memory of Python.
//!
//! ```text
//!   submit (addresses, types, shapes, what keeps them alive) ──► Ops ──► OpsHandle ── wait ──► OpsOutput
//! ```
//! The memory of an operation is kept alive until it has ended, also when Python drops its handle before: then the
//! session keeps it.

mod output;

pub(crate) use output::OpsOutput;

use crate::errors::Failure;
use crate::logs;
use crate::wait::wait;
use phalanx_ops::{
    DType, OpHandle, OpKind, OpSignature, Operation, Ops, OpsError, Outcome, RawTensor, Reduction, SetId,
    TensorSpec, WireFormat,
};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// How often a thread that waits looks for Ctrl-C.
const TICK: Duration = Duration::from_millis(50);

/// A tensor as Python gives it: where it is read, where the result goes (0: nowhere), its type and its shape.
type TensorInput = (usize, usize, String, Vec<u64>);

/// Rank, ranks, rank on the host, ranks of the host, number of the host, hosts, and which group of ranks this is.
type Place = (u32, u32, u32, u32, u32, u32, u64);

/// An operation and what keeps its memory alive.
struct Lent {
    handle: OpHandle,
    _owner: Py<PyAny>,
}

/// Operations whose handles were dropped before they ended.
type Orphans = Arc<Mutex<Vec<Arc<Lent>>>>;

fn locked(orphans: &Orphans) -> MutexGuard<'_, Vec<Arc<Lent>>> {
    orphans.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One rank of a program.
#[pyclass(frozen, module = "phalanx._phalanx")]
pub(crate) struct RankOps {
    ops: RwLock<Option<Ops>>,
    orphans: Orphans,
    pid: u32,
}

impl RankOps {
    fn with<T>(&self, act: impl FnOnce(&Ops) -> Result<T, OpsError>) -> Result<T, Failure> {
        let ops = self.ops.read().unwrap_or_else(PoisonError::into_inner);
        act(ops.as_ref().ok_or_else(Failure::not_a_rank)?).map_err(|error| Failure::operation(&error))
    }

    fn take(&self) -> Option<Ops> {
        self.ops.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets go of memory that is not used any more.
    fn sweep(&self) {
        // What Python does when an object goes may come back here: the lock is free then.
        let ended: Vec<Arc<Lent>> = {
            let mut orphans = locked(&self.orphans);
            orphans.extract_if(.., |lent| lent.handle.poll()).collect()
        };
        drop(ended);
    }

    fn lend(&self, handle: OpHandle, owner: Py<PyAny>) -> OpsHandle {
        self.sweep();
        OpsHandle { lent: Arc::new(Lent { handle, _owner: owner }), orphans: Arc::clone(&self.orphans) }
    }
}

#[pymethods]
impl RankOps {
    /// Meets the other ranks as the environment says.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let ops = wait(py, |_| Ops::init_from_env().map_err(|error| Failure::operation(&error)))?;
        Ok(Self { ops: RwLock::new(Some(ops)), orphans: Orphans::default(), pid: std::process::id() })
    }

    /// Where this rank is among the others.
    #[getter]
    fn place(&self) -> PyResult<Place> {
        let place = |ops: &Ops| {
            let (rank, local, cross) = (ops.rank(), ops.local_rank(), ops.cross_rank());
            let (size, local_size, cross_size) = (ops.size(), ops.local_size(), ops.cross_size());
            Ok((rank, size, local, local_size, cross, cross_size, ops.epoch()))
        };
        Ok(self.with(place)?)
    }

    /// Issues an operation. `owner` is kept until the operation has ended.
    #[pyo3(signature = (kind, name, tensors, owner, *, reduction = "sum", root = 0, ranks = Vec::new(), set = 0,
        prescale = 1.0, postscale = 1.0, wire = "same", splits = None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn submit(
        &self,
        py: Python<'_>,
        kind: &str,
        name: String,
        tensors: Vec<TensorInput>,
        owner: Py<PyAny>,
        reduction: &str,
        root: u32,
        ranks: Vec<u32>,
        set: u32,
        prescale: f64,
        postscale: f64,
        wire: &str,
        splits: Option<Vec<u64>>,
    ) -> PyResult<OpsHandle> {
        let set = SetId(set);
        let kind = match kind {
            "allreduce" => OpKind::AllReduce { reduction: reduction_of(reduction)? },
            "reducescatter" => OpKind::ReduceScatter { reduction: reduction_of(reduction)? },
            "allgather" => OpKind::AllGather,
            "alltoall" => OpKind::AllToAll,
            "broadcast" => OpKind::Broadcast { root },
            "barrier" => OpKind::Barrier,
            "add_set" => OpKind::AddSet { ranks },
            "remove_set" => OpKind::RemoveSet { set },
            other => return Err(Failure::input(format!("there is no operation {other:?}")).into()),
        };
        let about_sets = matches!(kind, OpKind::AddSet { .. } | OpKind::RemoveSet { .. });
        let wire = if wire == "f16" { WireFormat::F16 } else { WireFormat::Same };
        let (specs, tensors) = lent_tensors(tensors)?;
        // An all-to-all asks the engine for the members of the set, and the engine may compute.
        let is_slow = kind == OpKind::AllToAll;
        let signature = OpSignature::of(kind, specs)
            .on(if about_sets { SetId::WORLD } else { set })
            .scaled(prescale, postscale)
            .wired(wire);
        let operation = Operation { name, signature, tensors, splits };
        let submit = || self.with(|ops| ops.submit(operation));
        let handle = if is_slow { py.detach(submit) } else { submit() }?;
        Ok(self.lend(handle, owner))
    }

    /// Says that this rank has no more data.
    fn join(&self, py: Python<'_>) -> PyResult<OpsHandle> {
        let handle = self.with(Ops::join)?;
        Ok(self.lend(handle, py.None()))
    }

    /// Whether processes wait to become ranks, as far as this rank knows; `None` if none can come.
    #[getter]
    fn newcomers(&self) -> PyResult<Option<bool>> {
        Ok(self.with(|ops| Ok(ops.newcomers()))?)
    }

    /// Begins to record operations as a Chrome trace.
    fn start_timeline(&self, path: PathBuf) -> PyResult<()> {
        Ok(self.with(|ops| ops.start_timeline(&path))?)
    }

    /// Writes the recording.
    fn stop_timeline(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.with(Ops::stop_timeline))?)
    }

    /// The stalls that were reported since the last call: the operation, the ranks it waits for, seconds.
    fn take_stalls(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<u32>, f64)>> {
        logs::deliver(py)?;
        let stalls = self.with(|ops| Ok(ops.take_stalls()))?;
        let told = stalls.into_iter().map(|stall| (stall.name, stall.missing, stall.waited.as_secs_f64()));
        Ok(told.collect())
    }

    /// Meets the ranks that are alive as a new group.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        let ops = self.take().ok_or_else(Failure::not_a_rank)?;
        let ops = wait(py, move |_| ops.reset().map_err(|error| Failure::operation(&error)))?;
        self.sweep();
        *self.ops.write().unwrap_or_else(PoisonError::into_inner) = Some(ops);
        Ok(())
    }

    /// Leaves the group in order.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() != self.pid {
            return Ok(());
        }
        if let Some(ops) = self.take() {
            wait(py, move |_| {
                drop(ops);
                Ok(())
            })?;
        }
        self.sweep();
        Ok(())
    }
}

#[expect(
    unsafe_code,
    reason = "the limited interface of Python 3.9 has no buffers: tensors tell their address"
)]
fn lent_tensors(inputs: Vec<TensorInput>) -> Result<(Vec<TensorSpec>, Vec<RawTensor>), Failure> {
    let mut specs = Vec::with_capacity(inputs.len());
    let mut tensors = Vec::with_capacity(inputs.len());
    for (input, output, dtype, shape) in inputs {
        let spec = TensorSpec::new(dtype_of(&dtype)?, shape);
        let bytes = spec.bytes().ok_or_else(|| Failure::input("the tensor is too large"))?;
        let tensor = if bytes == 0 {
            RawTensor::empty()
        } else {
            // SAFETY: `phalanx._ops` gives the addresses of contiguous tensors of this type and shape, which the
            // owner that it gives along keeps alive; `Lent` keeps the owner until the operation has ended.
            unsafe { RawTensor::new(input as *const u8, output as *mut u8, bytes) }
        };
        specs.push(spec);
        tensors.push(tensor);
    }
    Ok((specs, tensors))
}

fn dtype_of(name: &str) -> Result<DType, Failure> {
    Ok(match name {
        "float32" => DType::F32,
        "float64" => DType::F64,
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "int8" => DType::I8,
        "int16" => DType::I16,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "uint8" => DType::U8,
        "uint16" => DType::U16,
        "uint32" => DType::U32,
        "uint64" => DType::U64,
        "bool" => DType::Bool,
        other => return Err(Failure::input(format!("tensors of type {other} cannot be used"))),
    })
}

fn reduction_of(name: &str) -> Result<Reduction, Failure> {
    Ok(match name {
        "sum" => Reduction::Sum,
        "average" => Reduction::Average,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        "product" => Reduction::Product,
        "adasum" => Reduction::Adasum,
        other => return Err(Failure::input(format!("there is no reduction {other:?}"))),
    })
}

/// An operation that is under way.
#[pyclass(frozen, module = "phalanx._phalanx")]
pub(crate) struct OpsHandle {
    lent: Arc<Lent>,
    orphans: Orphans,
}

#[pymethods]
impl OpsHandle {
    /// Whether it has ended.
    fn poll(&self) -> bool {
        self.lent.handle.poll()
    }

    /// Waits for its end; to be called once. Gives the tensors that it made, and a number: the set that was made, or
    /// the rank that joined last.
    fn wait(&self, py: Python<'_>) -> PyResult<(Vec<OpsOutput>, Option<u32>)> {
        let ended = loop {
            let handle = &self.lent.handle;
            let ended = if handle.poll() {
                handle.wait(Some(Duration::ZERO))
            } else {
                py.detach(|| handle.wait(Some(TICK)))
            };
            logs::deliver(py)?;
            match ended {
                Err(OpsError::Timeout { .. }) => py.check_signals()?,
                ended => break ended,
            }
        };
        let Outcome { outputs, set, last_joined, .. } = ended.map_err(|error| Failure::operation(&error))?;
        let outputs = outputs.into_iter().map(OpsOutput::new).collect();
        Ok((outputs, set.map(|set| set.0).or(last_joined)))
    }
}

impl Drop for OpsHandle {
    fn drop(&mut self) {
        if !self.lent.handle.poll() {
            locked(&self.orphans).push(Arc::clone(&self.lent));
        }
    }
}
