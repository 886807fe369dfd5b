//! The trait of all sources of samples.
//!
//! A source describes its samples ([`Schema`]), says how many there are ([`Extent`]) and copies the samples at given
//! indices into memory that the caller provides ([`Rows`]). It does not deal with orders, shards, batches,
//! transformations or checks of labels: [`Dataset`](crate::Dataset) and [`Loader`](crate::Loader) add those to every
//! source alike.

use crate::error::{DataError, Origin};
use phalanx_types::DType;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Samples that can be read in any order, from many threads at once.
///
/// Arrays in memory, files and image folders are sources. So is a type of your own:
///
/// ```
/// use phalanx_data::{
///     DataError, Dataset, Extent, LabelSchema, Loader, LoaderOptions, Origin, Rows, Schema, Source, Transform,
/// };
/// use std::sync::atomic::AtomicBool;
///
/// /// Pairs of numbers, labelled by whether the first is the larger.
/// #[derive(Debug)]
/// struct Pairs {
///     len: usize,
/// }
///
/// impl Pairs {
///     fn pair(index: usize) -> [f32; 2] {
///         [(index * 7 % 10) as f32, (index * 3 % 10) as f32]
///     }
/// }
///
/// impl Source for Pairs {
///     fn schema(&self) -> Schema {
///         let names = ["not larger", "larger"].map(str::to_owned);
///         Schema::new([2], Origin::named("pairs")).with_labels(LabelSchema::named_classes(names))
///     }
///
///     fn extent(&self) -> Extent {
///         Extent::Fixed(self.len)
///     }
///
///     fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
///         if let Some(index) = indices.iter().copied().find(|index| *index >= self.len) {
///             return Err(DataError::Index { index, len: self.len, origin: Origin::named("pairs") });
///         }
///         if let Some(x) = rows.x {
///             for (index, out) in indices.iter().zip(x.chunks_exact_mut(2)) {
///                 out.copy_from_slice(&Self::pair(*index));
///             }
///         }
///         if let Some(y) = rows.y {
///             for (index, out) in indices.iter().zip(y) {
///                 let [a, b] = Self::pair(*index);
///                 *out = if a > b { 1.0 } else { 0.0 };
///             }
///         }
///         Ok(())
///     }
/// }
///
/// // Every source should pass the suite in a test of its own.
/// phalanx_data::conformance::source_conformance(|| Box::new(Pairs { len: 100 }));
///
/// let data = Dataset::new(Pairs { len: 100 })?;
/// let options = LoaderOptions { batch: 32, ..LoaderOptions::default() };
/// let batches: Vec<_> = Loader::new(data, &Transform::default(), options)?.collect::<Result<_, _>>()?;
/// assert_eq!(batches.len(), 4);
/// # Ok::<(), DataError>(())
/// ```
///
/// [`conformance::source_conformance`](crate::conformance::source_conformance) checks this contract.
pub trait Source: Debug + Send + Sync {
    /// Describes the samples. The description never changes.
    fn schema(&self) -> Schema;

    /// The number of samples. It never shrinks, and once [`Fixed`](Extent::Fixed) it stays the same.
    fn extent(&self) -> Extent;

    /// Copies the samples at `indices`, which may repeat and may be empty, into `rows`, one after the other.
    ///
    /// The sample at an index is always the same. Called once for a batch; slow sources should check `stop` now and
    /// then and return early, with any result, once it is set.
    ///
    /// # Errors
    /// [`DataError::Index`] if there is no sample at an index; other errors if reading fails.
    fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError>;
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn schema(&self) -> Schema {
        (**self).schema()
    }

    fn extent(&self) -> Extent {
        (**self).extent()
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError> {
        (**self).read(indices, rows, stop)
    }
}

/// How many samples a source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The final number.
    Fixed(usize),
    /// At least this many: more may come, and the final number is not known yet.
    Growing {
        /// The samples that can be read now.
        now: usize,
    },
}

impl Extent {
    /// The number of samples that can be read now; not the length of a source that still grows.
    pub fn available(self) -> usize {
        match self {
            Self::Fixed(len) => len,
            Self::Growing { now } => now,
        }
    }
}

/// The memory into which a source copies samples.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Memory for the samples in row-major order, of exactly their size; `None` if only labels are wanted.
    pub x: Option<&'a mut [f32]>,
    /// Memory for the labels; `None` if they are not wanted or there are none.
    pub y: Option<&'a mut [f32]>,
}

/// Describes the samples of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Schema {
    /// The shape of one sample.
    pub x_shape: Vec<usize>,
    /// The type of the stored elements; they are read as `f32`.
    pub x_dtype: DType,
    /// The labels, if there are any.
    pub labels: Option<LabelSchema>,
    /// The origin of the samples, as errors name it.
    pub origin: Origin,
}

impl Schema {
    /// Samples of this shape, stored as `f32`, without labels.
    pub fn new(x_shape: impl Into<Vec<usize>>, origin: Origin) -> Self {
        Self { x_shape: x_shape.into(), x_dtype: DType::F32, labels: None, origin }
    }

    /// The same with another type of elements.
    #[must_use]
    pub fn with_dtype(self, x_dtype: DType) -> Self {
        Self { x_dtype, ..self }
    }

    /// The same with labels.
    #[must_use]
    pub fn with_labels(self, labels: LabelSchema) -> Self {
        Self { labels: Some(labels), ..self }
    }

    /// The origin of the labels.
    pub(crate) fn label_origin(&self) -> &Origin {
        self.labels.as_ref().and_then(|labels| labels.origin.as_ref()).unwrap_or(&self.origin)
    }

    /// The number of elements of a sample and of a label (0 without labels).
    pub(crate) fn sizes(&self) -> Result<(usize, usize), DataError> {
        let size = |shape: &[usize], origin: &Origin| {
            let size = shape.iter().try_fold(1usize, |size, d| size.checked_mul(*d));
            size.filter(|size| (1..=MOST_ELEMENTS).contains(size))
                .ok_or_else(|| DataError::SampleShape { shape: shape.to_vec(), origin: origin.clone() })
        };
        let y = self.labels.as_ref().map(|labels| size(&labels.shape, self.label_origin()));
        Ok((size(&self.x_shape, &self.origin)?, y.transpose()?.unwrap_or(0)))
    }
}

/// The most elements of one sample: no slice has more bytes than `isize::MAX`.
const MOST_ELEMENTS: usize = isize::MAX as usize / size_of::<f32>();

/// Describes the labels of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LabelSchema {
    /// The shape of one label: `[]` for a class index or a single value.
    pub shape: Vec<usize>,
    /// The type of the stored elements; they are read as `f32`.
    pub dtype: DType,
    /// The meaning of the elements.
    pub meaning: Meaning,
    /// The origin of the labels, if it differs from that of the samples.
    pub origin: Option<Origin>,
}

impl LabelSchema {
    /// One class index for each sample.
    pub fn classes() -> Self {
        Self { shape: Vec::new(), dtype: DType::I64, meaning: Meaning::Classes { names: None }, origin: None }
    }

    /// One class index for each sample: the index of the class in these names.
    pub fn named_classes(names: impl Into<Vec<String>>) -> Self {
        Self { meaning: Meaning::Classes { names: Some(names.into()) }, ..Self::classes() }
    }

    /// Values of this shape for each sample, stored as `f32`.
    pub fn values(shape: impl Into<Vec<usize>>) -> Self {
        Self { shape: shape.into(), dtype: DType::F32, meaning: Meaning::Values, origin: None }
    }

    /// The same with another type of elements.
    #[must_use]
    pub fn with_dtype(self, dtype: DType) -> Self {
        Self { dtype, ..self }
    }

    /// The same with another origin than the samples.
    #[must_use]
    pub fn with_origin(self, origin: Origin) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// The names of classes, if there are any.
    pub fn names(&self) -> Option<&[String]> {
        match &self.meaning {
            Meaning::Classes { names } => names.as_deref(),
            Meaning::Values => None,
        }
    }
}

/// The meaning of labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Class indices.
    Classes {
        /// The names of all classes, by index, if they have names.
        names: Option<Vec<String>>,
    },
    /// Regression targets.
    Values,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_no_batch_can_hold_are_refused() {
        let sizes = |x: &[usize], y: &[usize]| {
            Schema::new(x, Origin::default()).with_labels(LabelSchema::values(y)).sizes()
        };
        assert_eq!(sizes(&[3, 4], &[]).unwrap(), (12, 1));
        for (x, y) in [(&[3, 0][..], &[][..]), (&[3], &[0]), (&[usize::MAX, 2], &[]), (&[1 << 62], &[])] {
            assert!(matches!(sizes(x, y), Err(DataError::SampleShape { .. })), "{x:?} {y:?}");
        }
        assert_eq!(Schema::new([], Origin::default()).sizes().unwrap(), (1, 0));
    }

    #[test]
    fn labels_are_named_by_their_own_place() {
        let schema = Schema::new([1], Origin::named("x"));
        assert_eq!(schema.label_origin(), &Origin::named("x"));
        let labels = LabelSchema::classes().with_origin(Origin::named("y"));
        assert_eq!(schema.with_labels(labels).label_origin(), &Origin::named("y"));
    }
}
