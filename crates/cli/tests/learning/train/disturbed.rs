//! Runs that are killed, interrupted, or cannot write end as if undisturbed.

use super::{CNN, losses, run_file, sandbox, train};
use phalanx_graph::{Weights, weights};
use phalanx_testkit::{Process, Sandbox, eventually};
use phalanx_types::Tensor;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

const TRAIN: &str = "steps = 600\ncheckpoint_every = 23\nvalidate_every = 200";

/// Waits until a run has recorded this many steps.
fn reaches(run: &Path, step: usize) {
    eventually("the run gets there", || {
        let text = std::fs::read_to_string(run.join("losses.csv")).ok()?;
        (text.lines().count() > step).then_some(())
    });
}

fn resume(sandbox: &Sandbox) -> Process {
    sandbox.start(&["run", "resume", "disturbed", "--output", "json"])
}

/// Checks that a disturbed run is the undisturbed one, bit for bit.
fn assert_same(sandbox: &Sandbox, undisturbed: &Value, disturbed: &Value) {
    assert_eq!(undisturbed["params_hash"], disturbed["params_hash"]);
    for key in ["steps", "loss", "val_loss", "val_acc"] {
        assert_eq!(undisturbed[key], disturbed[key], "{key}");
    }
    let [a, b] = ["undisturbed", "disturbed"].map(|run| sandbox.path().join(run));
    assert_eq!(losses(&a), losses(&b), "every step once, with the same loss");
    for file in ["losses.csv", "val_accuracies.csv", "model.safetensors", "model.onnx"] {
        assert!(std::fs::read(a.join(file)).unwrap() == std::fs::read(b.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn a_killed_run_ends_as_an_undisturbed_one() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, TRAIN);
    let undisturbed = train(&sandbox, &["--run-dir", "undisturbed"]);
    let mut dice = rand_pcg::Pcg64::seed_from_u64(7);
    let run = sandbox.path().join("disturbed");
    let mut process = sandbox.start(&["train", "run.toml", "--run-dir", "disturbed", "--output", "json"]);
    for kill in 0..4 {
        reaches(&run, dice.random_range(kill * 100 + 1..(kill + 1) * 100));
        process.signal(Signal::KILL);
        process.finish();
        let listed = sandbox.json(&["run", "show", "disturbed", "--output", "json"]);
        assert_eq!(listed["state"], "interrupted", "{listed}");
        process = resume(&sandbox);
    }
    let (code, disturbed) = process.summary();
    assert_eq!(code, Some(0), "{}", process.stderr());
    assert_same(&sandbox, &undisturbed, &disturbed);
}

#[test]
fn an_interrupted_run_saves_and_goes_on() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, TRAIN);
    let undisturbed = train(&sandbox, &["--run-dir", "undisturbed"]);
    for (i, signal) in [Signal::INT, Signal::TERM].into_iter().enumerate() {
        let start = ["train", "run.toml", "--run-dir", "disturbed", "--output", "json"];
        // The same command continues the same run.
        let mut process = sandbox.start(&start);
        reaches(&sandbox.path().join("disturbed"), 50 + 200 * i);
        process.signal(signal);
        let (code, summary) = process.summary();
        assert_eq!(code, Some(1), "{}", process.stderr());
        let said = process.stderr();
        assert!(said.contains("hint: `phalanx run resume disturbed` goes on"), "{said}");
        let step = summary["steps"].as_u64().unwrap();
        let checkpoint = format!("disturbed/checkpoints/step-{step:06}/manifest.json");
        assert!(sandbox.path().join(checkpoint).is_file(), "{summary}");
        let runs = sandbox.json(&["run", "show", "disturbed", "--output", "json"]);
        assert_eq!(runs["state"], "interrupted", "{runs}");
    }
    let (code, disturbed) = resume(&sandbox).summary();
    assert_eq!(code, Some(0));
    assert_same(&sandbox, &undisturbed, &disturbed);
}

#[test]
fn a_second_interrupt_does_not_wait_for_the_step() {
    let sandbox = sandbox();
    // One step of this takes seconds.
    let x: Vec<f32> = (0..64 * 3 * 64 * 64).map(|i| (i % 7) as f32).collect();
    let tensors = Weights::from([
        ("x".to_owned(), Tensor::from_f32(vec![64, 3, 64, 64], &x).unwrap()),
        ("y".to_owned(), Tensor::from_f32(vec![64], &[1.0; 64]).unwrap()),
    ]);
    weights::save(&sandbox.path().join("data.safetensors"), &tensors).unwrap();
    run_file(&sandbox, "zoo = \"resnet-18\"\ninput = [3, 64, 64]\nclasses = 10", "steps = 1000");
    let data = ["train", "valid"]
        .map(|part| format!("data.{part}={{ file = \"data.safetensors\", x = \"x\", y = \"y\" }}"));
    let start = ["train", "run.toml", "--run-dir", "disturbed", "--set", &data[0], "--set", &data[1]];
    let mut process = sandbox.start(&start);
    reaches(&sandbox.path().join("disturbed"), 0);
    process.signal(Signal::INT);
    process.says("stopping after this step");
    process.signal(Signal::INT);
    let (status, printed) = process.finish();
    assert_eq!((status.code(), printed.len()), (Some(1), 0), "{}", process.stderr());
    let said = process.stderr();
    assert!(
        said.contains("error: stopped at once") && said.contains("hint: there is no checkpoint"),
        "{said}"
    );
}

#[test]
fn an_interrupt_before_the_first_step_says_that_nothing_is_saved() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, TRAIN);
    let mut process = sandbox.start(&["train", "run.toml", "--run-dir", "disturbed", "--replicas", "2"]);
    // There are no nodes.
    process.says("training digits-cnn");
    process.signal(Signal::INT);
    let (status, _) = process.finish();
    let said = process.stderr();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("error: stopped before the first step: there was nothing to save"), "{said}");
    assert!(!said.contains("saved\n") && said.contains("hint: `phalanx run resume disturbed`"), "{said}");
}

#[test]
fn a_run_without_checkpoints_is_seen_as_it_stands_and_begins_again() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 1000000\nvalidate_every = 5\ncheckpoint_every = \"never\"");
    let run = sandbox.path().join("disturbed");
    let mut process = sandbox.start(&["train", "run.toml", "--run-dir", "disturbed"]);
    reaches(&run, 12);
    let show = || sandbox.json(&["run", "show", "disturbed", "--output", "json"]);
    let shown = show();
    assert_eq!(shown["state"], "running", "{shown}");
    assert!(shown["val_acc"].is_f64() && shown["val_loss"].is_f64(), "{shown}");
    assert!(shown["wall_s"].as_f64() > Some(0.0) && shown["samples_per_s"].as_f64() > Some(0.0), "{shown}");
    let said = sandbox.fails(2, &["eval", "disturbed"]);
    assert!(said.contains("hint: it is being trained: wait for its first checkpoint"), "{said}");
    let said = sandbox.fails(2, &["fuse", "disturbed"]);
    assert!(said.contains("hint: it is being trained: wait for its first checkpoint"), "{said}");

    process.signal(Signal::KILL);
    process.finish();
    let shown = show();
    assert_eq!(shown["state"], "interrupted", "{shown}");
    let validations = std::fs::read_to_string(run.join("val_accuracies.csv")).unwrap();
    let last: Vec<&str> = validations.lines().last().unwrap().split(',').collect();
    let off = shown["val_acc"].as_f64().unwrap() - last[3].parse::<f64>().unwrap();
    assert!(off.abs() < 1e-9, "{shown} {last:?}");
    assert!(shown["wall_s"].as_f64() > Some(0.0), "{shown}");
    assert_eq!(show(), shown, "time does not go on");
    let steps = losses(&run).len();
    assert_eq!(shown["steps"], steps, "{shown}");
    let process = sandbox.start(&["run", "resume", "disturbed"]);
    process.says("training digits-cnn");
    let warning =
        format!("warning: there is no checkpoint: {steps} steps that were recorded are done again\n");
    assert!(process.stderr().starts_with(&warning), "{}", process.stderr());
}

#[test]
fn two_processes_do_not_train_in_one_directory() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 1000000\ncheckpoint_every = \"never\"");
    let process = sandbox.start(&["train", "run.toml", "--run-dir", "disturbed"]);
    reaches(&sandbox.path().join("disturbed"), 1);
    let said = sandbox.fails(2, &["run", "resume", "disturbed"]);
    assert!(said.contains(&format!("another process ({}) trains in disturbed", process.id())), "{said}");
    let shown = sandbox.json(&["run", "show", "disturbed", "--output", "json"]);
    assert_eq!(shown["state"], "running", "{shown}");
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_those_before_whole() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 40\ncheckpoint_every = 10");
    let run = sandbox.path().join("disturbed");
    std::fs::create_dir_all(run.join("checkpoints")).unwrap();
    // Not even root can create a directory where a file is.
    std::fs::write(run.join("checkpoints/.step-000030"), "in the way").unwrap();
    let said = sandbox.fails(3, &["train", "run.toml", "--run-dir", "disturbed"]);
    assert!(said.contains("step-000030") && said.contains("caused by: "), "{said}");
    let shown = sandbox.json(&["run", "show", "disturbed", "--output", "json"]);
    assert_eq!((&shown["state"], &shown["checkpoint"]), (&"failed".into(), &20.into()), "{shown}");
    assert!(shown["reason"].as_str().unwrap().contains("step-000030"), "{shown}");

    std::fs::remove_file(run.join("checkpoints/.step-000030")).unwrap();
    let undisturbed = train(&sandbox, &["--run-dir", "undisturbed"]);
    let (code, disturbed) = resume(&sandbox).summary();
    assert_eq!(code, Some(0));
    assert_same(&sandbox, &undisturbed, &disturbed);
}

#[test]
fn a_damaged_checkpoint_is_passed_over() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 40\ncheckpoint_every = 10");
    let undisturbed = train(&sandbox, &["--run-dir", "undisturbed", "--steps", "60"]);
    train(&sandbox, &["--run-dir", "disturbed"]);
    let weights = sandbox.path().join("disturbed/checkpoints/step-000040/replica0-stage0.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let mut process = sandbox.start(&["run", "resume", "disturbed", "--steps", "60", "--output", "json"]);
    let (code, disturbed) = process.summary();
    assert_eq!(code, Some(0));
    assert!(process.stderr().contains("damaged"), "{}", process.stderr());
    assert_same(&sandbox, &undisturbed, &disturbed);
}
