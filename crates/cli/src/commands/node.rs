//! `phalanx node`: a computing node.

use crate::args::{DomainArgs, node_name, start_failure};
use crate::commands::metrics::{MetricsArgs, NodeSource};
use crate::commands::node_store::NodeStoreArgs;
use crate::commands::trained::{model_from, run_path};
use crate::exec_shim::{self, die_with_parent, has_parent};
use crate::failure::Failure;
use crate::output::{Output, Render};
use crate::stop::StopSignals;
use clap::Args;
use phalanx_fabric::NodeKind;
use phalanx_infer::Serving;
use phalanx_jobs::builtin::python::DEFAULT_PROGRAM;
use phalanx_jobs::{Handlers, NodeError, ResultMemory, Stopper, builtin};
use phalanx_nodes::{Node, NodeOptions, machine};
use phalanx_rank::DataRoots;
use phalanx_telemetry::MetricsServer;
use phalanx_train::LoadOptions;
use phalanx_train::config::ModelConfig;
use phalanx_types::{ByteSize, Resources};
use phalanx_wire::python;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx node                                   join the nodes of this user on this host
  phalanx node --domain lab --connect n1:7000    join a domain that has a key
  phalanx node --data-root /data                 let runs open files below /data
  phalanx node --serve digits=runs/first         answer requests of `phalanx infer --model digits`
  phalanx node --store --domain lab              serve the store of domain lab, phalanx://lab")]
pub(crate) struct NodeArgs {
    /// A name to know it by; random digits are added.
    #[arg(long, default_value = "node", value_parser = node_name)]
    name: String,
    /// How many cores jobs and training runs may use together; all when not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    cores: Option<u32>,
    /// How much memory jobs and training runs may reserve together; four fifths of the machine's when not given.
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// How much memory solutions that are kept for other jobs may take; half of the node's memory when not given.
    #[arg(long, value_name = "SIZE")]
    result_memory: Option<ByteSize>,
    /// The directory to which solutions go that do not fit in that memory; that for temporary files when not given.
    #[arg(long, value_name = "DIR")]
    result_spill: Option<PathBuf>,
    /// Let jobs of kind "exec" and ranks of `phalanx launch` run programs on this machine.
    #[arg(long)]
    allow_exec: bool,
    /// Let jobs call Python functions on this machine, in workers of this program; python3 when none is named.
    ///
    /// Workers are `PROGRAM -m phalanx.worker`: the program must have the phalanx package.
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1, require_equals = true, default_missing_value = DEFAULT_PROGRAM)]
    allow_python: Option<String>,
    /// Serve a model under this name; may be given several times.
    ///
    /// MODEL is an .onnx file, a run directory, a checkpoint in one, or WEIGHTS.safetensors+GRAPH, where GRAPH is a
    /// .toml file, an .onnx file or zoo:NAME. A node that serves models takes no part in training.
    #[arg(long, value_name = "NAME=MODEL", value_parser = served)]
    serve: Vec<Served>,
    /// How many samples a served model computes at once at most.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    max_batch: u64,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    store: NodeStoreArgs,
    /// Let runs and trials open files in this directory; may be given several times.
    ///
    /// Without it a node opens only files that the driver lists, which it fetches unless it has them. Paths in this
    /// directory are found by their own name, or by a name relative to it.
    #[arg(long, value_name = "DIR")]
    data_root: Vec<PathBuf>,
    /// A file or folder of the run whose driver starts this node.
    #[arg(long, hide = true, value_name = "PATH")]
    run_file: Vec<PathBuf>,
    /// Solve this many jobs, one at a time, then leave.
    #[arg(long, value_name = "N")]
    solve: Option<u64>,
    /// Stop when the process with this id, which must be the parent, ends.
    #[arg(long, hide = true, value_name = "PID")]
    die_with: Option<u32>,
    #[command(flatten)]
    domain: DomainArgs,
}

impl NodeArgs {
    /// What runs may open on this machine besides the files of their drivers.
    fn data_roots(&self) -> Result<DataRoots, Failure> {
        let allowed = DataRoots::open(&self.data_root).map_err(|error| {
            Failure::usage(anyhow::Error::new(error).context("could not use --data-root"))
                .hint("name a directory of this machine")
        })?;
        Ok(DataRoots::of_driver(&self.run_file).and(allowed))
    }
}

/// A model to serve.
#[derive(Debug, Clone)]
struct Served {
    name: String,
    path: PathBuf,
    graph: Option<String>,
}

fn served(text: &str) -> Result<Served, String> {
    let (name, model) = text.split_once('=').ok_or("expected NAME=MODEL, like digits=runs/first")?;
    let (path, graph) = match model.split_once(".safetensors+") {
        Some((weights, graph)) => (format!("{weights}.safetensors"), Some(graph.to_owned())),
        None => (model.to_owned(), None),
    };
    Ok(Served { name: name.to_owned(), path: path.into(), graph })
}

/// Calls of Python functions, once it is certain that there is a worker for them.
fn allow_python(program: &str) -> Result<builtin::Python, Failure> {
    let python = builtin::Python::new(program).wrapped(exec_shim::wrapper());
    python.check().map_err(|error| {
        let context = format!("could not start a worker with `{program} -m phalanx.worker`");
        Failure::usage(anyhow::Error::new(error).context(context))
            .hint("name a Python that has the phalanx package: --allow-python=venv/bin/python")
    })?;
    Ok(python)
}

/// Adds handlers for the models that are to be served.
fn serve(args: &NodeArgs, handlers: Handlers) -> Result<Handlers, Failure> {
    let mut serving = Serving::beside(handlers).max_batch(args.max_batch as usize);
    for Served { name, path, graph } in &args.serve {
        let model = graph.as_deref().map(model_from).transpose()?.map(ModelConfig::new);
        let options = LoadOptions { model, config: None };
        serving = serving.load(name, &run_path(path), options).map_err(|error| {
            let hint = error.hint();
            Failure::usage(error).hint_if(hint)
        })?;
    }
    Ok(serving.into_handlers())
}

#[derive(Debug, Serialize)]
struct Started {
    id: String,
    domain: String,
    address: String,
    secure: bool,
    cores: u32,
    memory_bytes: u64,
    handles: Vec<String>,
    /// Where the store of this node is.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
    /// Where Prometheus finds its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<String>,
    pid: u32,
}

impl Render for Started {
    fn table(&self) -> String {
        let reach = if self.secure { "mutual TLS" } else { "no key: loopback only" };
        let store = self.store.as_ref().map(|store| format!("; store at {store}")).unwrap_or_default();
        let metrics = self.metrics.as_ref().map(|url| format!("; metrics at {url}")).unwrap_or_default();
        format!(
            "{} joined {} at {} ({reach}); {} cores, {}; solves {}{store}{metrics}",
            self.id,
            self.domain,
            self.address,
            self.cores,
            ByteSize(self.memory_bytes),
            self.handles.join(", ")
        )
    }

    fn quiet(&self) -> String {
        self.id.clone()
    }
}

pub(crate) async fn run(args: NodeArgs, output: Output) -> Result<(), Failure> {
    if let Some(parent) = args.die_with
        && !die_with_parent(parent, rustix::process::Signal::TERM)?
    {
        return Ok(());
    }
    let mut handlers = builtin::handlers();
    if args.allow_exec {
        let wrapper = exec_shim::wrapper();
        handlers = handlers.with(phalanx_launch::PROGRAMS, builtin::Exec { wrapper });
    }
    if let Some(program) = &args.allow_python {
        handlers = handlers.with(python::KIND, allow_python(program)?);
    }
    let handlers = serve(&args, handlers)?;
    let kind = if args.serve.is_empty() { NodeKind::Computing } else { NodeKind::Inference };
    let mut config = args.domain.fabric(&args.name, kind)?;
    let machine = machine();
    config.resources = Resources {
        cores: args.cores.unwrap_or(machine.cores),
        memory: args.memory.unwrap_or(machine.memory),
        ..machine
    };
    let resources = config.resources.clone();
    let key = config.key.clone();
    let handles = handlers.kinds().map(ToString::to_string).collect();
    let mut stops = StopSignals::new()?;
    let options = NodeOptions { data_roots: args.data_roots()?, ..NodeOptions::default() };
    let mut node = Node::start_as(config, handlers, options).await.map_err(start_failure)?;
    node.set_result_memory(ResultMemory {
        limit: args.result_memory.unwrap_or(ByteSize(resources.memory.0 / 2)),
        spill: args.result_spill.clone().unwrap_or_else(std::env::temp_dir),
    });
    if args.allow_exec {
        node.allow_ranks(exec_shim::wrapper().into_iter().map(OsString::from).collect());
    }
    let store = args.store.start(&node, key).await?;
    let metrics = args.metrics.serve(NodeSource::new(&node)).await?;
    output.print(&Started {
        id: node.id().to_string(),
        domain: args.domain.domain.to_string(),
        address: node.fabric().address().to_string(),
        secure: node.fabric().is_secure(),
        cores: resources.cores,
        memory_bytes: resources.memory.0,
        handles,
        store: store.as_ref().map(|store| store.address().to_string()),
        metrics: metrics.as_ref().map(MetricsServer::url),
        pid: std::process::id(),
    })?;
    let ended = match args.solve {
        Some(count) => solve(node, count, args.die_with, &mut stops).await,
        None => run_until_stopped(node, args.die_with, &mut stops).await,
    };
    if let Some(store) = store {
        store.shutdown().await;
    }
    ended
}

async fn run_until_stopped(node: Node, parent: Option<u32>, stops: &mut StopSignals) -> Result<(), Failure> {
    let mut stopping = Stopping { stopper: node.stopper(), parent, asked: 0 };
    stopping.during(node.run(), stops).await
}

async fn solve(
    mut node: Node,
    count: u64,
    parent: Option<u32>,
    stops: &mut StopSignals,
) -> Result<(), Failure> {
    let mut stopping = Stopping { stopper: node.stopper(), parent, asked: 0 };
    let mut result = Ok(());
    for _ in 0..count {
        result = stopping.during(node.solve_one(), stops).await;
        if result.is_err() || stopping.asked > 0 {
            break;
        }
    }
    node.shutdown().await;
    result
}

/// A node that drains when it is asked to stop, and stops at once when it is asked again.
struct Stopping {
    stopper: Stopper,
    parent: Option<u32>,
    asked: u32,
}

impl Stopping {
    /// Waits for the end of what the node does, and passes on what it is asked meanwhile.
    async fn during(
        &mut self,
        work: impl Future<Output = Result<(), NodeError>>,
        stops: &mut StopSignals,
    ) -> Result<(), Failure> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result.map_err(Failure::infrastructure),
                () = stops.next() => self.on_asked(),
            }
        }
    }

    fn on_asked(&mut self) {
        self.asked += 1;
        // Nobody is left to want what the nodes of a killed command still run.
        let orphaned = self.parent.is_some_and(|parent| !has_parent(parent));
        if self.asked == 1 && !orphaned {
            tracing::info!("draining: finishing what runs, handing back the rest; once more to stop at once");
            self.stopper.drain();
        } else {
            tracing::warn!("stopping at once");
            self.stopper.stop_now();
        }
    }
}
