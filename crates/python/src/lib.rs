//! The private extension module `phalanx._phalanx`: converts, releases the interpreter's lock, calls the library, maps
//! errors.
//!
//! The public interface is in `python/phalanx`. Every call that takes time works on a thread of its own, while the
//! calling thread waits in `wait`: it delivers logs, runs callbacks and looks for Ctrl-C. Calls of a store (`store`) are
//! short and block the thread that makes them. No other thread ever calls into Python, so that the interpreter can end
//! at any time.
//!
//! ```text
//!   caller (Python)  ──► wait ──► worker thread: phalanx::train, predict, …
//!                         ▲  calls: a loss in Python        │
//!                         └─ events, logs, the result ◄─────┘
//! ```

mod arrays;
mod calls;
mod embedded;
mod errors;
mod history;
mod inputs;
mod jobs;
mod logs;
mod memory;
mod model;
mod nodes;
mod ops;
mod own_loss;
mod plan;
mod queue;
mod relay;
mod runs;
mod search;
mod store;
mod submitter;
mod train;
mod wait;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
mod _phalanx {
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use crate::calls::{CallMain, CallOptions, Function, Reference};
    #[pymodule_export]
    use crate::embedded::serve_node;
    #[pymodule_export]
    use crate::jobs::{JobCall, JobMain, JobNode};
    #[pymodule_export]
    use crate::memory::Memory;
    #[pymodule_export]
    use crate::model::{Model, fuse, load_model, tensor_names};
    #[pymodule_export]
    use crate::nodes::{LocalNodes, NodeWatch, nodes};
    #[pymodule_export]
    use crate::ops::{OpsHandle, OpsOutput, RankOps};
    #[pymodule_export]
    use crate::plan::plan;
    #[pymodule_export]
    use crate::relay::Relay;
    #[pymodule_export]
    use crate::runs::{find_runs, push_run, run_curve};
    #[pymodule_export]
    use crate::search::{NodeSearch, SearchCore, SearchSpace, hypervolume, pareto_front};
    #[pymodule_export]
    use crate::store::{StoreClient, StoreServer, StreamMember, StreamProducer, StreamRun};
    #[pymodule_export]
    use crate::train::{read_run, resume, train};
    #[pymodule_export]
    use crate::wait::finish;
    #[pymodule_export]
    use crate::{command, retire_shared_memory, version};

    /// A forked process has the arrays of this one: their memory must not be written again.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let before = PyDict::new(module.py());
        before.set_item("before", module.getattr("retire_shared_memory")?)?;
        module.py().import("os")?.call_method("register_at_fork", (), Some(&before))?;
        Ok(())
    }
}

/// Sees to it that shared memory that is in use is not written again.
#[pyfunction]
fn retire_shared_memory() {
    phalanx_shared::retire_all();
}

/// Runs the command line to its end and gives its exit code. `program` are the words that start it again.
#[pyfunction]
fn command(py: Python<'_>, program: Vec<String>, arguments: Vec<std::ffi::OsString>) -> u8 {
    let mut words = program.into_iter();
    let file = words.next().unwrap_or_default();
    let program = words.fold(phalanx::nodes::Program::new(file), phalanx::nodes::Program::argument);
    py.detach(|| phalanx_cli::run_command(program, arguments))
}

/// The version of the library.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
