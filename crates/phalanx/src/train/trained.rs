//! What a run came to.

use crate::error::Error;
use phalanx_data::Dataset;
use phalanx_graph::Weights;
use phalanx_records::{Evaluation, Predictions, Summary};
use phalanx_train::{Compute, TrainedModel};
use std::path::Path;

/// What a run came to: its model, and how it went.
#[derive(Debug, Clone)]
pub struct Trained {
    model: TrainedModel,
    summary: Summary,
    compute: Compute,
}

impl Trained {
    pub(super) fn new(model: TrainedModel, summary: Summary, compute: Compute) -> Self {
        Self { model, summary, compute }
    }

    /// Steps, losses, times, and the hash of the parameters.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The model with its weights.
    pub fn model(&self) -> &TrainedModel {
        &self.model
    }

    /// The same, to keep.
    pub fn into_model(self) -> TrainedModel {
        self.model
    }

    /// Parameters and buffers, named as in the graph.
    pub fn weights(&self) -> &Weights {
        &self.model.weights
    }

    /// The outputs for samples that lie in `x` one after the other.
    ///
    /// # Errors
    /// The numbers do not make whole samples.
    pub fn predict(&self, x: &[f32]) -> Result<Predictions, Error> {
        Ok(self.model.predict(x, &self.compute)?)
    }

    /// The outputs for all samples of a dataset.
    ///
    /// # Errors
    /// The samples are not what the model takes.
    pub fn predict_all(&self, data: &Dataset) -> Result<Predictions, Error> {
        Ok(self.model.predict_all(data, &self.compute)?)
    }

    /// Loss and metrics over a dataset.
    ///
    /// # Errors
    /// Samples or labels are not what the model and the loss take.
    pub fn evaluate(&self, data: &Dataset) -> Result<Evaluation, Error> {
        Ok(self.model.evaluate(data, &self.compute)?)
    }

    /// Writes the weights, named as in the model's `state_dict`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_safetensors(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.model.save_safetensors(path.as_ref())?)
    }

    /// Writes an ONNX model.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_onnx(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        Ok(self.model.save_onnx(path.as_ref())?)
    }
}
