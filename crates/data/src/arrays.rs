//! A source backed by arrays: in memory, mapped, or collected from a table.

use crate::array::Array;
use crate::error::DataError;
use crate::source::{Extent, LabelSchema, Meaning, Rows, Schema, Source};
use phalanx_types::DType;
use std::sync::atomic::AtomicBool;

/// An array of samples, and an array of labels of the same length.
#[derive(Debug)]
pub(crate) struct Arrays {
    x: Array,
    /// The type in the file.
    x_dtype: DType,
    y: Option<LabelArray>,
}

/// Labels, ready to be read.
#[derive(Debug)]
pub(crate) struct LabelArray {
    pub(crate) array: Array,
    /// The type in the file.
    pub(crate) dtype: DType,
    /// The names of classes, if the file has them.
    pub(crate) classes: Option<Vec<String>>,
}

impl Arrays {
    pub(crate) fn new(x: Array, y: Option<Array>) -> Result<Self, DataError> {
        let x_dtype = x.dtype;
        let y = y.map(|array| LabelArray { dtype: array.dtype, array, classes: None });
        Self::of_table(x, x_dtype, y)
    }

    /// Arrays whose elements have other types in the file.
    pub(crate) fn of_table(x: Array, x_dtype: DType, y: Option<LabelArray>) -> Result<Self, DataError> {
        if let Some(LabelArray { array: y, .. }) = y.as_ref().filter(|y| y.array.rows != x.rows) {
            return Err(DataError::Lengths { x: x.rows, y: y.rows, labels: y.origin.clone() });
        }
        Ok(Self { x, x_dtype, y })
    }
}

impl LabelArray {
    fn schema(&self) -> LabelSchema {
        let names = self.classes.clone();
        LabelSchema {
            shape: self.array.shape.clone(),
            dtype: self.dtype,
            meaning: match self.is_classes() {
                true => Meaning::Classes { names },
                false => Meaning::Values,
            },
            origin: Some(self.array.origin.clone()),
        }
    }

    /// Whether labels are classes: integers, one per sample.
    fn is_classes(&self) -> bool {
        let integers = !matches!(self.dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16);
        integers && self.array.shape.is_empty()
    }
}

impl Source for Arrays {
    fn schema(&self) -> Schema {
        let schema = Schema::new(self.x.shape.clone(), self.x.origin.clone()).with_dtype(self.x_dtype);
        Schema { labels: self.y.as_ref().map(LabelArray::schema), ..schema }
    }

    fn extent(&self) -> Extent {
        Extent::Fixed(self.x.rows)
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
        if let Some(x) = rows.x {
            self.x.read_all(indices, x)?;
        }
        match (&self.y, rows.y) {
            (Some(y), Some(out)) => y.array.read_all(indices, out),
            _ => Ok(()),
        }
    }
}
