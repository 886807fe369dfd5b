//! Labels looked through before a run, rather than found wrong in the middle of it.

use crate::dataset::Dataset;
use crate::error::DataError;

/// Checks that every label is a class index below `classes`.
///
/// # Errors
/// Names the first label that is not, with its row; or says that there are no labels.
pub fn check_labels(dataset: &Dataset, classes: usize) -> Result<(), DataError> {
    let Some(labels) = dataset.labels() else {
        return Err(DataError::NoLabels { origin: dataset.origin().clone() });
    };
    let mut label = vec![0.0; labels.size()];
    for row in 0..dataset.len() {
        dataset.read_label(row, &mut label)?;
        if let Some(label) = label.iter().find(|label| class(**label, classes).is_none()) {
            let origin = labels.origin.clone();
            return Err(DataError::LabelOutOfRange { label: *label, row: row as u64, classes, origin });
        }
    }
    Ok(())
}

/// A label as the class that it names.
pub(crate) fn class(label: f32, classes: usize) -> Option<usize> {
    let index = label as usize;
    (label >= 0.0 && label.fract() == 0.0 && index < classes).then_some(index)
}
