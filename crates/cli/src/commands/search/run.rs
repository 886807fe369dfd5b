//! `phalanx search run` and `phalanx search resume`.

use super::progress::Progress;
use super::show::{FrontView, front_of};
use super::{SEARCHES, Which, search_failure};
use crate::args::DomainArgs;
use crate::commands::job::main_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::own_program::own_program;
use crate::stop::StopSignals;
use anyhow::anyhow;
use clap::Args;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{MainNode, MainOptions};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_records::run_dir::new_id;
use phalanx_search::core::record::SearchEnd;
use phalanx_search_driver::{CheckedModel, Exporter, Overrides, RESULTS, SearchDir, SearchPlan, drive};
use phalanx_search_results::{EventLine, ResultsWriter, SearchTable};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tokio::sync::watch;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search run examples/search-mnist/search.toml --local 2
  phalanx search run search.toml --trials 40 --algorithm nsga2 --seed 7 --local 4
  phalanx search run ready:cnn --data datasets/mnist --local 2    a space that comes with Phalanx
  phalanx search run search.toml                 on the nodes of this user, each started by `phalanx node`
  phalanx search run search.toml --dashboard     with a live page in the browser

Meanwhile, from anywhere: phalanx search status --watch, phalanx search plot, phalanx search show.")]
pub(crate) struct RunArgs {
    /// The search file; ready:NAME is one that comes with Phalanx.
    #[arg(value_name = "SEARCH.toml")]
    file: PathBuf,
    /// The directory of the search; searches/ and its time when not given. It must not hold a search.
    #[arg(long, short = 'o', value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The directory with the data of a ready:NAME, MNIST's four files; this one when not given.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    said: Said,
    #[command(flatten)]
    who: Who,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx search resume                          the newest search
  phalanx search resume searches/first --trials 100 --local 2    further than it was to go")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: Which,
    /// How many candidates in all, if more than before.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    trials: Option<u64>,
    /// Train at most this many trials at once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
    #[command(flatten)]
    who: Who,
}

/// What flags say in the place of the search file.
#[derive(Debug, Args)]
struct Said {
    /// How many candidates are tried.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    trials: Option<u64>,
    /// What chooses candidates: guided, evolution_pareto, nsga2, regularized, local, random, grid, bananas, asha or
    /// successive_halving.
    #[arg(long)]
    algorithm: Option<String>,
    /// Decides everything that is random.
    #[arg(long)]
    seed: Option<u64>,
    /// Train at most this many trials at once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    workers: Option<u32>,
}

/// On which nodes.
#[derive(Debug, Args)]
struct Who {
    /// Start this many nodes on this machine while this command lasts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    local: Option<u32>,
    /// Let the nodes of --local run the programs that a search file names as trials.
    #[arg(long, requires = "local")]
    allow_exec: bool,
    #[command(flatten)]
    domain: DomainArgs,
}

/// What a search came to.
#[derive(Debug, Serialize)]
struct Searched {
    search: PathBuf,
    end: SearchEnd,
    trials: usize,
    front: FrontView,
    models: Vec<CheckedModel>,
}

impl Render for Searched {
    fn table(&self) -> String {
        let exact = self.models.iter().filter(|model| model.agrees).count();
        let mut rows = vec![
            ("search", self.search.display().to_string()),
            ("trials", self.trials.to_string()),
            ("front", self.front.len().to_string()),
        ];
        if let Some(model) = self.models.first() {
            let text = format!(
                "{exact} of {} have the recorded accuracy, run by {}",
                self.models.len(),
                model.run_by
            );
            rows.push(("onnx models", text));
        }
        rows.push(("results", self.search.join(RESULTS).display().to_string()));
        format!("{}\n\n{}", summary(rows), self.front.table())
    }

    fn quiet(&self) -> String {
        self.search.display().to_string()
    }
}

pub(crate) async fn run(args: RunArgs, output: Output) -> Result<(), Failure> {
    let said = Overrides {
        trials: args.said.trials,
        algorithm: args.said.algorithm,
        seed: args.said.seed,
        workers: args.said.workers.map(|workers| workers as usize),
        data: args.data,
    };
    let id = new_id(SystemTime::now());
    let path = args.dir.unwrap_or_else(|| Path::new(SEARCHES).join(&id));
    let name = path.file_name().map_or(id, |name| name.to_string_lossy().into_owned());
    let plan = SearchPlan::load(&args.file, &name, &said).map_err(search_failure)?;
    plan.check().map_err(search_failure)?;
    let dir = SearchDir::create(&path, plan.text(), plan.about()).map_err(search_failure)?;
    search(plan, dir, Vec::new(), &args.who, output).await
}

pub(crate) async fn resume(args: ResumeArgs, output: Output) -> Result<(), Failure> {
    let path = args.which.path()?;
    let said =
        Overrides { trials: args.trials, workers: args.workers.map(|n| n as usize), ..Overrides::default() };
    let plan = SearchPlan::of_dir(&path, &said).map_err(search_failure)?;
    let (dir, past) = SearchDir::open(&path).map_err(search_failure)?;
    if args.trials.is_some() {
        dir.rewrite(plan.about()).map_err(search_failure)?;
    }
    search(plan, dir, past, &args.who, output).await
}

/// Searches on the nodes that are asked for, then writes what it came to.
async fn search(
    plan: SearchPlan,
    dir: SearchDir,
    past: Vec<EventLine>,
    who: &Who,
    output: Output,
) -> Result<(), Failure> {
    let path = dir.path().to_owned();
    let mut stops = StopSignals::new()?;
    let (config, nodes) = who.join(plan.runs_programs())?;
    let main = MainNode::start(config, MainOptions::default()).await.map_err(main_failure)?;
    let nodes = nodes.map(|spec| LocalNodes::start(&spec)).transpose().map_err(Failure::infrastructure)?;
    let (stop, asked) = watch::channel(false);
    let mut progress = Progress::new(output, &plan, &path);
    progress.begin(past.len());
    let result = {
        let mut searching = std::pin::pin!(drive(&main, &plan, dir, past, asked, &mut progress));
        loop {
            tokio::select! {
                result = &mut searching => break result,
                () = stops.next() => {
                    if stop.send_replace(true) {
                        return Err(Failure::work(anyhow!("stopped at once"))
                            .hint(format!("`phalanx search resume {}` goes on", path.display())));
                    }
                    tracing::warn!("stopping; ask again to stop at once");
                }
            }
        }
    };
    main.shutdown().await;
    drop(nodes);
    let (dir, table, end) = result.map_err(search_failure)?;
    progress.finish();
    finish(&dir, &plan, &table, end, output)
}

/// Writes tables, plots and models, and says what the search came to.
fn finish(
    dir: &SearchDir,
    plan: &SearchPlan,
    table: &SearchTable,
    end: SearchEnd,
    output: Output,
) -> Result<(), Failure> {
    let path = dir.path();
    let results = path.join(RESULTS);
    ResultsWriter::new(&results).write(table).map_err(search_failure)?;
    let finished = end == SearchEnd::Finished;
    let models = match finished && !plan.runs_programs() {
        true => Exporter::new().front(path, table).map_err(search_failure)?,
        false => Vec::new(),
    };
    let searched = Searched {
        search: path.to_owned(),
        end: end.clone(),
        trials: table.rows().len(),
        front: front_of(table),
        models,
    };
    output.print(&searched)?;
    let again = format!("`phalanx search resume {}` goes on", path.display());
    match end {
        SearchEnd::Finished => Ok(()),
        SearchEnd::Stopped => Err(Failure::work(anyhow!("stopped; everything is saved")).hint(again)),
        SearchEnd::Failed { why } => Err(Failure::work(anyhow!("the search has failed: {why}"))),
    }
}

impl Who {
    /// How the search joins its nodes, and the nodes it starts itself.
    fn join(&self, runs_programs: bool) -> Result<(FabricConfig, Option<LocalSpec>), Failure> {
        let Some(count) = self.local else {
            return Ok((self.domain.fabric("search", NodeKind::Main)?, None));
        };
        if runs_programs && !self.allow_exec {
            return Err(Failure::usage(anyhow!(
                "the trials of this search are programs, which nodes do not run by themselves"
            ))
            .hint("--allow-exec lets the nodes of --local run them"));
        }
        let (config, domain) = if self.domain.is_default() {
            let domain = private_domain().map_err(Failure::infrastructure)?;
            let mut config = FabricConfig::new(domain.clone(), "search", NodeKind::Main);
            config.bind = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
            config.mdns = false;
            config.heartbeat = self.domain.heartbeat;
            (config, domain)
        } else {
            (self.domain.fabric("search", NodeKind::Main)?, self.domain.domain.clone())
        };
        let spec = LocalSpec {
            key: self.domain.key_file(),
            heartbeat: Some(self.domain.heartbeat),
            allow_exec: runs_programs,
            restart: true,
            ..LocalSpec::new(own_program(), domain, count)
        };
        Ok((config, Some(spec)))
    }
}
