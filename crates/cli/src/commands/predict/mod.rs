//! `phalanx predict`: what a trained model says about samples.

mod write;

use crate::commands::learned::{DataArgs, LearnedArgs};
use crate::commands::train::{compute, train_failure};
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_engine::Loss;
use phalanx_train::{Evaluator, TrainError, check_input, fixed_batch};
use serde::Serialize;
use std::path::PathBuf;
use write::{Form, Predictions};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx predict runs/first digits.npz --x x_test -o predictions.npz
  phalanx predict model.onnx samples.csv -o predictions.csv")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    learned: LearnedArgs,
    #[command(flatten)]
    data: DataArgs,
    /// Where to write; the name ends in .npz, .csv or .safetensors.
    ///
    /// It holds `outputs`, and `argmax` where an output has more than one number.
    #[arg(long, short = 'o', value_name = "FILE")]
    out: PathBuf,
}

#[derive(Debug, Serialize)]
struct Predicted {
    file: PathBuf,
    samples: usize,
    shape: Vec<usize>,
}

impl Render for Predicted {
    fn table(&self) -> String {
        summary([
            ("file", self.file.display().to_string()),
            ("samples", self.samples.to_string()),
            ("shape", format!("{:?}", self.shape)),
        ])
    }

    fn quiet(&self) -> String {
        self.file.display().to_string()
    }
}

pub(crate) fn run(args: PredictArgs, output: Output) -> Result<(), Failure> {
    let form = Form::of(&args.out).ok_or_else(|| {
        Failure::usage(anyhow!("cannot tell how to write {}", args.out.display()))
            .hint("give a name that ends in .npz, .csv or .safetensors")
    })?;
    let learned = args.learned.load()?;
    let data = args.data.open_samples(&learned)?;
    let compute = compute(args.data.threads());
    // Labels are not looked at.
    let transform = phalanx_data::Transform { one_hot: None, ..learned.transform() };
    check_input(&learned.graph, &data, &transform).map_err(train_failure)?;
    let mut model = learned.compile(&compute)?;
    let evaluator = Evaluator {
        loss: Loss::Mse,
        metrics: &[],
        transform: &transform,
        batch: args.data.batch(),
        fixed: fixed_batch(&learned.graph),
        threads: &compute.threads,
    };
    let mut all = Predictions::default();
    evaluator
        .outputs(model.as_mut(), &data, |output, shape| {
            all.add(output, shape);
            Ok::<(), TrainError>(())
        })
        .map_err(train_failure)?;
    all.write(&args.out, form)
        .with_context(|| format!("could not write {}", args.out.display()))
        .map_err(Failure::infrastructure)?;
    output.print(&Predicted { file: args.out, samples: all.samples(), shape: all.shape() })
}
