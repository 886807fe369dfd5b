//! `phalanx fuse`: the stages of a run's checkpoint as one model.

use crate::commands::learned::{Learned, run_path};
use crate::commands::train::train_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use anyhow::{Context, anyhow};
use clap::Args;
use phalanx_graph::weights;
use phalanx_records::params_hash;
use phalanx_records::run_dir::{Checkpoint, RunDirError, Status, Trained, checkpoints, is_run, read_run};
use phalanx_types::Class;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How often a checkpoint is looked for that its run removes in the same moment.
const TRIES: usize = 3;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx fuse runs/first
  phalanx fuse runs/first -o model.safetensors --onnx model.onnx
  phalanx fuse runs/first --step 200 -o after-200.safetensors --output json

Takes the newest checkpoint of a run that is finished, interrupted, failed or still running, of however many stages.
The weights are named as in the model's state_dict.")]
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
struct Fused {
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

impl Render for Fused {
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
    let checkpoint = load(&run, args.step)?;
    let (step, stages) = (checkpoint.manifest.step, checkpoint.manifest.stages());
    let recorded = checkpoint.manifest.params_hash.clone();
    let learned = Learned::of_checkpoint(&run, checkpoint, None)?;
    check(&learned, &recorded, step)?;
    learned.write(Some(&args.out), args.onnx.as_deref())?;
    let hash = params_hash(&learned.weights);
    output.print(&Fused {
        state: read_run(&run).ok().map(|run| run.state.state),
        run,
        step,
        stages,
        tensors: learned.graph.with_aliases(learned.weights.clone()).len(),
        parameters: learned.graph.cost().parameters,
        params_hash: hash,
        files: args.onnx.into_iter().chain([args.out]).collect(),
        model: learned.graph.name,
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

/// The checkpoint of this step, or the newest. A run that goes on removes old ones, so that one may be gone again.
fn load(run: &Path, step: Option<u64>) -> Result<Checkpoint, Failure> {
    let mut tried = 1;
    loop {
        let (step, path) = chosen(run, step)?;
        match Checkpoint::load(&path) {
            Ok(checkpoint) => return Ok(checkpoint),
            Err(error) if error.class() == Class::Retry && tried < TRIES => tried += 1,
            Err(error) => return Err(unreadable(run, step, error)),
        }
    }
}

/// The step and the place of the checkpoint that is asked for.
fn chosen(run: &Path, step: Option<u64>) -> Result<(u64, PathBuf), Failure> {
    let mut all = checkpoints(run);
    let steps = named(all.iter().map(|(step, _)| *step));
    let Some(newest) = all.pop() else {
        let hint = match Trained::now(run) {
            Trained::Nowhere => format!("`phalanx run resume {}` trains it", run.display()),
            Trained::InProcess | Trained::OnNodes => {
                "it is being trained: wait for its first checkpoint, of which `train.checkpoint_every` says when; one \
                 that is asked to stop saves one, too"
                    .to_owned()
            }
        };
        let error = anyhow!("the run in {} has no checkpoint yet", run.display());
        return Err(Failure::usage(error).hint(hint));
    };
    let Some(wanted) = step.filter(|step| *step != newest.0) else { return Ok(newest) };
    let missing = || {
        Failure::usage(anyhow!("the run in {} has no checkpoint of step {wanted}", run.display()))
            .hint(format!("there are those of {steps}"))
    };
    all.into_iter().find(|(step, _)| *step == wanted).ok_or_else(missing)
}

fn named(steps: impl Iterator<Item = u64>) -> String {
    let steps: Vec<String> = steps.map(|step| step.to_string()).collect();
    format!("{} {}", if steps.len() == 1 { "step" } else { "steps" }, steps.join(", "))
}

/// An older checkpoint is another model, so it is not taken without asking.
fn unreadable(run: &Path, step: u64, error: RunDirError) -> Failure {
    let others = checkpoints(run).into_iter().filter(|(other, _)| *other != step);
    let whole: Vec<u64> = others.filter(|(_, path)| Checkpoint::load(path).is_ok()).map(|(s, _)| s).collect();
    let hint = match whole.as_slice() {
        [] => "no other checkpoint of this run is whole".to_owned(),
        [.., last] => {
            format!("--step {last} takes one that is whole; there are {}", named(whole.iter().copied()))
        }
    };
    Failure::work(anyhow::Error::new(error).context(format!("could not fuse the checkpoint of step {step}")))
        .hint(hint)
}

/// All parameters of the model are there, nothing else is, and they are those that the run had.
fn check(learned: &Learned, recorded: &str, step: u64) -> Result<(), Failure> {
    weights::check(&learned.graph, &learned.weights)
        .with_context(|| format!("the stages of step {step} are not the whole model"))
        .map_err(Failure::work)?;
    let found = params_hash(&learned.weights);
    if found != recorded {
        return Err(Failure::work(anyhow!(
            "the stages of step {step} have the hash {found}, but the run had {recorded}"
        )));
    }
    Ok(())
}
