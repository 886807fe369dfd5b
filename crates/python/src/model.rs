//! Trained models.

use crate::arrays::{self, numpy_name};
use crate::errors::Failure;
use crate::inputs::ModelInput;
use crate::own_loss::PythonLoss;
use crate::train::json;
use crate::wait::{Caller, wait};
use phalanx::Error;
use phalanx::model::{Compute, LoadOptions, TrainedModel};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A trained model.
#[pyclass(frozen, module = "phalanx._phalanx")]
#[derive(Debug)]
pub(crate) struct Model {
    model: Arc<TrainedModel>,
    loss: Option<PythonLoss>,
}

/// What a model is worth.
#[derive(Serialize)]
struct Worth {
    samples: u64,
    loss: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    #[serde(flatten)]
    metrics: BTreeMap<String, f64>,
}

impl Model {
    /// `loss` is a loss in Python that it was trained with.
    pub(crate) fn new(model: TrainedModel, loss: Option<PythonLoss>) -> Self {
        Self { model: Arc::new(model), loss }
    }

    fn compute(model: &TrainedModel) -> Compute {
        Compute::cpu(model.config.as_ref().and_then(|config| config.threads()))
    }
}

/// An entry of a `state_dict`: name, type and shape of elements, and their bytes.
type Entry<'py> = (String, &'static str, Vec<u64>, Bound<'py, PyByteArray>);

#[pymethods]
impl Model {
    /// What the graph is called.
    #[getter]
    fn name(&self) -> &str {
        &self.model.graph.name
    }

    /// A hash of the weights.
    #[getter]
    fn params_hash(&self) -> String {
        self.model.params_hash()
    }

    /// The name of the loss that it was trained with, if that is known.
    #[getter]
    fn loss(&self) -> Option<String> {
        let named = self.model.objective().named().filter(|_| self.model.config.is_some())?;
        let told = serde_json::to_value(named).ok()?;
        told["name"].as_str().or(told.as_str()).map(str::to_owned)
    }

    /// Names of classes, where the data had them.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.model.classes.clone()
    }

    /// Parameters and buffers under all names of the `state_dict`.
    fn state_dict<'py>(&self, py: Python<'py>) -> Vec<Entry<'py>> {
        let entry = |(name, tensor): (String, phalanx_types::Tensor)| {
            (name, numpy_name(tensor.dtype()), tensor.shape().to_vec(), PyByteArray::new(py, tensor.data()))
        };
        self.model.state_dict().into_iter().map(entry).collect()
    }

    /// The outputs for samples, as memory and shape.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        x: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyByteArray>, Vec<usize>)> {
        let (data, model) = (arrays::dataset(x, None)?, Arc::clone(&self.model));
        let work = move |_: Caller| {
            let predicted = model.predict_all(&data, &Self::compute(&model)).map_err(Error::from)?;
            Ok(predicted)
        };
        let predicted = wait(py, work)?;
        Ok((arrays::to_python(py, predicted.values()), predicted.shape()))
    }

    /// Loss and metrics over samples, as JSON.
    fn evaluate(&self, py: Python<'_>, x: &Bound<'_, PyAny>, y: &Bound<'_, PyAny>) -> PyResult<String> {
        let (data, model, loss) = (arrays::dataset(x, Some(y))?, Arc::clone(&self.model), self.loss.clone());
        let work = move |caller: Caller| {
            let _connected = loss.as_ref().map(|loss| loss.connect(caller));
            let found = model.evaluate(&data, &Self::compute(&model)).map_err(Error::from)?;
            let worth = Worth {
                samples: found.samples,
                loss: found.loss,
                accuracy: found.accuracy,
                metrics: found.metrics.into_iter().filter(|(name, _)| name != "accuracy").collect(),
            };
            json(&worth)
        };
        wait(py, work)
    }

    /// Writes an ONNX model.
    fn save_onnx(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let model = Arc::clone(&self.model);
        wait(py, move |_| Ok(model.save_onnx(&path).map_err(Error::from)?))
    }

    /// Writes the weights.
    fn save_safetensors(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let model = Arc::clone(&self.model);
        wait(py, move |_| Ok(model.save_safetensors(&path).map_err(Error::from)?))
    }
}

/// Loads the model of a run directory, a checkpoint, or an ONNX file.
#[pyfunction]
pub(crate) fn load_model(py: Python<'_>, path: PathBuf) -> PyResult<Model> {
    let load = move |_: Caller| Ok(TrainedModel::load(&path, LoadOptions::default()).map_err(Error::from)?);
    Ok(Model::new(wait(py, load)?, None))
}

/// The names of a model's parameters, in the order of the graph, and of all entries of its `state_dict`.
#[pyfunction]
pub(crate) fn tensor_names(py: Python<'_>, model: ModelInput) -> PyResult<(Vec<String>, Vec<String>)> {
    let work = move |_: Caller| {
        let found = model.find()?;
        let parameters = found.graph.parameters().map(|(_, value)| value.name.clone()).collect();
        let all = found.graph.with_aliases(found.weights).into_keys().collect();
        Ok((parameters, all))
    };
    wait(py, work)
}

/// The model of a run's checkpoint: the newest, or that of a step. With its step and the number of its stages.
#[pyfunction]
#[pyo3(signature = (run_dir, step))]
pub(crate) fn fuse(py: Python<'_>, run_dir: PathBuf, step: Option<u64>) -> PyResult<(Model, u64, usize)> {
    let work = move |_: Caller| -> Result<_, Failure> {
        Ok(phalanx::model::fuse(&run_dir, step).map_err(Error::from)?)
    };
    let fused = wait(py, work)?;
    Ok((Model::new(fused.model, None), fused.step, fused.stages))
}
