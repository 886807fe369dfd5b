//! `phalanx simulate train --stages`: a run whose nodes hold parts of the model, under faults.

use super::train::TrainArgs;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use phalanx_graph::Graph;
use phalanx_sim::runs::{Options, Report, run as run_seed, run_recorded};
use phalanx_sim::train::Work;
use serde::Serialize;
use std::time::Duration;

/// After this time no node fails any more, so that every run ends.
const HEALS_AT: Duration = Duration::from_secs(600);

/// What a simulated run with stages came to.
#[derive(Debug, Serialize)]
struct SimulatedStages {
    model: String,
    stages: usize,
    nodes: usize,
    seed: u64,
    steps: u64,
    validations: u64,
    checkpoints: u64,
    groups: u64,
    deaths: u64,
    /// Steps that were computed more than once.
    redone: u64,
    /// Times that the run went back to a checkpoint.
    rewinds: u64,
    simulated_s: f64,
    events: u64,
    violation: Option<String>,
}

impl Render for SimulatedStages {
    fn table(&self) -> String {
        let mut rows = vec![
            ("nodes", format!("{} for replicas of {} stages", self.nodes, self.stages)),
            ("steps", self.steps.to_string()),
            ("validations", self.validations.to_string()),
            ("checkpoints", self.checkpoints.to_string()),
            ("groups", self.groups.to_string()),
            ("nodes lost", self.deaths.to_string()),
            ("steps redone", self.redone.to_string()),
            ("went back", format!("{} times to a checkpoint", self.rewinds)),
            ("simulated", format!("{:.1} s in {} events", self.simulated_s, self.events)),
        ];
        if let Some(what) = &self.violation {
            rows.push(("violated", format!("seed {}: {what}", self.seed)));
            rows.push(("replay", format!("the same command with --seed {} --trace FILE", self.seed)));
        }
        summary(rows)
    }

    fn quiet(&self) -> String {
        format!("{:.3}", self.simulated_s)
    }
}

pub(super) fn run(args: &TrainArgs, stages: usize, graph: &Graph, output: Output) -> Result<(), Failure> {
    let work = Work::new(&args.model, graph);
    let options = options(args, stages, graph, &work)?;
    let report = match args.recording() {
        Some(path) => run_recorded(args.seed(), &options, path).map_err(Failure::infrastructure)?,
        None => run_seed(args.seed(), &options),
    };
    if let (Some(path), Some(trace)) = (args.trace(), &report.trace) {
        std::fs::write(path, trace)
            .with_context(|| format!("could not write the trace to {}", path.display()))
            .map_err(Failure::infrastructure)?;
    }
    output.print(&simulated(args, stages, &options, &report))?;
    match report.violation {
        None => Ok(()),
        Some(_) => Err(Failure::work(anyhow!("seed {} violates an invariant", args.seed()))),
    }
}

fn options(args: &TrainArgs, stages: usize, graph: &Graph, work: &Work) -> Result<Options, Failure> {
    let operators = graph.nodes.len();
    if stages > operators {
        let error = anyhow!("{} has {operators} operators, too few for {stages} stages", args.model);
        return Err(Failure::usage(error));
    }
    let cluster = args.options();
    // A stage computes its part of the model for its replica's share of a batch.
    let whole = work.seconds_per_sample(&cluster) * cluster.batch as f64;
    let step = Duration::try_from_secs_f64(whole / cluster.replicas.max(1) as f64 / stages as f64);
    let state_seconds = work.state_bytes() as f64 / cluster.link.bytes_per_sec / stages as f64;
    Ok(Options {
        nodes: cluster.replicas * stages,
        stages,
        operators: u32::try_from(operators).unwrap_or(u32::MAX),
        steps: cluster.steps,
        checkpoint_every: cluster.checkpoint_every,
        batch: cluster.batch,
        step: step.unwrap_or(Duration::MAX),
        latency: cluster.link.latency,
        state_seconds,
        mtbf: cluster.faults.map(|faults| faults.mtbf),
        mttr: cluster.faults.map_or(Duration::ZERO, |faults| faults.mttr),
        heartbeat: cluster.heartbeat,
        heals_at: HEALS_AT,
        trace: cluster.trace,
        ..Options::default()
    })
}

fn simulated(args: &TrainArgs, stages: usize, options: &Options, report: &Report) -> SimulatedStages {
    SimulatedStages {
        model: args.model.clone(),
        stages,
        nodes: options.nodes,
        seed: report.seed,
        steps: report.steps,
        validations: report.validations,
        checkpoints: report.checkpoints,
        groups: report.groups,
        deaths: report.deaths,
        redone: report.redone,
        rewinds: report.rewinds,
        simulated_s: report.ended_at.since(phalanx_types::Time::ZERO).as_secs_f64(),
        events: report.events,
        violation: report
            .violation
            .as_ref()
            .map(|violation| format!("at {}: {}", violation.at, violation.what)),
    }
}
