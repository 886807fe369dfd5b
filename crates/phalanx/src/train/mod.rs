//! Training: a model, data, how to learn, and who computes.
//!
//! ```
//! use phalanx::model::Builder;
//! use phalanx::{Dataset, Training, train};
//!
//! let mut b = Builder::new("line");
//! let x = b.input("x", &[1]);
//! let y = b.linear("fc", x, 1);
//! b.output(y);
//! let data = Dataset::from_f32(vec![0.0, 1.0, 2.0, 3.0], &[1], vec![1.0f32, 3.0, 5.0, 7.0])?;
//! let training = Training::new(b.finish()?, data).loss("mse").learning_rate(0.1).steps(200);
//! let trained = train(training)?;
//! let four = trained.predict(&[4.0])?.values()[0];
//! assert!((four - 9.0).abs() < 0.5, "{four}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Everything that a run file says can be said with [`Training::configure`]; [`config`] has the types. A run file is
//! trained with [`Training::of_file`].

mod files;
mod here;
mod on_nodes;
mod trained;

pub use phalanx_engine::{
    Adagrad, Adam, AdamW, Loss, LossBatch, LossFunction, Metric, OptimizerSpec, OwnLoss, RmsProp, Schedule,
    Sgd, Target,
};
pub use phalanx_train::config;
pub use phalanx_train::{Compute, Losses, TrainError};
pub use phalanx_types::Seed;
pub use trained::Trained;

use crate::error::Error;
use crate::nodes::{Domain, Program};
use config::{ConfigError, Length, RunConfig, RunFile};
use phalanx_data::Dataset;
use phalanx_graph::{Graph, Weights};
use phalanx_ledger::Feeder;
use phalanx_records::{Observer, RunEvent};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Trains, and gives the model with its weights.
///
/// Blocks until the run has ended. On nodes it must not be called from a task of a tokio runtime; use
/// `tokio::task::spawn_blocking` there.
///
/// # Errors
/// Something does not fit, is not there, or failed. A run directory then says so, and its last checkpoint stays.
pub fn train(training: Training) -> Result<Trained, Error> {
    let Training { given, config, choice, nodes, run_dir, mut observer, stop } = training;
    let mut plan = RunPlan { given, config: *config, own: None, run_dir, stop };
    match choice {
        None => {}
        Some(LossChoice::Own(own)) => plan.own = Some(own),
        Some(LossChoice::Named(loss)) => plan.config.train.loss = loss,
        Some(LossChoice::Word(word)) => plan.config.train.loss = named_loss(&word)?,
    }
    let feeder = plan.run_dir.as_deref().and_then(Feeder::of_run);
    let observer: &mut dyn Observer = &mut |event: RunEvent| {
        if let Some(feeder) = &feeder {
            feeder.wake();
        }
        if let Some(observer) = &mut observer {
            observer.on(event);
        }
    };
    let trained = match nodes.or_else(|| as_configured(&plan.config)) {
        None if plan.config.formation.is_distributed() => {
            Err(Error::NoNodes { nodes: plan.config.formation.nodes_wanted() })
        }
        None | Some(Nodes::Here) => here::train(plan, observer),
        Some(nodes) => on_nodes::train(plan, nodes, observer),
    };
    if let Some(feeder) = &feeder {
        feeder.finish();
    }
    trained
}

/// Nodes that the configuration itself names.
fn as_configured(config: &RunConfig) -> Option<Nodes> {
    Some(config.formation.local).filter(|local| *local > 0).map(Nodes::Local)
}

fn named_loss(word: &str) -> Result<Loss, Error> {
    Loss::parse(word).ok_or_else(|| ConfigError::unknown_loss(word).into())
}

/// Who computes.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum Nodes {
    /// This process.
    #[default]
    Here,
    /// This many nodes on threads of this process, in a domain of their own.
    Local(usize),
    /// This many node processes on this machine, in a domain of their own; a node that ends is started again.
    Processes {
        /// How many.
        count: usize,
        /// A program that has `node` as a command; [`node_program`](crate::nodes::node_program) finds one.
        program: Program,
    },
    /// Nodes of a domain; `config.formation` says how many.
    Domain(Domain),
}

/// Asks runs to stop, from any thread. Clones ask the same runs.
#[derive(Debug, Clone)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    watch: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { flag: Arc::default(), watch: Arc::new(watch::Sender::new(false)) }
    }
}

impl Stop {
    /// Something to stop runs with.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets runs end after the step that they are at, or the one after it; a run directory then has everything.
    pub fn stop(&self) {
        self.flag.store(true, Ordering::Relaxed);
        self.watch.send_replace(true);
    }

    /// Returns when it is asked to stop.
    pub async fn asked(&self) {
        let mut watch = self.watch.subscribe();
        // Fails only without a sender, which this value has.
        let _asked = watch.wait_for(|asked| *asked).await;
    }
}

/// A loss: its name, a named loss with settings, or a function.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LossChoice {
    /// As run files name it: `mse`, `l1`, `huber`, `cross_entropy`, `bce`, `bce_with_logits`, `nll`.
    Word(String),
    /// A named loss with its settings.
    Named(Loss),
    /// A function of the program.
    Own(OwnLoss),
}

impl From<&str> for LossChoice {
    fn from(word: &str) -> Self {
        Self::Word(word.to_owned())
    }
}

impl From<Loss> for LossChoice {
    fn from(loss: Loss) -> Self {
        Self::Named(loss)
    }
}

impl From<OwnLoss> for LossChoice {
    fn from(loss: OwnLoss) -> Self {
        Self::Own(loss)
    }
}

/// What to train: a model, data, how to learn, who computes.
#[must_use]
pub struct Training {
    given: Option<Given>,
    config: Box<RunConfig>,
    choice: Option<LossChoice>,
    nodes: Option<Nodes>,
    run_dir: Option<PathBuf>,
    observer: Option<Box<dyn Observer + Send>>,
    stop: Stop,
}

impl fmt::Debug for Training {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Training").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What the program has in memory.
#[derive(Debug)]
struct Given {
    graph: Graph,
    weights: Weights,
    train: Dataset,
    valid: Option<Dataset>,
}

/// A run that is about to begin.
#[derive(Debug)]
struct RunPlan {
    /// None for a run whose model and data are in files.
    given: Option<Given>,
    config: RunConfig,
    own: Option<OwnLoss>,
    run_dir: Option<PathBuf>,
    stop: Stop,
}

impl Training {
    /// A model that was built in code, with data of any kind.
    pub fn new(model: Graph, data: Dataset) -> Self {
        let given = Given { graph: model, weights: Weights::new(), train: data, valid: None };
        Self { given: Some(given), ..Self::of_config(RunConfig::default()) }
    }

    /// A configuration whose model and data are in files.
    pub fn of_config(config: RunConfig) -> Self {
        Self {
            given: None,
            config: Box::new(config),
            choice: None,
            nodes: None,
            run_dir: None,
            observer: None,
            stop: Stop::new(),
        }
    }

    /// A run file.
    ///
    /// # Errors
    /// It cannot be read, or something in it is wrong.
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        Ok(Self::of_config(RunFile::load(path, &[])?.config))
    }

    /// Validates with these samples. Only of a model and data that were given in code; others name them in `config`.
    pub fn valid(mut self, data: Dataset) -> Self {
        if let Some(given) = &mut self.given {
            given.valid = Some(data);
        }
        self
    }

    /// Begins with these weights; those that are not among them are made from the seed.
    pub fn weights(mut self, weights: Weights) -> Self {
        if let Some(given) = &mut self.given {
            given.weights = weights;
        }
        self
    }

    /// Minimises this: a name such as `"cross_entropy"`, a [`Loss`] or an [`OwnLoss`]. The mean of squares if not said.
    pub fn loss(mut self, loss: impl Into<LossChoice>) -> Self {
        self.choice = Some(loss.into());
        self
    }

    /// Passes over the data.
    pub fn epochs(self, epochs: u64) -> Self {
        self.configure(|config| config.train.length = Length::Passes(epochs))
    }

    /// Steps, in the place of passes.
    pub fn steps(self, steps: u64) -> Self {
        self.configure(|config| config.train.length = Length::Steps(steps))
    }

    /// Samples of a step.
    pub fn batch(self, samples: usize) -> Self {
        self.configure(|config| config.train.batch = samples)
    }

    /// The optimizer; Adam if not said.
    pub fn optimizer(self, optimizer: OptimizerSpec) -> Self {
        self.configure(|config| config.train.optimizer = optimizer)
    }

    /// The learning rate of the optimizer.
    pub fn learning_rate(self, lr: f32) -> Self {
        self.configure(|config| config.train.optimizer.set_lr(lr))
    }

    /// Decides everything that is random.
    pub fn seed(self, seed: u64) -> Self {
        self.configure(|config| config.train.seed = Seed(seed))
    }

    /// Changes anything else that a run file may say.
    pub fn configure(mut self, change: impl FnOnce(&mut RunConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Who computes; this process if not said, or what the configuration says.
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Keeps records, checkpoints and the model in this directory. A run that is there goes on.
    pub fn run_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.run_dir = Some(path.into());
        self
    }

    /// Is told everything that happens; closures over [`RunEvent`] are observers.
    pub fn observe(mut self, observer: impl Observer + Send + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Ends when this is asked to stop.
    pub fn stop(mut self, stop: &Stop) -> Self {
        self.stop = stop.clone();
        self
    }
}
