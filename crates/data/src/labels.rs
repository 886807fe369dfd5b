//! Labels looked through before a run, rather than found wrong in the middle of it.

use crate::dataset::Dataset;
use crate::error::{DataError, Origin};

/// Checks that every label is a class index below `classes`.
///
/// # Errors
/// Names the first label that is not, with its row; or says that there are no labels.
pub fn check_labels(dataset: &Dataset, classes: usize) -> Result<(), DataError> {
    match find(dataset, |label| class(label, classes).is_none())? {
        Some(Wrong { label, row, origin }) => Err(DataError::LabelOutOfRange { label, row, classes, origin }),
        None => Ok(()),
    }
}

/// Checks that every label is a number from 0 to 1.
///
/// # Errors
/// Names the first label that is not, with its row; or says that there are no labels.
pub fn check_shares(dataset: &Dataset) -> Result<(), DataError> {
    match find(dataset, |label| !(0.0..=1.0).contains(&label))? {
        Some(Wrong { label, row, origin }) => Err(DataError::LabelNotShare { label, row, origin }),
        None => Ok(()),
    }
}

/// A label that cannot be used.
struct Wrong {
    label: f32,
    row: u64,
    origin: Origin,
}

/// The first label that is wrong.
fn find(dataset: &Dataset, is_wrong: impl Fn(f32) -> bool) -> Result<Option<Wrong>, DataError> {
    let Some(labels) = dataset.labels() else {
        return Err(DataError::NoLabels { origin: dataset.origin().clone() });
    };
    let mut label = vec![0.0; labels.size()];
    for row in 0..dataset.len() {
        dataset.read_label(row, &mut label)?;
        if let Some(label) = label.iter().find(|label| is_wrong(**label)) {
            let (label, row, origin) = (*label, row as u64, labels.origin.clone());
            return Ok(Some(Wrong { label, row, origin }));
        }
    }
    Ok(None)
}

/// A label as the class that it names.
pub(crate) fn class(label: f32, classes: usize) -> Option<usize> {
    let index = label as usize;
    (label >= 0.0 && label.fract() == 0.0 && index < classes).then_some(index)
}
