//! The model and data files of a run: recorded when it begins, compared when they are used again.

use super::train::train_failure;
use crate::failure::Failure;
use anyhow::anyhow;
use phalanx_records::run_dir::Inputs;
use phalanx_train::config::RunConfig;
use std::path::Path;

/// Inputs up to this size are hashed before a run begins; larger ones on a thread beside it.
const AT_ONCE: u64 = 64 << 20;

/// Records the inputs of a run, unless it has them already.
pub(crate) fn record(run: &Path, config: &RunConfig) -> Result<(), Failure> {
    match Inputs::read(run).map_err(train_failure)? {
        Some(inputs) if inputs.unhashed() == 0 => Ok(()),
        // The process that recorded them ended before they were hashed.
        Some(inputs) if inputs.changed(|_| true).is_empty() => complete(run, inputs),
        _ => record_anew(run, config),
    }
}

/// Records the inputs as they are now.
pub(crate) fn record_anew(run: &Path, config: &RunConfig) -> Result<(), Failure> {
    let files = config.files();
    complete(run, Inputs::look(&files).map_err(train_failure)?)
}

fn complete(run: &Path, mut inputs: Inputs) -> Result<(), Failure> {
    let finish = |inputs: &mut Inputs, run: &Path| inputs.hash().and_then(|()| inputs.write(run));
    if inputs.unhashed() <= AT_ONCE {
        return finish(&mut inputs, run).map_err(train_failure);
    }
    inputs.write(run).map_err(train_failure)?;
    let run = run.to_owned();
    let hashing = std::thread::Builder::new().name("inputs".to_owned()).spawn(move || {
        if let Err(error) = finish(&mut inputs, &run) {
            tracing::warn!(%error, "the files that the run learns from could not be hashed");
        }
    });
    hashing.map(drop).map_err(Failure::infrastructure)
}

/// Refuses inputs that are not those which the run had. `keys` says which ones are looked at.
pub(crate) fn check(run: &Path, keys: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let Some(inputs) = Inputs::read(run).map_err(train_failure)? else { return Ok(()) };
    let changed = inputs.changed(keys);
    let Some(first) = changed.first() else { return Ok(()) };
    let others = match changed.len() - 1 {
        0 => String::new(),
        1 => "; so is 1 other file".to_owned(),
        more => format!("; so are {more} other files"),
    };
    let (path, key, change) = (first.path.display(), &first.key, &first.change);
    let error = anyhow!("{path} ({key}) is not what the run in {} had: {change}{others}", run.display());
    Err(Failure::usage(error).hint("put the file back, or say --changed-inputs to use it as it is"))
}
