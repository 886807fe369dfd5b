//! A relay between networks, inside a Python process.

use crate::errors::Failure;
use crate::wait::{Caller, wait};
use phalanx::Error;
use phalanx::nodes::{Background, DomainKey, Relay as Inner, RelayConfig};
use pyo3::prelude::*;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Connects nodes of networks that cannot reach each other.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct Relay {
    address: String,
    running: Mutex<Option<(Inner, Background)>>,
}

#[pymethods]
impl Relay {
    /// Listens at an address for the domains of these key files.
    #[new]
    fn new(py: Python<'_>, bind: String, keys: Vec<PathBuf>) -> PyResult<Self> {
        let work = move |_: Caller| {
            let found = bind.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
            let Some(bind) = found else {
                return Err(Failure::input(format!("`{bind}` is no address of the form host:port")));
            };
            let token = |file: &PathBuf| DomainKey::load(file).map(|key| key.relay_token());
            let tokens = keys.iter().map(token).collect::<Result<_, _>>().map_err(Error::from)?;
            let background = Background::start("phalanx-relay").map_err(Error::from)?;
            let started = background.block_on(Inner::start(RelayConfig { bind, tokens }));
            let relay = started.map_err(|error| Failure::machine(&error))?;
            Ok((relay, background))
        };
        let (relay, background) = wait(py, work)?;
        Ok(Self { address: relay.address().to_string(), running: Mutex::new(Some((relay, background))) })
    }

    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    fn close(&self, py: Python<'_>) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((relay, background)) = running {
            py.detach(|| {
                background.block_on(relay.shutdown());
                drop(background);
            });
        }
    }
}
