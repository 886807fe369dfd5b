//! `phalanx nodes`: who is in the domain.

mod measure;
mod unreached;
mod uses;

use crate::args::{DomainArgs, start_failure};
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{Output, Render, listing_of, print_line, reader_gone};
use crate::stop::StopSignals;
use crate::times::rfc3339;
use clap::Args;
use phalanx_fabric::{Fabric, NodeEvent, NodeKind, NodeState, NodeStatus};
use phalanx_types::{ByteSize, NodeId};
use phalanx_wire::infer::model_of;
use phalanx_wire::node::StoreOffer;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use uses::{UseRow, in_words};

#[derive(Debug, Args)]
#[command(
    after_help = "\"in use\" says who has which part of a node: jobs, training runs by their drivers, and
ranks by their launchers.

Examples:
  phalanx nodes --output json
  phalanx nodes --watch
  phalanx nodes --measure --write pool.toml    measure nodes and links, for the planner"
)]
pub(crate) struct NodesArgs {
    /// Go on until Ctrl-C, and print every change as it comes.
    #[arg(long, conflicts_with = "patience")]
    watch: bool,
    /// Measure how fast the computing nodes and the links between them are, one after the other.
    ///
    /// Up to 8 nodes have all their links measured, of more each has those to its next 3. A node that trains or runs
    /// jobs is not measured.
    #[arg(long, conflicts_with_all = ["watch", "all"])]
    measure: bool,
    /// Write what was measured as a pool file, for the planner.
    #[arg(long, value_name = "FILE", requires = "measure")]
    write: Option<PathBuf>,
    /// Show nodes that only look, too.
    #[arg(long)]
    all: bool,
    /// How long to look for nodes at most.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = crate::args::duration)]
    patience: Duration,
    #[command(flatten)]
    domain: DomainArgs,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    id: String,
    kind: String,
    state: &'static str,
    cores: u32,
    memory_bytes: u64,
    /// The machine it is on, and the cores of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_cores: Option<u32>,
    /// Once somebody measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_gflops: Option<f32>,
    address: String,
    jobs_running: u32,
    jobs_done: u64,
    /// Who uses how much of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uses: Vec<UseRow>,
    since: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    handles: Vec<String>,
    /// The models it serves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    serves: Vec<String>,
    /// The store it serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// The store of a node, or its part of one.
#[derive(Debug, Serialize)]
struct StoreRow {
    address: String,
    shard: u16,
    shards: u16,
}

impl StoreRow {
    fn new(offer: &StoreOffer) -> Self {
        let address = offer.addresses.first().map(ToString::to_string).unwrap_or_default();
        Self { address, shard: offer.shard, shards: offer.shards }
    }

    fn in_words(&self) -> String {
        match self.shards {
            1 => self.address.clone(),
            shards => format!("{} ({} of {shards})", self.address, self.shard),
        }
    }
}

impl NodeRow {
    fn new(status: &NodeStatus) -> Self {
        let host = status.resources.host.as_ref();
        Self {
            id: status.id.to_string(),
            kind: status.kind.to_string(),
            state: status.state.name(),
            cores: status.resources.cores,
            memory_bytes: status.resources.memory.0,
            host: host.map(|host| host.name.to_string()),
            host_cores: host.map(|host| host.cores),
            speed_gflops: status.resources.speed_gflops.filter(|speed| speed.is_finite()),
            address: status.addresses.first().map(ToString::to_string).unwrap_or_default(),
            jobs_running: status.jobs_running,
            jobs_done: status.jobs_done,
            uses: status.uses.iter().map(UseRow::new).collect(),
            since: rfc3339(status.since_unix_ms),
            handles: status.handles.iter().map(ToString::to_string).collect(),
            serves: status.handles.iter().filter_map(|kind| model_of(kind)).map(str::to_owned).collect(),
            store: status.store.as_deref().map(StoreRow::new),
            why: match &status.state {
                NodeState::Lost(reason) => Some(reason.to_string()),
                NodeState::Running | NodeState::Draining | NodeState::Stopped => None,
            },
        }
    }

    fn cells(&self) -> Vec<String> {
        let state = match &self.why {
            Some(why) => format!("{}: {why}", self.state),
            None => self.state.to_owned(),
        };
        let resources =
            (self.cores > 0).then(|| format!("{} cores, {}", self.cores, ByteSize(self.memory_bytes)));
        let speed = self.speed_gflops.map(|speed| format!("{speed:.1} GFLOP/s"));
        vec![
            self.id.clone(),
            self.kind.clone(),
            state,
            resources.unwrap_or_default(),
            in_words(&self.uses),
            speed.unwrap_or_default(),
            self.serves.join(", "),
            self.store.as_ref().map(StoreRow::in_words).unwrap_or_default(),
            self.jobs_running.to_string(),
            self.jobs_done.to_string(),
            self.address.clone(),
            self.since.clone(),
        ]
    }
}

const HEADER: [&str; 12] = [
    "id",
    "kind",
    "state",
    "resources",
    "in use",
    "speed",
    "serves",
    "store",
    "running",
    "done",
    "address",
    "since",
];

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct NodeTable(Vec<NodeRow>);

impl Render for NodeTable {
    fn table(&self) -> String {
        if self.0.is_empty() {
            return "no nodes here; `phalanx node` starts one".to_owned();
        }
        // Columns that would be empty for every node are left out.
        let idle = |name: &&str| match *name {
            "speed" => self.0.iter().all(|n| n.speed_gflops.is_none()),
            "serves" => self.0.iter().all(|n| n.serves.is_empty()),
            "store" => self.0.iter().all(|n| n.store.is_none()),
            _ => false,
        };
        let shown: Vec<usize> = (0..HEADER.len()).filter(|i| !idle(&HEADER[*i])).collect();
        let rows = self.0.iter().map(|node| {
            let cells = node.cells();
            shown.iter().map(|i| cells[*i].clone()).collect::<Vec<_>>()
        });
        listing_of(&shown.iter().map(|i| HEADER[*i]).collect::<Vec<_>>(), rows)
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|n| n.id.as_str()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) async fn run(args: NodesArgs, output: Output) -> Result<(), Failure> {
    let config = args.domain.fabric("look", NodeKind::Observer)?;
    let fabric = Fabric::start(config).await.map_err(start_failure)?;
    let result = if args.watch {
        // Only here: without it Ctrl-C ends the command where it stands.
        let mut stops = StopSignals::new()?;
        tokio::select! {
            result = watch(&fabric, args.all, output) => result,
            () = stops.next() => Ok(()),
            () = reader_gone() => Ok(()),
        }
    } else if args.measure {
        fabric.settled(args.patience).await;
        measure::run(&fabric, args.write.as_deref(), output).await
    } else {
        fabric.settled(args.patience).await;
        let shown = |s: &&NodeStatus| s.id != *fabric.id() && (args.all || s.kind != NodeKind::Observer);
        let rows = fabric.nodes().iter().filter(shown).map(NodeRow::new).collect();
        unreached::check(&fabric, &args.domain).and_then(|()| output.print(&NodeTable(rows)))
    };
    fabric.shutdown().await;
    result
}

#[derive(Debug, Serialize)]
struct Change {
    event: &'static str,
    #[serde(flatten)]
    node: NodeRow,
}

impl Render for Change {
    fn table(&self) -> String {
        let NodeRow { id, kind, state, jobs_running, jobs_done, uses, address, why, .. } = &self.node;
        let why = why.as_ref().map(|w| format!(": {}", one_line(w))).unwrap_or_default();
        let why = if uses.is_empty() { why } else { format!(", in use: {}", in_words(uses)) };
        let Change { event, .. } = self;
        format!(
            "{event:<9} {id:<20} {kind:<10} {state}{why}  running {jobs_running}, done {jobs_done}  {address}"
        )
    }

    fn quiet(&self) -> String {
        format!("{} {}", self.event, self.node.id)
    }
}

async fn watch(fabric: &Fabric, all: bool, output: Output) -> Result<(), Failure> {
    let me: NodeId = fabric.id().clone();
    let mut events = fabric.watch();
    if output == Output::Table {
        print_line(&format!("watching as {me}; Ctrl-C ends"))?;
    }
    while let Some(event) = events.next().await {
        let (event, status) = match &event {
            NodeEvent::Appeared(status) => ("appeared", status),
            NodeEvent::Changed(status) => ("changed", status),
            NodeEvent::Gone(status) => ("gone", status),
        };
        if status.id != me && (all || status.kind != NodeKind::Observer) {
            let change = Change { event, node: NodeRow::new(status) };
            if !output.print_while_read(&change)? {
                break;
            }
        }
    }
    Ok(())
}
