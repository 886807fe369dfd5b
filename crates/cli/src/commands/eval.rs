//! `phalanx eval`: what a trained model is worth on some data.

use crate::commands::live::{LiveArgs, live_failure, step_text};
use crate::commands::train::train_failure;
use crate::commands::trained::{DataArgs, TrainedArgs, objective};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use clap::Args;
use phalanx_driver::live::LiveModel;
use phalanx_train::{Compute, Evaluator, Fit, TrainedModel, fixed_batch};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx eval runs/first
  phalanx eval runs/first digits.npz --x x_test --y y_test --output json
  phalanx eval model.safetensors digits.npz --model zoo:digits-cnn --x x_test --y y_test --loss mse
  phalanx eval --live runs/first                 while it is being trained, where it is
  phalanx eval --live - digits.npz --x x_test --y y_test --domain lab")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    learned: TrainedArgs,
    #[command(flatten)]
    data: DataArgs,
    /// The loss: mse, l1, huber, cross_entropy, bce, bce_with_logits or nll; the run's when not given.
    #[arg(long)]
    loss: Option<String>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Serialize)]
struct Evaluated {
    samples: u64,
    loss: f64,
    accuracy: Option<f64>,
    metrics: BTreeMap<String, f64>,
    samples_per_s: f64,
    /// Steps behind the model, if its file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    /// Steps that a model had behind it that is being trained, for the first samples and for the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<[u64; 2]>,
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
        rows.extend(self.step.map(|step| ("step", step.to_string())));
        rows.extend(self.steps.map(|steps| ("after step", step_text(steps))));
        rows.push(("samples/s", format!("{:.0}", self.samples_per_s)));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.accuracy.unwrap_or(self.loss).to_string()
    }
}

pub(crate) async fn run(args: EvalArgs, output: Output) -> Result<(), Failure> {
    if !args.live.is_asked() {
        let learned = args.learned.load(output)?;
        args.learned.check_data(&args.data, &learned)?;
        return output.print(&evaluate(&args, &learned, None).await?);
    }
    let (formation, learned) = args.live.find(&args.learned).await?;
    let evaluated = evaluate(&args, &learned, Some(&formation)).await;
    formation.leave().await;
    output.print(&evaluated?)
}

/// Evaluates a model here, or where it is being trained.
async fn evaluate(
    args: &EvalArgs,
    learned: &TrainedModel,
    formation: Option<&LiveModel>,
) -> Result<Evaluated, Failure> {
    let loss = objective(learned, args.loss.as_deref())?;
    let data = args.data.open(learned)?;
    let compute = Compute::cpu(args.data.threads());
    let transform = learned.transform();
    let fit = Fit::new(&learned.graph, &data, &transform, &loss, &compute.threads).map_err(train_failure)?;
    let data = data.with_label_check(fit.labels);
    let metrics = fit.metrics(&loss, &learned.metrics());
    let (batch, threads) = (args.data.batch(), &*compute.threads);
    let fixed = fixed_batch(&learned.graph);
    let evaluator = Evaluator { loss, metrics: &metrics, transform: &transform, batch, fixed, threads };
    let started = Instant::now();
    let (found, steps) = match formation {
        Some(formation) => {
            let outputs = formation.outputs(learned, &data, &transform, batch).await.map_err(live_failure)?;
            let sums = evaluator.sums_of(&data, &outputs.values, &outputs.shape).map_err(train_failure)?;
            (evaluator.value(&sums), Some(outputs.steps))
        }
        None => {
            let mut model = learned.compile(&compute).map_err(train_failure)?;
            (evaluator.run(model.as_mut(), &data).map_err(train_failure)?, None)
        }
    };
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    Ok(Evaluated {
        samples: found.samples,
        loss: found.loss,
        accuracy: found.accuracy,
        metrics: found.metrics,
        samples_per_s: found.samples as f64 / seconds,
        step: learned.origin.step.filter(|_| formation.is_none()),
        steps,
        accuracy_name: found.accuracy_name,
    })
}
