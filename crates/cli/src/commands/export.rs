//! `phalanx export`: a trained model as files that others read.

use crate::commands::fuse::place;
use crate::commands::trained::{self, TrainedArgs};
use crate::failure::Failure;
use crate::output::{Output, Render};
use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx export runs/first --onnx model.onnx
  phalanx export runs/first/checkpoints/step-000200 --safetensors model.safetensors")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    learned: TrainedArgs,
    /// Write an ONNX model here.
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Write weights here, named as in the model's state_dict.
    #[arg(long, value_name = "FILE")]
    safetensors: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Exported {
    model: String,
    /// Steps behind the model, if its file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    files: Vec<PathBuf>,
    params_hash: String,
}

impl Render for Exported {
    fn table(&self) -> String {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        format!("wrote {} to {}", self.model, files.join(" and "))
    }

    fn quiet(&self) -> String {
        self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: ExportArgs, output: Output) -> Result<(), Failure> {
    if args.onnx.is_none() && args.safetensors.is_none() {
        return Err(
            Failure::usage(anyhow!("nothing to write")).hint("say --onnx FILE, --safetensors FILE or both")
        );
    }
    if let (Some(onnx), Some(weights)) = (&args.onnx, &args.safetensors)
        && place(onnx) == place(weights)
    {
        let error = anyhow!("the weights and the ONNX model cannot both be {}", weights.display());
        return Err(Failure::usage(error).hint("give --safetensors and --onnx different names"));
    }
    let learned = args.learned.load(output)?;
    trained::write(&learned, args.safetensors.as_deref(), args.onnx.as_deref())?;
    output.print(&Exported {
        model: learned.graph.name.clone(),
        step: learned.origin.step,
        files: args.onnx.into_iter().chain(args.safetensors).collect(),
        params_hash: learned.params_hash(),
    })
}
