//! `phalanx predict`: what a trained model says about samples.

use crate::commands::live::{LiveArgs, live_failure, step_text};
use crate::commands::train::train_failure;
use crate::commands::trained::{DataArgs, TrainedArgs};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_data::Transform;
use phalanx_driver::live::LiveModel;
use phalanx_records::{PredictionFormat, Predictions};
use phalanx_train::{Compute, TrainedModel, check_input};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx predict runs/first digits.npz --x x_test -o predictions.npz
  phalanx predict model.onnx samples.csv -o predictions.csv
  phalanx predict --live runs/first digits.npz --x x_test -o now.npz    while it is being trained
  phalanx predict --live - samples.csv -o now.csv --domain lab")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    learned: TrainedArgs,
    #[command(flatten)]
    data: DataArgs,
    /// Where to write; the name ends in .npz, .npy, .csv or .safetensors.
    ///
    /// It holds `outputs`, and `argmax` where an output has more than one number.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Serialize)]
struct Predicted {
    file: PathBuf,
    samples: usize,
    shape: Vec<usize>,
    /// Steps behind the model, if its file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    /// Steps that a model had behind it that is being trained, for the first samples and for the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<[u64; 2]>,
}

impl Render for Predicted {
    fn table(&self) -> String {
        let mut rows = vec![
            ("file", self.file.display().to_string()),
            ("samples", self.samples.to_string()),
            ("shape", format!("{:?}", self.shape)),
        ];
        rows.extend(self.step.map(|step| ("step", step.to_string())));
        rows.extend(self.steps.map(|steps| ("after step", step_text(steps))));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.file.display().to_string()
    }
}

pub(crate) async fn run(args: PredictArgs, output: Output) -> Result<(), Failure> {
    let form = PredictionFormat::of(&args.out).ok_or_else(|| {
        Failure::usage(anyhow!("cannot tell how to write {}", args.out.display()))
            .hint("give a name that ends in .npz, .npy, .csv or .safetensors")
    })?;
    let (all, step, steps) = if args.live.is_asked() {
        let (formation, learned) = args.live.find(&args.learned).await?;
        let predicted = predict(&args, &learned, Some(&formation)).await;
        formation.leave().await;
        let (all, steps) = predicted?;
        (all, None, steps)
    } else {
        let learned = args.learned.load(output)?;
        args.learned.check_data(&args.data, &learned)?;
        let (all, steps) = predict(&args, &learned, None).await?;
        (all, learned.origin.step, steps)
    };
    all.write(&args.out, form)
        .with_context(|| format!("could not write {}", args.out.display()))
        .map_err(Failure::infrastructure)?;
    output.print(&Predicted { file: args.out, samples: all.samples(), shape: all.shape(), step, steps })
}

/// What a model here says, or one where it is being trained; then also after which steps.
async fn predict(
    args: &PredictArgs,
    learned: &TrainedModel,
    formation: Option<&LiveModel>,
) -> Result<(Predictions, Option<[u64; 2]>), Failure> {
    let data = args.data.open_samples(learned)?;
    let batch = args.data.batch();
    if let Some(formation) = formation {
        // Labels are not looked at.
        let transform = Transform { one_hot: None, ..learned.transform() };
        check_input(&learned.graph, &data, &transform).map_err(train_failure)?;
        let outputs = formation.outputs(learned, &data, &transform, batch).await.map_err(live_failure)?;
        let mut all = Predictions::default();
        all.add(&outputs.values, &outputs.shape);
        return Ok((all, Some(outputs.steps)));
    }
    let all = learned.predict_in_batches(&data, batch, &Compute::cpu(args.data.threads()));
    Ok((all.map_err(train_failure)?, None))
}
