//! Runs of a model and arrays in memory: without a directory, with one, and with a loss of the program's own.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use phalanx_data::Dataset;
use phalanx_engine::{CpuEngine, Loss, LossBatch, OwnLoss, Target, Threads};
use phalanx_graph::{Builder, Graph, LinearLayer, Shape, Weights};
use phalanx_protocol::Length;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::RunDir;
use phalanx_records::{Event, RunEvent, Summary};
use phalanx_train::config::RunFile;
use phalanx_train::{Compute, InMemory, Task, TrainedModel};
use phalanx_types::DType;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn compute() -> Compute {
    let engine = CpuEngine::new(2);
    let threads = engine.threads().clone();
    Compute { engine: Arc::new(engine), threads }
}

/// Two layers with a ReLU between them.
fn model(outputs: usize) -> Graph {
    let mut b = Builder::new("small");
    let x = b.input_of("x", DType::F32, Shape::batch_of(&[4]));
    let hidden = b.linear_with("fc1", x, LinearLayer { out: 8, bias: true, init: None });
    let hidden = b.relu(hidden);
    let y = b.linear_with("fc2", hidden, LinearLayer { out: outputs, bias: true, init: None });
    b.output(y);
    b.finish().unwrap()
}

fn samples() -> Vec<f32> {
    (0..4 * 50).map(|i| ((i * 37 % 101) as f32) / 50.0 - 1.0).collect()
}

fn task(loss: Option<OwnLoss>) -> Task {
    let y: Vec<f32> = samples().chunks_exact(4).map(|x| x[0] * x[1] + x[2]).collect();
    let train = Dataset::from_f32(samples(), &[4], y).unwrap();
    let text =
        "[model]\nzoo = \"mlp\"\n[data]\ntrain = { file = \"none\" }\n[train]\nloss = \"mse\"\nepochs = 1\n";
    let mut config = RunFile::parse(Path::new("run.toml"), text, &[]).unwrap().config;
    config.train.length = Length::Passes(30);
    config.train.batch = 16;
    let given =
        InMemory { graph: model(1), weights: Weights::new(), valid: Some(train.clone()), train, loss };
    Task::in_memory(config, given, &Threads::new(2)).unwrap()
}

/// The last pass is better than the first.
fn assert_learned(losses: &[f32]) {
    let of = |steps: &[f32]| steps.iter().sum::<f32>();
    let (first, last) = (of(&losses[..4]), of(&losses[losses.len() - 4..]));
    assert!(last < first, "{losses:?}");
}

fn in_memory(loss: Option<OwnLoss>) -> (Summary, TrainedModel, Vec<f32>) {
    let mut losses = Vec::new();
    let mut note = |event: RunEvent| {
        if let Event::Step(record) = event.event {
            losses.push(record.loss);
        }
    };
    let trainer = Trainer::in_memory(task(loss), compute()).unwrap();
    let (summary, model) = trainer.run_for_model(&AtomicBool::new(false), &mut note).unwrap();
    (summary, model, losses)
}

#[test]
fn a_run_in_memory_is_the_run_with_a_directory_and_writes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let dir = RunDir::create(place.path().join("run")).unwrap();
    let trainer = Trainer::new(task(None), compute(), dir, &mut ()).unwrap();
    let (on_disk, model) = trainer.run_for_model(&AtomicBool::new(false), &mut ()).unwrap();
    let (memory, same, losses) = in_memory(None);
    assert_eq!(memory.run_dir, None);
    assert_eq!(on_disk.run_dir, Some(place.path().join("run")));
    assert_eq!((memory.steps, memory.loss, memory.val_loss), (120, on_disk.loss, on_disk.val_loss));
    assert_eq!(memory.params_hash, on_disk.params_hash);
    assert_eq!(model.weights, same.weights);
    assert_eq!(losses.len(), 120);
    assert_learned(&losses);
    assert!(place.path().join("run/model.safetensors").is_file());
}

#[test]
fn an_own_loss_that_is_a_named_one_trains_to_the_same_bits() {
    let threads = Threads::new(1);
    let own = move |batch: &LossBatch<'_>, gradient: &mut [f32]| {
        let LossBatch { output, shape, target, .. } = *batch;
        Loss::Mse.evaluate(&threads, output, shape, target, 1.0, Some(gradient)).unwrap()
    };
    let (named, _, losses) = in_memory(None);
    let (own, _, same) = in_memory(Some(OwnLoss::new("squares", own)));
    assert_eq!(losses, same);
    assert_eq!((named.params_hash, named.val_loss), (own.params_hash, own.val_loss));
}

#[test]
fn an_own_loss_written_by_hand_trains() {
    let absolute = |batch: &LossBatch<'_>, gradient: &mut [f32]| {
        let n = batch.output.len() as f32;
        let differences = batch.output.iter().zip(batch.target.data).map(|(out, want)| out - want);
        for (difference, gradient) in differences.clone().zip(gradient) {
            *gradient = difference.signum() / n;
        }
        differences.map(|d| f64::from(d.abs())).sum::<f64>() / f64::from(n)
    };
    let (_, model, losses) = in_memory(Some(OwnLoss::new("absolute", absolute)));
    assert_learned(&losses);
    // The model remembers what it minimised.
    let data = Dataset::from_f32(samples(), &[4], vec![0.0f32; 50]).unwrap();
    let evaluated = model.evaluate(&data, &compute()).unwrap();
    let outputs = model.predict(&samples(), &compute()).unwrap();
    let mean = outputs.values().iter().map(|x| f64::from(x.abs())).sum::<f64>() / 50.0;
    assert!((evaluated.loss - mean).abs() < 1e-6, "{} {mean}", evaluated.loss);
}

#[test]
fn a_loss_sees_outputs_and_labels_of_one_batch() {
    let seen = |batch: &LossBatch<'_>, gradient: &mut [f32]| {
        let Target { data, shape, .. } = batch.target;
        assert_eq!((batch.shape[0], data.len()), (shape[0], shape[0]));
        gradient.fill(0.0);
        0.5
    };
    let (summary, ..) = in_memory(Some(OwnLoss::new("nothing", seen)));
    assert_eq!((summary.loss, summary.val_loss), (Some(0.5), Some(0.5)));
}
