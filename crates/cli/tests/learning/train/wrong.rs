//! Wrong inputs: exit code 2, what is wrong, where, and what to do.

use super::{CNN, MLP, digits, metrics, run_file, sandbox, train};
use phalanx_graph::{Weights, weights};
use phalanx_testkit::Sandbox;
use phalanx_types::Tensor;
use std::path::Path;

#[test]
fn mistakes_in_a_run_file_are_named_with_their_place() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 1\noptimiser = \"adam\"");
    let said = sandbox.fails(2, &["train", "run.toml"]);
    assert!(
        said.contains("unknown key `optimiser` in [train] at run.toml:13:1; did you mean `optimizer`?"),
        "{said}"
    );
    run_file(&sandbox, MLP, "epochs = 1");
    let cases: &[(&[&str], &str)] = &[
        (&["--set", "train.epocs=3"], "did you mean `epochs`?"),
        (&["--set", "train.epochs"], "there is no `=`"),
        (&["--batch", "0"], "`train.batch` must be a whole number from 1"),
        (&["--set", "train.loss=mes"], "did you mean `mse`?"),
        (&["--set", "formation.stages=0"], "`formation.stages` must be a whole number from 1"),
        (&["--set", "formation.replicas=0"], "`formation.replicas` must be a whole number from 1"),
        (&["--set", "model.zoo=mpl"], "did you mean `mlp`?"),
        (&["--set", "model.dims={ n = 3 }"], "`model.dims` means nothing here"),
        (&["--batch", "16777216", "--set", "model.classes=100000"], "of memory, but this machine has"),
        (&["--epochs", "-1"], "`train.epochs` must be a whole number from 1 on, not -1, at --epochs"),
        (&["--lr", "-1"], "at --lr"),
        (&["-o", "."], "is not empty"),
        (&["--local", "0"], "--local"),
        (&["--local", "2", "--replicas", "2"], "cannot be used with"),
        (&["--local", "2", "--set", "sync.every=3"], "1 with `sync.exchange = \"gradients\"`"),
        (&["--set", "data.train.file=none.npz"], "none.npz"),
        (&["--set", "data.train.x=x_trian"], "x_train"),
        (&["--set", "data.train.y=x_train"], "cross_entropy cannot compare"),
        (&["--set", "model.input=[3, 8, 8]"], "have shape [1, 8, 8], but the model takes [3, 8, 8]"),
        (&["--set", "model.input=[64]"], "hint: say `reshape = [64]` in [data]"),
        (&["--set", "model.classes=7"], "7"),
        (&["--set", "data.one_hot=9"], "labels of shape [9] with outputs of shape [10]"),
        (&["--set", "model.weights=none.safetensors"], "none.safetensors"),
        (
            &["--batch", "2000", "--set", "data.drop_last=true"],
            "fewer samples (1078) than one batch has (2000)",
        ),
    ];
    for (args, words) in cases {
        let said = sandbox.fails(2, &[&["train", "run.toml"], *args].concat());
        assert!(said.contains(words), "{args:?} should say {words:?}: {said}");
        assert!(!sandbox.path().join("runs").exists(), "{args:?} leaves nothing behind");
    }
    let said = sandbox.fails(2, &["train", "none.toml"]);
    assert!(said.contains("none.toml") && said.contains("hint: "), "{said}");
}

/// A dataset of 64 samples with these labels.
fn dataset(sandbox: &Sandbox, labels: &[f32], shape: &[u64]) {
    save_samples(sandbox, "data.safetensors", labels, shape);
}

/// A file of samples with these labels.
fn save_samples(sandbox: &Sandbox, file: &str, labels: &[f32], shape: &[u64]) {
    let len = shape[0];
    let samples: Vec<f32> = (0..64 * len).map(|i| (i % 17) as f32 / 17.0).collect();
    let tensors = Weights::from([
        ("x".to_owned(), Tensor::from_f32(vec![len, 1, 8, 8], &samples).unwrap()),
        ("y".to_owned(), Tensor::from_f32(shape.to_vec(), labels).unwrap()),
    ]);
    weights::save(&sandbox.path().join(file), &tensors).unwrap();
}

/// Of 600 labels, label 301 is not among those that are checked before a run starts.
fn one_wrong_label_of_many(sandbox: &Sandbox, file: &str, wrong: f32) {
    let mut labels: Vec<f32> = (0..600).map(|i| (i % 10) as f32).collect();
    labels[301] = wrong;
    save_samples(sandbox, file, &labels, &[600]);
}

/// Trains on samples and validates on others, in batches of 50 in the order of the file.
const IN_ORDER: [&str; 12] = [
    "train",
    "run.toml",
    "--batch",
    "50",
    "--set",
    "data.shuffle=false",
    "--set",
    "data.train={ file = \"data.safetensors\", x = \"x\", y = \"y\" }",
    "--set",
    "data.valid={ file = \"valid.safetensors\", x = \"x\", y = \"y\" }",
    "--run-dir",
    "run",
];

#[test]
fn labels_of_a_binary_loss_are_from_0_to_1() {
    let sandbox = sandbox();
    run_file(&sandbox, "zoo = \"mlp\"\ninput = [1, 8, 8]\nclasses = 1", "epochs = 1");
    let mut labels = vec![1.0; 64];
    labels[9] = 2.0;
    dataset(&sandbox, &labels, &[64, 1]);
    let args = [&["train", "run.toml", "--set", "train.loss=bce_with_logits"], &OWN[..]].concat();
    let said = sandbox.fails(2, &args);
    assert!(said.contains("the label of row 9 is 2, but this loss takes numbers from 0 to 1"), "{said}");
}

#[test]
fn a_batch_of_one_sample_is_refused_before_the_run() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "epochs = 1");
    let layers = "name = \"small\"\ninput = [1, 8, 8]\n\n[[layer]]\ntype = \"flatten\"\n\n[[layer]]\ntype = \"linear\"\n\
                  out = 10\n\n[[layer]]\ntype = \"batch_norm\"\n";
    std::fs::write(sandbox.path().join("small.toml"), layers).unwrap();
    let text = std::fs::read_to_string(sandbox.path().join("run.toml")).unwrap();
    let text = text.replace("zoo = \"digits-cnn\"", "toml = \"small.toml\"");
    std::fs::write(sandbox.path().join("run.toml"), text).unwrap();
    dataset(&sandbox, &[1.0; 64], &[64]);
    let args = [&["train", "run.toml", "--batch", "63"], &OWN[..]].concat();
    let said = sandbox.fails(2, &args);
    assert!(said.contains("leave a batch of one") && said.contains("drop_last"), "{said}");
    assert!(!sandbox.path().join("run").exists());
    sandbox.json(&[&args[..], &["--set", "data.drop_last=true", "--output", "json"]].concat());
}

const OWN: [&str; 6] = [
    "--set",
    "data.train={ file = \"data.safetensors\", x = \"x\", y = \"y\" }",
    "--set",
    "data.valid={ file = \"data.safetensors\", x = \"x\", y = \"y\" }",
    "--run-dir",
    "run",
];

#[test]
fn labels_that_are_no_classes_are_refused_with_their_row() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 1");
    for (value, words) in [
        (12.0, "the label of row 7 is 12"),
        (-1.0, "the label of row 7 is -1"),
        (f32::NAN, "the label of row 7 is NaN"),
        (0.5, "the label of row 7 is 0.5"),
    ] {
        let mut labels = vec![3.0; 64];
        labels[7] = value;
        dataset(&sandbox, &labels, &[64]);
        let said = sandbox.fails(2, &[&["train", "run.toml"], &OWN[..]].concat());
        assert!(said.contains(words) && said.contains("data.safetensors"), "{value}: {said}");
    }
    dataset(&sandbox, &[1.0; 128], &[64, 2]);
    let said = sandbox.fails(2, &[&["train", "run.toml"], &OWN[..]].concat());
    assert!(
        said.contains("labels of shape [2] with outputs of shape [10]") && said.contains("hint: "),
        "{said}"
    );
}

#[test]
fn a_wrong_label_is_told_when_it_is_read() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 1\ncheckpoint_every = 5");
    one_wrong_label_of_many(&sandbox, "data.safetensors", 12.0);
    one_wrong_label_of_many(&sandbox, "valid.safetensors", 1.0);
    let said = sandbox.fails(2, &IN_ORDER);
    let words = "the label of row 301 is 12, but there are 10 classes, from 0 on: \"y\" of ";
    assert!(said.contains(words) && said.contains("data.safetensors"), "{said}");
    assert!(said.contains("hint: number classes from 0 to 9"), "{said}");
    let run = sandbox.path().join("run");
    assert_eq!(metrics(&run).len(), 6, "the steps before are done");
    let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
    assert_eq!((&shown["state"], shown["checkpoint"].as_u64()), (&"failed".into(), Some(5)), "{shown}");
    assert!(said.contains(shown["reason"].as_str().unwrap()), "{shown} {said}");
    // With a valid label the run continues, once the user says that the file has changed.
    one_wrong_label_of_many(&sandbox, "data.safetensors", 2.0);
    let said = sandbox.fails(2, &["run", "resume", "run"]);
    assert!(said.contains("data.safetensors") && said.contains("--changed-inputs"), "{said}");
    sandbox.json(&["run", "resume", "run", "--changed-inputs", "--output", "json"]);
    assert_eq!(super::losses(&run).len(), 12);
}

#[test]
fn a_wrong_label_of_the_first_batch_is_told_before_the_first_step() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 1");
    let mut labels = vec![3.0; 600];
    labels[1] = 12.0;
    save_samples(&sandbox, "data.safetensors", &labels, &[600]);
    one_wrong_label_of_many(&sandbox, "valid.safetensors", 1.0);
    let said = sandbox.fails(2, &IN_ORDER);
    assert!(said.contains("the label of row 1 is 12"), "{said}");
    assert_eq!(metrics(&sandbox.path().join("run")).len(), 0);
}

#[test]
fn wrong_labels_are_told_in_validation_and_evaluation() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "epochs = 1");
    one_wrong_label_of_many(&sandbox, "data.safetensors", 1.0);
    one_wrong_label_of_many(&sandbox, "valid.safetensors", 0.5);
    let words = "the label of row 301 is 0.5, but there are 10 classes";
    let said = sandbox.fails(2, &IN_ORDER);
    assert!(said.contains(words) && said.contains("valid.safetensors"), "{said}");
    train(&sandbox, &["--run-dir", "other", "--steps", "1"]);
    let said = sandbox.fails(2, &["eval", "other", "valid.safetensors", "--x", "x", "--y", "y"]);
    assert!(said.contains(words) && said.contains("valid.safetensors"), "{said}");
}

#[test]
fn nodes_tell_of_wrong_labels_as_one_process_does() {
    for formation in [&["--local", "2"][..], &["--local", "2", "--set", "formation.stages=2"]] {
        let sandbox = sandbox();
        run_file(&sandbox, MLP, "epochs = 1");
        let words = |row: usize| format!("the label of row {row} is 12, but there are 10 classes, from 0 on");
        let fails = |file: &str, words: &str| {
            let said = sandbox.fails(2, &[&IN_ORDER, formation].concat());
            assert!(said.contains(words) && said.contains(file), "{formation:?}: {said}");
            assert!(said.contains("hint: number classes from 0 to 9"), "{formation:?}: {said}");
            let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
            assert_eq!(shown["state"], "failed", "{shown}");
            std::fs::remove_dir_all(sandbox.path().join("run")).unwrap();
        };
        one_wrong_label_of_many(&sandbox, "data.safetensors", 12.0);
        one_wrong_label_of_many(&sandbox, "valid.safetensors", 1.0);
        fails("data.safetensors", &words(301));
        one_wrong_label_of_many(&sandbox, "data.safetensors", 1.0);
        one_wrong_label_of_many(&sandbox, "valid.safetensors", 12.0);
        fails("valid.safetensors", &words(301));
    }
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_with_its_place() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "steps = 50\ncheckpoint_every = 1\noptimizer = { name = \"sgd\", lr = 1e38 }");
    let said = sandbox.fails(1, &["train", "run.toml", "--run-dir", "run"]);
    assert!(said.contains("at step ") && said.contains(" of pass ") && said.contains("samples "), "{said}");
    assert!(said.contains('`'), "the operator is named: {said}");
    let shown = sandbox.json(&["run", "show", "run", "--output", "json"]);
    assert_eq!(shown["state"], "failed", "{shown}");
    assert!(said.contains(shown["reason"].as_str().unwrap()), "{shown} {said}");
    let steps = metrics(Path::new(&sandbox.path().join("run"))).len();
    assert_eq!(shown["checkpoint"].as_u64(), Some(steps as u64), "the last good step is saved: {shown}");
}

#[test]
fn a_model_is_not_evaluated_on_what_does_not_fit() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "steps = 2");
    train(&sandbox, &["--run-dir", "run"]);
    let data = digits();
    let data = data.to_str().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["eval", "none"], "there is no none"),
        (&["eval", "run.toml"], "cannot tell what run.toml is"),
        (&["eval", "run/model.safetensors", data], "hint: say --model"),
        (
            &["eval", "run/model.safetensors", data, "--model", "zoo:digits-cnn", "--x", "x_test"],
            "is missing",
        ),
        (&["eval", "run", data, "--x", "y_test"], "but the model takes [1, 8, 8]"),
        (&["eval", "run", "--loss", "mes"], "no loss called"),
        (&["predict", "run", "-o", "out.txt"], "out.txt"),
        (&["export", "run"], "nothing to write"),
        (&["model", "inspect", "zoo:mpl"], "did you mean `mlp`?"),
        (&["model", "inspect", "what"], "zoo:NAME"),
        (&["bench", "train", "--model", "what"], "digits-cnn"),
    ];
    for (args, words) in cases {
        let said = sandbox.fails(2, args);
        assert!(said.contains(words), "{args:?} should say {words:?}: {said}");
    }
}
