//! A source of samples, whatever it is made of.

use crate::array::{Array, Layout};
use crate::batch::Batch;
use crate::error::{DataError, Fault, Origin};
use crate::formats::{self, Opened, Samples};
use crate::names::nearest_first;
use crate::spec::{Format, SourceSpec};
use phalanx_types::{DType, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What labels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One class index for each sample.
    Classes,
    /// Numbers to come near to.
    Values,
    None,
}

/// Samples that can be read in any order, from many threads; cheap to clone.
#[derive(Debug, Clone)]
pub struct Dataset {
    inner: Arc<Inner>,
    /// How classes are numbered, where that is not as in the file.
    numbered: Option<Arc<Numbered>>,
    /// Whether labels are left out.
    unlabelled: bool,
}

/// Classes in another order than that of the file.
#[derive(Debug)]
struct Numbered {
    classes: Vec<String>,
    /// The number of each class of the file.
    numbers: Vec<f32>,
}

#[derive(Debug)]
struct Inner {
    opened: Opened,
    x_shape: Vec<usize>,
    len: usize,
    origin: Origin,
}

impl Dataset {
    /// Opens a source; its relative paths begin at `base`.
    ///
    /// # Errors
    /// The source is not there, is not what it should be, or lacks what is asked for.
    pub fn open(spec: &SourceSpec, base: &Path) -> Result<Self, DataError> {
        Ok(Self::new(formats::open(spec, base)?))
    }

    /// Samples and labels that are in memory, the first axis of each counting samples.
    ///
    /// # Errors
    /// There are none, or more of the one than of the other.
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
        Ok(Self::new(Opened::arrays(array(x, "x")?, y)?))
    }

    fn new(opened: Opened) -> Self {
        let (len, x_shape, origin) = match &opened.x {
            Samples::Array(x) => (x.rows, x.shape.clone(), x.origin.clone()),
            Samples::Images(images) => (images.len(), images.shape.to_vec(), images.origin()),
        };
        let inner = Arc::new(Inner { opened, x_shape, len, origin });
        Self { inner, numbered: None, unlabelled: false }
    }

    /// The same samples with classes numbered as they stand in `classes`; labels without names stay as they are.
    ///
    /// # Errors
    /// The source has a class that is not among them.
    pub fn with_classes(&self, classes: &[String]) -> Result<Self, DataError> {
        let Some(own) = self.inner.opened.classes.as_deref() else { return Ok(self.clone()) };
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
    pub fn without_labels(&self) -> Self {
        Self { unlabelled: true, ..self.clone() }
    }

    /// The number of samples; never 0.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The shape of one sample.
    pub fn x_shape(&self) -> &[usize] {
        &self.inner.x_shape
    }

    /// The type of samples as it is in the file.
    pub fn x_dtype(&self) -> DType {
        self.inner.opened.x_dtype
    }

    /// The shape of one label: `[]` for a class index or a single value.
    pub fn y_shape(&self) -> Option<&[usize]> {
        self.labels().map(|y| &y.shape[..])
    }

    /// The type of labels as it is in the file; that of names of classes is `I64`.
    pub fn y_dtype(&self) -> Option<DType> {
        self.inner.opened.y_dtype.filter(|_| !self.unlabelled)
    }

    /// The names of classes, where the source has them.
    pub fn classes(&self) -> Option<&[String]> {
        match &self.numbered {
            Some(numbered) => Some(&numbered.classes),
            None => self.inner.opened.classes.as_deref(),
        }
    }

    /// What the labels are: integers, one for each sample, are classes.
    pub fn target(&self) -> Target {
        match (self.y_shape(), self.y_dtype()) {
            (Some([]), Some(DType::F32 | DType::F64 | DType::F16 | DType::Bf16)) => Target::Values,
            (Some([]), Some(_)) => Target::Classes,
            (Some(_), Some(_)) => Target::Values,
            _ => Target::None,
        }
    }

    /// Where the samples come from.
    pub fn origin(&self) -> &Origin {
        &self.inner.origin
    }

    /// Copies the samples at these indices into `batch` as they are: floats rounded to `f32`,
    /// integers converted, pixels from 0 to 255.
    ///
    /// # Errors
    /// An index is too large, a file cannot be read, an integer would change or a label is not finite.
    pub fn read(&self, indices: &[usize], batch: &mut Batch) -> Result<(), DataError> {
        self.read_until(indices, batch, &AtomicBool::new(false))
    }

    /// Reads a batch, of which nothing is any good if `stop` is set meanwhile.
    pub(crate) fn read_until(
        &self,
        indices: &[usize],
        batch: &mut Batch,
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let x_size: usize = self.x_shape().iter().product();
        let y_size = self.labels().map_or(0, Array::size);
        batch.resize(indices.len(), x_size, y_size);
        batch.indices.extend(indices.iter().map(|index| *index as u64));
        match &self.inner.opened.x {
            Samples::Array(x) => {
                for (index, out) in indices.iter().zip(batch.x.chunks_exact_mut(x_size)) {
                    x.read(*index, out)?;
                }
            }
            Samples::Images(images) => images.read(indices, &mut batch.x, stop)?,
        }
        if self.labels().is_some() {
            for (index, out) in indices.iter().zip(batch.y.chunks_exact_mut(y_size)) {
                self.read_label(*index, out)?;
            }
        }
        Ok(())
    }

    pub(crate) fn labels(&self) -> Option<&Array> {
        self.inner.opened.y.as_ref().filter(|_| !self.unlabelled)
    }

    /// Copies one label, which has to be finite.
    pub(crate) fn read_label(&self, row: usize, out: &mut [f32]) -> Result<(), DataError> {
        let Some(y) = self.labels() else { return Ok(()) };
        y.read(row, out)?;
        if let Some(numbered) = &self.numbered {
            for label in out.iter_mut() {
                // Every name of the source has a number.
                *label = numbered.numbers.get(*label as usize).copied().unwrap_or(*label);
            }
        }
        match out.iter().find(|value| !value.is_finite()) {
            Some(value) => {
                Err(DataError::LabelNotFinite { value: *value, row: row as u64, origin: y.origin.clone() })
            }
            None => Ok(()),
        }
    }
}
