//! `phalanx nodes --measure`: how fast nodes and links are.

use super::NodeRow;
use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use crate::stop::StopSignals;
use anyhow::{Context, anyhow};
use phalanx_fabric::{Fabric, NodeKind, NodeState, NodeStatus};
use phalanx_formation::{Link, Pool};
use phalanx_measure::order::{ALL_PAIRS, NEXT, pairs};
use phalanx_measure::{KnownNode, LinkSpeed, MeasureError, Speed, ask_link, ask_speed, host_names, pool_of};
use phalanx_types::{ByteSize, NodeId, Resources};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;

#[derive(Debug, Serialize)]
struct MeasuredNode {
    #[serde(flatten)]
    row: NodeRow,
    /// That it computes with.
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_ms: Option<u32>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    id: NodeId,
    #[serde(skip)]
    resources: Resources,
}

#[derive(Debug, Serialize)]
struct MeasuredLink {
    from: NodeId,
    to: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_bytes_per_s: Option<f64>,
    /// Of one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_s: Option<f64>,
    /// What was moved at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_bytes: Option<u64>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// What was measured so far.
#[derive(Debug, Default, Serialize)]
struct Report {
    nodes: Vec<MeasuredNode>,
    links: Vec<MeasuredLink>,
}

impl MeasuredNode {
    fn new(mut row: NodeRow, status: &NodeStatus, measured: Result<Speed, MeasureError>) -> Self {
        let (speed, error) = split(measured);
        row.speed_gflops = speed.map(|speed| speed.gflops);
        let (threads, measured_ms) = (speed.map(|s| s.threads), speed.map(|s| s.millis));
        let (id, resources) = (status.id.clone(), status.resources.clone());
        Self { row, threads, measured_ms, error, id, resources }
    }

    fn cells(&self) -> [String; 7] {
        let row = &self.row;
        [
            row.id.clone(),
            row.host.clone().unwrap_or_default(),
            row.cores.to_string(),
            ByteSize(row.memory_bytes).to_string(),
            self.threads.map(|threads| threads.to_string()).unwrap_or_default(),
            row.speed_gflops.map(|speed| format!("{speed:.2}")).unwrap_or_default(),
            self.error.clone().unwrap_or_default(),
        ]
    }

    fn to_known(&self) -> Option<KnownNode> {
        let gflops = Some(rounded(self.row.speed_gflops?.into()));
        Some(KnownNode { id: self.id.clone(), resources: self.resources.clone(), gflops })
    }
}

impl MeasuredLink {
    fn new(from: &NodeId, to: &NodeId, measured: Result<LinkSpeed, String>) -> Self {
        let (link, error) = measured.map_or_else(|error| (None, Some(error)), |link| (Some(link), None));
        Self {
            from: from.clone(),
            to: to.clone(),
            bandwidth_bytes_per_s: link.as_ref().map(|link| link.bytes_per_s),
            latency_s: link.as_ref().map(|link| link.latency_s),
            measured_bytes: link.map(|link| link.bytes),
            error,
        }
    }

    fn cells(&self) -> [String; 5] {
        [
            self.from.to_string(),
            self.to.to_string(),
            self.bandwidth_bytes_per_s.map(|rate| format!("{}/s", ByteSize(rate as u64))).unwrap_or_default(),
            self.latency_s.map(|latency| format!("{:.3} ms", latency * 1e3)).unwrap_or_default(),
            self.error.clone().unwrap_or_default(),
        ]
    }

    fn to_known(&self) -> Option<((NodeId, NodeId), Link)> {
        let link = Link::new(rounded(self.bandwidth_bytes_per_s?), rounded(self.latency_s?));
        Some(((self.from.clone(), self.to.clone()), link))
    }
}

/// To four digits that count: the others are chance.
fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}

impl Report {
    fn pool(&self) -> Pool {
        let nodes: Vec<KnownNode> = self.nodes.iter().filter_map(MeasuredNode::to_known).collect();
        let links = self.links.iter().filter_map(MeasuredLink::to_known).collect();
        let mut pool = pool_of(&nodes, &links, &phalanx_measure::costs::Here::default());
        // A file says it in billions.
        pool.nodes.iter_mut().for_each(|node| node.speed = rounded(node.speed * 1e9));
        pool
    }
}

impl Render for Report {
    fn table(&self) -> String {
        if self.nodes.is_empty() {
            return String::new();
        }
        let header = ["id", "host", "cores", "memory", "threads", "gflop/s", "not measured"];
        let nodes = listing(header, self.nodes.iter().map(MeasuredNode::cells));
        if self.links.is_empty() {
            return nodes;
        }
        let header = ["from", "to", "bandwidth", "latency", "not measured"];
        let links = listing(header, self.links.iter().map(MeasuredLink::cells));
        format!("{nodes}\n\n{links}")
    }

    fn quiet(&self) -> String {
        let measured =
            self.nodes.iter().filter_map(|n| Some(format!("{} {}", n.row.id, n.row.speed_gflops?)));
        measured.collect::<Vec<_>>().join("\n")
    }
}

/// A value, or why there is none.
fn split<T>(measured: Result<T, MeasureError>) -> (Option<T>, Option<String>) {
    match measured {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(told(error))),
    }
}

fn told(error: MeasureError) -> String {
    format!("{:#}", anyhow::Error::new(error))
}

pub(super) async fn run(fabric: &Fabric, write: Option<&Path>, output: Output) -> Result<(), Failure> {
    let unwritable = |path: &Path| format!("could not write the pool file {}", path.display());
    if let Some(path) = write {
        try_to_write(path).with_context(|| unwritable(path)).map_err(Failure::infrastructure)?;
    }
    let mut stops = StopSignals::new()?;
    let measurable = |s: &NodeStatus| s.kind == NodeKind::Computing && s.state == NodeState::Running;
    let nodes: Vec<NodeStatus> = fabric.nodes().into_iter().filter(measurable).collect();
    if nodes.is_empty() {
        return Err(Failure::infrastructure(anyhow!("there is no computing node to measure"))
            .hint("`phalanx node` starts one"));
    }
    let mut measuring = Measuring { fabric, silent: output == Output::Quiet, report: Report::default() };
    let stopped = tokio::select! {
        () = measuring.all(&nodes) => false,
        () = stops.next() => true,
    };
    let report = measuring.report;
    output.print(&report)?;
    let pool = report.pool();
    if stopped {
        let (done, of) = (pool.nodes.len(), nodes.len());
        return Err(Failure::work(anyhow!("stopped with {done} of {of} nodes measured")));
    }
    if pool.nodes.is_empty() {
        return Err(Failure::work(anyhow!("no node could be measured")));
    }
    match write {
        Some(path) => std::fs::write(path, pool.to_toml())
            .with_context(|| unwritable(path))
            .map_err(Failure::infrastructure),
        None => Ok(()),
    }
}

/// Finds out whether a file can be written before there is something to write; leaves it as it is.
fn try_to_write(path: &Path) -> std::io::Result<()> {
    match std::fs::metadata(path) {
        // To open a pipe would tell its reader that nothing comes.
        Ok(found) if !found.is_file() && !found.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).open(path)?;
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

struct Measuring<'a> {
    fabric: &'a Fabric,
    silent: bool,
    report: Report,
}

impl Measuring<'_> {
    async fn all(&mut self, nodes: &[NodeStatus]) {
        let names = host_names(nodes.iter().filter_map(|status| status.resources.host.as_deref()));
        for (i, status) in nodes.iter().enumerate() {
            self.node(i + 1, nodes.len(), status, &names).await;
        }
        let pairs = pairs(nodes.len());
        if nodes.len() > ALL_PAIRS {
            self.say(&format!(
                "more than {ALL_PAIRS} nodes: only links of each to its next {NEXT} are measured"
            ));
        }
        for (i, (from, to)) in pairs.iter().enumerate() {
            self.link(i + 1, pairs.len(), *from, *to).await;
        }
    }

    async fn node(&mut self, number: usize, of: usize, status: &NodeStatus, names: &BTreeMap<u64, String>) {
        let id = &status.id;
        let measured = ask_speed(self.fabric, id).await;
        let mut row = NodeRow::new(status);
        row.host = status.resources.host.as_ref().and_then(|host| names.get(&host.boot).cloned());
        let node = MeasuredNode::new(row, status, measured);
        let outcome = match (&node.error, node.row.speed_gflops, node.threads) {
            (None, Some(speed), Some(1)) => format!("{speed:.2} GFLOP/s on 1 thread"),
            (None, Some(speed), Some(threads)) => format!("{speed:.2} GFLOP/s on {threads} threads"),
            (error, ..) => format!("not measured: {}", error.as_deref().unwrap_or_default()),
        };
        self.say(&format!("node {number}/{of} {id}: {outcome}"));
        self.report.nodes.push(node);
    }

    async fn link(&mut self, number: usize, of: usize, from: usize, to: usize) {
        let Some(pair) = self.report.nodes.get(from).zip(self.report.nodes.get(to)) else { return };
        // Whoever did not answer before would only be waited for again.
        let absent = [pair.0, pair.1].into_iter().find(|node| node.error.is_some());
        let absent = absent.map(|node| format!("{} was not measured", node.id));
        let (from, to) = (pair.0.id.clone(), pair.1.id.clone());
        let measured = match absent {
            Some(absent) => Err(absent),
            None => ask_link(self.fabric, &from, &to).await.map_err(told),
        };
        let link = MeasuredLink::new(&from, &to, measured);
        let [.., bandwidth, latency, error] = link.cells();
        let outcome = if link.error.is_some() {
            format!("not measured: {error}")
        } else {
            format!("{bandwidth}, {latency}")
        };
        self.say(&format!("link {number}/{of} {from} to {to}: {outcome}"));
        self.report.links.push(link);
    }

    fn say(&self, line: &str) {
        if !self.silent {
            crate::output::say(line);
        }
    }
}
