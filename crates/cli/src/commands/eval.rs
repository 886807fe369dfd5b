//! `phalanx eval`: what a trained model is worth on some data.

use crate::commands::learned::{DataArgs, LearnedArgs};
use crate::commands::train::{compute, train_failure};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use clap::Args;
use phalanx_train::{Evaluator, Fit, fixed_batch};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx eval runs/first
  phalanx eval runs/first digits.npz --x x_test --y y_test --output json
  phalanx eval model.safetensors digits.npz --model zoo:digits-cnn --x x_test --y y_test --loss mse")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    learned: LearnedArgs,
    #[command(flatten)]
    data: DataArgs,
    /// The loss: mse, l1, huber, cross_entropy, bce, bce_with_logits or nll; the run's when not given.
    #[arg(long)]
    loss: Option<String>,
}

#[derive(Debug, Serialize)]
struct Evaluated {
    samples: u64,
    loss: f64,
    accuracy: Option<f64>,
    metrics: BTreeMap<String, f64>,
    samples_per_s: f64,
    /// Which of the metrics the accuracy is.
    #[serde(skip)]
    accuracy_name: Option<String>,
}

impl Render for Evaluated {
    fn table(&self) -> String {
        let mut rows = vec![("samples", self.samples.to_string()), ("loss", format!("{:.6}", self.loss))];
        rows.extend(self.accuracy.map(|x| ("accuracy", format!("{:.2} %", x * 100.0))));
        let others = self.metrics.iter().filter(|(name, _)| Some(*name) != self.accuracy_name.as_ref());
        rows.extend(others.map(|(name, value)| ("metric", format!("{name} {value:.6}"))));
        rows.push(("samples/s", format!("{:.0}", self.samples_per_s)));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.accuracy.unwrap_or(self.loss).to_string()
    }
}

pub(crate) fn run(args: EvalArgs, output: Output) -> Result<(), Failure> {
    let learned = args.learned.load()?;
    let loss = learned.loss(args.loss.as_deref())?;
    let data = args.data.open(&learned)?;
    let compute = compute(args.data.threads());
    let transform = learned.transform();
    let fit = Fit::new(&learned.graph, &data, &transform, loss, &compute.threads).map_err(train_failure)?;
    let metrics = fit.metrics(loss, &learned.metrics());
    let mut model = learned.compile(&compute)?;
    let (batch, threads) = (args.data.batch(), &*compute.threads);
    let fixed = fixed_batch(&learned.graph);
    let evaluator = Evaluator { loss, metrics: &metrics, transform: &transform, batch, fixed, threads };
    let started = Instant::now();
    let found = evaluator.run(model.as_mut(), &data).map_err(train_failure)?;
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    output.print(&Evaluated {
        samples: found.samples,
        loss: found.loss,
        accuracy: found.accuracy,
        metrics: found.metrics,
        samples_per_s: found.samples as f64 / seconds,
        accuracy_name: found.accuracy_name,
    })
}
