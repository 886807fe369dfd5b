//! Training through the facade: directories, nodes, stops and mistakes.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx::model::{Builder, Graph};
use phalanx::nodes::Program;
use phalanx::records::{End, Event, RunEvent, is_run};
use phalanx::train::config::FormationConfig;
use phalanx::train::{LossBatch, OwnLoss, Stop};
use phalanx::{Dataset, Error, Nodes, Training, train};

fn model() -> Graph {
    let mut b = Builder::new("small");
    let x = b.input("x", &[4]);
    let hidden = b.linear("fc1", x, 8);
    let hidden = b.relu(hidden);
    let y = b.linear("fc2", hidden, 3);
    b.output(y);
    b.finish().unwrap()
}

fn samples() -> Vec<f32> {
    (0..4 * 60).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect()
}

fn training() -> Training {
    let y: Vec<usize> = (0..60).map(|i| i * i % 3).collect();
    let data = Dataset::from_f32(samples(), &[4], y).unwrap();
    Training::new(model(), data.clone()).valid(data).loss("cross_entropy").epochs(3).batch(16)
}

#[test]
fn a_run_in_memory_equals_one_with_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let memory = train(training()).unwrap();
    let kept = train(training().run_dir(place.path().join("run"))).unwrap();
    assert_eq!(memory.summary().params_hash, kept.summary().params_hash);
    assert_eq!(memory.summary().val_loss, kept.summary().val_loss);
    assert_eq!((memory.summary().run_dir.as_ref(), memory.summary().steps), (None, 12));
    assert!(is_run(&place.path().join("run")) && place.path().join("run/model.onnx").is_file());
    assert_eq!(memory.predict(&samples()).unwrap(), kept.predict(&samples()).unwrap());
    assert_eq!(memory.weights(), kept.weights());
}

#[test]
fn another_run_in_the_directory_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    train(training().run_dir(&run)).unwrap();
    let error = train(training().epochs(4).run_dir(&run)).unwrap_err();
    assert!(matches!(error, Error::OtherRun { .. }), "{error}");
    let other = Dataset::from_f32(vec![0.0; 240], &[4], vec![0usize; 60]).unwrap();
    let other = Training::new(model(), other.clone()).valid(other).loss("cross_entropy").epochs(3).batch(16);
    assert!(matches!(train(other.run_dir(&run)), Err(Error::OtherRun { .. })));
}

#[test]
fn local_nodes_compute_what_one_process_does() {
    let here = train(training()).unwrap();
    let nodes = train(training().nodes(Nodes::Local(2))).unwrap();
    assert_eq!(nodes.summary().steps, 12);
    assert_eq!(nodes.summary().run_dir, None);
    let (a, b) = (here.summary().val_loss.unwrap(), nodes.summary().val_loss.unwrap());
    assert!((a - b).abs() < 1e-4, "{a} {b}");
    let names = |weights: &phalanx::model::Weights| weights.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(here.weights()), names(nodes.weights()));
}

#[test]
fn a_run_that_is_asked_to_stop_gives_what_it_has() {
    let stop = Stop::new();
    let asked = stop.clone();
    let watch = move |event: RunEvent| {
        if matches!(event.event, Event::Step(step) if step.step == 5) {
            asked.stop();
        }
    };
    let trained = train(training().stop(&stop).observe(watch)).unwrap();
    assert_eq!(trained.summary().end, End::Interrupted);
    // A step that has begun is done.
    assert!((5..=6).contains(&trained.summary().steps), "{}", trained.summary().steps);
}

#[test]
fn mistakes_are_told_before_anything_begins() {
    let error = train(training().loss("cross_entropi")).unwrap_err().to_string();
    assert_eq!(error, "unknown loss \"cross_entropi\" for `train.loss`; did you mean `cross_entropy`?");
    let error = train(training().batch(0)).unwrap_err().to_string();
    assert!(error.starts_with("`train.batch` must be a whole number from 1"), "{error}");
    let own = OwnLoss::new("none", |_: &LossBatch<'_>, gradient: &mut [f32]| {
        gradient.fill(0.0);
        0.0
    });
    let processes = Nodes::Processes { count: 2, program: Program::new("never-started") };
    let error = train(training().loss(own.clone()).nodes(processes)).unwrap_err();
    assert!(matches!(error, Error::OwnLoss { .. }) && error.hint().is_some(), "{error}");
    assert!(matches!(train(training().loss(own).run_dir("never-made")), Err(Error::OwnLoss { .. })));
    let replicated = training().configure(|config| config.formation = FormationConfig::replicated(2));
    assert!(matches!(train(replicated), Err(Error::NoNodes { nodes: 2 })));
}

#[test]
fn a_model_that_drops_trains_with_a_directory_as_it_does_without() {
    let training = || {
        let mut b = Builder::new("drops");
        let x = b.input("x", &[4]);
        let hidden = b.linear("fc1", x, 8);
        let hidden = b.relu(hidden);
        let hidden = b.dropout("drop", hidden, 0.5);
        let y = b.linear("fc2", hidden, 3);
        b.output(y);
        let y: Vec<usize> = (0..60).map(|i| i * i % 3).collect();
        let data = Dataset::from_f32(samples(), &[4], y).unwrap();
        Training::new(b.finish().unwrap(), data).loss("cross_entropy").epochs(3).batch(16)
    };
    let place = tempfile::tempdir().unwrap();
    let kept = train(training().run_dir(place.path().join("run"))).unwrap();
    assert_eq!(train(training()).unwrap().summary().params_hash, kept.summary().params_hash);
}
