//! Who is in a domain.

use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::queue::{Queue, Taken};
use crate::train::json;
use crate::wait::{Caller, check_fork, wait};
use phalanx::Error;
use phalanx::nodes::{
    Background, DomainName, Fabric, LocalSpec, NodeEvent, NodeKind, NodeStatus, Program, node_program,
};
use pyo3::prelude::*;
use serde::Serialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A node, as `phalanx.NodeInfo` has it.
#[derive(Debug, Serialize)]
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

/// A change that a node watches: what happened, and the node as it is now.
#[derive(Debug, Serialize)]
struct Change {
    event: &'static str,
    node: Info,
}

/// Watches the nodes of a domain come, change and go.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct NodeWatch {
    id: String,
    fabric: Fabric,
    changes: Arc<Queue<Change>>,
    background: Mutex<Option<Background>>,
}

#[pymethods]
impl NodeWatch {
    /// Joins a domain as an observer.
    #[new]
    fn new(py: Python<'_>, domain: DomainInput, name: String) -> PyResult<Self> {
        let work = move |_: Caller| {
            let config = domain.domain()?.fabric(&name, NodeKind::Observer);
            let background = Background::start("phalanx-watch").map_err(Error::from)?;
            let fabric = background.block_on(Fabric::start(config)).map_err(Error::from)?;
            Ok((fabric, background))
        };
        let (fabric, background) = wait(py, work)?;
        let changes: Arc<Queue<Change>> = Arc::default();
        let (told, mut watch) = (changes.clone(), fabric.watch());
        drop(background.handle().spawn(async move {
            while let Some(event) = watch.next().await {
                let (event, status) = match &event {
                    NodeEvent::Appeared(status) => ("appeared", status),
                    NodeEvent::Changed(status) => ("changed", status),
                    NodeEvent::Gone(status) => ("gone", status),
                };
                told.push([Change { event, node: Info::new(status) }]);
            }
            told.close();
        }));
        Ok(Self { id: fabric.id().to_string(), fabric, changes, background: Mutex::new(Some(background)) })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// The next changes as JSON; `None` when the watch is closed.
    #[pyo3(signature = (timeout = None))]
    fn take_changes(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|_bad| Failure::input("`timeout` must be a number of seconds"))?;
        Ok(match self.changes.take(py, usize::MAX, timeout)? {
            Taken::Items(changes) => Some(json(&changes)?),
            Taken::Late => Some("[]".to_owned()),
            Taken::Closed => None,
        })
    }

    fn close(&self, py: Python<'_>) {
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(background) = background {
            py.detach(|| {
                background.block_on(self.fabric.shutdown());
                drop(background);
            });
        }
        self.changes.close();
    }
}

/// Node processes of this machine, which end with this object or with the process.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct LocalNodes(Mutex<Option<phalanx::nodes::LocalNodes>>);

#[pymethods]
impl LocalNodes {
    /// Starts nodes and waits until each has joined. `program` are the words that start the command line.
    #[new]
    fn new(
        py: Python<'_>,
        program: Vec<String>,
        domain: &str,
        count: u32,
        cores: u32,
        arguments: Vec<String>,
        environment: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let domain = DomainName::new(domain).map_err(|error| Failure::input(error.to_string()))?;
        let work = move |_: Caller| {
            let program = match program.split_first() {
                None => node_program().map_err(Error::from)?.into(),
                Some((file, words)) => words.iter().fold(Program::new(file), Program::argument),
            };
            let (cores, usual) = (Some(cores), LocalSpec::new(program, domain, count));
            let spec = LocalSpec { cores, arguments, environment, ..usual };
            phalanx::nodes::LocalNodes::start(&spec).map_err(|error| Error::from(error).into())
        };
        Ok(Self(Mutex::new(Some(wait(py, work)?))))
    }

    /// Ends the nodes.
    fn close(&self, py: Python<'_>) {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match check_fork() {
            Ok(()) => py.detach(|| drop(nodes)),
            // They are the parent's.
            Err(_forked) => std::mem::forget(nodes),
        }
    }
}
