use super::*;
use crate::ServedModel;
use bytes::Bytes;
use phalanx_graph::{onnx, zoo};
use phalanx_jobs::HandlerError;
use phalanx_store::core::Model;
use phalanx_train::TrainedModel;
use phalanx_types::{Parcel, Seed, Tensor, Time};
use ready::Answer;

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

fn start(models: &StoredModels, call: ModelCall) -> phalanx_store::ModelAnswer {
    let (done, answer) = ModelDone::new();
    models.start(Arc::new(call), done);
    answer
}

fn run(models: &StoredModels, call: ModelCall) -> Result<Vec<Tensor>, String> {
    start(models, call).wait().map_err(|failure| failure.reason)
}

fn close(a: &Tensor, b: &Tensor) -> bool {
    let (a, b) = (a.to_floats(), b.to_floats());
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn requests_that_come_together_are_computed_together_and_get_their_own_answers() {
    let (stored, alone) = model(16, 8, 10_000);
    let models = StoredModels::default();
    let asked: Vec<_> = (0..8).map(|seed| start(&models, call(&stored, vec![input(seed, 1)]))).collect();
    for (seed, answer) in (0..8).zip(asked) {
        let expected = alone.answer(&Parcel::default().with_tensor("x", input(seed, 1))).unwrap();
        assert!(close(&answer.wait().unwrap()[0], &expected.tensors[0].1), "{seed}");
    }
}

/// Counts the computations that a model is asked for, and the requests in them.
#[derive(Debug)]
struct Counting {
    served: ServedModel,
    computations: Arc<Mutex<Vec<usize>>>,
}

impl Answer for Counting {
    fn answer_all(&self, requests: &[&Parcel]) -> Vec<Result<Parcel, HandlerError>> {
        self.computations.lock().unwrap().push(requests.len());
        self.served.answer_all(requests)
    }
}

/// How many requests each computation had, of 16 clients that ask at once.
fn computations_of_16(batch_size: u64, min_batch_size: u64) -> Vec<usize> {
    let (stored, served) = model(batch_size, min_batch_size, 20_000);
    let models = StoredModels::default();
    // The model is read with the first request; with the others it would wait for more.
    let first: Vec<_> =
        (0..min_batch_size.max(1)).map(|_| start(&models, call(&stored, vec![input(0, 1)]))).collect();
    first.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
    let computations = Arc::new(Mutex::new(Vec::new()));
    let counting = Counting { served, computations: computations.clone() };
    let ready = ReadyModel { served: Box::new(counting), inputs: vec!["x".into()] };
    assert!(models.shared.lock().replace_ready(&stored, ready));
    let asked: Vec<_> = (0..16).map(|seed| start(&models, call(&stored, vec![input(seed, 1)]))).collect();
    asked.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
    let counted = computations.lock().unwrap();
    assert_eq!(counted.iter().sum::<usize>(), 16, "each request is computed once");
    counted.clone()
}

#[test]
fn batches_are_fewer_computations() {
    assert_eq!(computations_of_16(0, 0), [1; 16], "without a batch size");
    assert_eq!(computations_of_16(16, 16), [16]);
    assert_eq!(computations_of_16(4, 4), [4; 4]);
}

#[test]
fn requests_that_wait_hold_no_thread() {
    let (stored, _) = model(1 << 20, 1000, 4_000);
    let (other, _) = model(0, 0, 0);
    let models = StoredModels::default();
    let waiting: Vec<_> = (0..999).map(|_| start(&models, call(&stored, vec![input(1, 1)]))).collect();
    // Another model is answered meanwhile, and the last request makes the batch whole.
    assert_eq!(run(&models, call(&other, vec![input(2, 1)])).unwrap().len(), 1);
    assert!(models.shared.lock().threads <= std::thread::available_parallelism().unwrap().get().max(4));
    let began = Instant::now();
    assert_eq!(run(&models, call(&stored, vec![input(2, 1)])).unwrap().len(), 1);
    assert!(waiting.into_iter().all(|answer| answer.wait().is_ok()));
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_lone_request_waits_no_longer_than_it_may() {
    let (stored, _) = model(16, 8, 20);
    let began = Instant::now();
    assert_eq!(run(&StoredModels::default(), call(&stored, vec![input(1, 1)])).unwrap().len(), 1);
    assert!(began.elapsed() >= Duration::from_millis(20));
}

#[test]
fn what_cannot_be_run_says_why() {
    let (stored, _) = model(0, 0, 0);
    let models = StoredModels::default();
    let why = |call: ModelCall| run(&models, call).unwrap_err();
    assert_eq!(why(call(&stored, Vec::new())), "the model takes 1 inputs, 0 were given");
    assert!(why(call(&stored, vec![Tensor::from_f32(vec![1, 3], &[0.0; 3]).unwrap()])).contains("shape"));
    let torch = Arc::new(Model { backend: "TORCH", ..stored.as_ref().clone() });
    assert!(why(call(&torch, vec![input(1, 1)])).contains("ONNX"));
    let broken = Arc::new(Model { blob: "no model".into(), ..stored.as_ref().clone() });
    assert!(!why(call(&broken, vec![input(1, 1)])).is_empty());
}

#[derive(Debug)]
struct Panics;

impl Answer for Panics {
    fn answer_all(&self, _requests: &[&Parcel]) -> Vec<Result<Parcel, HandlerError>> {
        panic!("a mistake in an operator")
    }
}

#[test]
fn a_model_that_panics_fails_its_requests_and_no_others() {
    let (stored, _) = model(4, 2, 5_000);
    let (good, _) = model(0, 0, 0);
    let models = StoredModels::default();
    let ask = || start(&models, call(&stored, vec![input(1, 1)]));
    // Takes the place of the model that was read.
    let first = ask();
    loop {
        let mut state = models.shared.lock();
        if state.replace_ready(&stored, ReadyModel { served: Box::new(Panics), inputs: vec!["x".into()] }) {
            break;
        }
        drop(state);
        std::thread::yield_now();
    }
    for answer in [ask(), first] {
        assert_eq!(answer.wait().unwrap_err().reason, "computing the model went wrong");
    }
    assert_eq!(run(&models, call(&good, vec![input(1, 1)])).unwrap().len(), 1);
    assert!([ask(), ask()].into_iter().all(|answer| answer.wait().is_err()), "its threads go on");
}

#[test]
fn a_request_whose_client_is_gone_is_not_computed() {
    let (stored, _) = model(16, 10, 300);
    let models = StoredModels::default();
    drop(start(&models, call(&stored, vec![input(1, 9)])));
    let began = Instant::now();
    assert_eq!(run(&models, call(&stored, vec![input(2, 1)])).unwrap()[0].shape()[0], 1);
    // With its samples there would have been enough at once.
    assert!(began.elapsed() >= Duration::from_millis(300));
}
