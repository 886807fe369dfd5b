//! `phalanx plan`: which nodes would hold which part of a model, and what a step would cost.

mod pool;
mod report;

use crate::args::DomainArgs;
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueEnum};
use phalanx_driver::shortfall_hint;
use phalanx_formation::{Effort, LeftOut, ModelCost, Options, Plan, Shortfall};
use phalanx_graph::Graph;
use phalanx_measure::costs;
use phalanx_train::config::{ConfigError, Override, RunConfig, RunFile};
use phalanx_train::{Compute, TrainError, find_model, fixed_batch};
use pool::Known;
use report::Report;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Times the usual number of formations that a search looks at when it is its time that ends it.
const UNHURRIED: u64 = 1000;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx plan run.toml                                  on the nodes of this user, each started by `phalanx node`
  phalanx plan run.toml --nodes pool.toml                on machines that are described in a file
  phalanx plan run.toml --nodes pool.toml --set formation.stages=3 --output json
  phalanx plan run.toml --nodes node_configs.json --budget 30s --method genetic
  phalanx nodes --measure --write pool.toml              measures the nodes of a domain for --nodes

A pool file names its nodes:

  [[node]]
  name = \"n1\"
  memory = \"8GiB\"
  speed = 50.0              # GFLOP/s, as `phalanx nodes --measure` measures them; 10 where it is missing
  bandwidth = \"1Gbit\"       # to other hosts

Keys of [formation] that the run file or --set say are kept to; the others are chosen. Nothing is trained.")]
pub(crate) struct PlanArgs {
    /// The run file.
    #[arg(value_name = "RUN.toml")]
    file: PathBuf,
    /// The nodes there are: a pool file in TOML, or a node_configs.json; those of the domain when not given.
    #[arg(long, value_name = "POOL")]
    nodes: Option<PathBuf>,
    /// How long to look for a better formation at most; a fixed number of them is looked at when not given.
    #[arg(long, value_name = "DURATION", value_parser = crate::args::duration)]
    budget: Option<Duration>,
    /// How to look for it.
    #[arg(long, value_enum, default_value = "auto")]
    method: Method,
    /// Count the operations of the model instead of measuring how long they take on this machine.
    #[arg(long)]
    counted: bool,
    /// Set any key of the run file; may be given more than once.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    domain: DomainArgs,
}

/// How a formation is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Method {
    /// Exactly for few nodes, by a genetic search for many.
    Auto,
    /// All of them, with those skipped that cannot be the best.
    Exact,
    /// A genetic search.
    Genetic,
    /// Only the plain ones: nodes by speed or memory.
    Greedy,
}

pub(crate) async fn run(args: PlanArgs, output: Output) -> Result<(), Failure> {
    let (config, mut notes) = read(&args)?;
    let found = find_model(&config.model).map_err(train_failure)?;
    if let Some(model) = fixed_batch(&found.graph) {
        return Err(train_failure(TrainError::FixedReplicas { model }));
    }
    let (mut cost, here) = cost(&found.graph, &config, args.counted)?;
    let known = match &args.nodes {
        Some(path) => pool::of_file(path)?,
        None => pool::of_domain(&args.domain, here).await?,
    };
    notes.extend(known.notes.iter().cloned());
    costs::keep_cuts(&mut cost, &config.formation.cuts).map_err(train_failure)?;
    let mut options = costs::options(&config, &found.graph, &here);
    if args.budget.is_some() {
        let Effort { evaluations, exact_nodes } = options.effort;
        options.effort = Effort { evaluations: evaluations.saturating_mul(UNHURRIED), exact_nodes };
    }
    let began = Instant::now();
    let plan = plan(&args, &cost, &known, &options)?;
    let report = Report {
        model: found.graph.name,
        cost: &cost,
        pool: &known.pool,
        plan: &plan,
        batch: config.train.batch * config.train.accumulate,
        measured_gflops: here.gflops,
        took: began.elapsed(),
        notes,
    };
    output.print(&report.rendered())
}

/// What the run file says, with what is not said about stages left to the planner.
fn read(args: &PlanArgs) -> Result<(RunConfig, Vec<String>), Failure> {
    let vars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut said = Override::from_env(vars);
    for text in &args.set {
        said.push(Override::set(text).map_err(train_failure)?);
    }
    said.push(Override::unless_said("formation.stages", "auto"));
    let load = RunFile::load(&args.file, &said);
    let file = load.map_err(|error: ConfigError| train_failure(error))?;
    let notes =
        if file.resolved.is_said("formation", "stages") { Vec::new() } else { vec![unsaid(&args.file)] };
    Ok((file.config, notes))
}

fn unsaid(file: &Path) -> String {
    let file = file.display();
    format!(
        "{file} does not say `formation.stages`, so they are chosen here; `phalanx train {file} --set \
         formation.stages=auto` does the same"
    )
}

/// What the model costs, in billions of operations, and what this machine does in a second if that was measured.
fn cost(graph: &Graph, config: &RunConfig, counted: bool) -> Result<(ModelCost, costs::Here), Failure> {
    if counted {
        return Ok((costs::counted(graph), costs::Here::default()));
    }
    // One thread, as the driver of a run has.
    costs::measured(graph, &Compute::cpu(Some(1)), config).map_err(train_failure)
}

fn plan(args: &PlanArgs, cost: &ModelCost, known: &Known, options: &Options) -> Result<Plan, Failure> {
    let end = args.budget.map(|budget| Instant::now() + budget);
    let keep_going = &mut || end.is_none_or(|end| Instant::now() < end);
    let search = match args.method {
        Method::Auto => phalanx_formation::plan,
        Method::Exact => phalanx_formation::exact,
        Method::Genetic => phalanx_formation::genetic,
        Method::Greedy => phalanx_formation::greedy,
    };
    search(cost, &known.pool, options, keep_going)
        .map_err(|shortfall| no_plan(shortfall, cost, known, options))
}

fn no_plan(shortfall: Shortfall, cost: &ModelCost, known: &Known, options: &Options) -> Failure {
    let small = match &shortfall {
        Shortfall::NoFit { .. } => known.pool.too_small(cost, options),
        _ => Vec::new(),
    };
    let named = |left: &LeftOut| {
        let name = known.pool.nodes.get(left.node).map_or("", |node| &node.name);
        format!("{name} can hold no part of the model ({})", left.why)
    };
    let hint = match small.first() {
        Some(first) => {
            let more = small.len() - 1;
            let others = if more > 0 { format!(", nor can {more} more") } else { String::new() };
            Some(format!("{}{others}; give it more memory, or say fewer `formation.stages`", named(first)))
        }
        None => shortfall_hint(&shortfall).map(str::to_owned),
    };
    let context = format!("no formation on {} holds this run", known.from);
    Failure::work(anyhow::Error::new(shortfall).context(context)).hint_if(hint)
}
