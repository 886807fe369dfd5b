//! A trained model from wherever the user has it: a run, a checkpoint, an ONNX file, weights of a known model.

use crate::commands::train::{RUNS, train_failure};
use crate::failure::Failure;
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_data::{Columns, DataError, Dataset, SourceSpec, Transform};
use phalanx_distributed::live::LiveRun;
use phalanx_engine::{CompileOptions, Loss, Metric, Model};
use phalanx_graph::{Graph, Weights, onnx, weights};
use phalanx_records::params_hash;
use phalanx_records::run_dir::{
    Checkpoint, MODEL, RUN_FILE, Status, is_run, newest_checkpoint, read_classes, read_run,
};
use phalanx_train::config::{ModelConfig, ModelFrom, RunConfig, RunFile};
use phalanx_train::{Compute, Found, TrainError, find_model};
use std::path::{Path, PathBuf};

/// Which model, and how it takes samples.
#[derive(Debug, Args)]
pub(crate) struct LearnedArgs {
    /// A run directory, a checkpoint in one, an .onnx file, or a .safetensors file with --model.
    #[arg(value_name = "MODEL")]
    trained: PathBuf,
    /// The model that .safetensors weights are of: zoo:NAME, an .onnx file or a .toml file.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Take the model, the loss and what is done to samples from this run file.
    #[arg(long, value_name = "RUN.toml")]
    config: Option<PathBuf>,
}

/// A model that has learned something.
#[derive(Debug)]
pub(crate) struct Learned {
    pub(crate) graph: Graph,
    pub(crate) weights: Weights,
    /// What the run was told, if it is known.
    pub(crate) config: Option<RunConfig>,
    /// What its outputs stand for, if its run had names for that.
    classes: Option<Vec<String>>,
}

/// What `zoo:NAME` or the name of a file stands for.
pub(crate) fn model_from(text: &str) -> Result<ModelFrom, Failure> {
    if let Some(name) = text.strip_prefix("zoo:") {
        return Ok(ModelFrom::Zoo(name.to_owned()));
    }
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("onnx") => Ok(ModelFrom::Onnx(path)),
        Some("toml") => Ok(ModelFrom::Toml(path)),
        _ => Err(Failure::usage(anyhow!("cannot tell what kind of model {text:?} is")).hint(
            "give a file that ends in .onnx or .toml, or zoo:NAME; `phalanx model list` names the zoo's",
        )),
    }
}

/// The directory of a run, which may be named as in listings.
pub(crate) fn run_path(said: &Path) -> PathBuf {
    let named = Path::new(RUNS).join(said);
    if !said.exists() && is_run(&named) { named } else { said.to_owned() }
}

impl LearnedArgs {
    pub(crate) fn load(&self) -> Result<Learned, Failure> {
        let config = self.config.as_ref().map(|path| run_config(path)).transpose()?;
        let path = &run_path(&self.trained);
        if is_run(path) {
            return of_run(path, config);
        }
        if path.join("manifest.json").is_file() {
            let checkpoint = Checkpoint::load(path).map_err(train_failure)?;
            let run = path.parent().and_then(Path::parent).unwrap_or(Path::new(""));
            return Learned::of_checkpoint(run, checkpoint, config);
        }
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("onnx") => {
                let model = ModelConfig::new(ModelFrom::Onnx(path.clone()));
                let Found { graph, weights, .. } = find(&model)?;
                Ok(Learned { graph, weights, config, classes: None })
            }
            Some("safetensors") => self.of_weights(path, config),
            _ if !path.exists() => Err(Failure::usage(anyhow!("there is no {}", path.display()))
                .hint("`phalanx run list` names the runs there are")),
            _ => Err(Failure::usage(anyhow!("cannot tell what {} is", path.display())).hint(
                "give a run directory, a checkpoint in one, or a file that ends in .onnx or .safetensors",
            )),
        }
    }

    /// What was named, perhaps in runs/.
    pub(crate) fn path(&self) -> PathBuf {
        run_path(&self.trained)
    }

    /// The model of a run that is being trained elsewhere, without what it has learned.
    pub(crate) fn of_live(&self, run: LiveRun) -> Result<Learned, Failure> {
        let config = match &self.config {
            Some(path) => run_config(path)?,
            None => {
                let file = RunFile::parse(Path::new(RUN_FILE), &run.config, &[]);
                file.map_err(train_failure)?.config
            }
        };
        let model = match &self.model {
            Some(text) => ModelConfig::new(model_from(text)?),
            None => config.model.clone(),
        };
        let graph = find(&model)?.graph;
        Ok(Learned { graph, weights: Weights::new(), config: Some(config), classes: run.classes })
    }

    fn of_weights(&self, path: &Path, config: Option<RunConfig>) -> Result<Learned, Failure> {
        let model = match (&self.model, &config) {
            (Some(text), _) => ModelConfig::new(model_from(text)?),
            (None, Some(config)) => config.model.clone(),
            (None, None) => {
                return Err(Failure::usage(anyhow!("which model are the weights of {} of?", path.display()))
                    .hint("say --model zoo:NAME, --model FILE.onnx or --config RUN.toml"));
            }
        };
        let graph = find(&model)?.graph;
        Ok(Learned { weights: load_weights(path, &graph)?, graph, config, classes: None })
    }
}

fn run_config(path: &Path) -> Result<RunConfig, Failure> {
    Ok(RunFile::load(path, &[]).map_err(train_failure)?.config)
}

fn find(model: &ModelConfig) -> Result<Found, Failure> {
    find_model(model).map_err(train_failure)
}

fn load_weights(path: &Path, graph: &Graph) -> Result<Weights, Failure> {
    weights::load(path, graph).map_err(|error| {
        let told =
            anyhow::Error::new(error).context(format!("could not use the weights of {}", path.display()));
        Failure::usage(told)
    })
}

fn of_run(path: &Path, config: Option<RunConfig>) -> Result<Learned, Failure> {
    let config = match config {
        Some(config) => config,
        None => run_config(&path.join(RUN_FILE))?,
    };
    let graph = find(&config.model)?.graph;
    let weights = match finished(path, &graph)? {
        Some(weights) => weights,
        None => newest_checkpoint(path).map_err(train_failure)?.0.weights,
    };
    Ok(Learned { graph, weights, config: Some(config), classes: classes(path)? })
}

/// The weights of a run that has come to its end, and that went no further since they were written.
fn finished(path: &Path, graph: &Graph) -> Result<Option<Weights>, Failure> {
    let file = path.join(MODEL);
    let state = read_run(path).map_err(train_failure)?.state;
    if state.state != Status::Finished || !file.is_file() {
        return Ok(None);
    }
    let weights = load_weights(&file, graph)?;
    Ok((state.params_hash == Some(params_hash(&weights))).then_some(weights))
}

fn classes(run: &Path) -> Result<Option<Vec<String>>, Failure> {
    read_classes(run).map_err(train_failure)
}

impl Learned {
    /// What a run had learned at one step; as the run was told, unless something else is said.
    pub(crate) fn of_checkpoint(
        run: &Path,
        checkpoint: Checkpoint,
        config: Option<RunConfig>,
    ) -> Result<Self, Failure> {
        let config = match config {
            Some(config) => config,
            None => run_config(&run.join(RUN_FILE))?,
        };
        let graph = find(&config.model)?.graph;
        Ok(Self { graph, weights: checkpoint.weights, config: Some(config), classes: classes(run)? })
    }

    /// Writes it as files that others read: weights under all names of the `state_dict`, an ONNX model.
    pub(crate) fn write(&self, safetensors: Option<&Path>, onnx: Option<&Path>) -> Result<(), Failure> {
        let told = |path: &Path| format!("could not write {}", path.display());
        if let Some(path) = onnx {
            onnx::export(&self.graph, &self.weights, path)
                .with_context(|| told(path))
                .map_err(Failure::infrastructure)?;
        }
        if let Some(path) = safetensors {
            weights::save(path, &self.graph.with_aliases(self.weights.clone()))
                .with_context(|| told(path))
                .map_err(Failure::infrastructure)?;
        }
        Ok(())
    }

    /// Ready to compute, but not to learn.
    pub(crate) fn compile(&self, compute: &Compute) -> Result<Box<dyn Model>, Failure> {
        let options = CompileOptions { forward_only: true, ..CompileOptions::default() };
        let model = compute.engine.compile(&self.graph, &options).map_err(TrainError::from);
        let mut model = model.map_err(train_failure)?;
        model.load(&self.weights).map_err(train_failure)?;
        Ok(model)
    }

    /// Samples that its run computes at once, if it is known.
    pub(crate) fn batch(&self) -> Option<usize> {
        self.config.as_ref().map(|config| config.train.batch)
    }

    pub(crate) fn transform(&self) -> Transform {
        self.config.as_ref().map(|config| config.data.transform.clone()).unwrap_or_default()
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        self.config.as_ref().map(|config| config.train.metrics.clone()).unwrap_or_default()
    }

    pub(crate) fn loss(&self, asked: Option<&str>) -> Result<Loss, Failure> {
        match (asked, &self.config) {
            (Some(name), _) => Loss::parse(name).ok_or_else(|| {
                Failure::usage(anyhow!("there is no loss called {name:?}"))
                    .hint("there are mse, l1, huber, cross_entropy, bce, bce_with_logits and nll")
            }),
            (None, Some(config)) => Ok(config.train.loss),
            (None, None) => Ok(Loss::CrossEntropy { smoothing: 0.0 }),
        }
    }
}

/// Which samples.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// The file with the samples; the validation data of the run when not given.
    #[arg(value_name = "DATA")]
    data: Option<PathBuf>,
    /// The array, or the columns, that are the samples.
    #[arg(long, value_delimiter = ',')]
    x: Vec<String>,
    /// The array or column that is the label.
    #[arg(long)]
    y: Option<String>,
    /// The file with the labels, for formats with one array in a file.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Samples that are computed at once.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    batch: u64,
    /// Compute threads; all cores when not given.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: Option<u64>,
}

impl DataArgs {
    pub(crate) fn batch(&self) -> usize {
        self.batch as usize
    }

    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads.map(|threads| threads as usize)
    }

    /// Opens samples and their labels, classes numbered as the model has them; what is not said is as the run has it.
    pub(crate) fn open(&self, learned: &Learned) -> Result<Dataset, Failure> {
        let mut spec = self.spec(learned)?;
        spec.y = self.y.clone().or(spec.y);
        spec.labels_file = self.labels.clone().or(spec.labels_file);
        let data = open(&spec)?;
        match &learned.classes {
            Some(classes) => data.with_classes(classes).map_err(train_failure),
            None => Ok(data),
        }
    }

    /// Opens samples, whether there are labels or not.
    pub(crate) fn open_samples(&self, learned: &Learned) -> Result<Dataset, Failure> {
        let spec = self.spec(learned)?;
        let usual = spec.y.clone().filter(|_| self.y.is_none() && spec.x.is_none());
        if let Some(y) = usual {
            // A table in which the columns of the samples are those that are not the label, if it is there.
            let spec = SourceSpec { labels_file: None, ..spec.clone() };
            match Dataset::open(&spec, Path::new("")) {
                Err(DataError::UnknownArray { name, .. }) if name == y => {}
                opened => return Ok(opened.map_err(train_failure)?.without_labels()),
            }
        }
        let said = SourceSpec { y: self.y.clone(), labels_file: self.labels.clone(), ..spec };
        Ok(open(&said)?.without_labels())
    }

    fn spec(&self, learned: &Learned) -> Result<SourceSpec, Failure> {
        let data = learned.config.as_ref().map(|config| &config.data);
        let usual = data.map(|data| data.valid.as_ref().unwrap_or(&data.train));
        let mut spec = match (&self.data, usual) {
            (None, None) => {
                return Err(Failure::usage(anyhow!("which data?"))
                    .hint("name a file: phalanx eval MODEL digits.npz --x x_test --y y_test"));
            }
            (None, Some(usual)) => usual.clone(),
            (Some(file), Some(usual)) => {
                SourceSpec { file: file.clone(), format: None, labels_file: None, ..usual.clone() }
            }
            (Some(file), None) => SourceSpec::file(file),
        };
        match self.x.as_slice() {
            [] => {}
            [one] => spec.x = Some(Columns::One(one.clone())),
            many => spec.x = Some(Columns::Many(many.to_vec())),
        }
        Ok(spec)
    }
}

fn open(spec: &SourceSpec) -> Result<Dataset, Failure> {
    Dataset::open(spec, Path::new("")).map_err(train_failure)
}
