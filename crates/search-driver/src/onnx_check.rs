//! Models of a search as files, and whether the exported ONNX is worth what was recorded: it is run over the validation
//! data by onnxruntime where that is installed, else by this project's own reading of the exported file.

use crate::directory::{io, write_whole};
use crate::error::SearchError;
use phalanx_data::{Dataset, Loader, LoaderOptions, npy_header, read_tensors};
use phalanx_records::Evaluation;
use phalanx_search::core::record::TrialId;
use phalanx_train::{Compute, Evaluator, Fit, LoadOptions, TrainError, TrainedModel, fixed_batch};
use phalanx_trial::latency::measured_latencies;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

const SCRIPT: &str = include_str!("check_onnx.py");
/// Samples at once, if the run does not say.
const BATCH: usize = 64;
/// What is printed of an accuracy: two accuracies agree if these digits are the same.
const DIGITS: usize = 4;

/// A model that was written and run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckedModel {
    pub trial: TrialId,
    pub archid: String,
    pub onnx: PathBuf,
    pub safetensors: PathBuf,
    /// What ran the exported file: `onnxruntime 1.23.0` or `phalanx`.
    pub run_by: String,
    pub samples: u64,
    /// As the training recorded it.
    pub recorded_accuracy: Option<f64>,
    /// As the exported file has it.
    pub onnx_accuracy: Option<f64>,
    pub onnx_loss: f64,
    /// Whether both print the same digits.
    pub agrees: bool,
    /// What ran the exported file when its latency was measured, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onnx_latency_run_by: Option<String>,
}

/// Runs exported files.
#[derive(Debug)]
pub(crate) struct OnnxChecker {
    python: Option<String>,
    compute: Compute,
}

impl OnnxChecker {
    /// Looks for onnxruntime: in the Python of `PHALANX_PYTHON`, else in `python3`.
    pub(crate) fn new(compute: Compute) -> Self {
        let python = std::env::var("PHALANX_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let asked = Command::new(&python).args(["-c", "import numpy, onnxruntime"]).output();
        Self { python: asked.is_ok_and(|asked| asked.status.success()).then_some(python), compute }
    }

    /// Writes the model of a trained run as ONNX and safetensors into `into`, runs the ONNX file over the run's
    /// validation data, and compares.
    ///
    /// # Errors
    /// The run has no model, a file cannot be written, or the exported model cannot be run.
    pub(crate) fn export(
        &self,
        (trial, archid): (TrialId, &str),
        run: &Path,
        recorded: Option<f64>,
        into: &Path,
    ) -> Result<CheckedModel, SearchError> {
        let model = TrainedModel::load(run, LoadOptions::default())?;
        std::fs::create_dir_all(into).map_err(io("make", into))?;
        let (onnx, safetensors) = (into.join("model.onnx"), into.join("model.safetensors"));
        model.save_onnx(&onnx)?;
        model.save_safetensors(&safetensors)?;
        let (run_by, found) = match validation_data(&model)? {
            Some(data) => {
                let (by, found) = self.evaluate(&model, &onnx, &data, into)?;
                (by, Some(found))
            }
            None => ("nothing: the run has no validation data".to_owned(), None),
        };
        let onnx_accuracy = found.as_ref().and_then(|found| found.accuracy);
        let digits = |value: Option<f64>| value.map(|value| format!("{value:.DIGITS$}"));
        let checked = CheckedModel {
            trial,
            archid: archid.to_owned(),
            onnx,
            safetensors,
            run_by,
            samples: found.as_ref().map_or(0, |found| found.samples),
            recorded_accuracy: recorded,
            agrees: recorded.is_some() && digits(recorded) == digits(onnx_accuracy),
            onnx_accuracy,
            onnx_loss: found.map_or(f64::NAN, |found| found.loss),
            onnx_latency_run_by: latency_run_by(run),
        };
        let file = into.join("results.json");
        let text = serde_json::to_vec_pretty(&checked)
            .map_err(|source| SearchError::Json { path: file.clone(), source })?;
        write_whole(&file, &text)?;
        Ok(checked)
    }

    fn evaluate(
        &self,
        model: &TrainedModel,
        onnx: &Path,
        data: &Dataset,
        scratch: &Path,
    ) -> Result<(String, Evaluation), SearchError> {
        let (transform, objective) = (model.transform(), model.objective());
        let fit = Fit::new(&model.graph, data, &transform, &objective, &self.compute.threads)?;
        let data = data.with_label_check(fit.labels);
        let metrics = fit.metrics(&objective, &model.metrics());
        let evaluator = Evaluator {
            loss: objective,
            metrics: &metrics,
            transform: &transform,
            batch: model.batch().unwrap_or(BATCH),
            fixed: fixed_batch(&model.graph),
            threads: &self.compute.threads,
        };
        let Some(python) = &self.python else {
            let options = LoadOptions { config: model.config.clone(), model: None };
            let exported = TrainedModel::load(onnx, options)?;
            let found = evaluator.run(exported.compile(&self.compute)?.as_mut(), &data)?;
            return Ok(("phalanx".to_owned(), found));
        };
        let outputs = outputs_of_onnxruntime(python, onnx, &evaluator, &data, scratch)?;
        let sums = evaluator.sums_of(&data, &outputs.values, &outputs.shape)?;
        Ok((format!("onnxruntime {}", outputs.version), evaluator.value(&sums)))
    }
}

struct Outputs {
    values: Vec<f32>,
    shape: Vec<usize>,
    version: String,
}

fn outputs_of_onnxruntime(
    python: &str,
    onnx: &Path,
    evaluator: &Evaluator<'_>,
    data: &Dataset,
    scratch: &Path,
) -> Result<Outputs, SearchError> {
    let (x, y) = (scratch.join("samples.tmp.npy"), scratch.join("outputs.tmp.npy"));
    write_samples(&x, evaluator, data)?;
    let batch = evaluator.fixed.unwrap_or(evaluator.batch);
    let ran = Command::new(python)
        .args(["-c", SCRIPT])
        .args([onnx.as_os_str(), x.as_os_str()])
        .arg(batch.to_string())
        .arg(&y)
        .output();
    let ran = ran.map_err(io("run onnxruntime on", onnx))?;
    let result = if ran.status.success() {
        let tensors = read_tensors(&y).map_err(TrainError::from)?;
        let wrong =
            || SearchError::Onnx { path: onnx.to_owned(), why: "its outputs are not numbers".to_owned() };
        let (_, outputs) = tensors.into_iter().next().ok_or_else(wrong)?;
        let shape = outputs.shape().iter().map(|dim| usize::try_from(*dim).unwrap_or(usize::MAX)).collect();
        let values = outputs.to_f32().map_err(|_not_f32| wrong())?;
        let version = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        Ok(Outputs { values, shape, version })
    } else {
        let said = String::from_utf8_lossy(&ran.stderr);
        let why =
            said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        Err(SearchError::Onnx { path: onnx.to_owned(), why })
    };
    // Large, and of no use to anybody afterwards.
    for file in [x, y] {
        let _gone = std::fs::remove_file(file);
    }
    result
}

/// The samples as the model takes them, as an array of NumPy's.
fn write_samples(path: &Path, evaluator: &Evaluator<'_>, data: &Dataset) -> Result<(), SearchError> {
    let options = LoaderOptions { batch: evaluator.batch, ..LoaderOptions::default() };
    let mut loader = Loader::new(data.clone(), evaluator.transform, options).map_err(TrainError::from)?;
    let samples = data.fixed_len().map_err(TrainError::from)?;
    let shape: Vec<usize> = std::iter::once(samples).chain(loader.x_shape().iter().copied()).collect();
    let mut bytes = npy_header("<f4", &shape);
    while let Some(loaded) = loader.next() {
        let batch = loaded.map_err(TrainError::from)?.batch;
        bytes.extend(batch.x.iter().flat_map(|value| value.to_le_bytes()));
        loader.recycle(batch);
    }
    std::fs::write(path, bytes).map_err(io("write", path))
}

/// The validation data of a run, with its classes numbered as the model has them.
fn validation_data(model: &TrainedModel) -> Result<Option<Dataset>, SearchError> {
    let Some(spec) = model.config.as_ref().and_then(|config| config.data.valid.as_ref()) else {
        return Ok(None);
    };
    let data = Dataset::open(spec, Path::new("")).map_err(TrainError::from)?;
    match &model.classes {
        Some(classes) => Ok(Some(data.with_classes(classes).map_err(TrainError::from)?)),
        None => Ok(Some(data)),
    }
}

/// What ran the exported file when a node measured its latency.
fn latency_run_by(run: &Path) -> Option<String> {
    Some(measured_latencies(run)?.onnx_latency?.run_by)
}
