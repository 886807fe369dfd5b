//! A node of this process: solves jobs and trials, trains and is measured.

use phalanx_fabric::{Fabric, FabricConfig};
use phalanx_jobs::{ComputingNode, Handlers, NodeError, ResultMemory, Stopper};
use phalanx_measure::this_host;
use phalanx_rank::{DataRoots, FileCache, Offer, longest_file};
use phalanx_train::{Compute, Losses, MakeCompute};
use phalanx_trial::{TrialHost, TrialHostOptions};
use phalanx_types::{ByteSize, NodeId, Resources};
use std::ffi::OsString;
use std::sync::Arc;
use tokio::sync::watch;

/// What a node has and allows besides its handlers.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Losses of the user's own: the node takes part in runs whose `train.own_loss` is one of them.
    pub losses: Losses,
    /// What runs and trials may open besides the files that their drivers list.
    pub data_roots: DataRoots,
}

/// A node of this process: it solves jobs with handlers of the program and trials of searches, takes part in runs of its
/// domain and can be measured.
///
/// Training and measuring begin when it starts and go on until it leaves; jobs are solved while [`Node::run`] or
/// [`Node::solve_one`] is awaited.
#[derive(Debug)]
pub struct Node {
    jobs: ComputingNode,
    trials: TrialHost,
    over: watch::Receiver<u64>,
}

impl Node {
    /// Joins a domain. `config.resources` says what the node has; [`machine`] is all of this machine.
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start(config: FabricConfig, handlers: Handlers) -> Result<Self, NodeError> {
        Self::start_as(config, handlers, NodeOptions::default()).await
    }

    /// The same with losses of the user's own: the node takes part in runs whose `train.own_loss` is one of them.
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start_with(
        config: FabricConfig,
        handlers: Handlers,
        losses: Losses,
    ) -> Result<Self, NodeError> {
        Self::start_as(config, handlers, NodeOptions { losses, ..NodeOptions::default() }).await
    }

    /// The same with all that may be said of a node.
    ///
    /// # Errors
    /// The domain cannot be joined.
    pub async fn start_as(
        config: FabricConfig,
        handlers: Handlers,
        options: NodeOptions,
    ) -> Result<Self, NodeError> {
        let NodeOptions { losses, data_roots: roots } = options;
        let cores = config.resources.cores.max(1) as usize;
        let compute: MakeCompute = Arc::new(move |threads| Compute::cpu(Some(threads.unwrap_or(cores))));
        let files =
            FileCache::usual().with_roots(roots.clone()).with_limit(longest_file(config.resources.memory));
        let trial_options = TrialHostOptions { files, ..TrialHostOptions::default() };
        let trials = TrialHost::with(compute.clone(), losses.clone(), trial_options);
        // Programs of trials are programs like any other.
        let programs = handlers.kinds().any(|kind| kind == phalanx_launch::PROGRAMS);
        let jobs = ComputingNode::start(config, trials.add_to(handlers, programs)).await?;
        trials.join(jobs.fabric());
        phalanx_measure::serve(jobs.fabric(), compute.clone());
        let (ended, over) = watch::channel(0);
        let offer = Offer { compute, account: jobs.account().clone(), losses, roots, over: ended };
        tokio::spawn(phalanx_rank::serve(jobs.fabric().clone(), offer));
        Ok(Self { jobs, trials, over })
    }

    /// Counts the runs that this node took part in and whose drivers have ended them, be it done, stopped or failed. A
    /// run whose driver is lost does not count: its driver may come back.
    pub fn runs_over(&self) -> watch::Receiver<u64> {
        self.over.clone()
    }

    /// Also runs ranks of `phalanx launch`. `wrapper` is put before every program, also before those of trials; it ties
    /// the life of a rank to that of this process. Launchers use nodes that handle jobs of kind [`phalanx_launch::PROGRAMS`].
    pub fn allow_ranks(&self, wrapper: Vec<OsString>) {
        self.trials.wrap_programs(wrapper.clone());
        phalanx_launch::serve_ranks(self.jobs.fabric(), self.jobs.account(), wrapper);
    }

    /// Says how much memory solutions may take while they are kept, and where the rest goes.
    pub fn set_result_memory(&mut self, settings: ResultMemory) {
        self.jobs.set_result_memory(settings);
    }

    /// Its id: its name and digits.
    pub fn id(&self) -> &NodeId {
        self.jobs.id()
    }

    /// Its links to the rest of the domain.
    pub fn fabric(&self) -> &Fabric {
        self.jobs.fabric()
    }

    /// Its cores and memory, and who uses them.
    pub fn account(&self) -> &phalanx_account::NodeAccount {
        self.jobs.account()
    }

    /// Tells it to stop, from anywhere.
    pub fn stopper(&self) -> Stopper {
        self.jobs.stopper()
    }

    /// Solves jobs until it is told to stop, then leaves the domain.
    ///
    /// # Errors
    /// The node cannot go on.
    pub async fn run(self) -> Result<(), NodeError> {
        self.jobs.run().await
    }

    /// Takes exactly one job, solves it and returns when its main node has the result.
    ///
    /// # Errors
    /// The node cannot go on; the job runs elsewhere.
    pub async fn solve_one(&mut self) -> Result<(), NodeError> {
        self.jobs.solve_one().await
    }

    /// Leaves the domain.
    pub async fn shutdown(self) {
        self.jobs.shutdown().await;
    }
}

/// What this machine has: all cores, and four fifths of the memory.
pub fn machine() -> Resources {
    let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
    #[cfg(target_os = "linux")]
    let memory = {
        let info = rustix::system::sysinfo();
        ByteSize(info.totalram.saturating_mul(u64::from(info.mem_unit)) / 5 * 4)
    };
    #[cfg(not(target_os = "linux"))]
    let memory = ByteSize::gib(4);
    Resources { cores, memory, devices: Vec::new(), speed_gflops: None, host: this_host().map(Box::new) }
}
