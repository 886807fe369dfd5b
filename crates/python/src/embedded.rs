//! A node that trains, embedded in the program for as long as a call lasts.

use crate::errors::Failure;
use crate::inputs::DomainInput;
use crate::own_loss::PythonLoss;
use crate::wait::{Caller, wait_with};
use phalanx::Error;
use phalanx::jobs::builtin;
use phalanx::nodes::{Background, ByteSize, Node, NodeError, NodeKind, Stopper, machine};
use phalanx::train::{Losses, Stop};
use pyo3::prelude::*;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A node to embed, as `phalanx._nodes.EmbeddedNode` has it.
#[derive(FromPyObject)]
pub(crate) struct NodeInput {
    domain: DomainInput,
    name: String,
    cores: Option<u32>,
    memory: Option<u64>,
}

/// A node of this process; it leaves its domain when this value is dropped.
#[derive(Debug)]
pub(crate) struct Embedded {
    stopper: Stopper,
    work: Option<JoinHandle<Result<(), NodeError>>>,
    over: watch::Receiver<u64>,
    loss: Option<PythonLoss>,
    background: Background,
}

impl Embedded {
    /// Joins the domain. A loss in Python must be connected to a thread that waits before this.
    pub(crate) fn start(input: NodeInput, loss: Option<PythonLoss>) -> Result<Self, Failure> {
        let NodeInput { domain, name, cores, memory } = input;
        let mut config = domain.domain()?.fabric(&name, NodeKind::Computing);
        config.resources = machine();
        config.resources.cores = cores.unwrap_or(config.resources.cores).max(1);
        config.resources.memory = memory.map_or(config.resources.memory, ByteSize);
        let background = Background::start("phalanx-node").map_err(Error::from)?;
        let losses = loss.iter().map(PythonLoss::node_loss).fold(Losses::new(), Losses::with);
        let started = background.block_on(Node::start_with(config, builtin::handlers(), losses));
        let node = started.map_err(|error| Failure::machine(&error))?;
        let (stopper, over) = (node.stopper(), node.runs_over());
        let work = Some(background.handle().spawn(node.run()));
        Ok(Self { stopper, work, over, loss, background })
    }

    /// Waits until a driver has ended its run here; `false` if it is asked to stop before that.
    fn until_over(&mut self, stop: &Stop) -> bool {
        let over = &mut self.over;
        self.background.block_on(async {
            tokio::select! {
                changed = over.changed() => changed.is_ok(),
                () = stop.asked() => false,
            }
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stopper.stop_now();
        if let Some(work) = self.work.take() {
            match self.background.block_on(work) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(target: "phalanx_node", %error, "the node ended early"),
                Err(error) => tracing::warn!(target: "phalanx_node", %error, "the node panicked"),
            }
        }
        if let Some(loss) = &self.loss {
            loss.release();
        }
    }
}

/// Embeds a node that takes part in runs of its domain, until the driver of one has ended it (then `True`) or `watch`,
/// which is called now and then, says that there is nothing to wait for any more (then `False`).
#[pyfunction]
#[pyo3(signature = (node, loss, watch = None))]
pub(crate) fn serve_node(
    py: Python<'_>,
    node: NodeInput,
    loss: Option<(String, Py<PyAny>)>,
    watch: Option<Py<PyAny>>,
) -> PyResult<bool> {
    let loss = loss.map(|(name, function)| PythonLoss::new(name, function));
    let (stop, own) = (Stop::new(), loss);
    let asked = stop.clone();
    let work = move |caller: Caller| {
        let _connected = own.as_ref().map(|own| own.connect(caller));
        let mut embedded = Embedded::start(node, own.clone())?;
        Ok(embedded.until_over(&asked))
    };
    let ending = stop.clone();
    let mut tick = |py: Python<'_>| {
        if let Some(watch) = &watch
            && watch.call0(py)?.is_truthy(py)?
        {
            ending.stop();
        }
        Ok(())
    };
    wait_with(py, work, &stop, &mut tick)
}
