//! Flags that name a trained model and samples for it.

use crate::commands::inputs;
use crate::commands::train::{RUNS, train_failure};
use crate::failure::Failure;
use crate::output::{Output, say};
use anyhow::anyhow;
use clap::Args;
use phalanx_data::{Columns, DataError, Dataset, SourceSpec};
use phalanx_driver::live::LiveRun;
use phalanx_engine::{Loss, Objective};
use phalanx_records::Blame;
use phalanx_records::run_dir::{RUN_FILE, is_run};
use phalanx_train::config::{ModelConfig, ModelFrom, RunConfig, RunFile};
use phalanx_train::{LoadOptions, TrainedModel, TrainedModelError};
use phalanx_types::ByteSize;
use std::path::{Path, PathBuf};

/// Which model, and how it takes samples.
#[derive(Debug, Args)]
pub(crate) struct TrainedArgs {
    /// A run directory, a checkpoint in one, an .onnx file, or a .safetensors file with --model.
    #[arg(value_name = "MODEL")]
    trained: PathBuf,
    /// The model that .safetensors weights are of: zoo:NAME, an .onnx file or a .toml file.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Take the model, the loss and what is done to samples from this run file.
    #[arg(long, value_name = "RUN.toml")]
    config: Option<PathBuf>,
    /// Fail when something newer in the run is damaged, instead of using what is whole with a warning.
    #[arg(long)]
    strict: bool,
    /// Use the run's model and data also if their files are not those it was trained with.
    #[arg(long)]
    changed_inputs: bool,
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

impl TrainedArgs {
    /// Loads the model, says which step it is of, and warns of what is newer but damaged.
    pub(crate) fn load(&self, output: Output) -> Result<TrainedModel, Failure> {
        // Weights that training began with do not matter any more.
        self.check_inputs(|key| matches!(key, "model.onnx" | "model.toml"))?;
        let learned = self.load_silently()?;
        let place = self.path();
        for damage in &learned.origin.damage {
            if self.strict {
                let error = anyhow!("{damage}").context(format!("the run in {} is damaged", place.display()));
                return Err(
                    Failure::work(error).hint("without --strict the newest step that is whole is used")
                );
            }
            say(&format!("warning: {damage}"));
        }
        if let Some(step) = learned.origin.step.filter(|_| output != Output::Quiet) {
            say(&format!("using step {step} of {}", place.display()));
        }
        Ok(learned)
    }

    /// The run whose files the model is made from, if it is one's.
    fn run(&self) -> Option<PathBuf> {
        if self.config.is_some() {
            return None;
        }
        let path = self.path();
        let run = if is_run(&path) { Some(path.as_path()) } else { path.parent().and_then(Path::parent) };
        run.filter(|run| is_run(run)).map(Path::to_owned)
    }

    /// Refuses files of the run under these keys that are not what they were when it was trained.
    fn check_inputs(&self, keys: impl Fn(&str) -> bool) -> Result<(), Failure> {
        match self.run() {
            Some(run) if !self.changed_inputs => inputs::check(&run, keys),
            _ => Ok(()),
        }
    }

    /// Refuses data of the run that have changed, where they are used.
    pub(crate) fn check_data(&self, data: &DataArgs, learned: &TrainedModel) -> Result<(), Failure> {
        if data.data.is_some() {
            return Ok(());
        }
        let validates = learned.config.as_ref().is_some_and(|config| config.data.valid.is_some());
        let section = if validates { "data.valid." } else { "data.train." };
        self.check_inputs(|key| key.starts_with(section))
    }

    fn load_silently(&self) -> Result<TrainedModel, Failure> {
        let config = self.config.as_ref().map(|path| run_config(path)).transpose()?;
        let model = self.model.as_deref().map(model_from).transpose()?.map(ModelConfig::new);
        TrainedModel::load(&run_path(&self.trained), LoadOptions { model, config }).map_err(model_failure)
    }

    /// What was named, perhaps in runs/.
    pub(crate) fn path(&self) -> PathBuf {
        run_path(&self.trained)
    }

    /// The model of a run that is being trained elsewhere, without what it has learned.
    pub(crate) fn of_live(&self, run: LiveRun) -> Result<TrainedModel, Failure> {
        let config = match &self.config {
            Some(path) => run_config(path)?,
            None => {
                let file = RunFile::parse(Path::new(RUN_FILE), &run.config, &[]);
                file.map_err(train_failure)?.config
            }
        };
        let model = self.model.as_deref().map(model_from).transpose()?.map(ModelConfig::new);
        TrainedModel::of_live(config, model, run.classes).map_err(model_failure)
    }
}

fn run_config(path: &Path) -> Result<RunConfig, Failure> {
    Ok(RunFile::load(path, &[]).map_err(train_failure)?.config)
}

/// An error of a trained model with its exit code and what to do about it.
pub(crate) fn model_failure(error: TrainedModelError) -> Failure {
    let hint = match &error {
        TrainedModelError::WhichModel { .. } => {
            Some("say --model zoo:NAME, --model FILE.onnx or --config RUN.toml".to_owned())
        }
        error => error.hint(),
    };
    let failure = match error.blame() {
        Blame::Input => Failure::usage(error),
        Blame::Work => Failure::work(error),
        Blame::Machine => Failure::infrastructure(error),
    };
    failure.hint_if(hint)
}

/// Writes a model as files that others read: weights under all names of the `state_dict`, an ONNX model.
pub(crate) fn write(
    model: &TrainedModel,
    safetensors: Option<&Path>,
    onnx: Option<&Path>,
) -> Result<(), Failure> {
    onnx.map_or(Ok(()), |path| model.save_onnx(path)).map_err(model_failure)?;
    safetensors.map_or(Ok(()), |path| model.save_safetensors(path)).map_err(model_failure)
}

/// The loss that was asked for, or else that of the model's run.
pub(crate) fn objective(model: &TrainedModel, asked: Option<&str>) -> Result<Objective, Failure> {
    let Some(name) = asked else { return Ok(model.objective()) };
    Loss::parse(name).map(Objective::Named).ok_or_else(|| {
        Failure::usage(anyhow!("there is no loss called {name:?}"))
            .hint("there are mse, l1, huber, cross_entropy, bce, bce_with_logits and nll")
    })
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
    /// The most memory that opening the samples may take, such as 8GiB; half of the machine's when not given.
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
}

impl DataArgs {
    pub(crate) fn batch(&self) -> usize {
        self.batch as usize
    }

    pub(crate) fn threads(&self) -> Option<usize> {
        self.threads.map(|threads| threads as usize)
    }

    /// Opens samples and their labels, classes numbered as the model has them; what is not said is as the run has it.
    pub(crate) fn open(&self, learned: &TrainedModel) -> Result<Dataset, Failure> {
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
    pub(crate) fn open_samples(&self, learned: &TrainedModel) -> Result<Dataset, Failure> {
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

    fn spec(&self, learned: &TrainedModel) -> Result<SourceSpec, Failure> {
        let data = learned.config.as_ref().map(|config| &config.data);
        // What a model learned from a stream may be gone.
        let train = |data: &'_ phalanx_train::config::DataConfig| data.stream.is_none();
        let usual = data.and_then(|data| {
            let usual = data.valid.as_ref().or(Some(&data.train).filter(|_| train(data)));
            usual.map(|usual| data.limited(usual))
        });
        let mut spec = match (&self.data, usual) {
            (None, None) => {
                return Err(Failure::usage(anyhow!("which data?"))
                    .hint("name a file: phalanx eval MODEL digits.npz --x x_test --y y_test"));
            }
            (None, Some(usual)) => usual,
            (Some(file), Some(usual)) => {
                SourceSpec { file: file.clone(), format: None, labels_file: None, ..usual }
            }
            (Some(file), None) => SourceSpec::file(file),
        };
        match self.x.as_slice() {
            [] => {}
            [one] => spec.x = Some(Columns::One(one.clone())),
            many => spec.x = Some(Columns::Many(many.to_vec())),
        }
        spec.limit = self.limit.or(spec.limit);
        Ok(spec)
    }
}

fn open(spec: &SourceSpec) -> Result<Dataset, Failure> {
    Dataset::open(spec, Path::new("")).map_err(train_failure)
}
