//! Training runs under test: their files and records.

use crate::Sandbox;
use phalanx_types::Seed;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file of the examples.
pub fn example(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

/// The handwritten digits of the examples: 1078 for training, 719 for testing.
pub fn digits() -> PathBuf {
    example("digits/digits.npz")
}

/// The `[data]` section of a run file for the digits.
pub fn digits_data() -> String {
    let file = digits();
    let file = file.display();
    format!(
        "train = {{ file = \"{file}\", x = \"x_train\", y = \"y_train\" }}\n\
         valid = {{ file = \"{file}\", x = \"x_test\", y = \"y_test\" }}"
    )
}

impl Sandbox {
    /// Writes `run.toml` with these sections, followed by `rest`.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn run_file(&self, model: &str, data: &str, train: &str, rest: &str) -> PathBuf {
        let path = self.path().join("run.toml");
        let text = format!("[model]\n{model}\n[data]\n{data}\n[train]\n{train}\n{rest}\n");
        std::fs::write(&path, text).expect("room for a run file");
        path
    }
}

/// A file that holds one JSON value.
///
/// # Panics
/// It holds something else.
pub fn read_json(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a run's `metrics.jsonl`.
///
/// # Panics
/// There is no such file, or a line of it is not JSON.
pub fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("the metrics of a run");
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    text.lines().map(line).collect()
}

/// The keys of a JSON object.
///
/// # Panics
/// It is not an object.
pub fn keys(object: &Value) -> BTreeSet<&str> {
    let keys = object.as_object().unwrap_or_else(|| panic!("not an object: {object}")).keys();
    keys.map(String::as_str).collect()
}

/// The seed of a randomised test: `PHALANX_CHAOS_SEED`, or a new one; printed, so that the test can be repeated.
#[expect(clippy::print_stdout, reason = "libtest shows it when the test fails")]
pub fn chaos_seed() -> Seed {
    let given = std::env::var("PHALANX_CHAOS_SEED").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| u64::from(since.subsec_nanos()));
    let seed = Seed(given.unwrap_or_else(clock));
    println!("PHALANX_CHAOS_SEED={}", seed.0);
    seed
}
