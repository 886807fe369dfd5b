//! A store inside this process.

use crate::errors::Failure;
use crate::wait::{Caller, wait};
use phalanx::nodes::{Background, ByteSize, machine};
use phalanx_infer::StoredModels;
use phalanx_store::{Durability, Server, ServerConfig};
use pyo3::prelude::*;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Directory to keep everything in, when writes are acknowledged, directory for what memory has no room for, its limit.
type Disk = (Option<PathBuf>, String, Option<PathBuf>, Option<u64>);

fn durability_named(name: &str) -> Result<Durability, Failure> {
    match name {
        "every-write" => Ok(Durability::EveryWrite),
        "every-second" => Ok(Durability::EverySecond),
        "never" => Ok(Durability::Never),
        other => {
            Err(Failure::input(format!("`{other}` is no durability: every-write, every-second or never")))
        }
    }
}

/// A store that ends with this process.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct StoreServer {
    address: String,
    pid: u32,
    running: Mutex<Option<(Server, Background)>>,
}

#[pymethods]
impl StoreServer {
    /// Listens at an address, and at a Unix socket if one is given; `memory` in bytes.
    #[new]
    fn new(
        py: Python<'_>,
        bind: String,
        unix: Option<PathBuf>,
        memory: Option<u64>,
        password: Option<String>,
        disk: Disk,
    ) -> PyResult<Self> {
        let work = move |_: Caller| {
            let found = bind.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
            let Some(address) = found else {
                return Err(Failure::input(format!("`{bind}` is no address of the form host:port")));
            };
            let memory = memory.map_or_else(|| machine().memory, ByteSize);
            let (persist, durability, spill, spill_limit) = disk;
            let durability = durability_named(&durability)?;
            let spill_limit = ByteSize(spill_limit.unwrap_or(0));
            let config = ServerConfig {
                bind: Some(address),
                unix,
                memory,
                password,
                persist,
                durability,
                spill,
                spill_limit,
                runner: Some(Arc::new(StoredModels::default())),
                ..Default::default()
            };
            let background = Background::start("phalanx-store").map_err(phalanx::Error::from)?;
            let started = background.block_on(Server::start(config));
            Ok((started.map_err(|error| Failure::serving(&error))?, background))
        };
        let (server, background) = wait(py, work)?;
        let address = server.address().map(|address| address.to_string()).unwrap_or_default();
        Ok(Self { address, pid: std::process::id(), running: Mutex::new(Some((server, background))) })
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Ends the store; what it holds is gone, unless it was kept in a directory.
    fn close(&self, py: Python<'_>) {
        if self.pid != std::process::id() {
            return;
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((server, background)) = running else { return };
        py.detach(|| {
            background.block_on(server.shutdown());
            drop(background);
        });
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // The store of the parent process: its threads are not here, so there is nothing to end or to wait for.
            std::mem::forget(self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
