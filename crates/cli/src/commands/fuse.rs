//! `phalanx fuse`: the stages of a run's checkpoint as one model.

use crate::commands::train::train_failure;
use crate::commands::trained::{self, model_failure, run_path};
use crate::failure::Failure;
use crate::output::{Output, Render, say, summary};
use anyhow::anyhow;
use clap::Args;
use phalanx_records::run_dir::{RunDirError, Status, Trained, is_run, read_run};
use phalanx_train::{FuseError, Fused, fuse};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx fuse runs/first
  phalanx fuse runs/first -o model.safetensors --onnx model.onnx
  phalanx fuse runs/first --step 200 -o after-200.safetensors --output json

Takes the newest checkpoint of a run that is finished, interrupted, failed or still running, of however many stages.
The weights are named as in the model's state_dict. A newest checkpoint that is damaged is refused: --step takes another.")]
pub(crate) struct FuseArgs {
    /// The directory of the run.
    #[arg(value_name = "RUN_DIR")]
    run: PathBuf,
    /// Write the weights here.
    #[arg(long = "out", short = 'o', value_name = "FILE", default_value = "model.safetensors")]
    out: PathBuf,
    /// Write an ONNX model here, too.
    #[arg(long, value_name = "FILE")]
    onnx: Option<PathBuf>,
    /// Take the checkpoint of this step instead of the newest.
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    run: PathBuf,
    /// How the run stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<Status>,
    step: u64,
    stages: usize,
    tensors: usize,
    parameters: u64,
    params_hash: String,
    files: Vec<PathBuf>,
}

impl Render for Report {
    fn table(&self) -> String {
        let state = self.state.map(|state| format!(" ({state})")).unwrap_or_default();
        let mut rows = vec![
            ("model", self.model.clone()),
            ("run", format!("{}{state}", self.run.display())),
            ("step", self.step.to_string()),
            ("stages", self.stages.to_string()),
            ("tensors", self.tensors.to_string()),
            ("parameters", self.parameters.to_string()),
            ("hash", self.params_hash.clone()),
        ];
        rows.extend(self.files.iter().map(|file| ("wrote", file.display().to_string())));
        summary(rows)
    }

    fn quiet(&self) -> String {
        self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: FuseArgs, output: Output) -> Result<(), Failure> {
    let run = run_path(&args.run);
    if !is_run(&run) {
        return Err(train_failure(RunDirError::NotARun { path: run }));
    }
    check_places(&args)?;
    let Fused { model, step, stages } = fuse(&run, args.step).map_err(fuse_failure)?;
    if output != Output::Quiet {
        say(&format!("using step {step} of {}", run.display()));
    }
    trained::write(&model, Some(&args.out), args.onnx.as_deref())?;
    output.print(&Report {
        state: read_run(&run).ok().map(|run| run.state.state),
        run,
        step,
        stages,
        tensors: model.state_dict().len(),
        parameters: model.graph.cost().parameters,
        params_hash: model.params_hash(),
        files: args.onnx.into_iter().chain([args.out]).collect(),
        model: model.graph.name,
    })
}

/// Each file goes to a place of its own, where nothing is that should stay.
fn check_places(args: &FuseArgs) -> Result<(), Failure> {
    if args.out.extension().is_some_and(|extension| extension == "onnx") {
        let out = args.out.display();
        return Err(Failure::usage(anyhow!("-o writes weights, and {out} is called like an ONNX model"))
            .hint(format!("--onnx {out} writes one; weights are called FILE.safetensors")));
    }
    if args.onnx.as_deref().map(place) == Some(place(&args.out)) {
        let error = anyhow!("the weights and the ONNX model cannot both be {}", args.out.display());
        return Err(Failure::usage(error).hint("give -o and --onnx different names"));
    }
    let weights = (&args.out, "-o FILE writes the weights elsewhere");
    let onnx = args.onnx.iter().map(|file| (file, "--onnx FILE writes the ONNX model elsewhere"));
    match onnx.chain([weights]).find(|(file, _)| file.exists() && !args.force) {
        Some((file, elsewhere)) => Err(Failure::usage(anyhow!("there already is a {}", file.display()))
            .hint(format!("--force replaces it; {elsewhere}"))),
        None => Ok(()),
    }
}

/// Where a file is written, however its folder is named. What a link stands for does not count: the link is replaced.
pub(crate) fn place(file: &Path) -> PathBuf {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_missing| folder.to_owned());
    folder.join(file.file_name().unwrap_or_default())
}

/// An error of fusing, with its exit code and what to do about it.
fn fuse_failure(error: FuseError) -> Failure {
    let hint = match &error {
        FuseError::Model(_) => None,
        FuseError::NoCheckpoint { run, trained: Trained::Nowhere } => {
            Some(format!("`phalanx run resume {}` trains it", run.display()))
        }
        FuseError::NoCheckpoint { .. } => Some(
            "it is being trained: wait for its first checkpoint, of which `train.checkpoint_every` says when; one \
             that is asked to stop saves one, too"
                .to_owned(),
        ),
        FuseError::NoStep { have, .. } => Some(format!("there are those of {}", named(have))),
        FuseError::Unreadable { whole, .. } => Some(match whole.as_slice() {
            [] => "no other checkpoint of this run is whole".to_owned(),
            [.., last] => format!("--step {last} takes one that is whole; there are {}", named(whole)),
        }),
        _ => None,
    };
    let failure = match error {
        FuseError::Model(error) => return model_failure(error),
        error @ (FuseError::NoCheckpoint { .. } | FuseError::NoStep { .. }) => Failure::usage(error),
        error => Failure::work(error),
    };
    failure.hint_if(hint)
}

fn named(steps: &[u64]) -> String {
    let all: Vec<String> = steps.iter().map(u64::to_string).collect();
    format!("{} {}", if all.len() == 1 { "step" } else { "steps" }, all.join(", "))
}
