//! Datasets: access to a source with class numbering and label checks.

use crate::array::{Array, Layout};
use crate::arrays::Arrays;
use crate::batch::Batch;
use crate::error::{DataError, Fault, Origin};
use crate::formats;
use crate::labels::{LabelCheck, class};
use crate::names::nearest_first;
use crate::source::{Extent, LabelSchema, Meaning, Rows, Schema, Source};
use crate::spec::{Format, SourceSpec};
use crate::vectors::{Labels, Vectors};
use phalanx_types::{DType, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kind of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Class indices.
    Classes,
    /// Regression targets.
    Values,
    /// There are no labels.
    None,
}

/// Samples that can be read in any order, from many threads; cheap to clone.
///
/// A [`Source`] together with how its classes are numbered, whether its labels are read, and what
/// the labels have to be.
#[derive(Debug, Clone)]
pub struct Dataset {
    source: Arc<dyn Source>,
    schema: Arc<Schema>,
    /// The elements of one sample.
    x_size: usize,
    /// The elements of one label.
    y_size: usize,
    /// How classes are numbered, if not as in the source.
    numbered: Option<Arc<Numbered>>,
    /// Whether labels are left out.
    unlabelled: bool,
    check: LabelCheck,
}

/// Classes in another order than in the source.
#[derive(Debug)]
struct Numbered {
    classes: Vec<String>,
    /// The number of each class of the source.
    numbers: Vec<f32>,
}

/// How many labels are read at once when they are checked.
const LABELS_AT_ONCE: usize = 1024;

impl Dataset {
    /// A dataset of the samples of a source.
    ///
    /// # Errors
    /// A sample or a label has no elements, or the source is fixed and has no samples.
    pub fn new(source: impl Source + 'static) -> Result<Self, DataError> {
        Self::from_source(Arc::new(source))
    }

    /// A dataset of a source that may be shared.
    ///
    /// # Errors
    /// A sample or a label has no elements, or the source is fixed and has no samples.
    pub fn from_source(source: Arc<dyn Source>) -> Result<Self, DataError> {
        let schema = Arc::new(source.schema());
        let (x_size, y_size) = schema.sizes()?;
        if source.extent() == Extent::Fixed(0) {
            return Err(DataError::Empty { origin: schema.origin.clone() });
        }
        let check = LabelCheck::default();
        Ok(Self { source, schema, x_size, y_size, numbered: None, unlabelled: false, check })
    }

    /// Opens a file or a folder of images; relative paths are resolved against `base`.
    ///
    /// # Errors
    /// The file does not exist, is malformed, or lacks what is asked for.
    pub fn open(spec: &SourceSpec, base: &Path) -> Result<Self, DataError> {
        Self::from_source(formats::open(spec, base)?)
    }

    /// A dataset in memory; the first axis of each tensor counts samples.
    ///
    /// # Errors
    /// There are no samples, or samples and labels differ in number.
    pub fn from_arrays(x: Tensor, y: Option<Tensor>) -> Result<Self, DataError> {
        let array = |tensor: Tensor, name: &str| {
            let origin = Origin { array: Some(name.to_owned()), ..Origin::default() };
            let shape: Option<Vec<usize>> = tensor.shape().iter().map(|d| usize::try_from(*d).ok()).collect();
            match shape {
                Some(shape) => {
                    let layout = Layout::row_major(tensor.dtype(), shape);
                    Array::new(origin, Format::Npy, layout, tensor.data().clone())
                }
                None => {
                    let fault = Fault::Overflow { shape: Vec::new() };
                    Err(DataError::Malformed { format: Format::Npy, fault, origin })
                }
            }
        };
        let y = y.map(|y| array(y, "y")).transpose()?;
        Self::new(Arrays::new(array(x, "x")?, y)?)
    }

    /// A dataset of samples of shape `x_shape` that follow each other in `x`, with a label for each: classes as `usize`
    /// or `u32`, values as `f32`, or [`Labels::None`].
    ///
    /// ```
    /// use phalanx_data::{Dataset, Target};
    ///
    /// let x = vec![0.0, 0.1, 0.9, 1.0, 0.2, 0.1];
    /// let data = Dataset::from_f32(x, &[2], vec![0usize, 1, 0])?;
    /// assert_eq!((data.fixed_len()?, data.target()), (3, Target::Classes));
    /// # Ok::<(), phalanx_data::DataError>(())
    /// ```
    ///
    /// # Errors
    /// The numbers do not make whole samples, there are none, or the number of labels differs.
    pub fn from_f32(x: Vec<f32>, x_shape: &[usize], y: impl Into<Labels>) -> Result<Self, DataError> {
        Self::new(Vectors::new(x, x_shape, y.into())?)
    }

    /// The same samples with classes numbered by their position in `classes`; labels without names are unchanged.
    ///
    /// # Errors
    /// The source has a class that is not among them.
    pub fn with_classes(&self, classes: &[String]) -> Result<Self, DataError> {
        let Some(own) = self.schema.labels.as_ref().and_then(LabelSchema::names) else {
            return Ok(self.clone());
        };
        let number = |name: &String| {
            let place = classes.iter().position(|class| class == name);
            place.map(|place| place as f32).ok_or_else(|| DataError::UnknownClass {
                name: name.clone(),
                have: nearest_first(name, classes.iter().cloned()),
                origin: self.origin().clone(),
            })
        };
        let numbers = own.iter().map(number).collect::<Result<_, _>>()?;
        let numbered = Some(Arc::new(Numbered { classes: classes.to_vec(), numbers }));
        Ok(Self { numbered, ..self.clone() })
    }

    /// The same samples without labels.
    #[must_use]
    pub fn without_labels(&self) -> Self {
        Self { unlabelled: true, ..self.clone() }
    }

    /// The same samples with a check of labels: reading a label that fails `check` is an error that names the sample,
    /// the label and its origin.
    #[must_use]
    pub fn with_label_check(&self, check: LabelCheck) -> Self {
        Self { check, ..self.clone() }
    }

    /// The underlying source, with its own numbering of classes and all its labels.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// How many samples there are, as far as it is known.
    pub fn extent(&self) -> Extent {
        self.source.extent()
    }

    /// The number of samples, which is never 0. Passes, shards and orders are based on it.
    ///
    /// # Errors
    /// The source still grows: [`DataError::LengthUnknown`].
    pub fn fixed_len(&self) -> Result<usize, DataError> {
        match self.extent() {
            Extent::Fixed(len) => Ok(len),
            Extent::Growing { now } => Err(DataError::LengthUnknown { now, origin: self.origin().clone() }),
        }
    }

    /// The shape of one sample.
    pub fn x_shape(&self) -> &[usize] {
        &self.schema.x_shape
    }

    /// The type of samples in the file.
    pub fn x_dtype(&self) -> DType {
        self.schema.x_dtype
    }

    /// The shape of one label: `[]` for a class index or a single value.
    pub fn y_shape(&self) -> Option<&[usize]> {
        self.labels().map(|labels| &labels.shape[..])
    }

    /// The type of labels in the file; `I64` for names of classes.
    pub fn y_dtype(&self) -> Option<DType> {
        self.labels().map(|labels| labels.dtype)
    }

    /// The names of classes, if the source has them.
    pub fn classes(&self) -> Option<&[String]> {
        match &self.numbered {
            Some(numbered) => Some(&numbered.classes),
            None => self.schema.labels.as_ref().and_then(LabelSchema::names),
        }
    }

    /// The kind of labels; in files, integers with one per sample are classes.
    pub fn target(&self) -> Target {
        match self.labels().map(|labels| &labels.meaning) {
            Some(Meaning::Classes { .. }) => Target::Classes,
            Some(Meaning::Values) => Target::Values,
            None => Target::None,
        }
    }

    /// Where the samples come from.
    pub fn origin(&self) -> &Origin {
        &self.schema.origin
    }

    /// Where the labels come from.
    pub(crate) fn label_origin(&self) -> &Origin {
        self.schema.label_origin()
    }

    /// Copies the samples at these indices into `batch` as they are: floats rounded to `f32`,
    /// integers converted, pixels from 0 to 255.
    ///
    /// # Errors
    /// An index is too large, a file cannot be read, an integer is not exact in `f32`, or a label fails its check.
    pub fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        self.read_until(indices, batch, &AtomicBool::new(false))
    }

    /// Reads a batch, whose content is undefined if `stop` is set meanwhile.
    pub(crate) fn read_until(
        &self,
        indices: &[usize],
        batch: &mut Batch,
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let labelled = self.labels().is_some();
        let room = batch.resize(indices.len(), self.x_size, if labelled { self.y_size } else { 0 });
        room.map_err(|needed| DataError::BatchMemory {
            needed,
            len: indices.len(),
            origin: self.origin().clone(),
        })?;
        batch.indices.extend(indices.iter().map(|index| *index as u64));
        let rows = Rows { x: Some(&mut batch.x), y: labelled.then_some(&mut batch.y[..]) };
        self.source.read(indices, rows, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.finish_labels(indices, &mut batch.y)
    }

    /// Checks labels without reading the samples: of at most `most` samples, spread evenly over the source from the
    /// first to the last.
    ///
    /// # Errors
    /// Names the first label that fails `check`, with its row; or says that there are no labels, or that the source
    /// still grows.
    pub fn check_labels(&self, check: LabelCheck, most: usize) -> Result<(), DataError> {
        if self.labels().is_none() {
            return Err(DataError::NoLabels { origin: self.origin().clone() });
        }
        let dataset = self.with_label_check(check);
        let mut y = Vec::new();
        for block in spread(self.fixed_len()?, most) {
            y.resize(block.len() * self.y_size, 0.0);
            let rows = Rows { x: None, y: Some(&mut y) };
            self.source.read(&block, rows, &AtomicBool::new(false))?;
            dataset.finish_labels(&block, &mut y)?;
        }
        Ok(())
    }

    fn labels(&self) -> Option<&LabelSchema> {
        self.schema.labels.as_ref().filter(|_| !self.unlabelled)
    }

    /// Renumbers classes and checks labels after reading.
    fn finish_labels(&self, indices: &[usize], y: &mut [f32]) -> Result<(), DataError> {
        if let Some(numbered) = &self.numbered {
            LabelCheck::Classes(numbered.numbers.len()).check(y, indices, self.label_origin())?;
            for label in y.iter_mut() {
                let number = class(*label, numbered.numbers.len()).and_then(|at| numbered.numbers.get(at));
                *label = number.copied().unwrap_or(*label);
            }
        }
        self.check.check(y, indices, self.label_origin())
    }
}

/// At most `most` of `len` indices, spread evenly, in blocks.
fn spread(len: usize, most: usize) -> impl Iterator<Item = Vec<usize>> {
    let count = len.min(most);
    let steps = count.saturating_sub(1).max(1) as u128;
    let at = move |k: usize| (k as u128 * (len.saturating_sub(1)) as u128 / steps) as usize;
    (0..count)
        .step_by(LABELS_AT_ONCE)
        .map(move |first| (first..count.min(first + LABELS_AT_ONCE)).map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_looked_at_from_the_first_to_the_last() {
        let indices = |len, most| spread(len, most).flatten().collect::<Vec<_>>();
        assert_eq!(indices(5, usize::MAX), [0, 1, 2, 3, 4]);
        assert_eq!(indices(9, 3), [0, 4, 8]);
        assert_eq!(indices(10, 1), [0]);
        assert_eq!((indices(0, 4), indices(4, 0)), (vec![], vec![]));
        let all = indices(3000, usize::MAX);
        assert_eq!(all, (0..3000).collect::<Vec<_>>());
        let some = indices(usize::MAX, 2000);
        assert_eq!((some.len(), some[0], some[1999]), (2000, 0, usize::MAX - 1));
        assert!(some.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
