//! The same run gives the same bits; batches in parts give the same step.

use super::{CNN, MLP, losses, metrics, run_file, sandbox, train};

#[test]
fn the_same_seed_gives_the_same_model_whatever_the_threads() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, "epochs = 2");
    let hash = |args: &[&str]| train(&sandbox, args)["params_hash"].as_str().unwrap().to_owned();
    let first = hash(&["--threads", "1"]);
    assert_eq!(hash(&["--threads", "1"]), first, "again");
    assert_eq!(hash(&["--threads", "2"]), first, "on two threads");
    assert_eq!(hash(&["--set", "train.recompute=true"]), first, "computing activations twice");
    assert_ne!(hash(&["--seed", "43"]), first, "another seed");
}

#[test]
fn a_step_in_parts_is_the_step_in_one() {
    let sandbox = sandbox();
    run_file(&sandbox, MLP, "steps = 40");
    let whole = train(&sandbox, &["--batch", "64", "--run-dir", "whole"]);
    let parts = train(&sandbox, &["--batch", "32", "--set", "train.accumulate=2", "--run-dir", "parts"]);
    assert_eq!(whole["steps"], parts["steps"]);
    let [a, b] = ["whole", "parts"].map(|run| losses(&sandbox.path().join(run)));
    // The last batch of a pass has 54 samples: 32 and 22.
    assert_eq!(a.len(), 40);
    for ((step, x), (_, y)) in a.iter().zip(&b) {
        assert!((x - y).abs() <= 1e-5 * x.abs().max(1e-3), "step {step}: {x} and {y}");
    }
    for ((step, x), (_, y)) in a.iter().zip(&b).take(3) {
        assert!((x - y).abs() <= 1e-6, "step {step}: {x} and {y}");
    }
}

#[test]
fn without_shuffling_samples_come_in_the_order_of_the_file() {
    let sandbox = sandbox();
    // A learning rate too small to change anything: the loss of a step depends only on its samples.
    run_file(&sandbox, MLP, "epochs = 2\noptimizer = { name = \"sgd\", lr = 1e-30 }");
    let losses = |args: &[&str], run: &str| {
        train(&sandbox, &[args, &["--run-dir", run]].concat());
        let losses: Vec<f64> = losses(&sandbox.path().join(run)).into_iter().map(|(_, loss)| loss).collect();
        let (first, second) = losses.split_at(17);
        (first.to_vec(), second.to_vec())
    };
    let (first, second) = losses(&["--set", "data.shuffle=false"], "in-order");
    assert_eq!(first, second, "each pass is the same");
    let (third, fourth) = losses(&[], "shuffled");
    assert!(third != first && third != fourth, "each pass has an order of its own");
}

#[test]
fn schedules_and_clipping_are_recorded() {
    let sandbox = sandbox();
    let schedule = "schedule = { name = \"cosine\", warmup = 4 }\nclip_norm = 0.01";
    run_file(&sandbox, MLP, &format!("steps = 20\noptimizer = {{ name = \"sgd\", lr = 0.1 }}\n{schedule}"));
    train(&sandbox, &["--run-dir", "run"]);
    let lines = metrics(&sandbox.path().join("run"));
    let rates: Vec<f64> = lines.iter().filter_map(|line| line["lr"].as_f64()).collect();
    assert!((rates[0] - 0.02).abs() < 1e-6 && rates[4] > rates[0], "{rates:?}");
    assert!(rates[4..].windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
    assert!(lines[0]["grad_norm"].as_f64() > Some(0.01), "the norm before clipping: {}", lines[0]);
}
