//! Checks of labels, applied when they are read.

use crate::error::{DataError, Origin};

/// The requirement that a loss has for labels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LabelCheck {
    /// Finite numbers; required of all labels.
    #[default]
    Finite,
    /// Class indices below this number.
    Classes(usize),
    /// Numbers from 0 to 1.
    Shares,
}

impl LabelCheck {
    /// Checks the labels `y` of the samples at `indices`.
    pub(crate) fn check(self, y: &[f32], indices: &[usize], origin: &Origin) -> Result<(), DataError> {
        let wrong = match self {
            Self::Finite => y.iter().position(|label| !label.is_finite()),
            Self::Classes(classes) => y.iter().position(|label| class(*label, classes).is_none()),
            Self::Shares => y.iter().position(|label| !(0.0..=1.0).contains(label)),
        };
        match wrong {
            Some(at) => Err(self.error(y, at, indices, origin)),
            None => Ok(()),
        }
    }

    /// An error about the label at an index of `y`.
    fn error(self, y: &[f32], at: usize, indices: &[usize], origin: &Origin) -> DataError {
        let size = y.len() / indices.len().max(1);
        let row = indices.get(at / size.max(1)).map_or(0, |index| *index as u64);
        let (label, origin) = (y.get(at).copied().unwrap_or(f32::NAN), origin.clone());
        match self {
            _ if !label.is_finite() => DataError::LabelNotFinite { value: label, row, origin },
            Self::Classes(classes) => DataError::LabelOutOfRange { label, row, classes, origin },
            Self::Shares => DataError::LabelNotShare { label, row, origin },
            Self::Finite => DataError::LabelNotFinite { value: label, row, origin },
        }
    }
}

/// A label as the class that it names.
pub(crate) fn class(label: f32, classes: usize) -> Option<usize> {
    let index = label as usize;
    (label >= 0.0 && label.fract() == 0.0 && index < classes).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(check: LabelCheck, y: &[f32], indices: &[usize]) -> Option<String> {
        check.check(y, indices, &Origin::named("here")).err().map(|error| error.to_string())
    }

    #[test]
    fn a_wrong_label_is_named_by_its_sample() {
        let classes = LabelCheck::Classes(3);
        assert_eq!(found(classes, &[0.0, 2.0, 1.0], &[4, 9, 2]), None);
        let said = found(classes, &[0.0, 3.0, 1.0], &[4, 9, 2]).unwrap();
        assert_eq!(said, "the label of row 9 is 3, but there are 3 classes, from 0 on: here");
        // Two elements for each sample.
        let said = found(classes, &[0.0, 2.0, 1.0, 0.5], &[4, 9]).unwrap();
        assert_eq!(said, "the label of row 9 is 0.5, but there are 3 classes, from 0 on: here");
        let said = found(LabelCheck::Shares, &[0.0, 1.0, -0.5], &[4, 9, 2]).unwrap();
        assert_eq!(said, "the label of row 2 is -0.5, but this loss takes numbers from 0 to 1: here");
    }

    #[test]
    fn labels_that_are_no_numbers_are_wrong_for_every_check() {
        for check in [LabelCheck::Finite, LabelCheck::Classes(3), LabelCheck::Shares] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let error = check.check(&[0.0, value], &[0, 7], &Origin::default()).unwrap_err();
                assert!(matches!(error, DataError::LabelNotFinite { row: 7, .. }), "{check:?} {error}");
            }
            assert_eq!(found(check, &[], &[]), None);
        }
        assert_eq!(found(LabelCheck::Finite, &[-1e9], &[0]), None);
    }
}
