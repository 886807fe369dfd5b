//! Common code of tables: choosing columns, and collecting values.

use super::unknown;
use crate::array::{Array, Layout};
use crate::arrays::LabelArray;
use crate::element::integer;
use crate::error::{DataError, Origin};
use crate::spec::{Format, SourceSpec};
use phalanx_types::DType;
use std::collections::BTreeMap;
use std::path::Path;

/// Column indices.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ColumnChoice {
    pub(super) x: Vec<usize>,
    pub(super) y: Option<usize>,
}

/// The columns that the user requests as samples and labels.
pub(super) fn choose(file: &Path, spec: &SourceSpec, names: &[String]) -> Result<ColumnChoice, DataError> {
    let find = |name: &String| {
        let mut found = names.iter().enumerate().filter(|(_, have)| *have == name);
        match (found.next(), found.next()) {
            (Some((column, _)), None) => Ok(column),
            (None, _) => Err(unknown(name, names, file)),
            _ => Err(DataError::TwiceTheColumn { name: name.clone(), file: file.to_owned() }),
        }
    };
    let y = spec.y.as_ref().map(find).transpose()?;
    let x = match &spec.x {
        Some(x) => x.names().iter().map(find).collect::<Result<Vec<_>, _>>()?,
        None => (0..names.len()).filter(|column| Some(*column) != y).collect(),
    };
    if x.is_empty() {
        return Err(DataError::Empty { origin: Origin::file(file) });
    }
    Ok(ColumnChoice { x, y })
}

/// Rows of numbers, stored as bytes, as arrays need them.
#[derive(Debug, Default)]
pub(super) struct Numbers(Vec<u8>);

impl Numbers {
    pub(super) fn push(&mut self, number: f32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    #[cfg(feature = "parquet")]
    pub(super) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_array(
        self,
        origin: Origin,
        format: Format,
        shape: Vec<usize>,
    ) -> Result<Array, DataError> {
        Array::new(origin, format, Layout::row_major(DType::F32, shape), self.0.into())
    }
}

/// The labels of a table: numbers, or names of classes.
#[derive(Debug)]
pub(super) enum Labels {
    Numbers { values: Numbers, integers: bool, rows: usize },
    Names { numbers: BTreeMap<String, u32>, rows: Vec<u32> },
}

impl Labels {
    /// Chooses the kind by the first label.
    pub(super) fn like(first: &str) -> Self {
        if number(first).is_some() {
            Self::Numbers { values: Numbers::default(), integers: true, rows: 0 }
        } else {
            Self::Names { numbers: BTreeMap::new(), rows: Vec::new() }
        }
    }

    /// Adds the label of the next row; `Ok(false)` if it is not a number although earlier labels are.
    pub(super) fn push(&mut self, text: &str, origin: &Origin) -> Result<bool, DataError> {
        match self {
            Self::Numbers { values, integers, rows } => {
                let value = match text.parse::<i64>() {
                    Ok(value) => integer(value.into()).ok_or_else(|| DataError::TooLarge {
                        value: value.into(),
                        row: *rows as u64,
                        origin: origin.clone(),
                    })?,
                    Err(_) => {
                        *integers = false;
                        let Some(value) = number(text) else { return Ok(false) };
                        value
                    }
                };
                if !value.is_finite() {
                    return Err(DataError::LabelNotFinite {
                        value,
                        row: *rows as u64,
                        origin: origin.clone(),
                    });
                }
                values.push(value);
                *rows += 1;
            }
            Self::Names { numbers, rows } => {
                let next = numbers.len() as u32;
                let number = match numbers.get(text) {
                    Some(number) => *number,
                    None => *numbers.entry(text.to_owned()).or_insert(next),
                };
                rows.push(number);
            }
        }
        Ok(true)
    }

    /// The labels as an array, their type, and the names of classes, sorted.
    pub(super) fn finish(self, origin: Origin, format: Format) -> Result<LabelArray, DataError> {
        match self {
            Self::Numbers { values, integers, rows } => {
                let dtype = if integers { DType::I64 } else { DType::F32 };
                Ok(LabelArray { array: values.into_array(origin, format, vec![rows])?, dtype, classes: None })
            }
            Self::Names { numbers, rows } => {
                let mut sorted = vec![0.0; numbers.len()];
                for (place, number) in numbers.values().enumerate() {
                    if let Some(sorted) = sorted.get_mut(*number as usize) {
                        *sorted = place as f32;
                    }
                }
                let mut values = Numbers::default();
                for (row, number) in rows.iter().enumerate() {
                    let place = sorted.get(*number as usize).copied().unwrap_or_default();
                    if integer(place as i128).is_none() {
                        return Err(DataError::TooLarge { value: place as i128, row: row as u64, origin });
                    }
                    values.push(place);
                }
                let array = values.into_array(origin, format, vec![rows.len()])?;
                let classes = Some(numbers.into_keys().collect());
                Ok(LabelArray { array, dtype: DType::I64, classes })
            }
        }
    }
}

/// Parses a number, unless it is too large for `f32`.
pub(super) fn number(text: &str) -> Option<f32> {
    let value: f32 = text.parse().ok()?;
    let too_large = value.is_infinite() && text.bytes().any(|b| b.is_ascii_digit());
    (!too_large).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_people_write() {
        for (text, value) in [("1", Some(1.0)), ("-2.5e3", Some(-2500.0)), ("inf", Some(f32::INFINITY))] {
            assert_eq!(number(text), value, "{text}");
        }
        for text in ["", "1e400", "1,5", "0x10", "one"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn class_names_are_numbered_in_their_order() {
        let origin = Origin::default();
        let mut labels = Labels::like("versicolor");
        for name in ["versicolor", "setosa", "virginica", "setosa"] {
            assert!(labels.push(name, &origin).unwrap());
        }
        let labels = labels.finish(origin, Format::Csv).unwrap();
        assert_eq!(labels.classes.unwrap(), ["setosa", "versicolor", "virginica"]);
        let mut read = [0.0; 4];
        for (row, out) in read.iter_mut().enumerate() {
            labels.array.read(row, std::slice::from_mut(out)).unwrap();
        }
        assert_eq!(read, [1.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn labels_are_integers_until_one_is_not() {
        let origin = Origin::default();
        for (texts, dtype) in [(["1", "2"], DType::I64), (["1", "2.5"], DType::F32)] {
            let mut labels = Labels::like(texts[0]);
            for text in texts {
                assert!(labels.push(text, &origin).unwrap());
            }
            assert_eq!(labels.finish(origin.clone(), Format::Csv).unwrap().dtype, dtype);
        }
        let mut labels = Labels::like("1");
        assert!(!labels.push("cat", &origin).unwrap());
        assert!(matches!(labels.push("nan", &origin), Err(DataError::LabelNotFinite { row: 0, .. })));
        assert!(matches!(labels.push("16777217", &origin), Err(DataError::TooLarge { .. })));
    }
}
