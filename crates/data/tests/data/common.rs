//! Helpers for the tests of this crate.

use phalanx_data::{Batch, DataError, Dataset, LabelCheck, SourceSpec};
use std::path::{Path, PathBuf};

/// The folder with files made by other programs.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

pub(crate) fn spec(file: &str, x: &str, y: &str) -> SourceSpec {
    let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    SourceSpec { x: name(x).map(|x| x[..].into()), y: name(y), ..SourceSpec::file(file) }
}

/// Opens a file of the corpus; an empty name means none.
pub(crate) fn open(file: &str, x: &str, y: &str) -> Result<Dataset, DataError> {
    Dataset::open(&spec(file, x, y), &corpus())
}

/// Writes bytes into a file and opens that.
pub(crate) fn open_bytes(name: &str, bytes: &[u8], x: &str, y: &str) -> Result<Dataset, DataError> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(name), bytes).unwrap();
    Dataset::open(&spec(name, x, y), dir.path())
}

/// All samples in the order of the file.
pub(crate) fn read_all(dataset: &Dataset) -> Result<Batch, DataError> {
    let mut batch = Batch::new();
    dataset.read(&(0..dataset.fixed_len()?).collect::<Vec<_>>(), &mut batch)?;
    Ok(batch)
}

/// Looks through all labels, which have to be classes.
pub(crate) fn check_labels(dataset: &Dataset, classes: usize) -> Result<(), DataError> {
    dataset.check_labels(LabelCheck::Classes(classes), usize::MAX)
}

/// The numbers from 0 up to `end`.
pub(crate) fn range(end: usize) -> Vec<f32> {
    (0..end).map(|v| v as f32).collect()
}

pub(crate) fn error(result: Result<Dataset, DataError>) -> DataError {
    match result {
        Ok(dataset) => panic!("opened {dataset:?}"),
        Err(error) => error,
    }
}
