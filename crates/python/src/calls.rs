//! Calls of Python functions as jobs, for `phalanx.jobs.Executor`.
//!
//! Python pickles; here calls are packed, submitted and their results unpacked. Bytes that were kept out of a pickle
//! are copied when the call is submitted, so a program may write to its arrays right after.

use crate::arrays;
use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::memory::Memory;
use crate::submitter::{Ended, Submitter, Takes, seconds};
use bytes::Bytes;
use phalanx::jobs::python::{FunctionHash, KIND};
use phalanx::jobs::{FailReason, JobSpec, MainError, Needs, Outcome, PythonCall, PythonResult, SolutionRef};
use phalanx::nodes::{ByteSize, NodeKind};
use phalanx_shared::{WORTH_SHARING, copy_together};
use phalanx_types::{DType, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::time::Duration;

/// Copies of at least this many bytes are made without the interpreter's lock.
const LARGE: usize = 64 << 10;

/// A pickled function and its hash.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct Function {
    hash: FunctionHash,
    pickled: Bytes,
}

#[pymethods]
impl Function {
    /// The hash is the SHA-256 of the pickled function.
    #[new]
    fn new(hash: &[u8], pickled: &[u8]) -> PyResult<Self> {
        let hash = hash.try_into().map_err(|_length| Failure::input("a hash has 32 bytes"))?;
        Ok(Self { hash, pickled: Bytes::copy_from_slice(pickled) })
    }
}

/// What a call asks of the nodes.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct CallOptions {
    priority: i32,
    deadline: Option<Duration>,
    attempts: Option<u32>,
    needs: Needs,
}

#[pymethods]
impl CallOptions {
    #[new]
    #[pyo3(signature = (*, priority, deadline, attempts, cores, memory))]
    fn new(
        priority: i32,
        deadline: Option<f64>,
        attempts: Option<u32>,
        cores: u32,
        memory: u64,
    ) -> PyResult<Self> {
        if cores == 0 || attempts == Some(0) {
            return Err(Failure::input("`cores` and `attempts` must be at least 1").into());
        }
        let deadline = deadline.map(seconds).transpose()?;
        Ok(Self { priority, deadline, attempts, needs: Needs { cores, memory: ByteSize(memory) } })
    }
}

/// How a call ended, as Python has it: its future, how, and what belongs to it.
/// If the result stays at its node, the last one refers to it.
type Result<'py> = (Py<PyAny>, u8, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Reference>);

/// A result that stays at the node that computed it. It is freed with the last reference.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug, Clone)]
pub(crate) struct Reference(SolutionRef);

/// A result that a call takes.
#[derive(FromPyObject)]
enum TakenResult<'py> {
    /// The ticket of a call whose result has not come.
    Ticket(u64),
    Reference(Bound<'py, Reference>),
}

/// The function returned: its pickled result, and the memory that was kept out of it or `None`.
const RETURNED: u8 = 0;
/// The function raised: the pickled exception, and class, message and traceback.
const RAISED: u8 = 1;
/// The call failed: `None`, and why.
const FAILED: u8 = 2;
/// The call had no outcome before its deadline.
const EXPIRED: u8 = 3;
/// The call was cancelled.
const CANCELLED: u8 = 4;
/// The function returned, and its result is where it was computed.
const KEPT: u8 = 5;

/// A main node that has functions called.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct CallMain(Submitter);

#[pymethods]
impl CallMain {
    /// Joins a domain.
    #[new]
    fn new(py: Python<'_>, domain: DomainInput, name: String) -> PyResult<Self> {
        Submitter::start(py, domain, name, NodeKind::Main, None).map(Self)
    }

    /// What the node is called in its domain.
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    /// Has a function called and gives the ticket of the call; `future` comes back with the result.
    ///
    /// With `keep` a large result stays at its node. `takes` are results that the arguments refer to.
    #[expect(clippy::too_many_arguments, reason = "a call of Python names them by place")]
    fn call(
        &self,
        py: Python<'_>,
        function: &Bound<'_, Function>,
        arguments: &Bound<'_, PyBytes>,
        buffers: Vec<Bound<'_, PyAny>>,
        options: &Bound<'_, CallOptions>,
        future: Py<PyAny>,
        keep: bool,
        takes: Vec<TakenResult<'_>>,
    ) -> PyResult<u64> {
        let (function, options) = (function.get(), options.get());
        let call = PythonCall {
            hash: function.hash,
            function: function.pickled.clone(),
            arguments: Bytes::copy_from_slice(arguments.as_bytes()),
            buffers: copied(py, &buffers)?,
            inputs: 0,
        };
        let parcel = call.into_parcel().map_err(|error| Failure::input(error.to_string()))?;
        let mut spec = JobSpec::new(KIND, parcel);
        spec.priority = options.priority;
        spec.deadline = options.deadline;
        spec.max_attempts = options.attempts.unwrap_or(spec.max_attempts);
        spec.needs = options.needs;
        spec.keep = keep;
        let takes = takes.into_iter().map(|taken| match taken {
            TakenResult::Ticket(ticket) => Takes::Ticket(ticket),
            TakenResult::Reference(reference) => Takes::Solution(reference.get().0.clone()),
        });
        match takes.collect::<Vec<_>>() {
            takes if keep || !takes.is_empty() => self.0.submit_kept(py, spec, takes, future),
            _ => self.0.submit(py, spec, future),
        }
    }

    /// The caller waits for the result of a call.
    fn want(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.0.want(py, ticket)
    }

    /// This many results of kept calls have reached their futures.
    fn settled(&self, py: Python<'_>, count: usize) -> PyResult<()> {
        self.0.settled(py, count)
    }

    /// Fetches a result that stayed at its node: its pickle and the memory that was kept out of it; or `None` and why
    /// it is lost. `None` if it does not come in time.
    #[pyo3(signature = (reference, timeout = None))]
    fn fetch<'py>(
        &self,
        py: Python<'py>,
        reference: &Bound<'py, Reference>,
        timeout: Option<f64>,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let timeout = timeout.map(seconds).transpose()?;
        match self.0.fetch(py, reference.get().0.clone(), timeout)? {
            None => Ok(None),
            Some(Ok(parcel)) => {
                let result = PythonResult::from_parcel(&parcel);
                let PythonResult { value, buffers } =
                    result.map_err(|error| Failure::bug(error.to_string()))?;
                let buffers =
                    if buffers.is_empty() { py.None().into_bound(py) } else { memories(py, buffers)? };
                Ok(Some((PyBytes::new(py, &value).into_any(), buffers)))
            }
            Some(Err(MainError::NoSolution(reason))) => {
                Ok(Some((py.None().into_bound(py), reason.to_string().into_pyobject(py)?.into_any())))
            }
            Some(Err(error)) => Err(Failure::machine(&error).into()),
        }
    }

    /// Asks that a call is given up; its result tells whether that was in time.
    fn cancel(&self, py: Python<'_>, ticket: u64) -> PyResult<()> {
        self.0.cancel(py, ticket)
    }

    /// Asks that all calls without result are given up.
    fn cancel_all(&self, py: Python<'_>) -> PyResult<()> {
        self.0.cancel_all(py)
    }

    /// How many calls were submitted; each has a result sooner or later.
    #[getter]
    fn submitted(&self) -> u64 {
        self.0.submitted()
    }

    /// Where a call stands and why; `None` when it has ended.
    fn explain(&self, py: Python<'_>, ticket: u64) -> PyResult<Option<String>> {
        self.0.explain(py, ticket)
    }

    /// The calls that have ended, once at least one has; `None` when the node is closed.
    #[pyo3(signature = (timeout = None))]
    fn take_results<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Vec<Result<'py>>>> {
        let ended = self.0.take(py, timeout.map(seconds).transpose()?)?;
        ended.map(|ended| ended.into_iter().map(|ended| result(py, ended)).collect()).transpose()
    }

    /// Leaves the domain. Calls without result are cancelled.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }
}

/// The bytes of arrays. Large ones go into memory that nodes of this host map.
fn copied(py: Python<'_>, arrays: &[Bound<'_, PyAny>]) -> PyResult<Vec<Bytes>> {
    let memories = arrays.iter().map(arrays::borrow).collect::<PyResult<Vec<_>>>()?;
    let values: Vec<&[u8]> = memories.iter().map(|memory| &memory.data()[..]).collect();
    let apart = || values.iter().map(|value| Bytes::copy_from_slice(value)).collect();
    let total: usize = values.iter().map(|value| value.len()).sum();
    Ok(match total {
        ..LARGE => apart(),
        LARGE..WORTH_SHARING => py.detach(apart),
        // Without memory to share the bytes are sent.
        _ => py.detach(|| copy_together(&values).unwrap_or_else(|_none| apart())),
    })
}

fn result(py: Python<'_>, Ended { kept, future, outcome, .. }: Ended) -> PyResult<Result<'_>> {
    let kept = kept.map(Reference);
    let none = || py.None().into_bound(py);
    let text = |text: String| text.into_pyobject(py).map(Bound::into_any);
    Ok(match outcome {
        Outcome::Solved(parcel) => match PythonResult::from_parcel(&parcel) {
            Ok(PythonResult { value, buffers }) => {
                let buffers = if buffers.is_empty() { none() } else { memories(py, buffers)? };
                (future, RETURNED, PyBytes::new(py, &value).into_any(), buffers, kept)
            }
            Err(error) => (future, FAILED, none(), text(error.to_string())?, None),
        },
        Outcome::Kept { .. } => (future, KEPT, none(), none(), kept),
        // What takes a result fails as the call that should have computed it.
        Outcome::Failed(
            FailReason::Raised(raised) | FailReason::InputFailed { raised: Some(raised), .. },
        ) => {
            let told = (raised.exception, raised.message, raised.traceback).into_pyobject(py)?;
            (future, RAISED, PyBytes::new(py, &raised.pickled).into_any(), told.into_any(), None)
        }
        Outcome::Failed(reason) => (future, FAILED, none(), text(reason.to_string())?, None),
        Outcome::Expired => (future, EXPIRED, none(), none(), None),
        Outcome::Cancelled => (future, CANCELLED, none(), none(), None),
    })
}

fn memories(py: Python<'_>, buffers: Vec<Bytes>) -> PyResult<Bound<'_, PyAny>> {
    let memories = buffers.into_iter().map(|bytes| {
        let tensor = Tensor::new(DType::U8, vec![bytes.len() as u64], bytes);
        let tensor = tensor.map_err(|error| Failure::bug(error.to_string()))?;
        Py::new(py, Memory::new(tensor))
    });
    Ok(PyList::new(py, memories.collect::<PyResult<Vec<_>>>()?)?.into_any())
}
