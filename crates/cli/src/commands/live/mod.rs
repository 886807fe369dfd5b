//! `--live`: the model of a run that is being trained, where it is being trained.

mod note;

pub(crate) use note::Noted;

use crate::args::{DomainArgs, start_failure};
use crate::commands::learned::{Learned, LearnedArgs};
use crate::commands::train::train_failure;
use crate::failure::Failure;
use anyhow::anyhow;
use clap::Args;
use note::Note;
use phalanx_data::{DataError, Dataset, Loader, LoaderOptions, Transform};
use phalanx_distributed::live::{self, LiveError, LiveRefusal, LiveRun, MAX_LIVE_BYTES, Samples};
use phalanx_fabric::{Fabric, NodeKind, NodeState, NodeStatus, RequestError};
use phalanx_records::run_dir::is_run;
use phalanx_types::{Class, NodeId};
use std::path::Path;
use std::time::Duration;

/// How long to look for the driver.
const LOOK: Duration = Duration::from_secs(2);
/// In the place of a run: the one that the domain trains.
const ANY: &str = "-";

/// Whether to ask a run that is being trained, and how to reach it.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    /// Ask the model of a run that is being trained on nodes, where it is, between two of its steps.
    ///
    /// MODEL is the directory of the run, its name in runs/, its driver as `phalanx nodes` names it, or - for the one
    /// run that the domain trains. Nothing is gathered for it, and the run learns the same as without.
    #[arg(long)]
    live: bool,
    /// How long the run may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = crate::args::duration, requires = "live")]
    wait: Duration,
    #[command(flatten)]
    domain: DomainArgs,
}

/// Nodes that train a model, and how to ask them.
#[derive(Debug)]
pub(crate) struct Formation {
    fabric: Fabric,
    driver: NodeId,
    wait: Duration,
}

/// What the model makes of all samples.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) values: Vec<f32>,
    /// Of all of them.
    pub(crate) shape: Vec<usize>,
    /// Steps that the model had behind it, for the first samples and for the last.
    pub(crate) steps: [u64; 2],
}

impl LiveArgs {
    pub(crate) fn is_asked(&self) -> bool {
        self.live
    }

    /// Finds the run, and learns from its driver what its model is and how it takes samples.
    pub(crate) async fn find(&self, learned: &LearnedArgs) -> Result<(Formation, Learned), Failure> {
        let (domain, driver) = self.target(learned)?;
        let fabric =
            Fabric::start(domain.fabric("look", NodeKind::Observer)?).await.map_err(start_failure)?;
        fabric.settled(LOOK).await;
        let found = match driver {
            Some(driver) => live::about(&fabric, &driver).await.map(|run| (driver, run)).map_err(failure),
            None => only_driver(&fabric, &domain).await,
        };
        let formation = |driver| Formation { fabric: fabric.clone(), driver, wait: self.wait };
        match found.and_then(|(driver, run)| Ok((formation(driver), learned.of_live(run)?))) {
            Ok(found) => Ok(found),
            Err(error) => {
                fabric.shutdown().await;
                Err(error)
            }
        }
    }

    /// Which driver in which domain.
    fn target(&self, learned: &LearnedArgs) -> Result<(DomainArgs, Option<NodeId>), Failure> {
        let mut domain = self.domain.clone();
        let path = learned.path();
        if let Some(note) = Note::read(&path)? {
            if domain.is_default() {
                (domain.domain, domain.key) = (note.domain, note.key);
            }
            return Ok((domain, Some(note.driver)));
        }
        if is_run(&path) {
            let error = anyhow!("the run in {} is not being trained on nodes", path.display());
            return Err(Failure::usage(error).hint("without --live its last checkpoint answers"));
        }
        if path == Path::new(ANY) {
            return Ok((domain, None));
        }
        let name = path.to_string_lossy();
        match NodeId::new(&*name) {
            Ok(driver) => Ok((domain, Some(driver))),
            Err(_no_id) => Err(Failure::usage(anyhow!("there is no run in {name}")).hint(format!(
                "name the directory of a run, its driver, or {ANY} for the one run of the domain"
            ))),
        }
    }
}

/// The steps of an answer, for people.
pub(crate) fn step_text([first, last]: [u64; 2]) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

/// The driver of the only run that is trained in a domain.
async fn only_driver(fabric: &Fabric, domain: &DomainArgs) -> Result<(NodeId, LiveRun), Failure> {
    let drives = |s: &NodeStatus| s.kind == NodeKind::Main && s.state == NodeState::Running;
    let mut found = Vec::new();
    for status in fabric.nodes().into_iter().filter(drives) {
        match live::about(fabric, &status.id).await {
            Ok(run) => found.push((status.id, run)),
            // A main node of jobs, most likely.
            Err(error) => tracing::debug!(node = %status.id, %error, "drives no run"),
        }
    }
    match (found.len(), found.pop()) {
        (1, Some(only)) => Ok(only),
        (0, _) | (_, None) => {
            let error = anyhow!("no run is being trained in domain {}", domain.domain);
            Err(Failure::infrastructure(error).hint("name the domain with --domain, or the run's directory"))
        }
        (count, Some((one, run))) => {
            let error = anyhow!("{count} runs are being trained in domain {}", domain.domain);
            let hint = format!("name one by its driver: {one} trains {}", run.dir);
            Err(Failure::usage(error).hint(hint))
        }
    }
}

/// An error of asking, with its exit code and what to do about it.
fn failure(error: LiveError) -> Failure {
    let hint = match &error {
        LiveError::Request(RequestError::NotConnected { .. }) => {
            Some("the run is not being trained any more, or --domain, --key or --connect miss its domain")
        }
        LiveError::Request(_) | LiveError::Refused { reason: LiveRefusal::Over, .. } => {
            Some("without --live the directory of the run answers")
        }
        LiveError::Refused { reason: LiveRefusal::Late { .. }, .. } => Some("give more time with --wait"),
        _ => None,
    };
    let wrong_input = matches!(
        &error,
        LiveError::Refused { reason: LiveRefusal::Size { .. } | LiveRefusal::Failed { .. }, .. }
    );
    let failed = match error.class() {
        Class::Fatal if wrong_input => Failure::work(error),
        _ => Failure::infrastructure(error),
    };
    failed.hint_if(hint)
}

impl Formation {
    /// What the model makes of all samples, in the order of the file.
    pub(crate) async fn outputs(
        &self,
        learned: &Learned,
        data: &Dataset,
        transform: &Transform,
        batch: usize,
    ) -> Result<Outputs, Failure> {
        let graph = &learned.graph;
        let values = |of: &[phalanx_graph::ValueId]| {
            of.first().map_or(1, |value| graph.shape(*value).at(1).iter().product::<usize>())
        };
        let largest = 4 * values(&graph.inputs).max(values(&graph.outputs)).max(1);
        let most = (MAX_LIVE_BYTES as usize / largest).max(1);
        // As many batches at once as fit: all of them are answered after the same step.
        let batch = batch.min(learned.batch().unwrap_or(batch)).min(most);
        let options = LoaderOptions { batch: most / batch * batch, ..LoaderOptions::default() };
        let mut loader = Loader::new(data.clone(), transform, options).map_err(train_failure)?;
        let mut all = Outputs::default();
        loop {
            // Not on the thread that says that this node is alive.
            let loading = tokio::task::spawn_blocking(move || (next_samples(&mut loader, batch), loader));
            let samples;
            (samples, loader) = loading.await.map_err(Failure::infrastructure)?;
            let Some(samples) = samples.map_err(train_failure)? else {
                return Ok(all);
            };
            let answer = live::predict(&self.fabric, &self.driver, &samples, self.wait).await;
            let answer = answer.map_err(failure)?;
            let adding = tokio::task::spawn_blocking(move || all.and(&answer));
            all = adding.await.map_err(Failure::infrastructure)?;
        }
    }

    pub(crate) async fn leave(self) {
        self.fabric.shutdown().await;
    }
}

fn next_samples(loader: &mut Loader, batch: usize) -> Result<Option<Samples>, DataError> {
    let Some(loaded) = loader.next() else { return Ok(None) };
    let loaded = loaded?.batch;
    let samples = Samples::new(&loaded.x, loaded.len, batch);
    loader.recycle(loaded);
    Ok(Some(samples))
}

impl Outputs {
    /// With those of the next samples.
    fn and(mut self, next: &live::Outputs) -> Self {
        let before = self.shape.first().copied().unwrap_or(0);
        if self.values.is_empty() {
            self.steps[0] = next.step;
        }
        self.steps[1] = next.step;
        self.shape.clone_from(&next.shape);
        if let Some(first) = self.shape.first_mut() {
            *first += before;
        }
        self.values.extend(next.values());
        self
    }
}
