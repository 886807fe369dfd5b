//! Combines the stages of a run's checkpoint into one model.

use super::{TrainedModel, TrainedModelError};
use crate::error::TrainError;
use phalanx_graph::weights::{self, WeightsError};
use phalanx_records::run_dir::{Checkpoint, RunDirError, Trained, checkpoints, is_run};
use phalanx_types::Class;
use std::path::{Path, PathBuf};

/// How often to retry when the run removes a checkpoint at the same moment.
const TRIES: usize = 3;

/// The model of a checkpoint.
#[derive(Debug, Clone)]
pub struct Fused {
    /// The model, with all of its weights.
    pub model: TrainedModel,
    /// Its number of steps.
    pub step: u64,
    /// Into how many stages it was cut.
    pub stages: usize,
}

/// Why a checkpoint could not be fused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FuseError {
    #[error(transparent)]
    Model(#[from] TrainedModelError),
    #[error("the run in {} has no checkpoint yet", run.display())]
    NoCheckpoint { run: PathBuf, trained: Trained },
    #[error("the run in {} has no checkpoint of step {step}", run.display())]
    NoStep { run: PathBuf, step: u64, have: Vec<u64> },
    /// `whole` are the steps of readable checkpoints.
    #[error("could not fuse the checkpoint of step {step}")]
    Unreadable { step: u64, source: RunDirError, whole: Vec<u64> },
    #[error("the stages of step {step} are not the whole model")]
    Incomplete { step: u64, source: WeightsError },
    #[error("the stages of step {step} have the hash {found}, but the run had {recorded}")]
    OtherHash { step: u64, found: String, recorded: String },
}

/// Loads the newest checkpoint of a run, or the checkpoint of a step, as one model. The run may be running.
///
/// # Errors
/// There is no such checkpoint, it is damaged, or it is not the whole model.
pub fn fuse(run: &Path, step: Option<u64>) -> Result<Fused, FuseError> {
    if !is_run(run) {
        let error = TrainError::from(RunDirError::NotARun { path: run.to_owned() });
        return Err(TrainedModelError::from(error).into());
    }
    let checkpoint = load(run, step)?;
    let (step, stages) = (checkpoint.manifest.step, checkpoint.manifest.stages());
    let recorded = checkpoint.manifest.params_hash.clone();
    let model = TrainedModel::of_checkpoint(run, checkpoint, None)?;
    weights::check(&model.graph, &model.weights).map_err(|source| FuseError::Incomplete { step, source })?;
    let found = model.params_hash();
    if found != recorded {
        return Err(FuseError::OtherHash { step, found, recorded });
    }
    Ok(Fused { model, step, stages })
}

/// The checkpoint of this step, or the newest. A running run removes old ones, so one may be gone again.
fn load(run: &Path, step: Option<u64>) -> Result<Checkpoint, FuseError> {
    let mut tried = 1;
    loop {
        let (step, path) = chosen(run, step)?;
        match Checkpoint::load(&path) {
            Ok(checkpoint) => return Ok(checkpoint),
            Err(error) if error.class() == Class::Retry && tried < TRIES => tried += 1,
            Err(source) => return Err(FuseError::Unreadable { step, source, whole: whole(run, step) }),
        }
    }
}

/// The step and path of the requested checkpoint.
fn chosen(run: &Path, step: Option<u64>) -> Result<(u64, PathBuf), FuseError> {
    let mut all = checkpoints(run);
    let have: Vec<u64> = all.iter().map(|(step, _)| *step).collect();
    let Some(newest) = all.pop() else {
        return Err(FuseError::NoCheckpoint { run: run.to_owned(), trained: Trained::now(run) });
    };
    let Some(wanted) = step.filter(|step| *step != newest.0) else { return Ok(newest) };
    let missing = || FuseError::NoStep { run: run.to_owned(), step: wanted, have };
    all.into_iter().find(|(step, _)| *step == wanted).ok_or_else(missing)
}

/// Steps of other readable checkpoints. An older checkpoint is another model, so none is used unasked.
fn whole(run: &Path, but: u64) -> Vec<u64> {
    let others = checkpoints(run).into_iter().filter(|(step, _)| *step != but);
    others.filter(|(_, path)| Checkpoint::load(path).is_ok()).map(|(step, _)| step).collect()
}
