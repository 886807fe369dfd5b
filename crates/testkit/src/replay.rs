//! Replaying the recording of a main node or a driver.

use crate::Sandbox;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The result of replaying a recording.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Every decision in order, as printed by `phalanx replay --output json`.
    pub decisions: Vec<Value>,
    /// How many runs of a main node or driver process it contains.
    pub sections: usize,
    /// How many events it contains.
    pub events: usize,
}

impl Replayed {
    /// How jobs ended, by their id: `solved`, `failed`, `cancelled` or `expired`.
    pub fn outcomes(&self) -> BTreeMap<u64, String> {
        let finished = self.decisions.iter().map(|decision| &decision["command"]["finished"]);
        let named = |outcome: &Value| match outcome {
            Value::Object(fields) => fields.keys().next().cloned(),
            other => other.as_str().map(str::to_owned),
        };
        finished.filter_map(|end| Some((end["job"].as_u64()?, named(&end["outcome"])?))).collect()
    }
}

impl Sandbox {
    /// Replays a recording, whose path may be relative to the sandbox, and checks that every decision is the recorded
    /// one.
    ///
    /// # Panics
    /// There is no such recording, it is damaged, or a decision differs.
    pub fn replay(&self, recording: impl AsRef<Path>) -> Replayed {
        let file = self.path().join(recording);
        let mut process = self.start(&[Path::new("replay"), &file, Path::new("--output=json")]);
        let (status, printed) = process.finish();
        assert!(status.success(), "{} does not replay: {}", file.display(), process.stderr());
        let mut replayed = Replayed::default();
        for line in &printed {
            let mut line: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is not JSON: {error}"));
            if line.get("section").is_some() {
                replayed.sections += 1;
            } else if let Some(decisions) = line.get_mut("commands").and_then(Value::as_array_mut) {
                replayed.events += 1;
                replayed.decisions.append(decisions);
            }
        }
        assert!(replayed.events > 0, "{} holds nothing", file.display());
        replayed
    }
}

/// Names a directory that keeps the recordings of all tests, for `cargo xtask replay-builds --recordings`.
const KEEP: &str = "PHALANX_KEEP_RECORDINGS";

/// Copies the recordings below the directory of a test to where the environment says.
#[expect(clippy::print_stderr, reason = "a test that drops its sandbox has no other way to say so")]
pub(crate) fn keep_recordings(sandbox: &Path) {
    let Some(kept) = std::env::var_os(KEEP) else { return };
    let to = PathBuf::from(kept).join(sandbox.file_name().unwrap_or_default());
    if let Err(error) = copy_recordings(sandbox, &to) {
        eprintln!("could not keep the recordings of {}: {error}", sandbox.display());
    }
}

fn copy_recordings(from: &Path, to: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_recordings(&path, &copy)?;
        } else if path.extension().is_some_and(|extension| extension == "recording") {
            std::fs::create_dir_all(to)?;
            std::fs::copy(&path, &copy)?;
        }
    }
    Ok(())
}
