//! `phalanx fuse`: one model from the stages of a run in any state.

use phalanx_testkit::{Sandbox, digits, digits_data, eventually, example, read_json};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// A sandbox with a run file of three stages; `train` is added to its section of that name.
fn sandbox(train: &str) -> Sandbox {
    let sandbox = crate::sandbox();
    let formation = "[formation]\nstages = 3\nlocal = 3\ncuts = [\"conv2d_2\", \"dense_1\"]";
    let data = digits_data();
    let training_data = data.lines().next().unwrap();
    let train = format!("loss = \"cross_entropy\"\nbatch = 64\n{train}");
    sandbox.run_file("zoo = \"digits-cnn\"", training_data, &train, formation);
    sandbox
}

fn read(sandbox: &Sandbox, name: &str) -> Vec<u8> {
    std::fs::read(sandbox.path().join(name)).unwrap()
}

fn fuse(sandbox: &Sandbox, args: &[&str]) -> Value {
    sandbox.json(&[&["fuse", "run", "--output", "json"], args].concat())
}

#[test]
fn the_stages_of_a_finished_run_are_its_model() {
    let sandbox = sandbox("steps = 6\ncheckpoint_every = 2");
    let summary = sandbox.json(&["train", "run.toml", "--run-dir", "run", "--output", "json"]);
    let stages = sandbox.path().join("run/checkpoints/step-000006");
    assert!(stages.join("replica0-stage2.safetensors").is_file(), "the run had no three stages");
    let fused = fuse(&sandbox, &["--onnx", "fused.onnx"]);
    assert_eq!((&fused["step"], &fused["stages"]), (&6.into(), &3.into()), "{fused}");
    assert_eq!((&fused["state"], &fused["params_hash"]), (&"finished".into(), &summary["params_hash"]));
    let model = sandbox.json(&["model", "inspect", "zoo:digits-cnn", "--output", "json"]);
    assert_eq!(fused["parameters"], model["parameters"]);
    assert!(read(&sandbox, "model.safetensors") == read(&sandbox, "run/model.safetensors"));
    assert!(read(&sandbox, "fused.onnx") == read(&sandbox, "run/model.onnx"));

    let said = sandbox.fails(2, &["fuse", "run"]);
    assert!(said.contains("there already is a model.safetensors") && said.contains("--force"), "{said}");
    let said = sandbox.fails(2, &["fuse", "run", "-o", "other.safetensors", "--onnx", "fused.onnx"]);
    assert!(said.contains("there already is a fused.onnx") && said.contains("--onnx FILE"), "{said}");
    // An error of the run is reported first.
    let said = sandbox.fails(2, &["fuse", "none"]);
    assert!(said.contains("there is no run in none"), "{said}");
    assert!(!sandbox.path().join("other.safetensors").exists());
    let older = fuse(&sandbox, &["--step", "4", "--force"]);
    assert_eq!(older["step"], 4, "{older}");
    assert_ne!(older["params_hash"], fused["params_hash"]);
    assert!(read(&sandbox, "model.safetensors") != read(&sandbox, "run/model.safetensors"));
    sandbox.stdout(&["export", "run/checkpoints/step-000004", "--safetensors", "exported.safetensors"]);
    assert!(read(&sandbox, "model.safetensors") == read(&sandbox, "exported.safetensors"));

    let said = sandbox.fails(2, &["fuse", "run", "--step", "5", "-o", "other.safetensors"]);
    assert!(
        said.contains("no checkpoint of step 5") && said.contains("there are those of steps 2, 4, 6"),
        "{said}"
    );
    let said = sandbox.fails(2, &["fuse", ".", "-o", "other.safetensors"]);
    assert!(said.contains("there is no run in ."), "{said}");
}

#[test]
fn a_run_that_goes_on_or_was_interrupted_is_fused() {
    let sandbox = sandbox("steps = 1000000\ncheckpoint_every = 5");
    let mut training = sandbox.start(&["train", "run.toml", "--run-dir", "run"]);
    let first = sandbox.path().join("run/checkpoints/step-000005");
    eventually("a checkpoint", || first.exists().then_some(()));
    // Checkpoints are written and removed all the time.
    for _ in 0..5 {
        let fused = fuse(&sandbox, &["--force"]);
        assert_eq!((&fused["state"], &fused["stages"]), (&"running".into(), &3.into()), "{fused}");
        assert_eq!(fused["step"].as_u64().unwrap() % 5, 0, "{fused}");
    }
    training.signal(Signal::INT);
    let (status, _) = training.finish();
    assert_eq!(status.code(), Some(1), "{}", training.stderr());
    let fused = fuse(&sandbox, &["-o", "fused.safetensors"]);
    assert_eq!((&fused["state"], &fused["stages"]), (&"interrupted".into(), &3.into()), "{fused}");
    sandbox.stdout(&["export", "run", "--safetensors", "exported.safetensors"]);
    assert!(read(&sandbox, "fused.safetensors") == read(&sandbox, "exported.safetensors"));
}

#[test]
fn what_is_damaged_or_not_there_yet_is_told() {
    let sandbox = sandbox("steps = 4\ncheckpoint_every = 2");
    sandbox.json(&["train", "run.toml", "--run-dir", "run", "--output", "json"]);
    let newest = sandbox.path().join("run/checkpoints/step-000004");
    let file = newest.join("replica0-stage1.safetensors");
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    for bytes in [&damaged[..], &whole[..whole.len() / 2]] {
        std::fs::write(&file, bytes).unwrap();
        let said = sandbox.fails(1, &["fuse", "run"]);
        assert!(
            said.contains("the checkpoint of step 4") && said.contains("replica0-stage1.safetensors"),
            "{said}"
        );
        assert!(said.contains("--step 2 takes one that is whole"), "{said}");
        assert!(!sandbox.path().join("model.safetensors").exists(), "half a model was written");
    }
    std::fs::remove_file(&file).unwrap();
    let said = sandbox.fails(1, &["fuse", "run"]);
    assert!(said.contains("replica0-stage1.safetensors"), "{said}");
    assert_eq!(fuse(&sandbox, &["--step", "2"])["step"], 2);

    // A stage that the manifest does not name either.
    std::fs::write(&file, &whole).unwrap();
    let manifest = newest.join("manifest.json");
    let mut told = read_json(&manifest);
    std::fs::write(&manifest, told.to_string()).unwrap();
    let said = sandbox.fails(1, &["fuse", "run", "--force"]);
    assert!(said.contains("the checkpoint is damaged"), "{said}");
    // Nor its checksum, as in manifests of before there were any.
    (told["version"], told["checksum"]) = (1.into(), serde_json::Value::Null);
    told.as_object_mut().unwrap().remove("checksum");
    told["files"].as_array_mut().unwrap().retain(|file| file["name"] != "replica0-stage1.safetensors");
    std::fs::write(&manifest, told.to_string()).unwrap();
    let said = sandbox.fails(1, &["fuse", "run", "--force"]);
    assert!(said.contains("not the whole model") && said.contains("is missing"), "{said}");

    std::fs::remove_dir_all(sandbox.path().join("run/checkpoints")).unwrap();
    let said = sandbox.fails(2, &["fuse", "run", "--force"]);
    assert!(said.contains("no checkpoint yet"), "{said}");
}

#[test]
fn a_run_without_stages_is_fused_as_well() {
    let sandbox = sandbox("steps = 2");
    let alone = ["--set", "formation.stages=1", "--set", "formation.local=0"];
    sandbox.stdout(&[&["train", "run.toml", "--run-dir", "run"], &alone[..]].concat());
    let fused = fuse(&sandbox, &[]);
    assert_eq!((&fused["step"], &fused["stages"]), (&2.into(), &1.into()), "{fused}");
    assert!(read(&sandbox, "model.safetensors") == read(&sandbox, "run/model.safetensors"));
}

#[test]
fn each_file_has_a_place_of_its_own_and_is_for_others_like_any_file() {
    let sandbox = sandbox("steps = 2");
    let alone = ["--set", "formation.stages=1", "--set", "formation.local=0"];
    sandbox.stdout(&[&["train", "run.toml", "--run-dir", "run"], &alone[..]].concat());
    for (out, onnx) in [("a.st", "a.st"), ("a.st", "./a.st"), ("run/../a.st", "a.st")] {
        let said = sandbox.fails(2, &["fuse", "run", "-o", out, "--onnx", onnx, "--force"]);
        assert!(said.contains("cannot both be"), "{said}");
        assert!(!sandbox.path().join("a.st").exists());
    }
    let said = sandbox.fails(2, &["fuse", "run", "-o", "a.onnx"]);
    assert!(said.contains("hint: --onnx a.onnx writes one"), "{said}");
    assert!(!sandbox.path().join("a.onnx").exists());

    fuse(&sandbox, &["-o", "a.safetensors", "--onnx", "a.onnx"]);
    sandbox.stdout(&["export", "run", "--onnx", "b.onnx", "--safetensors", "b.safetensors"]);
    std::fs::write(sandbox.path().join("plain"), "").unwrap();
    let mode = |name: &str| sandbox.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    let written = ["a.onnx", "a.safetensors", "b.onnx", "b.safetensors"];
    for name in [&written[..], &["run/model.onnx", "run/model.safetensors", "run/state.json"]].concat() {
        assert_eq!(mode(name), mode("plain"), "{name} has mode {:o}", mode(name));
    }
}

#[test]
fn the_example_reaches_its_accuracy_and_is_fused() {
    let sandbox = sandbox("steps = 1");
    let example = example("decentralized-digits/run.toml");
    let args = ["train", example.to_str().unwrap(), "--local", "3", "--run-dir", "run", "--output", "json"];
    let summary = sandbox.json(&args);
    assert!(summary["val_acc"].as_f64() > Some(0.96), "{summary}");
    assert_eq!(fuse(&sandbox, &[])["stages"], 3);
    let data = digits();
    let eval = ["eval", "model.safetensors", data.to_str().unwrap(), "--x", "x_test", "--y", "y_test"];
    let eval = [&eval[..], &["--model", "zoo:digits-cnn", "--loss", "mse", "--output", "json"]].concat();
    assert_eq!(sandbox.json(&eval)["accuracy"], summary["val_acc"]);
}
