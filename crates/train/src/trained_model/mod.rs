//! Trained models: loaded from a run, a checkpoint or files; for prediction, evaluation and saving.

mod error;
mod fuse;
mod origin;

pub use error::TrainedModelError;
pub use fuse::{FuseError, Fused, fuse};
pub use origin::{Damage, ModelOrigin};

use crate::config::{ModelConfig, ModelFrom, RunConfig, RunFile};
use crate::error::TrainError;
use crate::evaluate::Evaluator;
use crate::source::{Found, find_model};
use crate::task::{Compute, Fit, Task, check_input, fixed_batch, objective_of, sample_shape};
use phalanx_data::{Dataset, Labels, Transform};
use phalanx_engine::{CompileOptions, Loss, Metric, Model, Objective, OwnLoss};
use phalanx_graph::{Graph, Weights, onnx, weights};
use phalanx_records::run_dir::{
    Checkpoint, MODEL, RUN_FILE, Status, is_run, newest_usable, read_classes, read_run,
};
use phalanx_records::{Evaluation, Predictions, params_hash};
use std::path::{Path, PathBuf};

/// The default number of samples computed at once.
const BATCH: usize = 64;

/// A trained model.
#[derive(Debug, Clone)]
pub struct TrainedModel {
    /// The graph of the model.
    pub graph: Graph,
    /// Its parameters and buffers, named as in the graph.
    pub weights: Weights,
    /// The configuration of its run, if it is known.
    pub config: Option<RunConfig>,
    /// The names of its classes, if its run had them.
    pub classes: Option<Vec<String>>,
    /// Which state of its run it is.
    pub origin: ModelOrigin,
    /// The objective of its run, if that was a custom loss.
    own: Option<Objective>,
}

/// How to load a file that has less information than a run directory.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// The model that a file of weights belongs to.
    pub model: Option<ModelConfig>,
    /// Replaces the configuration of the run.
    pub config: Option<RunConfig>,
}

impl TrainedModel {
    /// A graph with its weights, without a run.
    pub fn new(graph: Graph, weights: Weights) -> Self {
        Self { graph, weights, config: None, classes: None, origin: ModelOrigin::default(), own: None }
    }

    /// The result of a task.
    pub fn of_task(task: Task, weights: Weights) -> Self {
        let own = Some(task.objective).filter(|objective| objective.named().is_none());
        let classes = task.train.classes().map(<[String]>::to_vec);
        Self { config: Some(task.config), classes, own, ..Self::new(task.graph, weights) }
    }

    /// Loads a run directory, a checkpoint in one, an `.onnx` file, or a `.safetensors` file of a given model.
    ///
    /// # Errors
    /// There is no such file, or it cannot be read.
    pub fn load(path: &Path, options: LoadOptions) -> Result<Self, TrainedModelError> {
        let LoadOptions { model, config } = options;
        if is_run(path) {
            return Self::of_run(path, config);
        }
        if path.join("manifest.json").is_file() {
            let checkpoint = Checkpoint::load(path).map_err(TrainError::from)?;
            let run = path.parent().and_then(Path::parent).unwrap_or(Path::new(""));
            return Self::of_checkpoint(run, checkpoint, config);
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("onnx") => {
                let model = ModelConfig::new(ModelFrom::Onnx(path.to_owned()));
                let Found { graph, weights, .. } = find_model(&model).map_err(TrainError::from)?;
                Ok(Self { config, ..Self::new(graph, weights) })
            }
            Some("safetensors") => {
                let model = model.or_else(|| config.as_ref().map(|config| config.model.clone()));
                let unknown = || TrainedModelError::WhichModel { path: path.to_owned() };
                let graph = find_model(&model.ok_or_else(unknown)?).map_err(TrainError::from)?.graph;
                let weights = load_weights(path, &graph)?;
                Ok(Self { config, ..Self::new(graph, weights) })
            }
            _ if !path.exists() => Err(TrainedModelError::Missing { path: path.to_owned() }),
            _ => Err(TrainedModelError::Unknown { path: path.to_owned() }),
        }
    }

    /// The model of a run: its result, or its newest checkpoint.
    fn of_run(path: &Path, config: Option<RunConfig>) -> Result<Self, TrainedModelError> {
        let config = config_of(path, config)?;
        let graph = find_model(&config.model).map_err(TrainError::from)?.graph;
        let (weights, origin) = match finished(path, &graph)? {
            Ok(finished) => finished,
            Err(mut damage) => {
                let (checkpoint, unusable) = newest_usable(path).map_err(TrainError::from)?;
                damage.extend(unusable.into_iter().map(Damage::from));
                let step = Some(checkpoint.manifest.step);
                (checkpoint.weights, ModelOrigin { step, damage })
            }
        };
        let classes = read_classes(path).map_err(TrainError::from)?;
        Ok(Self { config: Some(config), classes, origin, ..Self::new(graph, weights) })
    }

    /// The model of a run at one step, with the configuration of the run unless another is given.
    ///
    /// # Errors
    /// The run's own files cannot be read.
    pub fn of_checkpoint(
        run: &Path,
        checkpoint: Checkpoint,
        config: Option<RunConfig>,
    ) -> Result<Self, TrainedModelError> {
        let config = config_of(run, config)?;
        let graph = find_model(&config.model).map_err(TrainError::from)?.graph;
        let classes = read_classes(run).map_err(TrainError::from)?;
        let origin = ModelOrigin { step: Some(checkpoint.manifest.step), damage: Vec::new() };
        Ok(Self { config: Some(config), classes, origin, ..Self::new(graph, checkpoint.weights) })
    }

    /// The model of a run that is being trained elsewhere, without its weights.
    ///
    /// # Errors
    /// The model cannot be built here.
    pub fn of_live(
        config: RunConfig,
        model: Option<ModelConfig>,
        classes: Option<Vec<String>>,
    ) -> Result<Self, TrainedModelError> {
        let graph = find_model(model.as_ref().unwrap_or(&config.model)).map_err(TrainError::from)?.graph;
        Ok(Self { config: Some(config), classes, ..Self::new(graph, Weights::new()) })
    }

    /// Its parameters and buffers under all names of the `state_dict`.
    pub fn state_dict(&self) -> Weights {
        self.graph.with_aliases(self.weights.clone())
    }

    /// A hash of its weights: equal hashes mean equal bits.
    pub fn params_hash(&self) -> String {
        params_hash(&self.weights)
    }

    /// Writes the weights under all names of the `state_dict`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_safetensors(&self, path: &Path) -> Result<(), TrainedModelError> {
        let failed = |source| TrainedModelError::WriteWeights { path: path.to_owned(), source };
        weights::save(path, &self.state_dict()).map_err(failed)
    }

    /// Writes an ONNX model.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_onnx(&self, path: &Path) -> Result<(), TrainedModelError> {
        let failed = |source| TrainedModelError::WriteOnnx { path: path.to_owned(), source };
        onnx::export(&self.graph, &self.weights, path).map_err(failed)
    }

    /// Compiles it for inference, with the bits that its run would give.
    ///
    /// # Errors
    /// The engine cannot compute it.
    pub fn compile(&self, compute: &Compute) -> Result<Box<dyn Model>, TrainError> {
        self.compile_as(CompileOptions { forward_only: true, ..CompileOptions::default() }, compute)
    }

    /// Compiles it for requests of few samples: faster than [`TrainedModel::compile`], with the same bits alone and in a
    /// batch.
    ///
    /// # Errors
    /// The engine cannot compute it.
    pub fn compile_for_requests(&self, compute: &Compute) -> Result<Box<dyn Model>, TrainError> {
        let options = CompileOptions { forward_only: true, few_rows: true, ..CompileOptions::default() };
        self.compile_as(options, compute)
    }

    fn compile_as(&self, options: CompileOptions, compute: &Compute) -> Result<Box<dyn Model>, TrainError> {
        let mut model = compute.engine.compile(&self.graph, &options)?;
        model.load(&self.weights)?;
        Ok(model)
    }

    /// The outputs for samples that follow each other in `x`, each of the shape of the run's data.
    ///
    /// # Errors
    /// The numbers do not make whole samples.
    pub fn predict(&self, x: &[f32], compute: &Compute) -> Result<Predictions, TrainError> {
        let transform = self.transform();
        // Transformations start with the shape of the data; without any, that is the model's input shape.
        let shape = match &transform.reshape {
            Some(reshape) => reshape.clone(),
            None => sample_shape(&self.graph)?,
        };
        self.predict_all(&Dataset::from_f32(x.to_vec(), &shape, Labels::None)?, compute)
    }

    /// The outputs for all samples of a dataset, in its order.
    ///
    /// # Errors
    /// The samples do not fit the model, or cannot be read.
    pub fn predict_all(&self, data: &Dataset, compute: &Compute) -> Result<Predictions, TrainError> {
        self.predict_in_batches(data, self.batch().unwrap_or(BATCH), compute)
    }

    /// The same with this many samples at once.
    ///
    /// # Errors
    /// The samples do not fit the model, or cannot be read.
    pub fn predict_in_batches(
        &self,
        data: &Dataset,
        batch: usize,
        compute: &Compute,
    ) -> Result<Predictions, TrainError> {
        // Labels are not needed.
        let transform = Transform { one_hot: None, ..self.transform() };
        check_input(&self.graph, data, &transform)?;
        let mut model = self.compile(compute)?;
        let evaluator = Evaluator {
            loss: Loss::Mse.into(),
            metrics: &[],
            transform: &transform,
            batch,
            fixed: fixed_batch(&self.graph),
            threads: &compute.threads,
        };
        let mut all = Predictions::default();
        evaluator.outputs(model.as_mut(), data, |output, shape| {
            all.add(output, shape);
            Ok::<(), TrainError>(())
        })?;
        Ok(all)
    }

    /// Loss and metrics over a dataset.
    ///
    /// # Errors
    /// Samples or labels do not fit the model and the loss, or cannot be read.
    pub fn evaluate(&self, data: &Dataset, compute: &Compute) -> Result<Evaluation, TrainError> {
        let (transform, objective) = (self.transform(), self.objective());
        let fit = Fit::new(&self.graph, data, &transform, &objective, &compute.threads)?;
        let data = data.with_label_check(fit.labels);
        let metrics = fit.metrics(&objective, &self.metrics());
        let evaluator = Evaluator {
            loss: objective,
            metrics: &metrics,
            transform: &transform,
            batch: self.batch().unwrap_or(BATCH),
            fixed: fixed_batch(&self.graph),
            threads: &compute.threads,
        };
        evaluator.run(self.compile(compute)?.as_mut(), &data)
    }

    /// The batch size of its run, if it is known.
    pub fn batch(&self) -> Option<usize> {
        self.config.as_ref().map(|config| config.train.batch)
    }

    /// The transformation of samples in its run.
    pub fn transform(&self) -> Transform {
        self.config.as_ref().map(|config| config.data.transform.clone()).unwrap_or_default()
    }

    /// The metrics of its run.
    pub fn metrics(&self) -> Vec<Metric> {
        self.config.as_ref().map(|config| config.train.metrics.clone()).unwrap_or_default()
    }

    /// The objective of its run; cross-entropy if it is not known.
    pub fn objective(&self) -> Objective {
        let usual = Objective::Named(Loss::CrossEntropy { smoothing: 0.0 });
        let told = || self.config.as_ref().map(objective_of);
        self.own.clone().or_else(told).unwrap_or(usual)
    }

    /// Evaluates with this function, for a run with a custom loss.
    #[must_use]
    pub fn with_loss(mut self, loss: OwnLoss) -> Self {
        self.own = Some(loss.into());
        self
    }
}

fn config_of(run: &Path, config: Option<RunConfig>) -> Result<RunConfig, TrainedModelError> {
    match config {
        Some(config) => Ok(config),
        None => Ok(RunFile::load(&run.join(RUN_FILE), &[]).map_err(TrainError::from)?.config),
    }
}

/// The weights of a finished run, or why they are not used, if they should be.
fn finished(
    path: &Path,
    graph: &Graph,
) -> Result<Result<(Weights, ModelOrigin), Vec<Damage>>, TrainedModelError> {
    let file: PathBuf = path.join(MODEL);
    let state = read_run(path).map_err(TrainError::from)?.state;
    if state.state != Status::Finished || !file.is_file() {
        return Ok(Err(Vec::new()));
    }
    let weights = load_weights(&file, graph)?;
    if state.params_hash != Some(params_hash(&weights)) {
        let why = "it has other weights than the run wrote".to_owned();
        return Ok(Err(vec![Damage { step: state.steps, path: file, why }]));
    }
    Ok(Ok((weights, ModelOrigin { step: Some(state.steps), damage: Vec::new() })))
}

fn load_weights(path: &Path, graph: &Graph) -> Result<Weights, TrainedModelError> {
    weights::load(path, graph).map_err(|source| TrainedModelError::Weights { path: path.to_owned(), source })
}
