//! Models that lie in a store, run on the engine for its clients.
//!
//! ```text
//!   request ──► Gathering of its model ──► one of the waiting requests computes all of them ──► each takes its own part
//! ```
//! Requests of many clients are joined when the model was stored with a batch size. A request that finds nobody
//! computing begins, after it has waited for `MINBATCHSIZE` samples or `MINBATCHTIMEOUT`, whatever comes first; those
//! that come meanwhile are the next batch.

use crate::ServedModel;
use bytes::Bytes;
use phalanx_graph::onnx::{self, ImportOptions};
use phalanx_store::core::{Model, ModelCall};
use phalanx_store::{ModelFailure, ModelRunner};
use phalanx_train::TrainedModel;
use phalanx_types::{Parcel, Tensor};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for other requests, whatever a client asked for.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Models that are kept ready.
const MOST_MODELS: usize = 64;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs ONNX models of a store.
#[derive(Debug, Default)]
pub struct StoredModels {
    ready: Mutex<BTreeMap<Bytes, Arc<ReadyModel>>>,
}

/// A model that was read and compiled, and the requests for it.
#[derive(Debug)]
struct ReadyModel {
    /// What it was read from; another one under the same key is another model.
    stored: Arc<Model>,
    served: ServedModel,
    inputs: Vec<String>,
    gathering: Mutex<Gathering>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Gathering {
    next: u64,
    is_computing: bool,
    /// Requests that no thread computes, in the order in which they came.
    waiting: Vec<(u64, Parcel, u64)>,
    answered: BTreeMap<u64, Result<Parcel, String>>,
}

impl ModelRunner for StoredModels {
    fn run(&self, call: &ModelCall) -> Result<Vec<Tensor>, ModelFailure> {
        if call.model.backend != "ONNX" {
            let reason =
                format!("models of backend {} are kept, but not run; export it to ONNX", call.model.backend);
            return Err(ModelFailure { reason });
        }
        let ready = self.ready(call)?;
        let (wanted, given) = (ready.inputs.len(), call.inputs.len());
        if wanted != given {
            return Err(ModelFailure {
                reason: format!("the model takes {wanted} inputs, {given} were given"),
            });
        }
        let mut request = Parcel::default();
        for (name, tensor) in ready.inputs.iter().zip(&call.inputs) {
            request = request.with_tensor(name.clone(), tensor.as_ref().clone());
        }
        let answer = match call.model.batch_size {
            0 => ready.served.answer(&request).map_err(|error| error.to_string()),
            _ => ready.together(request),
        };
        let answer = answer.map_err(|reason| ModelFailure { reason })?;
        Ok(answer.tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }
}

impl StoredModels {
    fn ready(&self, call: &ModelCall) -> Result<Arc<ReadyModel>, ModelFailure> {
        let known = lock(&self.ready).get(&call.key).cloned();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.stored, &call.model)) {
            return Ok(known);
        }
        // Compiling takes its time, and must not keep requests for other models waiting.
        let ready = Arc::new(ReadyModel::read(&call.model)?);
        let mut all = lock(&self.ready);
        if all.len() >= MOST_MODELS {
            all.pop_first();
        }
        all.insert(call.key.clone(), ready.clone());
        Ok(ready)
    }
}

impl ReadyModel {
    fn read(stored: &Arc<Model>) -> Result<Self, ModelFailure> {
        let failed = |error: &dyn std::error::Error| {
            let mut reason = error.to_string();
            let mut source = error.source();
            while let Some(cause) = source {
                reason = format!("{reason}: {cause}");
                source = cause.source();
            }
            ModelFailure { reason }
        };
        let imported = onnx::import_bytes(stored.blob.clone(), &ImportOptions::default());
        let imported = imported.map_err(|error| failed(&error))?;
        let graph = imported.graph;
        let inputs = graph.inputs.iter().map(|id| graph.value(*id).name.clone()).collect();
        let served = ServedModel::new("model", TrainedModel::new(graph, imported.weights));
        let mut served = served.map_err(|error| failed(&error))?;
        if let Ok(most @ 1..) = usize::try_from(stored.batch_size) {
            served = served.max_batch(most);
        }
        let (gathering, changed) = (Mutex::default(), Condvar::new());
        Ok(Self { stored: stored.clone(), served, inputs, gathering, changed })
    }

    /// Answers a request together with others that come at about the same time.
    fn together(&self, request: Parcel) -> Result<Parcel, String> {
        let samples = request.tensors.first().and_then(|(_, t)| t.shape().first().copied()).unwrap_or(1);
        let mut gathering = lock(&self.gathering);
        let number = gathering.next;
        gathering.next += 1;
        gathering.waiting.push((number, request, samples));
        self.changed.notify_all();
        loop {
            if let Some(answer) = gathering.answered.remove(&number) {
                return answer;
            }
            if gathering.is_computing {
                gathering = self.changed.wait(gathering).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            gathering.is_computing = true;
            gathering = self.compute(gathering);
        }
    }

    /// Waits for enough requests, computes them, and leaves the answers for those who wait.
    fn compute<'a>(&'a self, mut gathering: MutexGuard<'a, Gathering>) -> MutexGuard<'a, Gathering> {
        let least = self.stored.min_batch_size.min(self.stored.batch_size);
        let until = Instant::now() + Duration::from_millis(self.stored.min_batch_timeout).min(LONGEST_WAIT);
        loop {
            let samples: u64 = gathering.waiting.iter().map(|(_, _, samples)| samples).sum();
            let left = until.saturating_duration_since(Instant::now());
            if samples >= least || left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(gathering, left);
            gathering = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let batch = self.next_batch(&mut gathering);
        drop(gathering);
        let requests: Vec<&Parcel> = batch.iter().map(|(_, request, _)| request).collect();
        // Others wait for what this thread computes: they must be told of a panic, too.
        let answers = catch_unwind(AssertUnwindSafe(|| self.served.answer_all(&requests)));
        let mut answers = answers.unwrap_or_default().into_iter();
        let mut gathering = lock(&self.gathering);
        for (number, _, _) in &batch {
            let answer = answers.next().map(|answer| answer.map_err(|error| error.to_string()));
            let broken = || Err("computing the model went wrong".to_owned());
            gathering.answered.insert(*number, answer.unwrap_or_else(broken));
        }
        gathering.is_computing = false;
        self.changed.notify_all();
        gathering
    }

    /// Takes requests up to the batch size; one that is larger goes alone.
    fn next_batch(&self, gathering: &mut Gathering) -> Vec<(u64, Parcel, u64)> {
        let mut samples = 0;
        let fits = |(_, _, more): &&(u64, Parcel, u64)| {
            samples += *more;
            samples <= self.stored.batch_size
        };
        let count = gathering.waiting.iter().take_while(fits).count();
        let count = count.max(1).min(gathering.waiting.len());
        gathering.waiting.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_graph::zoo;
    use phalanx_types::{Seed, Time};

    fn model(batch_size: u64, min_batch_size: u64, min_batch_timeout: u64) -> (Arc<Model>, ServedModel) {
        let graph = zoo::build("digits-cnn", &zoo::ZooOptions::default()).unwrap();
        let weights = graph.initialise(Seed(3));
        let blob = onnx::export_bytes(&graph, &weights).unwrap().into();
        let stored = Model {
            backend: "ONNX",
            device: "CPU".into(),
            tag: Bytes::new(),
            batch_size,
            min_batch_size,
            min_batch_timeout,
            inputs: Vec::new(),
            outputs: Vec::new(),
            blob,
        };
        (Arc::new(stored), ServedModel::new("alone", TrainedModel::new(graph, weights)).unwrap())
    }

    fn input(seed: u64, samples: u64) -> Tensor {
        let values: Vec<f32> = (0..samples * 64).map(|i| ((i * 37 + seed * 11) % 17) as f32 / 16.0).collect();
        Tensor::from_f32(vec![samples, 1, 8, 8], &values).unwrap()
    }

    fn call(model: &Arc<Model>, inputs: Vec<Tensor>) -> ModelCall {
        ModelCall {
            key: "m".into(),
            model: model.clone(),
            inputs: inputs.into_iter().map(Arc::new).collect(),
            outputs: vec!["y".into()],
            timeout: None,
            began: Time::ZERO,
            padding: false,
        }
    }

    fn close(a: &Tensor, b: &Tensor) -> bool {
        let (a, b) = (a.to_floats(), b.to_floats());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5)
    }

    #[test]
    fn requests_that_come_together_are_computed_together_and_get_their_own_answers() {
        let (stored, alone) = model(16, 8, 10_000);
        let models = StoredModels::default();
        std::thread::scope(|scope| {
            let ask = |seed: u64| {
                let (models, stored) = (&models, &stored);
                scope.spawn(move || models.run(&call(stored, vec![input(seed, 1)])).unwrap())
            };
            let asked: Vec<_> = (0..8).map(ask).collect();
            for (seed, answer) in (0..8).zip(asked) {
                let expected = alone.answer(&Parcel::default().with_tensor("x", input(seed, 1))).unwrap();
                assert!(close(&answer.join().unwrap()[0], &expected.tensors[0].1), "{seed}");
            }
        });
    }

    #[test]
    fn a_lone_request_waits_no_longer_than_it_may() {
        let (stored, _) = model(16, 8, 20);
        let began = Instant::now();
        assert_eq!(StoredModels::default().run(&call(&stored, vec![input(1, 1)])).unwrap().len(), 1);
        assert!(began.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let (stored, _) = model(0, 0, 0);
        let models = StoredModels::default();
        let why = |call: &ModelCall| models.run(call).unwrap_err().reason;
        assert_eq!(why(&call(&stored, Vec::new())), "the model takes 1 inputs, 0 were given");
        assert!(
            why(&call(&stored, vec![Tensor::from_f32(vec![1, 3], &[0.0; 3]).unwrap()])).contains("shape")
        );
        let torch = Arc::new(Model { backend: "TORCH", ..stored.as_ref().clone() });
        assert!(why(&call(&torch, vec![input(1, 1)])).contains("ONNX"));
        let broken = Arc::new(Model { blob: "no model".into(), ..stored.as_ref().clone() });
        assert!(!why(&call(&broken, vec![input(1, 1)])).is_empty());
    }
}
