//! Trials that train.

use super::place::{Place, ended, next, order, training};
use crate::{TrialOrder, TrialWork};
use phalanx_jobs::Outcome;
use phalanx_rank::Trainer;
use phalanx_records::run_dir::RunDir;
use phalanx_testkit::{digits, digits_data, metrics, read_json};
use phalanx_train::config::RunFile;
use phalanx_train::{Compute, Task};
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn measuring(values: &[&str], order: TrialOrder) -> TrialOrder {
    TrialOrder { values: values.iter().map(|name| (*name).to_owned()).collect(), ..order }
}

/// What must be the same to the last bit: the parameters, and what was recorded of each step.
fn traces(run: &Path) -> (String, Vec<(u64, u64, u64)>) {
    let hash = read_json(run.join("state.json"))["params_hash"].as_str().unwrap().to_owned();
    let steps = metrics(run).into_iter().filter(|line| line.get("loss").is_some()).map(|line| {
        let bits = |key: &str| line[key].as_f64().unwrap().to_bits();
        (line["step"].as_u64().unwrap(), bits("loss"), bits("lr"))
    });
    (hash, steps.collect())
}

#[tokio::test]
async fn a_training_in_several_orders_has_the_bits_of_one_without_a_pause() {
    let place = Place::new().await;
    let (_one, _two) = (place.node("one").await, place.node("two").await);
    let work = training(&digits_data());
    let wanted = ["valid.accuracy", "valid.loss", "train.loss", "latency", "onnx_latency", "seconds"];
    let (whole, parts) = (place.run_dir(1), place.run_dir(2));
    let at_once = measuring(&wanted, order(1, work.clone(), [0.0, 2.0, 2.0]));
    let solution = place.solve(&at_once, None).await;
    let once = place.client.take(&solution, &whole).unwrap();
    let (mut last, mut speeds) = (None, None);
    for (from, to) in [(0.0, 0.1), (0.1, 1.0), (1.0, 2.0)] {
        let order = measuring(&wanted, order(2, work.clone(), [from, to, 2.0]));
        let before = (from > 0.0).then_some(parts.as_path());
        let solution = place.solve(&order, before).await;
        let result = place.client.take(&solution, &parts).unwrap();
        assert_eq!(result.curve.last().unwrap().budget, to);
        let speed = |name: &str| (name.to_owned(), result.values[name].to_bits());
        let now = Some(["latency", "onnx_latency"].map(speed));
        assert!(speeds.is_none() || speeds == now, "measured once, at the first budget");
        speeds = now;
        last = Some(result);
    }
    assert_eq!(traces(&whole), traces(&parts));
    assert_eq!(traces(&whole).1.len(), 34);
    let last = last.unwrap();
    let measured = read_json(parts.join("latency.json"));
    assert_eq!(measured["latency"].as_f64(), Some(last.values["latency"]), "once for all budgets");
    assert_eq!(measured["onnx_latency"]["milliseconds"].as_f64(), Some(last.values["onnx_latency"]));
    assert!(!measured["onnx_latency"]["run_by"].as_str().unwrap().is_empty());
    for name in &wanted[..3] {
        assert_eq!(once.values[*name].to_bits(), last.values[*name].to_bits(), "{name}");
    }
    assert!(once.values["valid.accuracy"] > 0.3, "{once:?}");
    assert!(once.values["latency"] > 0.0 && once.values["onnx_latency"] > 0.0 && once.seconds > 0.0);
    // The run of an ordinary training, and its directory is an ordinary one.
    let TrialWork::Train { run, .. } = &work else { panic!() };
    let usual = place.dir.path().join("usual");
    let dir = RunDir::create(&usual).unwrap();
    std::fs::copy(whole.join("model.toml"), usual.join("model.toml")).unwrap();
    let run = run.replace("epochs = 1", "epochs = 2");
    let config = RunFile::parse(&usual.join("run.toml"), &run, &[]).unwrap().config;
    let compute = Compute::cpu(Some(2));
    let task = Task::new(config, &compute.threads).unwrap();
    Trainer::new(task, compute, dir, &mut ()).unwrap().run(&AtomicBool::new(false), &mut ()).unwrap();
    assert_eq!(traces(&whole), traces(&usual));
    let file = RunFile::load(&whole.join("run.toml"), &[]).unwrap();
    let files = file.config.files();
    assert!(files.iter().all(|(_, path)| path.is_file()), "{files:?}");
    assert_eq!(files[0].1, whole.join("model.toml"));
}

#[tokio::test]
async fn a_node_with_a_root_copies_no_data_and_others_fetch_it_once() {
    let place = Place::new().await;
    let data = place.dir.path().join("data.npz");
    std::fs::copy(digits(), &data).unwrap();
    let work = training(
        "train = { file = \"data.npz\", x = \"x_train\", y = \"y_train\" }\n\
         valid = { file = \"data.npz\", x = \"x_test\", y = \"y_test\" }",
    );
    let orders =
        [1, 2, 3].map(|trial| measuring(&["valid.loss"], order(trial, work.clone(), [0.0, 0.1, 1.0])));
    let root = phalanx_rank::DataRoots::open([place.dir.path()]).unwrap();
    let here = place.node_with("here", root).await;
    place.solve(&orders[0], None).await;
    assert!(!place.kept("here").exists());
    here.end().await;
    let waiting = [place.submit(&orders[1], None).await, place.submit(&orders[2], None).await];
    // The main node has mapped it; no node finds it under its name any more.
    std::fs::remove_file(&data).unwrap();
    let _there = place.node("there").await;
    for job in waiting {
        assert!(matches!(ended(job).await, Outcome::Solved(_)));
    }
    let kept: Vec<_> = std::fs::read_dir(place.kept("there").join("files")).unwrap().collect();
    assert_eq!(kept.len(), 1);
}

#[tokio::test]
async fn a_trial_says_how_far_it_is_and_ends_when_it_is_cancelled() {
    let place = Place::new().await;
    let node = place.node("one").await;
    let mut updates = place.client.updates();
    let work = training(&digits_data());
    let job = place.submit(&order(7, work.clone(), [0.0, 90_000.0, 90_000.0]), None).await;
    let began = next(&mut updates).await;
    assert_eq!((began.search.as_str(), began.trial, began.attempt, began.budget), ("s1", 7, 1, 0.0));
    assert_eq!((&began.node, began.values.len()), (&node.id, 0));
    let first = next(&mut updates).await;
    assert_eq!(first.budget, 1.0);
    assert!(
        first.values.contains_key("valid.accuracy") && first.values.contains_key("valid.loss"),
        "{first:?}"
    );
    let id = job.id();
    assert!(place.client.cancel(id).await.unwrap());
    assert_eq!(ended(job).await, Outcome::Cancelled);
    // Its core is free again.
    place.solve(&order(8, work, [0.0, 0.1, 1.0]), None).await;
}

#[tokio::test]
async fn a_trial_whose_node_is_lost_goes_on_at_another_from_its_newest_checkpoint() {
    let place = Place::new().await;
    let lost = place.node("lost").await;
    let mut updates = place.client.updates();
    let TrialWork::Train { run, model } = training(&digits_data()) else { panic!() };
    let work = TrialWork::Train { run: run + "checkpoint_every = \"1 epoch\"\n", model };
    let values = ["valid.loss"];
    let job = place.submit(&measuring(&values, order(1, work.clone(), [0.0, 60.0, 60.0])), None).await;
    // By then the first checkpoint has been taken.
    while next(&mut updates).await.budget < 3.0 {}
    lost.end().await;
    let other = place.node("other").await;
    let Outcome::Solved(solution) = ended(job).await else { panic!("not solved") };
    let repeated = place.client.take(&solution, &place.run_dir(1)).unwrap();
    assert!(repeated.curve.first().unwrap().budget > 1.0, "not from the beginning");
    while next(&mut updates).await.node != other.id {}
    let again = measuring(&values, order(2, work, [0.0, 60.0, 60.0]));
    let again = place.client.take(&place.solve(&again, None).await, &place.run_dir(2)).unwrap();
    assert_eq!(repeated.values, again.values);
    assert_eq!(traces(&place.run_dir(1)), traces(&place.run_dir(2)));
}

#[tokio::test]
async fn nothing_comes_back_that_nobody_wants() {
    let place = Place::new().await;
    let _node = place.node("one").await;
    let order = TrialOrder { keep: false, ..order(1, training(&digits_data()), [0.0, 0.5, 1.0]) };
    let solution = place.solve(&order, None).await;
    assert_eq!(solution.tensors.len(), 0);
    let result = place.client.take(&solution, &place.run_dir(1)).unwrap();
    assert!(result.values.is_empty() && !place.run_dir(1).exists(), "{result:?}");
}
