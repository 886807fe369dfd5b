//! What `phalanx plan` prints.

use crate::output::{Render, listing, summary};
use phalanx_formation::{Method, Mode, ModelCost, Plan, Pool, PoolNode, ReplicaPlan, StagePlan, picture};
use phalanx_measure::BOUNDLESS;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Nodes that are named of those that are left out for one reason.
const SHOWN: usize = 8;

/// All that is known when a plan is made.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) model: String,
    pub(super) cost: &'a ModelCost,
    pub(super) pool: &'a Pool,
    pub(super) plan: &'a Plan,
    pub(super) batch: usize,
    /// Of this machine, where the model was measured here.
    pub(super) measured_gflops: Option<f64>,
    pub(super) took: Duration,
    pub(super) notes: Vec<String>,
}

/// The same as it is printed.
#[derive(Debug, Serialize)]
pub(super) struct Printed<'a> {
    model: String,
    batch: usize,
    parameters: u64,
    /// How the costs of the model are known.
    costs: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_gflops: Option<f64>,
    replicas: usize,
    /// Of each replica.
    stages: Vec<usize>,
    micro_batches: usize,
    mode: Mode,
    step_s: f64,
    exchange_s: f64,
    samples_per_s: f64,
    bottleneck: String,
    method: Method,
    search_s: f64,
    formation: Vec<Row>,
    left_out: Vec<Left>,
    why: Vec<String>,
    notes: Vec<String>,
    nodes: &'a [PoolNode],
    plan: &'a Plan,
    #[serde(skip)]
    picture: String,
}

/// A stage of a replica.
#[derive(Debug, Serialize)]
struct Row {
    replica: usize,
    stage: usize,
    node: String,
    first: String,
    last: String,
    operators: usize,
    parameters: u64,
    memory_bytes: u64,
    /// What the node has, if that is known.
    memory_of_bytes: Option<u64>,
    busy_s: f64,
    /// Part of a step, from 0 to 1.
    utilisation: f64,
    /// Of each batch.
    samples: usize,
}

#[derive(Debug, Serialize)]
struct Left {
    node: String,
    why: String,
}

impl<'a> Report<'a> {
    pub(super) fn rendered(self) -> Printed<'a> {
        let Plan { replicas, micro_batches, mode, predicted, left_out, why, method } = self.plan;
        let name = |node: usize| self.pool.nodes.get(node).map(|n| n.name.clone()).unwrap_or_default();
        Printed {
            batch: self.batch,
            parameters: self.cost.parameter_bytes() / 4,
            costs: if self.measured_gflops.is_some() { "measured" } else { "counted" },
            measured_gflops: self.measured_gflops,
            replicas: replicas.len(),
            stages: replicas.iter().map(|replica| replica.stages.len()).collect(),
            micro_batches: *micro_batches,
            mode: *mode,
            step_s: predicted.step_s,
            exchange_s: predicted.exchange_s,
            samples_per_s: predicted.samples_per_s,
            bottleneck: predicted.bottleneck.to_string(),
            method: *method,
            search_s: self.took.as_secs_f64(),
            formation: self.rows(),
            left_out: left_out.iter().map(|l| Left { node: name(l.node), why: l.why.to_string() }).collect(),
            why: why.iter().map(ToString::to_string).collect(),
            picture: picture(self.plan, self.cost, self.pool),
            nodes: &self.pool.nodes,
            plan: self.plan,
            model: self.model,
            notes: self.notes,
        }
    }

    fn rows(&self) -> Vec<Row> {
        let replica = |(number, replica): (usize, &ReplicaPlan)| {
            let row = |(s, stage): (usize, &StagePlan)| self.row((number, s, replica.samples), stage);
            replica.stages.iter().enumerate().map(row).collect::<Vec<_>>()
        };
        self.plan.replicas.iter().enumerate().flat_map(replica).collect()
    }

    fn row(&self, (replica, number, samples): (usize, usize, usize), stage: &StagePlan) -> Row {
        let ops = self.cost.ops.get(stage.ops.clone()).unwrap_or_default();
        let node = self.pool.nodes.get(stage.node);
        let name = |op: Option<&phalanx_formation::OpCost>| op.map(|op| op.name.clone()).unwrap_or_default();
        Row {
            replica,
            stage: number,
            node: node.map(|node| node.name.clone()).unwrap_or_default(),
            first: name(ops.first()),
            last: name(ops.last()),
            operators: ops.len(),
            parameters: ops.iter().map(|op| op.parameter_bytes / 4).sum(),
            memory_bytes: stage.memory,
            memory_of_bytes: node.map(|node| node.memory).filter(|memory| *memory < BOUNDLESS),
            busy_s: stage.busy_s,
            utilisation: stage.utilisation,
            samples,
        }
    }
}

/// Seconds as people say those of a step.
fn shown(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.2} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

impl Row {
    fn cells(&self) -> [String; 8] {
        let of = self.memory_of_bytes.map_or("any".to_owned(), |bytes| ByteSize(bytes).to_string());
        let ops =
            if self.operators == 1 { self.first.clone() } else { format!("{}..{}", self.first, self.last) };
        [
            self.replica.to_string(),
            self.stage.to_string(),
            self.node.clone(),
            ops,
            self.parameters.to_string(),
            format!("{} of {of}", ByteSize(self.memory_bytes)),
            shown(self.busy_s),
            format!("{:.0} %", self.utilisation * 100.0),
        ]
    }
}

const HEADER: [&str; 8] =
    ["replica", "stage", "node", "operators", "parameters", "memory", "busy", "utilisation"];

impl Printed<'_> {
    fn shape(&self) -> String {
        let least = self.stages.iter().min().copied().unwrap_or_default();
        let most = self.stages.iter().max().copied().unwrap_or_default();
        let stages = if least == most { most.to_string() } else { format!("{least} to {most}") };
        format!("{} x {stages} (replicas x stages)", self.replicas)
    }

    fn found(&self) -> String {
        let how = match self.method {
            Method::Exact => "exactly: there is no better one",
            Method::Genetic => "by a genetic search: none better was found",
            Method::Greedy => "as the best of the plain ones",
            Method::Given => "as given",
        };
        format!("{how} ({:.1} s)", self.search_s)
    }

    fn costs(&self) -> String {
        match self.measured_gflops {
            Some(gflops) => {
                format!("measured on this machine, which does {gflops:.1} GFLOP/s with one thread")
            }
            None => "counted".to_owned(),
        }
    }

    /// A line for each reason, with those it is true of.
    fn left_out_lines(&self) -> Vec<String> {
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for left in &self.left_out {
            by_reason.entry(&left.why).or_default().push(&left.node);
        }
        let line = |(why, nodes): (&str, Vec<&str>)| {
            let shown = nodes.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = nodes.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let are = if nodes.len() == 1 { "is" } else { "are" };
            format!("{shown}{more} {are} left out: {why}")
        };
        by_reason.into_iter().map(line).collect()
    }

    fn summary(&self) -> String {
        let mode = match self.mode {
            Mode::Exact => "exact".to_owned(),
            Mode::Asynchronous { in_flight } => {
                in_flight.map_or("asynchronous".to_owned(), |most| format!("asynchronous, {most} in flight"))
            }
        };
        let mut rows = vec![
            ("model", format!("{}, {} parameters", self.model, self.parameters)),
            ("formation", self.shape()),
            ("micro-batches", format!("{} of a batch of {}", self.micro_batches, self.batch)),
            ("mode", mode),
            ("step", shown(self.step_s)),
        ];
        if self.exchange_s > 0.0 {
            rows.push(("exchange", shown(self.exchange_s)));
        }
        rows.extend([
            ("samples/s", format!("{:.0}", self.samples_per_s)),
            ("bottleneck", self.bottleneck.clone()),
            ("found", self.found()),
            ("costs", self.costs()),
        ]);
        summary(rows)
    }
}

impl Render for Printed<'_> {
    fn table(&self) -> String {
        let table = listing(HEADER, self.formation.iter().map(Row::cells));
        let mut text = format!("{}\n\n{table}\n\n{}", self.summary(), self.picture);
        text.push_str("\nwhy:\n");
        for line in self.why.iter().chain(&self.left_out_lines()) {
            text.push_str(&format!("  {line}\n"));
        }
        for note in &self.notes {
            text.push_str(&format!("\nnote: {note}\n"));
        }
        text
    }

    /// The nodes of one replica after the other, in the order of its stages.
    fn quiet(&self) -> String {
        self.formation.iter().map(|row| row.node.as_str()).collect::<Vec<_>>().join("\n")
    }
}
