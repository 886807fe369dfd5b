//! Who is in a domain.

use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::train::json;
use crate::wait::{Caller, wait};
use phalanx::Error;
use phalanx::nodes::{Background, Fabric, NodeKind, NodeStatus};
use pyo3::prelude::*;
use serde::Serialize;
use std::time::Duration;

/// A node, as `phalanx.NodeInfo` has it.
#[derive(Serialize)]
struct Info {
    id: String,
    kind: String,
    state: &'static str,
    cores: u32,
    memory_bytes: u64,
    host: Option<String>,
    speed_gflops: Option<f32>,
    address: Option<String>,
    jobs_running: u32,
    jobs_done: u64,
}

impl Info {
    fn new(status: &NodeStatus) -> Self {
        Self {
            id: status.id.to_string(),
            kind: status.kind.to_string(),
            state: status.state.name(),
            cores: status.resources.cores,
            memory_bytes: status.resources.memory.0,
            host: status.resources.host.as_ref().map(|host| host.name.to_string()),
            speed_gflops: status.resources.speed_gflops.filter(|speed| speed.is_finite()),
            address: status.addresses.first().map(ToString::to_string),
            jobs_running: status.jobs_running,
            jobs_done: status.jobs_done,
        }
    }
}

/// The nodes of a domain that answer within `patience` seconds, as JSON.
#[pyfunction]
pub(crate) fn nodes(py: Python<'_>, domain: DomainInput, patience: f64) -> PyResult<String> {
    let Ok(patience) = Duration::try_from_secs_f64(patience) else {
        return Err(Failure::input("`patience` must be a number of seconds").into());
    };
    let work = move |_: Caller| {
        let config = domain.domain()?.fabric("look", NodeKind::Observer);
        let background = Background::start("look").map_err(Error::from)?;
        let fabric = background.block_on(Fabric::start(config)).map_err(Error::from)?;
        background.block_on(fabric.settled(patience));
        let shown = |status: &&NodeStatus| status.id != *fabric.id() && status.kind != NodeKind::Observer;
        let found: Vec<Info> = fabric.nodes().iter().filter(shown).map(Info::new).collect();
        background.block_on(fabric.shutdown());
        json(&found)
    };
    wait(py, work)
}
