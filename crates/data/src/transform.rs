//! Transformations of samples between the file and the model.

use crate::batch::Batch;
use crate::crop::{Crop, Cut};
use crate::dataset::{Dataset, Target};
use crate::draw::Draws;
use crate::error::{DataError, Origin, TransformError};
use crate::labels::class;
use serde::{Deserialize, Deserializer, Serialize};

/// The transformation of every sample, in the order of the fields; none by default.
///
/// Random choices depend only on the seed, the pass and the index of the sample.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transform {
    /// The shape of a sample after reshaping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reshape: Option<Vec<usize>>,
    /// Crops the image: at random in training, in the centre otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crop: Option<Crop>,
    /// Mirrors every other image at random, left to right; only in training.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub flip: bool,
    /// Multiplies every number: 1/255 maps pixels to 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
    /// Subtracts: one number, or one for each channel, which is the first axis.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub mean: Option<Vec<f32>>,
    /// Divides: one number, or one for each channel.
    #[serde(deserialize_with = "one_or_many", skip_serializing_if = "Option::is_none")]
    pub std: Option<Vec<f32>>,
    /// Turns a class index into a one-hot vector of this length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub one_hot: Option<usize>,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<f32>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Numbers {
        One(f32),
        Many(Vec<f32>),
    }
    Ok(match Option::deserialize(deserializer)? {
        None => None,
        Some(Numbers::One(number)) => Some(vec![number]),
        Some(Numbers::Many(numbers)) => Some(numbers),
    })
}

/// A transformation that was checked against a dataset.
#[derive(Debug, Clone)]
pub struct Prepared {
    x_shape: Vec<usize>,
    y_shape: Option<Vec<usize>>,
    cut: Option<Cut>,
    /// Factor and summand of each channel; one entry applies to all numbers, none means no change.
    linear: Vec<(f32, f32)>,
    one_hot: Option<usize>,
    /// The origin of the labels.
    origin: Origin,
    /// Memory for crops, swapped with the batch's.
    scratch: Vec<f32>,
}

/// The most classes of `one_hot`.
const MOST_CLASSES: usize = 1 << 24;

impl Transform {
    /// Checks that the samples can be transformed.
    ///
    /// # Errors
    /// They cannot.
    pub fn prepare(&self, dataset: &Dataset) -> Result<Prepared, DataError> {
        self.fit(dataset).map_err(|source| DataError::Transform { source, origin: dataset.origin().clone() })
    }

    fn fit(&self, dataset: &Dataset) -> Result<Prepared, TransformError> {
        let shape = match &self.reshape {
            None => dataset.x_shape(),
            Some(to) => {
                let from = dataset.x_shape();
                let size = to.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
                if size != Some(from.iter().product()) {
                    return Err(TransformError::Reshape { from: from.to_vec(), to: to.clone() });
                }
                to
            }
        };
        let cut = Cut::new(self.crop, self.flip, shape)?;
        let channels = shape.first().copied().unwrap_or(1);
        let linear = self.linear(channels)?;
        let y_shape = match self.one_hot {
            None => dataset.y_shape().map(<[usize]>::to_vec),
            Some(n) if n == 0 || n > MOST_CLASSES => {
                return Err(TransformError::Value { option: "one_hot", value: n as f32 });
            }
            Some(n) if dataset.target() == Target::Classes && dataset.y_shape() == Some(&[]) => Some(vec![n]),
            Some(_) => return Err(TransformError::NotClasses),
        };
        Ok(Prepared {
            x_shape: cut.map_or_else(|| shape.to_vec(), |cut| cut.shape(shape)),
            y_shape,
            cut,
            linear,
            one_hot: self.one_hot,
            origin: dataset.label_origin().clone(),
            scratch: Vec::new(),
        })
    }

    /// `(x * scale - mean) / std` as one multiplication and one addition.
    fn linear(&self, channels: usize) -> Result<Vec<(f32, f32)>, TransformError> {
        let scale = self.scale.unwrap_or(1.0);
        let mean = self.mean.as_deref().unwrap_or(&[0.0]);
        let std = self.std.as_deref().unwrap_or(&[1.0]);
        for (option, values) in [("scale", std::slice::from_ref(&scale)), ("mean", mean), ("std", std)] {
            if values.len() != 1 && values.len() != channels {
                return Err(TransformError::Channels { option, given: values.len(), channels });
            }
            if let Some(value) = values.iter().find(|v| !v.is_finite() || (option == "std" && **v == 0.0)) {
                return Err(TransformError::Value { option, value: *value });
            }
        }
        let of =
            |values: &[f32], channel: usize| values.get(channel).or(values.first()).copied().unwrap_or(0.0);
        let linear: Vec<(f32, f32)> = (0..mean.len().max(std.len()))
            .map(|channel| (scale / of(std, channel), -of(mean, channel) / of(std, channel)))
            .collect();
        Ok(if linear == [(1.0, 0.0)] { Vec::new() } else { linear })
    }
}

impl Prepared {
    /// The shape of one sample afterwards.
    pub fn x_shape(&self) -> &[usize] {
        &self.x_shape
    }

    /// The shape of one label afterwards.
    pub fn y_shape(&self) -> Option<&[usize]> {
        self.y_shape.as_deref()
    }

    /// Transforms a batch: with a seed and pass as in training, without them as in evaluation.
    ///
    /// # Errors
    /// A label is not one of the classes of `one_hot`.
    pub fn apply(&mut self, batch: &mut Batch, training: Option<(u64, u64)>) -> Result<(), DataError> {
        if let Some(cut) = self.cut.filter(|cut| !cut.is_idle(training.is_some())) {
            self.scratch.resize(batch.len * cut.size_after(), 0.0);
            let images = batch.x.chunks_exact(cut.size_before());
            let parts = self.scratch.chunks_exact_mut(cut.size_after());
            for ((image, part), index) in images.zip(parts).zip(&batch.indices) {
                let draws = training.map(|(seed, pass)| Draws::new(seed, "augment", pass, *index));
                cut.apply(image, draws, part);
            }
            std::mem::swap(&mut batch.x, &mut self.scratch);
        }
        self.normalise(batch);
        match self.one_hot {
            Some(classes) => self.spread(batch, classes),
            None => Ok(()),
        }
    }

    fn normalise(&self, batch: &mut Batch) {
        if self.linear.is_empty() || batch.len == 0 {
            return;
        }
        let channel = batch.x.len() / batch.len / self.linear.len();
        for (values, (factor, summand)) in
            batch.x.chunks_exact_mut(channel.max(1)).zip(self.linear.iter().cycle())
        {
            for value in values {
                *value = *value * factor + summand;
            }
        }
    }

    /// Replaces class indices by one-hot vectors.
    fn spread(&self, batch: &mut Batch, classes: usize) -> Result<(), DataError> {
        let labels = batch.y.len();
        batch.y.resize(labels * classes, 0.0);
        // From the last to the first, so that a label is only overwritten after it was read.
        for row in (0..labels).rev() {
            let label = batch.y[row];
            let Some(class) = class(label, classes) else {
                let row = batch.indices.get(row).copied().unwrap_or_default();
                return Err(DataError::LabelOutOfRange { label, row, classes, origin: self.origin.clone() });
            };
            let place = &mut batch.y[row * classes..(row + 1) * classes];
            place.fill(0.0);
            place[class] = 1.0;
        }
        Ok(())
    }
}
