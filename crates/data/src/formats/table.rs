//! Common code of tables: choosing columns, and collecting values.

use super::unknown;
use crate::array::{Array, Layout};
use crate::arrays::LabelArray;
use crate::element::integer;
use crate::error::{DataError, Fault, Origin};
use crate::limit::{Budget, Limit, reserve};
use crate::spec::{Format, SourceSpec};
use phalanx_types::{ByteSize, DType};
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
#[derive(Debug)]
pub(super) struct Numbers {
    bytes: Vec<u8>,
    budget: Budget,
}

/// The least memory that a list asks for.
const LEAST_ROOM: usize = 1 << 10;

impl Numbers {
    pub(super) fn new(budget: &Budget) -> Self {
        Self { bytes: Vec::new(), budget: budget.clone() }
    }

    pub(super) fn push(&mut self, number: f32) -> Result<(), Fault> {
        if self.bytes.capacity() - self.bytes.len() < size_of::<f32>() {
            self.grow()?;
        }
        self.bytes.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    #[cfg(feature = "parquet")]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Doubles the room, or takes what is left.
    #[cold]
    fn grow(&mut self) -> Result<(), Fault> {
        let left = usize::try_from(self.budget.left()).unwrap_or(usize::MAX);
        let more = self.bytes.capacity().max(LEAST_ROOM).min(left).max(size_of::<f32>());
        self.budget.take(more as u64)?;
        let room = self.bytes.capacity() - self.bytes.len();
        reserve(&mut self.bytes, room + more)
    }

    pub(super) fn into_array(
        self,
        origin: Origin,
        format: Format,
        shape: Vec<usize>,
    ) -> Result<Array, DataError> {
        Array::new(origin, format, Layout::row_major(DType::F32, shape), self.bytes.into())
    }
}

/// What a name takes besides its letters.
const NAME_BYTES: usize = 64;

/// The labels of a table: numbers, or names of classes.
#[derive(Debug)]
pub(super) enum Labels {
    Numbers { values: Numbers, integers: bool, rows: usize },
    Names { numbers: BTreeMap<String, u32>, rows: Vec<u32>, budget: Budget },
}

impl Labels {
    /// Chooses the kind by the first label.
    pub(super) fn like(first: &str, budget: &Budget) -> Self {
        if number(first).is_some() {
            Self::Numbers { values: Numbers::new(budget), integers: true, rows: 0 }
        } else {
            Self::Names { numbers: BTreeMap::new(), rows: Vec::new(), budget: budget.clone() }
        }
    }

    /// Adds the label of the next row; `Ok(false)` if it is not a number although earlier labels are.
    pub(super) fn push(&mut self, text: &str, origin: &Origin, format: Format) -> Result<bool, DataError> {
        let too_large = |fault| DataError::Malformed { format, fault, origin: origin.clone() };
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
                values.push(value).map_err(too_large)?;
                *rows += 1;
            }
            Self::Names { numbers, rows, budget } => {
                let next = numbers.len() as u32;
                let number = match numbers.get(text) {
                    Some(number) => *number,
                    None => {
                        budget.take((text.len() + NAME_BYTES) as u64).map_err(too_large)?;
                        *numbers.entry(text.to_owned()).or_insert(next)
                    }
                };
                if rows.len() == rows.capacity() {
                    let more = rows.capacity().max(LEAST_ROOM);
                    // The row itself, and later its number.
                    budget.take(2 * (more * size_of::<u32>()) as u64).map_err(too_large)?;
                    reserve(rows, more).map_err(too_large)?;
                }
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
            Self::Names { numbers, rows, .. } => {
                let mut sorted = vec![0.0; numbers.len()];
                for (place, number) in numbers.values().enumerate() {
                    if let Some(sorted) = sorted.get_mut(*number as usize) {
                        *sorted = place as f32;
                    }
                }
                // What these take was counted with the rows.
                let mut values = Numbers::new(&Budget::new(Limit::new(ByteSize(u64::MAX))));
                for (row, number) in rows.iter().enumerate() {
                    let place = sorted.get(*number as usize).copied().unwrap_or_default();
                    if integer(place as i128).is_none() {
                        return Err(DataError::TooLarge { value: place as i128, row: row as u64, origin });
                    }
                    let fault = |fault| DataError::Malformed { format, fault, origin: origin.clone() };
                    values.push(place).map_err(fault)?;
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

    fn budget() -> Budget {
        Budget::new(Limit::default())
    }

    #[test]
    fn lists_stop_at_the_limit() {
        let budget = Budget::new(Limit::new(ByteSize(3000)));
        let mut numbers = Numbers::new(&budget);
        let fault = (0..).find_map(|_| numbers.push(1.0).err()).unwrap();
        assert!(matches!(fault, Fault::TooLarge { limit: ByteSize(3000), .. }));
        assert_eq!(numbers.bytes.len(), 3000);
        let budget = Budget::new(Limit::new(ByteSize(30_000)));
        let mut labels = Labels::like("a", &budget);
        let refused = (0..).find(|i| labels.push(&format!("n{i}"), &Origin::default(), Format::Csv).is_err());
        assert!((100..400).contains(&refused.unwrap()), "{refused:?}");
    }

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
        let mut labels = Labels::like("versicolor", &budget());
        for name in ["versicolor", "setosa", "virginica", "setosa"] {
            assert!(labels.push(name, &origin, Format::Csv).unwrap());
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
            let mut labels = Labels::like(texts[0], &budget());
            for text in texts {
                assert!(labels.push(text, &origin, Format::Csv).unwrap());
            }
            assert_eq!(labels.finish(origin.clone(), Format::Csv).unwrap().dtype, dtype);
        }
        let mut labels = Labels::like("1", &budget());
        assert!(!labels.push("cat", &origin, Format::Csv).unwrap());
        assert!(matches!(
            labels.push("nan", &origin, Format::Csv),
            Err(DataError::LabelNotFinite { row: 0, .. })
        ));
        assert!(matches!(labels.push("16777217", &origin, Format::Csv), Err(DataError::TooLarge { .. })));
    }
}
