//! Samples out of tensors.

use super::super::keyspace::Keyspace;
use super::uploads::tensor_key;
use bytes::{Bytes, BytesMut};
use phalanx_resp::Reply;
use phalanx_streams::{SamplePlace, StreamRefusal};
use phalanx_types::{Tensor, Time};
use std::collections::BTreeMap;
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

/// Rows of tensors, in parts of the tensors: nothing is copied. Rows that lie together come in one part.
#[derive(Debug, Default)]
struct Parts {
    parts: Vec<Bytes>,
    /// Where the next row would have to begin to be in the same part.
    end: Option<usize>,
}

impl Parts {
    fn push(&mut self, tensor: &Tensor, at: usize) -> Option<()> {
        let range = row(tensor, at)?;
        let joined = self.parts.last_mut().filter(|_| self.end == Some(range.start));
        self.end = Some(range.end);
        match joined {
            Some(part) => {
                let begin = range.end - (part.len() + range.len());
                *part = tensor.data().slice(begin..range.end);
            }
            None => self.parts.push(tensor.data().slice(range)),
        }
        Some(())
    }

    /// The next row is of another tensor.
    fn cut(&mut self) {
        self.end = None;
    }
}

/// Rows of one tensor; `None` if it has fewer.
pub(crate) fn rows_of(tensor: &Tensor, rows: &[u64]) -> Option<Reply> {
    let mut parts = Parts::default();
    for at in rows {
        parts.push(tensor, usize::try_from(*at).ok()?)?;
    }
    Some(Reply::bulks(parts.parts))
}

/// Samples of a field, as far as they are at this node, and where the others are.
#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) parts: Reply,
    /// By the key of their tensor: which samples of those that were asked for, and their rows in it.
    pub(crate) elsewhere: BTreeMap<Bytes, Vec<(u64, u64)>>,
}

/// Where one sample is.
enum SampleAt {
    Here { base: Bytes, at: usize },
    Elsewhere { base: Bytes, row: u64 },
}

impl Keyspace {
    /// Samples of a field.
    pub(crate) fn gather(
        &mut self,
        now: Time,
        stream: &Bytes,
        field: &str,
        samples: &[u64],
    ) -> Result<Gathered, StreamRefusal> {
        let entry = self.streams.entries.get(stream).ok_or(StreamRefusal::UnknownStream)?;
        if !entry.fields.iter().any(|known| known.name == field) {
            return Err(StreamRefusal::UnknownField { field: field.to_owned() });
        }
        let (mut parts, mut elsewhere) = (Parts::default(), BTreeMap::<Bytes, Vec<_>>::new());
        let mut last: Option<(Bytes, Arc<Tensor>)> = None;
        for (number, sample) in (0..).zip(samples) {
            let gone = StreamRefusal::SampleGone { sample: *sample };
            let (base, at) = match self.place_of(stream, *sample) {
                Some(SampleAt::Here { base, at }) => (base, at),
                Some(SampleAt::Elsewhere { base, row }) => {
                    elsewhere.entry(tensor_key(&base, field)).or_default().push((number, row));
                    continue;
                }
                None => return Err(gone),
            };
            if last.as_ref().is_none_or(|(known, _)| *known != base) {
                let found = self.tensor_at(now, &tensor_key(&base, field));
                let Some(tensor) = found else { return Err(gone) };
                last = Some((base, tensor));
                parts.cut();
            }
            let Some((_, tensor)) = &last else { return Err(gone) };
            parts.push(tensor, at).ok_or(gone)?;
        }
        Ok(Gathered { parts: Reply::bulks(parts.parts), elsewhere })
    }

    fn place_of(&self, stream: &Bytes, sample: u64) -> Option<SampleAt> {
        let entry = self.streams.entries.get(stream)?;
        let SamplePlace { sequence, sample } = entry.state().uploads().place(sample)?;
        let upload = entry.stored.get(&sequence)?;
        let base = upload.base.clone();
        if self.part_elsewhere(&base).is_some() {
            return Some(SampleAt::Elsewhere { base, row: sample.into() });
        }
        let at = places(upload.rows.as_deref(), &[sample]).pop()?;
        Some(SampleAt::Here { base, at })
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
