//! `--live`: the model of a run that is being trained, where it is being trained.

use crate::args::{DomainArgs, start_failure};
use crate::commands::train::train_failure;
use crate::commands::trained::TrainedArgs;
use crate::failure::Failure;
use anyhow::anyhow;
use clap::Args;
use phalanx_driver::live::{self, LiveError, LiveModel, LiveNote, LiveRefusal, LiveRun};
use phalanx_fabric::{Fabric, NodeKind, RequestError};
use phalanx_records::run_dir::is_run;
use phalanx_train::TrainedModel;
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

impl LiveArgs {
    pub(crate) fn is_asked(&self) -> bool {
        self.live
    }

    /// Finds the run, and learns from its driver what its model is and how it takes samples.
    pub(crate) async fn find(&self, learned: &TrainedArgs) -> Result<(LiveModel, TrainedModel), Failure> {
        let (domain, driver) = self.target(learned)?;
        let fabric =
            Fabric::start(domain.fabric("look", NodeKind::Observer)?).await.map_err(start_failure)?;
        fabric.settled(LOOK).await;
        let found = match driver {
            Some(driver) => {
                live::about(&fabric, &driver).await.map(|run| (driver, run)).map_err(live_failure)
            }
            None => only_driver(&fabric, &domain).await,
        };
        let formation = |driver| LiveModel { fabric: fabric.clone(), driver, wait: self.wait };
        match found.and_then(|(driver, run)| Ok((formation(driver), learned.of_live(run)?))) {
            Ok(found) => Ok(found),
            Err(error) => {
                fabric.shutdown().await;
                Err(error)
            }
        }
    }

    /// Which driver in which domain.
    fn target(&self, learned: &TrainedArgs) -> Result<(DomainArgs, Option<NodeId>), Failure> {
        let mut domain = self.domain.clone();
        let path = learned.path();
        if let Some(note) = LiveNote::read(&path).map_err(live_failure)? {
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
    let mut found = live::runs(fabric).await;
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
pub(crate) fn live_failure(error: LiveError) -> Failure {
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
    let error = match error {
        LiveError::Data(error) => return train_failure(error),
        error @ LiveError::MalformedNote { .. } => return Failure::usage(error),
        error => error,
    };
    let failed = match error.class() {
        Class::Fatal if wrong_input => Failure::work(error),
        _ => Failure::infrastructure(error),
    };
    failed.hint_if(hint)
}
