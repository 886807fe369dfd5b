//! A source backed by the caller's vectors.

use crate::element::integer;
use crate::error::{DataError, Origin};
use crate::source::{Extent, LabelSchema, Meaning, Rows, Schema, Source};
use phalanx_types::DType;
use std::sync::atomic::AtomicBool;

/// The labels of samples that are in memory.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Labels {
    /// There are none.
    None,
    /// The class of each sample.
    Classes(Vec<usize>),
    /// The same number of values for each sample, one after the other: a label has shape `[]` if there is one, and
    /// `[n]` if there are n.
    Values(Vec<f32>),
}

impl From<&[usize]> for Labels {
    fn from(classes: &[usize]) -> Self {
        Self::Classes(classes.to_vec())
    }
}

impl From<Vec<usize>> for Labels {
    fn from(classes: Vec<usize>) -> Self {
        Self::Classes(classes)
    }
}

impl From<&[u32]> for Labels {
    fn from(classes: &[u32]) -> Self {
        Self::Classes(classes.iter().map(|class| *class as usize).collect())
    }
}

impl From<Vec<u32>> for Labels {
    fn from(classes: Vec<u32>) -> Self {
        Self::from(&classes[..])
    }
}

impl From<&[f32]> for Labels {
    fn from(values: &[f32]) -> Self {
        Self::Values(values.to_vec())
    }
}

impl From<Vec<f32>> for Labels {
    fn from(values: Vec<f32>) -> Self {
        Self::Values(values)
    }
}

/// Samples and labels as they are read, in memory.
#[derive(Debug)]
pub(crate) struct Vectors {
    schema: Schema,
    len: usize,
    x: Vec<f32>,
    x_size: usize,
    y: Vec<f32>,
    y_size: usize,
}

impl Vectors {
    pub(crate) fn new(x: Vec<f32>, x_shape: &[usize], labels: Labels) -> Result<Self, DataError> {
        let origin = |array: &str| Origin { array: Some(array.to_owned()), ..Origin::default() };
        let schema = Schema::new(x_shape, origin("x"));
        let (x_size, _) = schema.sizes()?;
        let uneven = |values: usize, shape: &[usize]| DataError::Uneven {
            values,
            shape: shape.to_vec(),
            origin: origin("x"),
        };
        if x.is_empty() {
            return Err(DataError::Empty { origin: origin("x") });
        }
        if !x.len().is_multiple_of(x_size) {
            return Err(uneven(x.len(), x_shape));
        }
        let len = x.len() / x_size;
        let lengths = |y: usize| DataError::Lengths { x: len, y, labels: origin("y") };
        let (schema, y) = match labels {
            Labels::None => (schema, Vec::new()),
            Labels::Classes(classes) if classes.len() != len => return Err(lengths(classes.len())),
            Labels::Classes(classes) => {
                let labels = LabelSchema::classes().with_origin(origin("y"));
                (schema.with_labels(labels), as_floats(&classes, &origin("y"))?)
            }
            Labels::Values(values) if values.is_empty() || !values.len().is_multiple_of(len) => {
                return Err(lengths(values.len()));
            }
            Labels::Values(values) => {
                let shape = if values.len() == len { Vec::new() } else { vec![values.len() / len] };
                let labels = LabelSchema {
                    shape,
                    dtype: DType::F32,
                    meaning: Meaning::Values,
                    origin: Some(origin("y")),
                };
                (schema.with_labels(labels), values)
            }
        };
        Ok(Self { schema, len, x, x_size, y_size: y.len() / len, y })
    }
}

/// Classes as batches have them.
fn as_floats(classes: &[usize], origin: &Origin) -> Result<Vec<f32>, DataError> {
    let float = |(row, class): (usize, &usize)| {
        let value = *class as i128;
        integer(value).ok_or_else(|| DataError::TooLarge { value, row: row as u64, origin: origin.clone() })
    };
    classes.iter().enumerate().map(float).collect()
}

impl Source for Vectors {
    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn extent(&self) -> Extent {
        Extent::Fixed(self.len)
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
        if let Some(index) = indices.iter().copied().find(|index| *index >= self.len) {
            return Err(DataError::Index { index, len: self.len, origin: self.schema.origin.clone() });
        }
        let copy = |from: &[f32], size: usize, out: Option<&mut [f32]>| {
            for (index, out) in indices.iter().zip(out.into_iter().flat_map(|out| out.chunks_exact_mut(size)))
            {
                out.copy_from_slice(&from[index * size..(index + 1) * size]);
            }
        };
        copy(&self.x, self.x_size, rows.x);
        if self.y_size > 0 {
            copy(&self.y, self.y_size, rows.y);
        }
        Ok(())
    }
}
