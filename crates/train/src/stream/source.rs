//! Reading samples of a stream.

use super::StreamDelay;
use phalanx_data::{
    DataError, Extent, LabelSchema, Meaning, Origin, PassBatches, Rows, Schema, Source, convert_elements,
};
use phalanx_store_client::{StreamField, StreamSamples};
use phalanx_streams::{Cursor, PassOrder};
use phalanx_types::{Class, DType};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long until a store that does not answer is asked again for samples.
const RETRY: Duration = Duration::from_millis(100);

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

    fn read_field(
        &self,
        field: &StreamField,
        samples: &[u64],
        out: &mut [f32],
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        if field.dtype == DType::F32 && cfg!(target_endian = "little") {
            return self.read_bytes(&field.name, samples, bytemuck::cast_slice_mut(out), stop);
        }
        let mut bytes = vec![0; out.len() * field.dtype.size()];
        self.read_bytes(&field.name, samples, &mut bytes, stop)?;
        convert_elements(field.dtype, &bytes, out).map_err(|inexact| {
            let row = samples.get(inexact.at * samples.len() / out.len().max(1)).copied().unwrap_or(0);
            DataError::TooLarge { value: inexact.value, row, origin: self.origin.clone() }
        })
    }
}

impl StreamSource {
    /// Reads samples; a store that does not answer is waited for, as it may be on its way back.
    fn read_bytes(
        &self,
        field: &str,
        samples: &[u64],
        out: &mut [u8],
        stop: &AtomicBool,
    ) -> Result<(), DataError> {
        let Some(stream) = self.samples.get() else {
            return Err(DataError::Empty { origin: self.origin.clone() });
        };
        let mut waits = false;
        loop {
            match stream.read(field, samples, out) {
                Err(error) if error.class() == Class::Retry && !stop.load(Ordering::Relaxed) => {
                    if !std::mem::replace(&mut waits, true) {
                        let delay = StreamDelay::Unreachable { detail: error.to_string() };
                        tracing::warn!("{delay}");
                    }
                    std::thread::sleep(RETRY);
                }
                read => return read.map_err(|source| DataError::source(source, self.origin.clone())),
            }
        }
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

    fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError> {
        let samples: Vec<u64> = indices.iter().map(|index| *index as u64).collect();
        if let Some(x) = rows.x {
            self.read_field(&self.fields.x, &samples, x, stop)?;
        }
        match rows.y {
            Some(y) => self.read_field(&self.fields.y, &samples, y, stop),
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
