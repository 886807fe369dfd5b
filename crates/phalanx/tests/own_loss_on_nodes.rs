//! Losses of the user's own on nodes that hold stages.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx::jobs::builtin;
use phalanx::model::{Builder, Graph};
use phalanx::nodes::{Domain, ThreadNodes, ThreadSpec, private_domain};
use phalanx::records::{End, Event, RunEvent};
use phalanx::train::config::{Every, FormationConfig};
use phalanx::train::{Loss, LossBatch, LossChoice, OwnLoss, Stop};
use phalanx::{Dataset, Nodes, Trained, Training, train};
use phalanx_engine::Threads;
use std::sync::mpsc::channel;

fn model() -> Graph {
    let mut b = Builder::new("small");
    let x = b.input("x", &[4]);
    let hidden = b.linear("fc1", x, 8);
    let hidden = b.relu(hidden);
    let hidden = b.linear("fc2", hidden, 8);
    let hidden = b.relu(hidden);
    let y = b.linear("fc3", hidden, 2);
    b.output(y);
    b.finish().unwrap()
}

fn data() -> Dataset {
    let x: Vec<f32> = (0..4 * 60).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let y: Vec<f32> = x.chunks(4).flat_map(|x| [x[0] * x[1], x[2] - x[3]]).collect();
    Dataset::from_f32(x, &[4], y).unwrap()
}

/// Three stages of the model; batches are not cut, so that every formation computes the same.
fn training(loss: impl Into<LossChoice>) -> Training {
    Training::new(model(), data()).valid(data()).loss(loss).epochs(3).batch(16).configure(|config| {
        config.formation = FormationConfig {
            local: 3,
            micro_batches: Some(1),
            measure: false,
            ..FormationConfig::staged(3, 1)
        };
        config.train.validate_every = Every::Steps(2);
    })
}

fn squares() -> OwnLoss {
    let threads = Threads::new(1);
    OwnLoss::new("squares", move |batch: &LossBatch<'_>, gradient: &mut [f32]| {
        let LossBatch { output, shape, target, .. } = *batch;
        Loss::Mse.evaluate(&threads, output, shape, target, 1.0, Some(gradient)).unwrap()
    })
}

/// The losses of all steps and validations, and what came of the run.
fn train_in_stages(training: Training) -> (Vec<f64>, Trained) {
    let (told, losses) = channel();
    let watch = move |event: RunEvent| {
        let loss = match event.event {
            Event::Step(step) => f64::from(step.loss),
            Event::Validated(valid) => valid.val_loss,
            _ => return,
        };
        told.send(loss).unwrap();
    };
    let trained = train(training.nodes(Nodes::Local(3)).observe(watch)).unwrap();
    (losses.into_iter().collect(), trained)
}

#[test]
fn an_own_loss_on_three_stages_trains_to_the_bits_of_the_named_one() {
    let (named_losses, named) = train_in_stages(training("mse"));
    let (own_losses, own) = train_in_stages(training(squares()));
    assert_eq!(named_losses.len(), 12 + 6);
    assert_eq!(named_losses, own_losses);
    assert_eq!(named.summary().params_hash, own.summary().params_hash);
    // The model remembers the function, though the run file has only its name.
    assert_eq!(own.evaluate(&data()).unwrap().loss, named.evaluate(&data()).unwrap().loss);
}

#[test]
fn a_node_without_the_loss_refuses_and_says_which_it_lacks() {
    let domain = private_domain().unwrap();
    let _without = ThreadNodes::start(&ThreadSpec::new(domain.clone(), 3), builtin::handlers).unwrap();
    let stop = Stop::new();
    let (asked, (told, refused)) = (stop.clone(), channel());
    let watch = move |event: RunEvent| {
        if let Event::Warning(text) = event.event {
            told.send(text).unwrap();
            asked.stop();
        }
    };
    let local = Domain::named(domain);
    let training = training(squares()).nodes(Nodes::Domain(local)).stop(&stop).observe(watch);
    let trained = train(training).map(|trained| trained.summary().end);
    let said = refused.recv().unwrap();
    assert!(said.contains("the loss `squares` is a function of the user's own"), "{said}");
    assert!(!matches!(trained, Ok(End::Finished)), "{trained:?}");
}
