//! Files that change: data under a running training, inputs between two uses, checkpoints and records.

use super::{MLP, sandbox};
use phalanx_graph::{Weights, weights};
use phalanx_testkit::{Sandbox, eventually, read_json};
use phalanx_types::Tensor;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const SAMPLES: u64 = 2000;

fn samples(seed: f32) -> (Tensor, Tensor) {
    let x: Vec<f32> = (0..SAMPLES * 64).map(|i| (i % 17) as f32 * seed).collect();
    let y: Vec<f32> = (0..SAMPLES).map(|i| (i % 10) as f32).collect();
    let tensor = |shape: Vec<u64>, values: &[f32]| Tensor::from_f32(shape, values).unwrap();
    (tensor(vec![SAMPLES, 1, 8, 8], &x), tensor(vec![SAMPLES], &y))
}

/// Writes `data.safetensors`, or `x.npy` and `y.npy`; returns the file of the samples.
fn data(sandbox: &Sandbox, npy: bool) -> (PathBuf, String) {
    let (x, y) = samples(0.1);
    let place = |name: &str| sandbox.path().join(name);
    if npy {
        for (name, tensor) in [("x", x), ("y", y)] {
            let file = place(&format!("{name}.npy"));
            phalanx_data::write_tensors(&file, &[(name.to_owned(), tensor)]).unwrap();
        }
        return (place("x.npy"), "train = { file = \"x.npy\", labels_file = \"y.npy\" }".to_owned());
    }
    let tensors = Weights::from([("x".to_owned(), x), ("y".to_owned(), y)]);
    weights::save(&place("data.safetensors"), &tensors).unwrap();
    let train = "train = { file = \"data.safetensors\", x = \"x\", y = \"y\" }";
    (place("data.safetensors"), train.to_owned())
}

fn run_file(sandbox: &Sandbox, data: &str, train: &str) {
    let train = format!("loss = \"cross_entropy\"\nbatch = 50\nseed = 1\n{train}");
    sandbox.run_file(MLP, data, &train, "");
}

fn set_len(path: &Path, len: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn a_file_that_is_truncated_under_a_training_ends_it_with_its_name() {
    for (npy, len) in [(true, 0), (true, 5000), (false, 0), (false, 100_000)] {
        let sandbox = sandbox();
        let (file, train) = data(&sandbox, npy);
        run_file(&sandbox, &train, "steps = 10000000");
        let mut training = sandbox.start(&["train", "run.toml", "--run-dir", "run"]);
        let losses = sandbox.path().join("run/losses.csv");
        eventually("the run trains", || {
            let text = std::fs::read_to_string(&losses).ok()?;
            (text.lines().count() > 50).then_some(())
        });
        set_len(&file, len);
        let (status, _) = training.finish();
        let said = training.stderr();
        assert!(status.code().is_some_and(|code| code != 0), "{status}: {said}");
        assert!(said.contains("it became shorter while it was read"), "{said}");
        assert!(said.contains(file.file_name().unwrap().to_str().unwrap()), "{said}");
    }
}

#[test]
fn inputs_that_changed_are_refused_by_name() {
    let sandbox = sandbox();
    let (file, train) = data(&sandbox, false);
    run_file(&sandbox, &train, "steps = 4\ncheckpoint_every = 2");
    sandbox.stdout(&["train", "run.toml", "--run-dir", "run"]);
    let recorded = read_json(sandbox.path().join("run/inputs.json"));
    let input = &recorded["files"][0];
    assert_eq!(input["key"], "data.train.file", "{recorded}");
    assert_eq!(input["bytes"], std::fs::metadata(&file).unwrap().len(), "{recorded}");
    assert_eq!(input["sha256"].as_str().map(str::len), Some(64), "{recorded}");
    let resume = ["run", "resume", "run", "--steps", "6"];
    let eval = ["eval", "run"];
    // Another time is no other file.
    let later = SystemTime::now() + Duration::from_secs(100);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
    sandbox.stdout(&eval);
    // One bit of a label's neighbour, and the same size.
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(later + Duration::from_secs(1))
        .unwrap();
    for args in [&resume[..], &eval, &["train", "run.toml", "--run-dir", "run", "--steps", "4"]] {
        // A run that is finished is not trained, but its directory is opened.
        let said = sandbox.fails(2, args);
        assert!(
            said.contains("data.safetensors") && said.contains("other contents of the same size"),
            "{said}"
        );
        assert!(said.contains("--changed-inputs"), "{said}");
    }
    sandbox.stdout(&["eval", "run", "--changed-inputs"]);
    // Data that are named do not have to be the run's.
    sandbox.stdout(&["eval", "run", file.to_str().unwrap(), "--x", "x", "--y", "y"]);
    sandbox.stdout(&["export", "run", "--safetensors", "a.safetensors"]);
    sandbox.stdout(&[&resume[..], &["--changed-inputs"]].concat());
    // They are the run's inputs from now on.
    sandbox.stdout(&eval);
}

#[test]
fn a_damaged_newer_checkpoint_is_told_and_refused_when_that_is_asked() {
    let sandbox = sandbox();
    let (_, train) = data(&sandbox, false);
    run_file(&sandbox, &train, "steps = 6\ncheckpoint_every = 2");
    sandbox.stdout(&["train", "run.toml", "--run-dir", "run"]);
    let used = |args: &[&str]| {
        let mut process = sandbox.start(&[args, &["--output", "json"]].concat());
        let (code, json) = process.summary();
        assert_eq!(code, Some(0), "{}", process.stderr());
        (json, process.stderr())
    };
    let (json, said) = used(&["eval", "run"]);
    assert_eq!(json["step"], 6, "{json}");
    assert!(said.contains("using step 6 of run") && !said.contains("warning"), "{said}");

    // As if the run had been killed at its end.
    std::fs::remove_file(sandbox.path().join("run/model.safetensors")).unwrap();
    let manifest = sandbox.path().join("run/checkpoints/step-000006/manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace("\"step\": 6", "\"step\": 8")).unwrap();
    let predict = ["predict", "run", "-o", "out.npz"];
    let export = ["export", "run", "--safetensors", "a.safetensors"];
    for args in [&["eval", "run"][..], &predict, &export] {
        let (json, said) = used(args);
        assert_eq!(json["step"], 4, "{json}");
        assert!(
            said.contains("warning: step 6 cannot be used") && said.contains("using step 4 of run"),
            "{said}"
        );
        let said = sandbox.fails(1, &[args, &["--strict"]].concat());
        assert!(said.contains("the run in run is damaged") && said.contains("step 6"), "{said}");
    }
    let said = sandbox.fails(1, &["fuse", "run"]);
    assert!(said.contains("the checkpoint of step 6"), "{said}");
    let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
    assert_eq!(shown["checkpoint"], 4, "{shown}");
    assert!(shown["damaged"][0].as_str().unwrap().contains("step 6 cannot be used"), "{shown}");
}

#[test]
fn records_that_are_shorter_than_the_checkpoint_counts_are_told() {
    let sandbox = sandbox();
    let (_, train) = data(&sandbox, false);
    run_file(&sandbox, &train, "steps = 6\ncheckpoint_every = 2");
    sandbox.stdout(&["train", "run.toml", "--run-dir", "run"]);
    set_len(&sandbox.path().join("run/metrics.jsonl"), 100);
    let mut resumed = sandbox.start(&["run", "resume", "run", "--steps", "8"]);
    let (status, _) = resumed.finish();
    let said = resumed.stderr();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("warning: metrics.jsonl has 100 bytes") && said.contains("records are lost"),
        "{said}"
    );
}
