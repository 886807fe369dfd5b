//! Samples out of tensors.

use super::super::keyspace::Keyspace;
use super::uploads::tensor_key;
use bytes::{Bytes, BytesMut};
use phalanx_resp::Reply;
use phalanx_streams::{SamplePlace, StreamRefusal};
use phalanx_types::{Tensor, Time};
use std::sync::Arc;

/// The most samples that one command gathers.
pub(crate) const MOST_ROWS: usize = 1 << 20;

/// Where samples lie now that some were dropped before; `kept` is `None` if none was.
pub(super) fn places(kept: Option<&[u32]>, wanted: &[u32]) -> Vec<usize> {
    let place = |sample: &u32| match kept {
        None => usize::try_from(*sample).ok(),
        Some(kept) => kept.binary_search(sample).ok(),
    };
    wanted.iter().filter_map(place).collect()
}

fn row_bytes(tensor: &Tensor) -> Option<usize> {
    let rows = usize::try_from(*tensor.shape().first()?).ok().filter(|rows| *rows > 0)?;
    Some(tensor.data().len() / rows)
}

/// The bytes of one row.
fn row(tensor: &Tensor, at: usize) -> Option<std::ops::Range<usize>> {
    let len = row_bytes(tensor)?;
    let begin = at.checked_mul(len)?;
    let end = begin.checked_add(len)?;
    (end <= tensor.data().len()).then_some(begin..end)
}

/// A tensor of some rows of another.
pub(super) fn taken(tensor: &Tensor, rows: &[usize]) -> Option<Tensor> {
    let mut data = BytesMut::new();
    for at in rows {
        data.extend_from_slice(tensor.data().get(row(tensor, *at)?)?);
    }
    let mut shape = tensor.shape().to_vec();
    *shape.first_mut()? = rows.len() as u64;
    Tensor::new(tensor.dtype(), shape, data.freeze()).ok()
}

impl Keyspace {
    /// Samples of a field, in parts of the tensors in which they lie: nothing is copied. Samples that lie together come
    /// in one part.
    pub(crate) fn gather(
        &mut self,
        now: Time,
        stream: &Bytes,
        field: &str,
        samples: &[u64],
    ) -> Result<Reply, StreamRefusal> {
        let entry = self.streams.entries.get(stream).ok_or(StreamRefusal::UnknownStream)?;
        if !entry.fields.iter().any(|known| known.name == field) {
            return Err(StreamRefusal::UnknownField { field: field.to_owned() });
        }
        let mut parts: Vec<Bytes> = Vec::new();
        let mut last: Option<(Bytes, Arc<Tensor>)> = None;
        // Where the next row would have to begin to be in the same part.
        let mut end = None;
        for sample in samples {
            let gone = StreamRefusal::SampleGone { sample: *sample };
            let Some((base, at)) = self.place_of(stream, *sample) else { return Err(gone) };
            if last.as_ref().is_none_or(|(known, _)| *known != base) {
                let found = self.tensor_at(now, &tensor_key(&base, field));
                let Some(tensor) = found else { return Err(gone) };
                (last, end) = (Some((base, tensor)), None);
            }
            let Some((_, tensor)) = &last else { return Err(gone) };
            let Some(range) = row(tensor, at) else { return Err(gone) };
            let joined = parts.last_mut().filter(|_| end == Some(range.start));
            end = Some(range.end);
            match joined {
                Some(part) => {
                    let begin = range.end - (part.len() + range.len());
                    *part = tensor.data().slice(begin..range.end);
                }
                None => parts.push(tensor.data().slice(range)),
            }
        }
        Ok(Reply::bulks(parts))
    }

    /// What the keys of the upload begin with that has a sample, and which of its rows that is.
    fn place_of(&self, stream: &Bytes, sample: u64) -> Option<(Bytes, usize)> {
        let entry = self.streams.entries.get(stream)?;
        let SamplePlace { sequence, sample } = entry.state().uploads().place(sample)?;
        let upload = entry.stored.get(&sequence)?;
        let at = places(upload.rows.as_deref(), &[sample]).pop()?;
        Some((upload.base.clone(), at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::DType;

    #[test]
    fn rows_are_found_among_those_that_are_kept() {
        assert_eq!(places(None, &[0, 5]), [0, 5]);
        assert_eq!(places(Some(&[1, 4, 9]), &[4, 9, 2]), [1, 2]);
        let tensor =
            Tensor::new(DType::U8, vec![4, 2], Bytes::from_static(&[0, 1, 2, 3, 4, 5, 6, 7])).unwrap();
        let some = taken(&tensor, &[3, 1]).unwrap();
        assert_eq!((some.shape(), &some.data()[..]), (&[2, 2][..], &[6, 7, 2, 3][..]));
        assert_eq!(taken(&tensor, &[4]), None);
    }
}
