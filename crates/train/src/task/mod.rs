//! A model and its data, opened and checked against each other before anything is written.

mod batches;
mod ending;
mod fit;
mod losses;
mod memory;

pub use batches::{fixed_batch, needs_several};
pub use fit::Fit;
pub use losses::{Losses, MissingLoss};

use crate::config::{Every, RunConfig};
use crate::error::{Dims, TrainError};
use crate::evaluate::Evaluator;
use crate::source::{Found, find_model, first_weights};
use crate::stream::{StreamFeed, this_host};
use crate::trainer::{Stepper, StepperOptions, loader_options};
use phalanx_data::{Dataset, LoaderOptions, Transform};
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Metric, Objective, Optimizer, OwnLoss, Threads};
use phalanx_graph::{Graph, Weights};
use phalanx_protocol::Length;
use phalanx_protocol::PassLengths;
use phalanx_protocol::progress::{Place, Plan};
use phalanx_records::About;
use phalanx_types::{ByteSize, ReaderId};
use phalanx_wire::train::{DataRef, ShareAsk, StreamRef};
use std::path::Path;
use std::sync::Arc;

/// An engine, and the threads that losses and optimizers use.
#[derive(Debug, Clone)]
pub struct Compute {
    pub engine: Arc<dyn Engine>,
    pub threads: Arc<Threads>,
}

impl Compute {
    /// The CPU, with this many threads; by default as many as cores.
    pub fn cpu(threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let engine = CpuEngine::new(threads.unwrap_or_else(cores));
        let threads = engine.threads().clone();
        Self { engine: Arc::new(engine), threads }
    }
}

/// Creates the compute of a run on this node, with the run's number of threads if it sets one.
pub type MakeCompute = Arc<dyn Fn(Option<usize>) -> Compute + Send + Sync>;

/// Everything a run needs before anything is written.
#[derive(Debug)]
pub struct Task {
    pub config: RunConfig,
    pub graph: Graph,
    /// The initial weights.
    pub weights: Weights,
    pub train: Dataset,
    pub valid: Option<Dataset>,
    /// The stream that the samples come from, if they do.
    pub stream: Option<StreamFeed>,
    /// The number of training samples; 0 for a stream, of which each pass has its own number.
    pub samples: usize,
    /// The number of validation samples.
    pub validation: usize,
    /// The shape of one label, transformed.
    pub y_shape: Vec<usize>,
    /// The metrics of validation; the first is shown as accuracy if it is one.
    pub metrics: Vec<Metric>,
    /// Notes for the user about the model.
    pub notes: Vec<String>,
    /// The objective: the loss that the run file names, or a custom one.
    pub objective: Objective,
    /// The step at which training ends for now, if that is before the end of the run.
    pub until: Option<u64>,
}

/// A model, data and a loss in a program's memory.
#[derive(Debug)]
pub struct InMemory {
    pub graph: Graph,
    /// Initial values of parameters; the others are made from the seed.
    pub weights: Weights,
    pub train: Dataset,
    pub valid: Option<Dataset>,
    /// Replaces the loss that the configuration names.
    pub loss: Option<OwnLoss>,
}

impl Task {
    /// Opens the model and the data, and checks them against each other.
    ///
    /// # Errors
    /// Something is missing or does not fit.
    pub fn new(config: RunConfig, threads: &Threads) -> Result<Self, TrainError> {
        let found = find_model(&config.model)?;
        if !config.formation.is_staged() {
            memory::check(&found.graph, &config.train)?;
        }
        let found = first_weights(found, &config.model, config.train.seed)?;
        Self::open(config, found, threads)
    }

    /// A task from a program's memory. The files of model and data in the configuration are ignored.
    ///
    /// # Errors
    /// The configuration is invalid, or the parts do not fit each other.
    pub fn in_memory(config: RunConfig, given: InMemory, threads: &Threads) -> Result<Self, TrainError> {
        config.validate()?;
        let InMemory { graph, weights, train, valid, loss } = given;
        if !config.formation.is_staged() {
            memory::check(&graph, &config.train)?;
        }
        let found = Found { graph, weights, notes: Vec::new() };
        let found = first_weights(found, &config.model, config.train.seed)?;
        let objective = loss.map_or_else(|| objective_of(&config), Objective::Own);
        Self::assemble(config, found, (train, valid), objective, threads)
    }

    /// The same for a node that will hold only a part of the model: weights from the seed are not made yet.
    ///
    /// # Errors
    /// Something is missing or does not fit.
    pub fn of_stages(config: RunConfig, threads: &Threads) -> Result<Self, TrainError> {
        let mut found = find_model(&config.model)?;
        if config.model.weights.is_some() {
            found = first_weights(found, &config.model, config.train.seed)?;
        }
        Self::open(config, found, threads)
    }

    fn open(config: RunConfig, found: Found, threads: &Threads) -> Result<Self, TrainError> {
        let data = &config.data;
        let stream = data.stream.as_ref().map(|stream| StreamFeed::connect(&config, stream)).transpose()?;
        // Paths are absolute by now.
        let train = match &stream {
            Some(stream) => Dataset::new(stream.source())?,
            None => Dataset::open(&data.limited(&data.train), Path::new(""))?,
        };
        let valid =
            data.valid.as_ref().map(|spec| Dataset::open(&data.limited(spec), Path::new(""))).transpose()?;
        let objective = objective_of(&config);
        let task = Self::assemble(config, found, (train, valid), objective, threads)?;
        Ok(Self { stream, ..task })
    }

    /// Checks model, data and loss against each other.
    fn assemble(
        config: RunConfig,
        found: Found,
        (train, valid): (Dataset, Option<Dataset>),
        objective: Objective,
        threads: &Threads,
    ) -> Result<Self, TrainError> {
        let Found { graph, weights, mut notes } = found;
        let data = &config.data;
        let valid = match (valid, train.classes()) {
            (Some(valid), Some(classes)) => Some(valid.with_classes(classes)?),
            (valid, _) => valid,
        };
        let is_stream = data.stream.is_some();
        let samples = if is_stream { 0 } else { train.fixed_len()? };
        let validation = valid.as_ref().map_or(Ok(0), Dataset::fixed_len)?;
        let batch = config.train.batch * config.train.accumulate;
        let options = LoaderOptions { batch, drop_last: data.drop_last, ..LoaderOptions::default() };
        if options.batches(samples) == 0 && !is_stream {
            return Err(TrainError::NoBatch { samples, batch });
        }
        batches::check(&graph, &config, samples)?;
        if let Some(model) = fixed_batch(&graph).filter(|_| is_stream && !data.drop_last) {
            return Err(TrainError::FixedStream { model });
        }
        if let Some(model) = fixed_batch(&graph).filter(|_| config.formation.is_distributed()) {
            return Err(TrainError::FixedReplicas { model });
        }
        let fit = Fit::new(&graph, &train, &data.transform, &objective, threads)?;
        let train = train.with_label_check(fit.labels);
        let valid = match valid {
            Some(valid) => {
                let fit = Fit::new(&graph, &valid, &data.transform, &objective, threads)?;
                Some(valid.with_label_check(fit.labels))
            }
            None => None,
        };
        if let Objective::Named(loss) = &objective {
            notes.extend(ending::note(&graph, *loss));
        }
        let metrics = fit.metrics(&objective, &config.train.metrics);
        let y_shape = fit.y_shape;
        Ok(Self {
            config,
            graph,
            weights,
            train,
            valid,
            stream: None,
            samples,
            validation,
            y_shape,
            metrics,
            notes,
            objective,
            until: None,
        })
    }

    /// Takes the custom loss that its run file names from these, if it names one.
    ///
    /// # Errors
    /// It is not among them.
    pub fn take_loss(&mut self, losses: &Losses) -> Result<(), MissingLoss> {
        let Some(name) = &self.config.train.own_loss else { return Ok(()) };
        let found = losses.get(name).ok_or_else(|| MissingLoss { name: name.clone() })?;
        self.objective = found.clone().into();
        Ok(())
    }

    /// The share of every node that it asks for. The needs of a stage are known only when the model is cut.
    pub fn share(&self) -> ShareAsk {
        let formation = &self.config.formation;
        let estimate = match formation.is_staged() {
            true => 0,
            false => {
                let batch = self.config.train.batch.div_ceil(formation.replicas.max(1));
                memory::of_batch(&self.graph, &self.config.train, batch)
            }
        };
        ShareAsk { cores: formation.cores, memory: formation.memory, estimate: ByteSize(estimate) }
    }

    /// The data that other nodes must have, too.
    pub fn data(&self) -> DataRef {
        DataRef {
            samples: self.samples as u64,
            validation: self.validation as u64,
            classes: self.train.classes().map(<[String]>::to_vec),
            stream: self.stream_ref(),
        }
    }

    fn stream_ref(&self) -> Option<StreamRef> {
        let reader = self.stream.as_ref()?.reader()?.to_string();
        Some(StreamRef { reader, host: this_host() })
    }

    /// Adopts the driver's numbering of classes.
    ///
    /// # Errors
    /// The data differ from the run's.
    pub fn agree_on(&mut self, data: &DataRef) -> Result<(), TrainError> {
        let own = self.data();
        for (what, here, there) in
            [("train", own.samples, data.samples), ("valid", own.validation, data.validation)]
        {
            if here != there {
                return Err(TrainError::OtherData { what, here, there });
            }
        }
        if let Some(classes) = &data.classes {
            self.number_classes(classes)?;
        }
        match (&self.stream, &data.stream) {
            (Some(stream), Some(run)) => {
                let reader = ReaderId::new(&run.reader).map_err(|_wrong| stream.other_run(&run.reader))?;
                Ok(stream.attach(&reader)?)
            }
            _ => Ok(()),
        }
    }

    /// Numbers the classes of all samples by their position in a list.
    pub fn number_classes(&mut self, classes: &[String]) -> Result<(), TrainError> {
        self.train = self.train.with_classes(classes)?;
        if let Some(valid) = &self.valid {
            self.valid = Some(valid.with_classes(classes)?);
        }
        Ok(())
    }

    /// A model with its optimizer, without weights.
    pub fn stepper(&self, compute: &Compute) -> Result<Stepper, TrainError> {
        self.stepper_of(0..self.graph.nodes.len(), compute)
    }

    /// The initial weights of a stage of the model.
    pub fn first_weights_of(&self, stage: &Graph) -> Weights {
        let mut weights = stage.initialise(self.config.train.seed.derive("init"));
        for (name, tensor) in &self.weights {
            if stage.values.iter().any(|value| value.name == *name) {
                weights.insert(name.clone(), tensor.clone());
            }
        }
        weights
    }

    /// A stage of the model with its optimizer, without weights.
    pub fn stepper_of(
        &self,
        nodes: std::ops::Range<usize>,
        compute: &Compute,
    ) -> Result<Stepper, TrainError> {
        let train = &self.config.train;
        let compile = CompileOptions { recompute: train.recompute, ..CompileOptions::default() };
        let model = match nodes.len() == self.graph.nodes.len() {
            true => compute.engine.compile(&self.graph, &compile)?,
            false => compute.engine.compile_stage(&self.graph, nodes, &compile)?,
        };
        let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
        let optimizer = Optimizer::new(train.optimizer, &sizes);
        let options = StepperOptions {
            loss: self.objective.clone(),
            clip_norm: train.clip_norm,
            clip_value: train.clip_value,
            seed: train.seed.derive("dropout"),
        };
        Ok(Stepper::new(model, optimizer, options, compute.threads.clone()))
    }

    /// The evaluator of its validation.
    pub fn evaluator<'a>(&'a self, threads: &'a Threads) -> Evaluator<'a> {
        Evaluator {
            loss: self.objective.clone(),
            metrics: &self.metrics,
            transform: &self.config.data.transform,
            batch: self.config.train.batch,
            fixed: fixed_batch(&self.graph),
            threads,
        }
    }

    pub fn plan(&self) -> Plan {
        let train = &self.config.train;
        let is_stream = self.config.data.stream.is_some();
        let once = self.config.data.stream.as_ref().is_some_and(|stream| stream.mode_name() == "once");
        Plan {
            passes: match is_stream {
                true => PassLengths::Sealed,
                false => PassLengths::Fixed(loader_options(self, Place::default()).batches(self.samples)),
            },
            length: match train.length {
                // All windows of the stream together are one pass over it.
                Length::Passes(_) if once => Length::Passes(u64::MAX),
                length => length,
            },
            validate: train.validate_every,
            checkpoint: train.checkpoint_every,
            until: self.until,
        }
    }

    /// The information for the records of the run.
    pub fn about(&self) -> About {
        About {
            graph: self.graph.clone(),
            plan: self.plan(),
            classes: self.train.classes().map(<[String]>::to_vec),
            keep: self.config.train.keep,
        }
    }

    /// Whether the model is validated at all.
    pub fn validates(&self) -> bool {
        self.valid.is_some() && self.config.train.validate_every != Every::Never
    }

    /// The number of steps of the finished run, if it is known.
    pub fn total_steps(&self) -> Option<u64> {
        self.plan().steps()
    }

    pub fn config(&self) -> &RunConfig {
        &self.config
    }

    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// What a run file says to minimise. The function of a custom loss is given to the task later, where it is needed.
pub(crate) fn objective_of(config: &RunConfig) -> Objective {
    match &config.train.own_loss {
        Some(name) => OwnLoss::elsewhere(name).into(),
        None => config.train.loss.into(),
    }
}

/// The sample shape of a model's input.
///
/// # Errors
/// It has more than one input.
pub fn sample_shape(graph: &Graph) -> Result<Vec<usize>, TrainError> {
    match graph.inputs.as_slice() {
        [input] => Ok(graph.shape(*input).at(1).split_off(1)),
        inputs => Err(TrainError::Inputs { count: inputs.len() }),
    }
}

/// Checks that transformed samples fit a model's input.
///
/// # Errors
/// They do not.
pub fn check_input(graph: &Graph, data: &Dataset, transform: &Transform) -> Result<(), TrainError> {
    let wanted = sample_shape(graph)?;
    let prepared = transform.prepare(data)?;
    let got = prepared.x_shape();
    // Axes of length one do not affect the order of elements.
    let dense = |shape: &[usize]| shape.iter().copied().filter(|d| *d != 1).collect::<Vec<_>>();
    if dense(got) != dense(&wanted) {
        let (origin, data) = (data.origin().to_string(), Dims(got.to_vec()));
        return Err(TrainError::InputShape { origin, data, model: Dims(wanted) });
    }
    Ok(())
}
