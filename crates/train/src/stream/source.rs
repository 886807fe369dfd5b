//! Reading samples of a stream.

use phalanx_data::{
    DataError, Extent, LabelSchema, Meaning, Origin, PassBatches, Rows, Schema, Source, convert_elements,
};
use phalanx_store_client::{StreamField, StreamSamples};
use phalanx_streams::{Cursor, PassOrder};
use phalanx_types::DType;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The tensors of samples and of labels.
#[derive(Debug, Clone)]
pub(super) struct FieldPair {
    pub(super) x: StreamField,
    pub(super) y: StreamField,
}

/// The samples of a stream, by order of arrival.
#[derive(Debug, Clone)]
pub struct StreamSource {
    origin: Origin,
    fields: FieldPair,
    samples: Arc<OnceLock<StreamSamples>>,
}

impl StreamSource {
    pub(super) fn new(origin: String, fields: FieldPair, samples: Arc<OnceLock<StreamSamples>>) -> Self {
        Self { origin: Origin::named(origin), fields, samples }
    }

    fn read_field(&self, field: &StreamField, samples: &[u64], out: &mut [f32]) -> Result<(), DataError> {
        let failed = |source| DataError::source(source, self.origin.clone());
        let Some(stream) = self.samples.get() else {
            return Err(DataError::Empty { origin: self.origin.clone() });
        };
        if field.dtype == DType::F32 && cfg!(target_endian = "little") {
            return stream.read(&field.name, samples, bytemuck::cast_slice_mut(out)).map_err(failed);
        }
        let mut bytes = vec![0; out.len() * field.dtype.size()];
        stream.read(&field.name, samples, &mut bytes).map_err(failed)?;
        convert_elements(field.dtype, &bytes, out).map_err(|inexact| {
            let row = samples.get(inexact.at * samples.len() / out.len().max(1)).copied().unwrap_or(0);
            DataError::TooLarge { value: inexact.value, row, origin: self.origin.clone() }
        })
    }
}

fn shape(field: &StreamField) -> Vec<usize> {
    // A size that is not one of this machine makes a shape that no batch can hold, which is refused.
    field.sample_shape.iter().map(|len| usize::try_from(*len).unwrap_or(usize::MAX)).collect()
}

impl Source for StreamSource {
    fn schema(&self) -> Schema {
        let FieldPair { x, y } = &self.fields;
        let integers = !matches!(y.dtype, DType::F32 | DType::F64 | DType::F16 | DType::Bf16);
        let mut labels = LabelSchema::values(shape(y)).with_dtype(y.dtype);
        // As in files: integers, one for each sample, are classes.
        if integers && y.sample_shape.is_empty() {
            labels.meaning = Meaning::Classes { names: None };
        }
        Schema::new(shape(x), self.origin.clone()).with_dtype(x.dtype).with_labels(labels)
    }

    fn extent(&self) -> Extent {
        // Which samples there are is a matter of passes.
        Extent::Growing { now: 0 }
    }

    fn read(&self, indices: &[usize], rows: Rows<'_>, _: &AtomicBool) -> Result<(), DataError> {
        let samples: Vec<u64> = indices.iter().map(|index| *index as u64).collect();
        if let Some(x) = rows.x {
            self.read_field(&self.fields.x, &samples, x)?;
        }
        match rows.y {
            Some(y) => self.read_field(&self.fields.y, &samples, y),
            None => Ok(()),
        }
    }
}

/// The batches of one sealed pass.
#[derive(Debug)]
pub struct StreamBatches {
    samples: StreamSamples,
    cursor: Cursor,
    order: PassOrder,
    source: StreamSource,
}

impl StreamBatches {
    pub(super) fn new(samples: StreamSamples, cursor: Cursor, source: StreamSource) -> Self {
        let order = samples.order(&cursor);
        Self { samples, cursor, order, source }
    }
}

impl PassBatches for StreamBatches {
    fn samples(&self) -> usize {
        usize::try_from(self.order.len()).unwrap_or(usize::MAX)
    }

    fn at(&self, positions: Range<usize>, indices: &mut Vec<usize>) -> Result<(), DataError> {
        let positions = positions.start as u64..positions.end as u64;
        let found = self.samples.at_positions(&self.cursor, &self.order, positions);
        let found = found.map_err(|source| DataError::source(source, self.source.origin.clone()))?;
        indices.extend(found.into_iter().map(|sample| usize::try_from(sample).unwrap_or(usize::MAX)));
        Ok(())
    }
}
