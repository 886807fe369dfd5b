//! The output and the files of a run.

use super::{CNN, MLP, losses, metrics, run_file, sandbox, train};
use phalanx_testkit::{keys, read_json};
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn a_model_that_ends_in_what_its_loss_applies_itself_is_warned_of() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 2");
    let said = |loss: &str| {
        let ran = sandbox.run(&["train", "run.toml", "--set", &format!("train.loss={loss}")]);
        assert!(ran.status.success(), "{loss}");
        String::from_utf8(ran.stderr).unwrap()
    };
    let warned = said("cross_entropy");
    let words = "warning: the model ends in Softmax `softmax_1`, and `cross_entropy` applies softmax itself";
    assert!(warned.contains(words) && warned.contains("cannot fall below 1.46"), "{warned}");
    let silent = said("mse");
    assert!(!silent.contains("warning"), "{silent}");
}

const SUMMARY: [&str; 8] =
    ["run_dir", "steps", "loss", "val_loss", "val_acc", "samples_per_s", "wall_s", "params_hash"];

#[test]
fn a_run_prints_one_object_and_leaves_a_whole_directory() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "epochs = 2\noptimizer = { name = \"adam\", lr = 0.001 }");
    let printed = sandbox.stdout(&["train", "run.toml", "--output", "json"]);
    let summary: Value = serde_json::from_str(printed.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((printed.lines().count(), keys(&summary)), (1, BTreeSet::from(SUMMARY)), "{printed}");
    assert_eq!(summary["steps"], 34, "1078 samples are 17 batches of 64");
    assert!(summary["val_acc"].as_f64() > Some(0.3), "{summary}");

    let dir = sandbox.path().join(summary["run_dir"].as_str().unwrap());
    let id = dir.file_name().unwrap().to_str().unwrap();
    assert!(dir.parent().unwrap().ends_with("runs") && id.len() == "2026-11-16-141502-3fa9".len(), "{id}");
    for file in
        ["run.toml", "formation.json", "losses.csv", "val_accuracies.csv", "model.safetensors", "model.onnx"]
    {
        assert!(dir.join(file).metadata().unwrap().len() > 0, "{file}");
    }
    let resolved = std::fs::read_to_string(dir.join("run.toml")).unwrap();
    assert!(resolved.contains("# from run.toml:") && resolved.contains("# default"), "{resolved}");

    let lines = metrics(&dir);
    let step = lines.iter().find(|line| line["step"] == 1).unwrap();
    let expected = ["step", "pass", "loss", "lr", "grad_norm", "samples_per_s", "unix_ms"];
    assert_eq!(keys(step), BTreeSet::from(expected), "{step}");
    let validations: Vec<&Value> = lines.iter().filter(|line| !line["val_loss"].is_null()).collect();
    assert_eq!(validations.len(), 2, "once in each pass");
    assert_eq!(validations[1]["val_acc"], summary["val_acc"]);
    assert_eq!(losses(&dir).last().unwrap().1, summary["loss"].as_f64().unwrap());
    let csv = std::fs::read_to_string(dir.join("losses.csv")).unwrap();
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("step,loss"), 35), "{csv}");
    let csv = std::fs::read_to_string(dir.join("val_accuracies.csv")).unwrap();
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some("step,pass,val_loss,val_acc"), 3), "{csv}");

    let checkpoint = dir.join("checkpoints/step-000034");
    let manifest = read_json(checkpoint.join("manifest.json"));
    assert_eq!(manifest["params_hash"], summary["params_hash"]);
    assert!(checkpoint.join("replica0-stage0.safetensors").is_file());
}

#[test]
fn runs_are_listed_shown_and_named() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "steps = 3");
    assert_eq!(sandbox.stdout(&["run", "list", "--output", "json"]), "[]\n");
    let summary = train(&sandbox, &["--set", "name=first"]);
    assert_eq!(summary["run_dir"], "runs/first");
    let runs = sandbox.json(&["run", "list", "--output", "json"]);
    let run = &runs[0];
    assert_eq!([&run["id"], &run["state"], &run["model"]], ["first", "finished", "mlp"], "{runs}");
    assert_eq!((&run["steps"], &run["params_hash"]), (&3.into(), &summary["params_hash"]));
    let shown = sandbox.json(&["run", "show", "first", "--output", "json"]);
    assert_eq!((&shown["state"], &shown["checkpoint"]), (&"finished".into(), &3.into()), "{shown}");
    assert!(shown["config"].as_str().unwrap().contains("[train.optimizer]"), "{shown}");
    assert!(sandbox.stdout(&["run", "list"]).contains("first"), "as a table, too");
    let said = sandbox.fails(2, &["run", "show", "second"]);
    assert!(
        said.contains("there is no run in second") && said.contains("hint: `phalanx run list`"),
        "{said}"
    );

    // Another command is refused.
    let said = sandbox.fails(2, &["train", "run.toml", "--run-dir", "runs/first", "--lr", "0.5"]);
    assert!(said.contains("told something else") && said.contains("phalanx run resume runs/first"), "{said}");
}

#[test]
fn progress_is_told_in_lines_where_there_is_no_terminal() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 2");
    let output = sandbox.run(&["train", "run.toml"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stderr.contains("training mlp") && stderr.contains("validation after pass 2"), "{stderr}");
    assert!(stdout.contains("validation accuracy") && stdout.contains("samples/s"), "{stdout}");
    let quiet = sandbox.run(&["train", "run.toml", "--output", "quiet", "--run-dir", "here"]);
    assert_eq!((String::from_utf8_lossy(&quiet.stdout).trim(), quiet.stderr.len()), ("here", 0));
}

#[test]
fn the_environment_and_flags_stand_in_for_the_file() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 9");
    let mut command =
        sandbox.command(&["train", "run.toml", "--steps", "4", "--output", "json", "-o", "here"]);
    let output = command.env("PHALANX_TRAIN_BATCH", "100").output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&summary["steps"], &summary["run_dir"]), (&4.into(), &"here".into()));
    let resolved = std::fs::read_to_string(sandbox.path().join("here/run.toml")).unwrap();
    assert!(resolved.contains("# --steps") && resolved.contains("# PHALANX_TRAIN_BATCH"), "{resolved}");
    assert!(!resolved.contains("epochs"), "{resolved}");
}

#[test]
fn a_finished_run_is_left_as_it_is() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "steps = 3");
    let summary = train(&sandbox, &["--run-dir", "run"]);
    let files = ["state.json", "run.toml", "formation.json", "metrics.jsonl", "val_accuracies.csv"];
    let read = || files.map(|name| std::fs::read_to_string(sandbox.path().join("run").join(name)).unwrap());
    let before = read();
    let train = ["train", "run.toml", "--run-dir", "run", "--output", "json"];
    let resume = ["run", "resume", "run", "--output", "json"];
    let local = [&resume[..], &["--local", "2"]].concat();
    for args in [&train[..], &resume, &local] {
        let output = sandbox.run(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        assert!(said.starts_with("the run in run is finished, all 3 steps are done"), "{args:?}: {said}");
        assert_eq!((said.lines().count(), said.contains("--epochs or --steps")), (1, true), "{said}");
        let again: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(keys(&again), keys(&summary), "{args:?}");
        assert_eq!((&again["steps"], &again["params_hash"]), (&3.into(), &summary["params_hash"]), "{again}");
        for key in ["loss", "val_loss", "val_acc", "samples_per_s", "wall_s"] {
            let [a, b] = [&again, &summary].map(|of| of[key].as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * b, "{key}: {again} {summary}");
        }
        assert_eq!(read(), before, "{args:?}");
    }
    // Missing files of a finished run are created again.
    std::fs::remove_file(sandbox.path().join("run/model.safetensors")).unwrap();
    assert_eq!(sandbox.json(&resume)["params_hash"], summary["params_hash"]);
    assert!(sandbox.path().join("run/model.safetensors").is_file());
    let further = sandbox.json(&[&resume[..], &["--steps", "4"]].concat());
    assert_eq!(further["steps"], 4, "{further}");
}

#[test]
fn a_listing_keeps_its_columns_and_names_directories_that_are_not_there() {
    let sandbox = sandbox();
    assert_eq!(sandbox.stdout(&["run", "list"]), "no runs\n");
    let said = sandbox.fails(2, &["run", "list", "elsewhere"]);
    assert!(said.contains("there is no directory elsewhere"), "{said}");
    run_file(&sandbox, MLP, "steps = 50\noptimizer = { name = \"sgd\", lr = 1e38 }");
    sandbox.fails(1, &["train", "run.toml", "--run-dir", "elsewhere/run"]);
    let runs = sandbox.json(&["run", "list", "elsewhere", "--output", "json"]);
    let reason = runs[0]["reason"].as_str().unwrap();
    assert!(reason.len() > 60, "{reason}");
    let listed = sandbox.stdout(&["run", "list", "elsewhere"]);
    assert!(listed.contains("failed: ") && listed.contains('…') && !listed.contains(reason), "{listed}");
    assert!(sandbox.stdout(&["run", "show", "elsewhere/run"]).contains(reason));
}
