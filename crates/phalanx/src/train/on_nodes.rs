//! A run on nodes: this process drives, nodes compute.

use super::{Nodes, RunPlan, Trained, files};
use crate::error::Error;
use crate::nodes::Domain;
use phalanx_driver::live::{LiveNote, LiveNoteFile};
use phalanx_driver::{DriverOptions, drive};
use phalanx_engine::Loss;
use phalanx_fabric::{Fabric, FabricConfig, NodeKind};
use phalanx_jobs::builtin;
use phalanx_nodes::{Background, LocalNodes, LocalSpec, ThreadNodes, ThreadSpec, private_domain};
use phalanx_records::run_dir::RunDir;
use phalanx_records::{Observer, Summary};
use phalanx_train::config::RunConfig;
use phalanx_train::{Compute, LoadOptions, Losses, Task, TrainedModel};
use phalanx_types::DomainName;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub(super) fn train(plan: RunPlan, nodes: Nodes, observer: &mut dyn Observer) -> Result<Trained, Error> {
    let RunPlan { given, mut config, own, run_dir, stop } = plan;
    if let Some(own) = &own {
        if matches!(nodes, Nodes::Processes { .. }) {
            return Err(Error::OwnLoss {
                loss: own.name().to_owned(),
                place: "a process of another program",
            });
        }
        (config.train.loss, config.train.own_loss) = (Loss::Mse, Some(own.name().to_owned()));
    }
    place(&nodes, &mut config);
    config.validate()?;
    let scratch = match &run_dir {
        Some(_) => None,
        None => Some(scratch_dir()?),
    };
    let path = match (&run_dir, &scratch) {
        (Some(path), _) => path.clone(),
        (None, scratch) => scratch.as_ref().map(|dir| dir.path().join("run")).unwrap_or_default(),
    };
    let (dir, config) = files::open(&path, given.as_ref(), config)?;
    let compute = Compute::cpu(config.threads());
    // Nodes compute, not their driver.
    let one = Compute::cpu(Some(1));
    let task = Task::new(config.clone(), &one.threads)?;
    let mut summary = match Summary::of_finished(&dir, task.plan(), task.validates()) {
        Some(summary) => summary,
        None => {
            let losses = own.iter().cloned().fold(Losses::new(), Losses::with);
            let driving = Driving { nodes, losses, path: &path, is_kept: run_dir.is_some(), compute: one };
            driving.run(task, dir, &stop, observer)?
        }
    };
    let mut model = TrainedModel::load(&path, LoadOptions { model: None, config: Some(config) })?;
    if let Some(given) = given {
        // As the program built it, and not as the file of it was read.
        if files::fits(&given.graph, &model.weights) {
            model.graph = given.graph;
        }
        model.classes = given.train.classes().map(<[String]>::to_vec);
    }
    if scratch.is_some() {
        summary.run_dir = None;
    }
    if let Some(own) = own {
        model = model.with_loss(own);
    }
    Ok(Trained::new(model, summary, compute))
}

/// Says in the configuration how many nodes there are.
fn place(nodes: &Nodes, config: &mut RunConfig) {
    let formation = &mut config.formation;
    match nodes {
        Nodes::Here => {}
        Nodes::Local(count) | Nodes::Processes { count, .. } => {
            formation.local = *count;
            if !formation.is_staged() {
                formation.replicas = *count;
            }
        }
        Nodes::Domain(_) => formation.local = 0,
    }
}

fn scratch_dir() -> Result<tempfile::TempDir, Error> {
    let path = std::env::temp_dir();
    tempfile::Builder::new().prefix("phalanx-").tempdir().map_err(|source| Error::Write { path, source })
}

/// Nodes of this process's own; they end with this value.
#[derive(Debug)]
enum Own {
    None,
    Threads { _nodes: ThreadNodes },
    Processes { _nodes: LocalNodes },
}

/// Where a run is trained, and by whom.
struct Driving<'a> {
    nodes: Nodes,
    /// Custom losses, for nodes of this process.
    losses: Losses,
    path: &'a Path,
    /// Whether the run directory stays.
    is_kept: bool,
    compute: Compute,
}

impl Driving<'_> {
    fn run(
        self,
        task: Task,
        dir: RunDir,
        stop: &super::Stop,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let background = Background::start("driver")?;
        let (domain, private) = match &self.nodes {
            Nodes::Domain(domain) => (domain.clone(), false),
            _ => (Domain::named(private_domain()?), true),
        };
        let fabric = background.block_on(Fabric::start(driver_config(&domain, private)))?;
        let _noted = self.is_kept.then(|| note(&domain, &fabric, self.path)).transpose()?;
        let run_files = task.config().files().into_iter().map(|(_, path)| path.to_owned()).collect();
        let own = start(self.nodes, domain.name(), self.losses, run_files)?;
        let options = DriverOptions {
            config: task.config().resolve()?.to_toml(),
            // Nodes that this process starts open its files in place.
            private,
            trace: false,
            compute: self.compute,
        };
        let summary = drive(&fabric, task, dir, options, stop.watch.subscribe(), observer);
        background.block_on(fabric.shutdown());
        drop(own);
        Ok(summary?)
    }
}

fn driver_config(domain: &Domain, private: bool) -> FabricConfig {
    let mut config = domain.fabric("driver", NodeKind::Main);
    if private {
        config.bind = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        config.mdns = false;
    }
    config
}

/// Writes where the run is trained, so that others can ask its model meanwhile.
fn note(domain: &Domain, fabric: &Fabric, path: &Path) -> Result<LiveNoteFile, Error> {
    let (name, driver) = (domain.name().clone(), fabric.id().clone());
    let key = domain.key_path().map(Path::to_owned);
    Ok(LiveNote { domain: name, driver, key }.write(path)?)
}

fn start(nodes: Nodes, domain: &DomainName, losses: Losses, run_files: Vec<PathBuf>) -> Result<Own, Error> {
    Ok(match nodes {
        Nodes::Here | Nodes::Domain(_) => Own::None,
        Nodes::Local(count) => {
            let spec = ThreadSpec { losses, run_files, ..ThreadSpec::new(domain.clone(), count) };
            Own::Threads { _nodes: ThreadNodes::start(&spec, builtin::handlers)? }
        }
        Nodes::Processes { count, program } => {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let spec =
                LocalSpec { restart: true, run_files, ..LocalSpec::new(program, domain.clone(), count) };
            Own::Processes { _nodes: LocalNodes::start(&spec)? }
        }
    })
}
