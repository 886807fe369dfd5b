//! A main node with its client, and computing nodes.

use crate::{TrialClient, TrialHost, TrialHostOptions, TrialOrder, TrialUpdate, TrialUpdates, TrialWork};
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_jobs::{ComputingNode, Handlers, JobHandle, MainNode, MainOptions, Outcome, Stopper};
use phalanx_rank::{DataRoots, FileCache};
use phalanx_train::{Compute, Losses};
use phalanx_types::{ByteSize, DomainName, NodeId, Parcel, Resources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// Only a failing test takes so long.
pub(super) const DEADLINE: Duration = Duration::from_secs(240);

pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) main: MainNode,
    pub(super) client: TrialClient,
}

/// A computing node that runs.
pub(super) struct Running {
    pub(super) id: NodeId,
    pub(super) stopper: Stopper,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop_now();
    }
}

impl Running {
    /// Ends the node in the middle of what it does, and waits until it has left.
    pub(super) async fn end(mut self) {
        self.stopper.stop_now();
        timeout(DEADLINE, &mut self.task).await.unwrap().unwrap();
    }
}

fn config(dir: &Path, name: &str, kind: NodeKind) -> FabricConfig {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    config.resources = Resources { cores: 2, memory: ByteSize::gib(1), ..Resources::default() };
    config
}

impl Place {
    pub(super) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "main", NodeKind::Main);
        let main = MainNode::start(config, MainOptions::default()).await.unwrap();
        let client = TrialClient::new(main.clone(), dir.path());
        Self { dir, main, client }
    }

    /// Where a node of this name keeps files that it has fetched.
    pub(super) fn kept(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("kept-{name}"))
    }

    /// A node that solves trials, also of programs.
    pub(super) async fn node(&self, name: &str) -> Running {
        self.node_with(name, DataRoots::default()).await
    }

    /// The same with directories that trials may use.
    pub(super) async fn node_with(&self, name: &str, roots: DataRoots) -> Running {
        let files = FileCache::new(self.kept(name)).with_roots(roots);
        let options = TrialHostOptions { files, save_every: Duration::ZERO };
        let host = TrialHost::with(Arc::new(Compute::cpu), Losses::new(), options);
        let config = config(self.dir.path(), name, NodeKind::Computing);
        let node = ComputingNode::start(config, host.add_to(Handlers::new(), true)).await.unwrap();
        host.join(node.fabric());
        let (id, stopper) = (node.id().clone(), node.stopper());
        Running { id, stopper, task: tokio::spawn(async { node.run().await.unwrap() }) }
    }

    /// The run directory of a trial.
    pub(super) fn run_dir(&self, trial: u64) -> PathBuf {
        self.dir.path().join("trials").join(format!("t{trial}"))
    }

    pub(super) async fn submit(&self, order: &TrialOrder, from: Option<&Path>) -> JobHandle {
        self.client.submit(order, from, 0).await.unwrap()
    }

    pub(super) async fn outcome(&self, order: &TrialOrder, from: Option<&Path>) -> Outcome {
        ended(self.submit(order, from).await).await
    }

    pub(super) async fn solve(&self, order: &TrialOrder, from: Option<&Path>) -> Parcel {
        match self.outcome(order, from).await {
            Outcome::Solved(solution) => solution,
            other => panic!("not solved: {other:?}"),
        }
    }

    /// Why a trial failed.
    pub(super) async fn failure(&self, order: &TrialOrder) -> String {
        match self.outcome(order, None).await {
            Outcome::Failed(reason) => reason.to_string(),
            other => panic!("not failed: {other:?}"),
        }
    }
}

pub(super) async fn ended(job: JobHandle) -> Outcome {
    timeout(DEADLINE, job).await.unwrap().unwrap()
}

pub(super) async fn next(updates: &mut TrialUpdates) -> TrialUpdate {
    timeout(DEADLINE, updates.next()).await.unwrap().unwrap()
}

/// An order for all that is given, measured by nothing.
pub(super) fn order(trial: u64, work: TrialWork, [from, to, full]: [f64; 3]) -> TrialOrder {
    TrialOrder {
        search: "s1".to_owned(),
        trial,
        attempt: 1,
        work,
        from,
        to,
        full,
        values: Vec::new(),
        latency_trials: 3,
        cores: 1,
        memory: ByteSize(0),
        keep: true,
    }
}

/// A small network for the digits of the examples; the learning rate of each step depends on the length of the run.
pub(super) fn training(data: &str) -> TrialWork {
    let run = format!(
        "[model]\ntoml = \"model.toml\"\n[data]\n{data}\n[train]\nloss = \"cross_entropy\"\n\
         optimizer = {{ name = \"adam\", lr = 0.003 }}\nschedule = \"cosine\"\nbatch = 64\nepochs = 1\nseed = 7\n"
    );
    let model = "input = [1, 8, 8]\n\
                 [[layer]]\ntype = \"conv2d\"\nout = 4\nkernel = 3\n\
                 [[layer]]\ntype = \"batch_norm\"\nactivation = \"relu\"\n\
                 [[layer]]\ntype = \"flatten\"\n\
                 [[layer]]\ntype = \"dropout\"\nratio = 0.2\n\
                 [[layer]]\ntype = \"linear\"\nout = 10\n";
    TrialWork::Train { run, model: Some(model.to_owned()) }
}

/// A program in the shell.
pub(super) fn shell(script: &str, genes: &[(&str, &str)]) -> TrialWork {
    let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
    let genes: BTreeMap<String, String> =
        genes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    TrialWork::Program { argv, genes }
}
