//! A model of the store that was read and compiled.

use crate::ServedModel;
use phalanx_graph::onnx::{self, ImportOptions};
use phalanx_jobs::HandlerError;
use phalanx_store::ModelFailure;
use phalanx_store::core::{Model, ModelCall};
use phalanx_train::TrainedModel;
use phalanx_types::{Parcel, Tensor};
use std::fmt;

/// Answers several requests in as few computations as they fit in.
pub(super) trait Answer: fmt::Debug + Send + Sync {
    fn answer_all(&self, requests: &[&Parcel]) -> Vec<Result<Parcel, HandlerError>>;
}

impl Answer for ServedModel {
    fn answer_all(&self, requests: &[&Parcel]) -> Vec<Result<Parcel, HandlerError>> {
        ServedModel::answer_all(self, requests)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ReadyModel {
    pub(super) served: Box<dyn Answer>,
    pub(super) inputs: Vec<String>,
}

impl ReadyModel {
    pub(super) fn read(stored: &Model) -> Result<Self, ModelFailure> {
        if stored.backend != "ONNX" {
            let reason =
                format!("models of backend {} are kept, but not run; export it to ONNX", stored.backend);
            return Err(ModelFailure { reason });
        }
        let imported = onnx::import_bytes(stored.blob.clone(), &ImportOptions::default());
        let imported = imported.map_err(|error| failed(&error))?;
        let graph = imported.graph;
        let inputs = graph.inputs.iter().map(|id| graph.value(*id).name.clone()).collect();
        let served = ServedModel::new("model", TrainedModel::new(graph, imported.weights));
        let mut served = served.map_err(|error| failed(&error))?;
        if let Ok(most @ 1..) = usize::try_from(stored.batch_size) {
            served = served.max_batch(most);
        }
        Ok(Self { served: Box::new(served), inputs })
    }

    /// Answers calls together; those that are wrong fail alone.
    pub(super) fn answer(&self, calls: &[&ModelCall]) -> Vec<Result<Vec<Tensor>, ModelFailure>> {
        let requests: Vec<_> = calls.iter().map(|call| self.request(call)).collect();
        let right: Vec<&Parcel> = requests.iter().filter_map(|request| request.as_ref().ok()).collect();
        let mut answers = self.served.answer_all(&right).into_iter();
        let mut next = || {
            let answer = answers.next().unwrap_or_else(|| Err(HandlerError::failed("no answer")));
            let outputs = answer.map_err(|error| ModelFailure { reason: error.to_string() })?;
            Ok(outputs.tensors.into_iter().map(|(_, tensor)| tensor).collect())
        };
        requests.iter().map(|request| request.as_ref().map_err(Clone::clone).and_then(|_| next())).collect()
    }

    fn request(&self, call: &ModelCall) -> Result<Parcel, ModelFailure> {
        let (wanted, given) = (self.inputs.len(), call.inputs.len());
        if wanted != given {
            let reason = format!("the model takes {wanted} inputs, {given} were given");
            return Err(ModelFailure { reason });
        }
        let named = self.inputs.iter().zip(&call.inputs);
        Ok(named.fold(Parcel::default(), |request, (name, tensor)| {
            request.with_tensor(name.clone(), tensor.as_ref().clone())
        }))
    }
}

/// The whole chain of reasons.
fn failed(error: &dyn std::error::Error) -> ModelFailure {
    let mut reason = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        reason = format!("{reason}: {cause}");
        source = cause.source();
    }
    ModelFailure { reason }
}
