//! Several replicas compute what one computes with the whole batch.

use super::{CNN, MLP, SGD, VERIFY, digits, losses, run_file, run_file_on, sandbox};
use crate::run::{RUN, Run, is_step, replicas, samples};
use phalanx_data::{Batch, Dataset, SourceSpec};
use phalanx_graph::{Weights, weights};
use phalanx_testkit::Sandbox;
use phalanx_types::Tensor;
use serde_json::Value;

const EQUAL: &str = "[formation]\nshares = \"equal\"";

/// Trains on one replica and on four; returns the records of the four.
#[expect(clippy::print_stdout, reason = "how near the limit it comes")]
fn assert_equal(sandbox: &Sandbox, steps: usize) -> Vec<Value> {
    let mut run = Run::start(sandbox, &["--local", "4"]);
    run.ends();
    assert!(!run.process.stderr().contains("depend on timing"), "{}", run.process.stderr());
    sandbox.json(&["train", "run.toml", "--run-dir", "one", "--output", "json"]);
    let [one, four] = ["one", RUN].map(|run| losses(&sandbox.path().join(run)));
    assert_eq!((one.len(), four.len()), (steps, steps));
    let off = |(a, b): (&(u64, f64), &(u64, f64))| (a.1 - b.1).abs() / a.1.abs().max(1.0);
    let worst = one.iter().zip(&four).map(off).fold(0.0, f64::max);
    println!("{steps} steps: losses differ by {worst:.2e} at most");
    for (a, b) in one.iter().zip(&four) {
        assert!(a.0 == b.0 && off((a, b)) <= 1e-5, "{a:?} on one replica, {b:?} on four");
    }
    let learned = one.first().unwrap().1 - one.last().unwrap().1;
    assert!(learned > 0.005, "a model that learns nothing is equal to itself: {learned}");
    let steps: Vec<Value> = run.lines().iter().filter(|line| is_step(line)).cloned().collect();
    assert!(
        steps.iter().all(|line| replicas(line).len() == 4 && !line["hash"].is_null()),
        "by four, compared"
    );
    steps
}

/// How many samples each replica computed in a step.
fn shares(line: &Value) -> Vec<u64> {
    replicas(line).iter().map(|id| samples(line, id)).collect()
}

#[test]
fn four_times_16_is_once_64_for_digits_cnn() {
    let sandbox = sandbox();
    let train = format!("{SGD}\nbatch = 64\nsteps = 200\nvalidate_every = \"never\"");
    run_file(&sandbox, CNN, &train, &format!("{VERIFY}\n{EQUAL}"));
    let steps = assert_equal(&sandbox, 200);
    assert_eq!(shares(&steps[0]), [16; 4]);
    assert_eq!(shares(&steps[16]).iter().sum::<u64>(), 54, "the last batch of a pass");
}

/// The digits as large as photographs, in three colours that differ.
fn large_digits(sandbox: &Sandbox) {
    let spec =
        SourceSpec { x: Some("x_train".into()), y: Some("y_train".to_owned()), ..SourceSpec::file(digits()) };
    let dataset = Dataset::open(&spec, sandbox.path()).unwrap();
    let mut batch = Batch::new();
    let count = 512;
    dataset.read(&(0..count).collect::<Vec<usize>>(), &mut batch).unwrap();
    let mut x = Vec::with_capacity(count * 3 * 32 * 32);
    for image in batch.x.chunks_exact(64) {
        for colour in 1..=3 {
            let pixel = |i: usize| image[i / 32 / 4 * 8 + i % 32 / 4] / 16.0 / colour as f32;
            x.extend((0..32 * 32).map(pixel));
        }
    }
    let tensors = Weights::from([
        ("x".to_owned(), Tensor::from_f32(vec![count as u64, 3, 32, 32], &x).unwrap()),
        ("y".to_owned(), Tensor::from_f32(vec![count as u64], &batch.y).unwrap()),
    ]);
    weights::save(&sandbox.path().join("large.safetensors"), &tensors).unwrap();
}

#[test]
fn four_times_16_is_once_64_for_cifar_cnn() {
    let sandbox = sandbox();
    large_digits(&sandbox);
    let data = "train = { file = \"large.safetensors\", x = \"x\", y = \"y\" }
mean = [0.3, 0.15, 0.1]
std = [0.37, 0.19, 0.12]";
    // With larger steps rounding errors grow without bound; they do so in one process, too, when a weight is changed by
    // its last bit.
    let sgd = SGD.replace("0.005", "0.0005");
    let train = format!("{sgd}\nbatch = 64\nsteps = 200");
    run_file_on(&sandbox, "zoo = \"cifar-cnn\"\ndropout = 0.0", data, &train, &format!("{VERIFY}\n{EQUAL}"));
    assert_equal(&sandbox, 200);
}

#[test]
fn a_last_batch_with_fewer_samples_than_replicas_is_computed_by_some_of_them() {
    let sandbox = sandbox();
    // 1078 samples are 25 batches of 43, and three samples.
    let train = format!("{SGD}\nbatch = 43\nepochs = 3\nvalidate_every = \"never\"");
    run_file(&sandbox, CNN, &train, &format!("{VERIFY}\n{EQUAL}"));
    let steps = assert_equal(&sandbox, 78);
    assert_eq!(shares(&steps[0]), [11, 11, 11, 10]);
    let mut last = shares(&steps[25]);
    last.sort_unstable();
    assert_eq!(last, [0, 1, 1, 1]);
}

#[test]
fn a_step_in_parts_is_the_same_on_several_replicas() {
    let sandbox = sandbox();
    // Without batch norm, which depends on how samples are grouped.
    let train = format!("{SGD}\nbatch = 32\naccumulate = 2\nsteps = 100\nvalidate_every = \"never\"");
    run_file(&sandbox, MLP, &train, &format!("{VERIFY}\n{EQUAL}"));
    let steps = assert_equal(&sandbox, 100);
    assert_eq!(shares(&steps[0]), [16; 4], "32 samples, twice");
}
