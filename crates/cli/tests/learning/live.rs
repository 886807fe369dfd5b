//! `eval --live` and `predict --live`: querying a model while it is being trained.

use phalanx_driver::live::{self, LiveError, LiveRefusal, Samples};
use phalanx_fabric::{Fabric, FabricConfig, NodeKind};
use phalanx_testkit::{Process, Sandbox, digits, digits_data, eventually, read_json};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

const RUN: &str = "asked";
/// More steps than any test waits for; every fourth step is saved.
const SAVED: &str = "steps = 1000000\ncheckpoint_every = 4\nkeep = 1000000\nvalidate_every = 12";
const EVERY: u64 = 4;
/// The most queries until one hits a saved step; needing more is as likely as 20 heads in a row.
const MOST: usize = 48;
const STAGES: [&str; 4] = ["--local", "3", "--set", "formation.stages=3"];
/// Two replicas, each of two stages.
const GRID: [&str; 6] = ["--local", "4", "--set", "formation.stages=2", "--set", "formation.replicas=2"];

/// A sandbox with a run file for the digits, a model with batch norm and dropout; `train` is added to its section.
fn sandbox(train: &str) -> Sandbox {
    sandbox_of("zoo = \"digits-cnn\"", train)
}

fn sandbox_of(model: &str, train: &str) -> Sandbox {
    let sandbox = crate::sandbox();
    let optimizer = "optimizer = { name = \"sgd\", lr = 0.01, momentum = 0.9 }";
    let train = format!("loss = \"cross_entropy\"\nbatch = 64\nseed = 7\n{optimizer}\n{train}");
    sandbox.run_file(model, &digits_data(), &train, "");
    sandbox
}

/// Starts training, and waits for the first steps.
fn train(sandbox: &Sandbox, args: &[&str]) -> Process {
    let run = ["train", "run.toml", "--run-dir", RUN, "--output", "json"];
    let mut process = sandbox.start(&[&run, args].concat());
    eventually("the run has begun", || {
        assert!(process.is_running(), "{}", process.stderr());
        (steps(sandbox) > 0).then_some(())
    });
    process
}

/// The number of recorded steps.
fn steps(sandbox: &Sandbox) -> usize {
    let text = std::fs::read_to_string(sandbox.path().join(RUN).join("losses.csv")).unwrap_or_default();
    text.lines().count().saturating_sub(1)
}

fn formation(sandbox: &Sandbox) -> Value {
    read_json(sandbox.path().join(RUN).join("formation.json"))
}

fn stop(mut run: Process) {
    run.signal(Signal::INT);
    let (status, _) = run.finish();
    assert_eq!(status.code(), Some(1), "{}", run.stderr());
}

/// Queries the run for predictions of the test samples; returns the step after which it answered.
fn predict(sandbox: &Sandbox, of: &str, out: &str) -> u64 {
    let digits = digits();
    let args = ["predict", "--live", of, digits.to_str().unwrap(), "--x", "x_test", "-o", out];
    let said = sandbox.json(&[&args[..], &["--output", "json"]].concat());
    assert_eq!(said["shape"], serde_json::json!([719, 10]), "{said}");
    assert_eq!(said["steps"][0], said["steps"][1], "all of it fits into one answer: {said}");
    said["steps"][0].as_u64().unwrap()
}

/// Queries a live run several times, ends it, and compares the answers with the checkpoints of those steps.
fn compare(formation: &[&str]) {
    let sandbox = sandbox(SAVED);
    let run = train(&sandbox, formation);
    let answers: Vec<(String, u64)> = (0..MOST)
        .map(|i| format!("live{i}.npz"))
        .map(|out| (predict(&sandbox, RUN, &out), out))
        .filter_map(|(step, out)| step.is_multiple_of(EVERY).then_some((out, step)))
        .take(2)
        .collect();
    let evaluate = |_| sandbox.json(&["eval", "--live", RUN, "--output", "json"]);
    let is_saved = |said: &Value| said["steps"][0].as_u64().unwrap().is_multiple_of(EVERY);
    let evaluated = (0..MOST).map(evaluate).find(is_saved).unwrap();
    stop(run);
    let at = |step: u64| sandbox.path().join(format!("{RUN}/checkpoints/step-{step:06}"));
    let saved: Vec<&(String, u64)> = answers.iter().filter(|(_, step)| at(*step).is_dir()).collect();
    assert!(!saved.is_empty(), "no checkpoint of any of {answers:?}");
    let digits = digits();
    for (out, step) in saved {
        let (checkpoint, digits) = (at(*step), digits.to_str().unwrap());
        let args = ["predict", checkpoint.to_str().unwrap(), digits, "--x", "x_test", "-o", "saved.npz"];
        sandbox.stdout(&args);
        let read = |name: &str| std::fs::read(sandbox.path().join(name)).unwrap();
        assert!(read("saved.npz") == read(out), "after step {step} it said something else");
    }
    let checkpoint = at(evaluated["steps"][0].as_u64().unwrap());
    if checkpoint.is_dir() {
        let saved = sandbox.json(&["eval", checkpoint.to_str().unwrap(), "--output", "json"]);
        for key in ["samples", "loss", "accuracy"] {
            assert_eq!(saved[key], evaluated[key], "{key}: {saved} {evaluated}");
        }
    }
}

#[test]
fn stages_say_what_their_checkpoint_says() {
    compare(&STAGES);
}

#[test]
fn stages_whose_activations_are_compressed_answer_without_that() {
    compare(&[&STAGES[..], &["--set", "formation.compress=int8"]].concat());
}

#[test]
fn asynchronous_stages_answer_between_two_units() {
    compare(&[&STAGES[..], &["--set", "formation.mode=asynchronous"]].concat());
}

#[test]
fn several_replicas_in_stages_answer_with_the_statistics_of_all() {
    compare(&GRID);
}

#[test]
fn a_replica_that_holds_the_whole_model_answers_alone() {
    compare(&["--local", "2"]);
}

/// Trains some steps; the result must be the same with and without queries.
fn learned(sandbox: &Sandbox, formation: &[&str], asked: bool) -> Value {
    // Batch norm depends on it, and planners measure.
    let parts = ["--set", "formation.micro_batches=4"];
    let mut run = train(sandbox, &[formation, &parts].concat());
    let mut answers = 0;
    while asked && run.is_running() {
        let answer = sandbox.run(&["eval", "--live", RUN, "--output", "json"]);
        answers += usize::from(answer.status.success());
    }
    let (code, summary) = run.summary();
    assert_eq!(code, Some(0), "{}", run.stderr());
    assert!(!asked || answers >= 2, "the run was over after {answers} answers");
    assert!(!sandbox.path().join(RUN).join("live.json").exists());
    let said = sandbox.fails(2, &["eval", "--live", RUN]);
    assert!(
        said.contains("is not being trained on nodes") && said.contains("hint: without --live"),
        "{said}"
    );
    summary
}

fn learns_the_same(sandbox: impl Fn() -> Sandbox, formation: &[&str]) {
    let [asked, alone] = [true, false].map(|asked| learned(&sandbox(), formation, asked));
    assert_eq!(asked["steps"], alone["steps"]);
    assert_eq!(asked["params_hash"], alone["params_hash"], "{asked} {alone}");
    assert_eq!(asked["val_loss"], alone["val_loss"]);
}

#[test]
fn live_queries_do_not_change_what_stages_learn() {
    learns_the_same(|| sandbox("steps = 200\nvalidate_every = 20"), &STAGES);
}

#[test]
fn live_queries_do_not_change_what_replicas_in_stages_learn() {
    learns_the_same(|| sandbox("steps = 200\nvalidate_every = 20"), &GRID);
}

#[test]
fn live_queries_do_not_change_what_asynchronous_stages_learn() {
    // Their numbers depend on where the model is cut: here there is only one cut.
    let layers = ["flatten\"", "linear\"\nout = 32", "relu\"", "linear\"\nout = 10"];
    let layers: String = layers.iter().map(|layer| format!("[[layer]]\ntype = \"{layer}\n")).collect();
    let small = || {
        let sandbox = sandbox_of("toml = \"small.toml\"", "steps = 4000\nvalidate_every = 20");
        std::fs::write(sandbox.path().join("small.toml"), format!("input = [1, 8, 8]\n{layers}")).unwrap();
        sandbox
    };
    let four = ["--local", "4", "--set", "formation.stages=4", "--set", "formation.mode=asynchronous"];
    learns_the_same(small, &four);
}

#[test]
fn a_question_outlives_the_group_that_it_was_put_to() {
    let sandbox = sandbox("steps = 1000000");
    let heartbeat = ["--heartbeat", "3s", "--cores", "1"];
    let nodes = ["a", "b", "c"].map(|name| sandbox.node(&[&heartbeat[..], &["--name", name]].concat()));
    let two = ["--replicas", "1", "--set", "formation.stages=2", "--heartbeat", "3s"];
    let run = train(&sandbox, &two);
    predict(&sandbox, "-", "first.npz");
    let groups = |of: &Value| of["epochs"].as_array().unwrap().len();
    let formation = formation(&sandbox);
    // The third may have come last, and been admitted.
    let before = groups(&formation);
    let stages = &formation["epochs"][before - 1]["replicas"][0]["stages"];
    let last = nodes.iter().find(|(_, id)| stages[1]["node"] == id.as_str()).unwrap();
    last.0.signal(Signal::STOP);
    let digits = digits();
    let args = ["predict", "--live", "-", digits.to_str().unwrap(), "--x", "x_test", "-o", "never.npz"];
    let said = sandbox.fails(3, &[&args[..], &["--wait", "200ms"]].concat());
    assert!(said.contains("within 200 ms") && said.contains("hint: give more time with --wait"), "{said}");
    // The silent stage is not lost yet; only the next group can answer.
    predict(&sandbox, "-", "second.npz");
    let formation = self::formation(&sandbox);
    assert!(groups(&formation) > before, "{formation}");
    last.0.signal(Signal::KILL);
    stop(run);
}

#[test]
fn samples_that_the_model_cannot_compute_do_not_harm_the_run() {
    let sandbox = crate::sandbox();
    let write = |name: &str, text: &str| std::fs::write(sandbox.path().join(name), text).unwrap();
    let layers = [
        "type = \"embedding\"\nrows = 10\nwidth = 4",
        "type = \"flatten\"",
        "type = \"linear\"\nout = 16",
        "type = \"relu\"",
        "type = \"linear\"\nout = 2",
    ];
    let layers: String = layers.iter().map(|layer| format!("[[layer]]\n{layer}\n")).collect();
    write("tokens.toml", &format!("tokens = 3\n{layers}"));
    let rows: String = (0..64).map(|i| format!("{},{},{},{}\n", i % 10, i / 7 % 10, i % 3, i % 2)).collect();
    write("good.csv", &format!("a,b,c,label\n{rows}"));
    write("bad.csv", "a,b,c,label\n1,2,3,0\n1,99,3,0\n");
    let data = "train = { file = \"good.csv\", x = [\"a\", \"b\", \"c\"], y = \"label\" }";
    let optimizer = "optimizer = { name = \"sgd\", lr = 0.01 }";
    let steps = format!("loss = \"cross_entropy\"\nbatch = 16\nsteps = 1000000\n{optimizer}");
    sandbox.run_file("toml = \"tokens.toml\"", data, &steps, "");
    let run = train(&sandbox, &["--local", "2", "--set", "formation.stages=2"]);
    let predict = |file: &str| ["predict", "--live", RUN, file, "-o", "out.npz"].map(str::to_owned);
    let said = sandbox.fails(1, &predict("bad.csv"));
    assert!(said.contains("was asked for index 99, there are 10"), "{said}");
    sandbox.stdout(&predict("good.csv"));
    stop(run);
}

/// Joins the domain of the run, finds its driver, and queries it with unchecked samples.
async fn ask(sandbox: &Sandbox, x: &[f32], count: usize) -> Result<live::Outputs, LiveError> {
    let note = read_json(sandbox.path().join(RUN).join("live.json"));
    let domain = note["domain"].as_str().unwrap().parse().unwrap();
    let mut config = FabricConfig::new(domain, "ask", NodeKind::Observer);
    (config.mdns, config.runtime_dir) = (false, sandbox.path().join("run/host"));
    let fabric = Fabric::start(config).await.unwrap();
    fabric.settled(Duration::from_secs(10)).await;
    let driver = note["driver"].as_str().unwrap().parse().unwrap();
    assert!(live::about(&fabric, &driver).await?.config.contains("digits-cnn"));
    let answer = live::predict(&fabric, &driver, &Samples::new(x, count, 64), Duration::from_secs(60)).await;
    fabric.shutdown().await;
    answer
}

#[tokio::test]
async fn questions_that_make_no_sense_are_refused_with_a_reason() {
    let sandbox = sandbox("steps = 1000000");
    let run = train(&sandbox, &STAGES);
    let refusal = |answer: Result<live::Outputs, LiveError>| match answer {
        Err(LiveError::Refused { reason, .. }) => reason,
        answer => panic!("{answer:?}"),
    };
    let short = refusal(ask(&sandbox, &[0.5; 65], 1).await);
    assert_eq!(short, LiveRefusal::Size { want: 256, got: 260 });
    assert_eq!(refusal(ask(&sandbox, &[], 0).await), LiveRefusal::Size { want: 0, got: 0 });
    let many = 300_000;
    let long = refusal(ask(&sandbox, &vec![0.5; many * 64], many).await);
    assert_eq!(long, LiveRefusal::TooMuch { bytes: 256 * many as u64 });
    let answer = ask(&sandbox, &[0.5; 128], 2).await.unwrap();
    assert_eq!(answer.shape, [2, 10]);
    let values: Vec<f32> = answer.values().collect();
    assert!(values[..10] == values[10..], "the same sample twice: {values:?}");
    stop(run);
}

#[test]
fn a_run_that_is_not_being_trained_does_not_answer() {
    let sandbox = sandbox("steps = 1");
    let said = sandbox.fails(3, &["eval", "--live", "-"]);
    assert!(said.contains("no run is being trained in domain default"), "{said}");
    let said = sandbox.fails(3, &["eval", "--live", "driver-00aa"]);
    assert!(said.contains("no link to driver-00aa"), "{said}");
    let said = sandbox.fails(2, &["eval", "--live", "no/such/run"]);
    assert!(said.contains("there is no run in no/such/run"), "{said}");
    let said = sandbox.fails(2, &["eval", "runs/first", "--wait", "1s"]);
    assert!(said.contains("--live"), "{said}");
}

#[test]
fn a_run_without_a_checkpoint_can_be_asked_where_it_is() {
    let sandbox = sandbox("steps = 1000000\ncheckpoint_every = \"never\"");
    let run = train(&sandbox, &["--local", "2"]);
    for args in [&["eval", RUN][..], &["predict", RUN, "-o", "out.npz"]] {
        let said = sandbox.fails(2, args);
        assert!(said.contains("`eval --live` and `predict --live` ask it"), "{said}");
    }
    predict(&sandbox, RUN, "live.npz");
    let said = sandbox.fails(2, &["fuse", RUN]);
    assert!(said.contains("wait for its first checkpoint"), "{said}");
    stop(run);
    sandbox.stdout(&["eval", RUN]);
}
