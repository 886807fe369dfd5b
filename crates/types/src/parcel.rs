use crate::tensor::byte_len;
use crate::{DType, Tensor, TensorError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The payload of a job or a solution: bytes and named tensors.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Parcel {
    pub bytes: Bytes,
    pub tensors: Vec<(String, Tensor)>,
}

/// The description of a parcel without its bulk.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParcelHead {
    pub bytes_len: u64,
    pub tensors: Vec<TensorHead>,
}

/// The description of one named tensor of a parcel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorHead {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
}

/// Why a body does not match its head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    #[error("parcel head describes {described} bytes, its body has {got}")]
    Length { described: u64, got: u64 },
    #[error("parcel head describes more bytes than can be counted")]
    Overflow,
    #[error("parcel tensor {name:?} is malformed")]
    Tensor {
        name: String,
        #[source]
        source: TensorError,
    },
}

impl Parcel {
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), tensors: Vec::new() }
    }

    #[must_use]
    pub fn with_tensor(mut self, name: impl Into<String>, tensor: Tensor) -> Self {
        self.tensors.push((name.into(), tensor));
        self
    }

    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|(n, _)| n == name).map(|(_, t)| t)
    }

    /// The total bytes of its content.
    pub fn len(&self) -> u64 {
        self.segments().map(|s| s.len() as u64).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn head(&self) -> ParcelHead {
        ParcelHead {
            bytes_len: self.bytes.len() as u64,
            tensors: self
                .tensors
                .iter()
                .map(|(name, t)| TensorHead {
                    name: name.clone(),
                    dtype: t.dtype(),
                    shape: t.shape().to_vec(),
                })
                .collect(),
        }
    }

    /// The body, piece by piece and without copying: the bytes, then each tensor in order.
    pub fn segments(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.bytes).chain(self.tensors.iter().map(|(_, t)| t.data()))
    }

    /// The body in one piece; copies only when there is more than one piece.
    pub fn body(&self) -> Bytes {
        if self.tensors.is_empty() {
            return self.bytes.clone();
        }
        let mut body = Vec::with_capacity(self.len() as usize);
        for segment in self.segments() {
            body.extend_from_slice(segment);
        }
        body.into()
    }

    /// The pieces of a body as one; a single piece stays where it is. `None` if there is no memory for them.
    pub fn join(mut pieces: Vec<Bytes>) -> Option<Bytes> {
        if pieces.len() == 1 {
            return pieces.pop();
        }
        let len = pieces.iter().try_fold(0usize, |len, piece| len.checked_add(piece.len()))?;
        let mut whole = Vec::new();
        whole.try_reserve_exact(len).ok()?;
        pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        Some(whole.into())
    }

    /// Puts a body that came in pieces into the parts its head describes.
    ///
    /// A piece that is just one part is used where it lies; others are joined first, which copies.
    ///
    /// # Errors
    /// As [`Parcel::from_parts`].
    pub fn from_pieces(head: ParcelHead, pieces: Vec<Bytes>) -> Result<Self, PartError> {
        let lens = head.part_lens().ok_or(PartError::Overflow)?;
        let fits =
            pieces.len() == lens.len() && pieces.iter().zip(&lens).all(|(p, len)| p.len() as u64 == *len);
        if !fits {
            return Self::from_parts(head, Self::join(pieces).ok_or(PartError::Overflow)?);
        }
        let mut pieces = pieces.into_iter();
        let bytes = pieces.next().unwrap_or_default();
        let tensors =
            head.tensors.into_iter().zip(pieces).map(|(TensorHead { name, dtype, shape }, data)| {
                match Tensor::new(dtype, shape, data) {
                    Ok(tensor) => Ok((name, tensor)),
                    Err(source) => Err(PartError::Tensor { name, source }),
                }
            });
        Ok(Self { bytes, tensors: tensors.collect::<Result<_, _>>()? })
    }

    /// Cuts a body into the parts its head describes, sharing the memory.
    ///
    /// # Errors
    /// The lengths disagree; nothing is read beyond the body.
    pub fn from_parts(head: ParcelHead, mut body: Bytes) -> Result<Self, PartError> {
        let described = head.body_len().ok_or(PartError::Overflow)?;
        if described != body.len() as u64 {
            return Err(PartError::Length { described, got: body.len() as u64 });
        }
        let bytes = body.split_to(head.bytes_len as usize);
        let mut tensors = Vec::with_capacity(head.tensors.len());
        for TensorHead { name, dtype, shape } in head.tensors {
            let len = byte_len(dtype, &shape).ok_or(PartError::Overflow)?;
            let data = body.split_to(len as usize);
            let tensor = Tensor::new(dtype, shape, data)
                .map_err(|source| PartError::Tensor { name: name.clone(), source })?;
            tensors.push((name, tensor));
        }
        Ok(Self { bytes, tensors })
    }
}

impl ParcelHead {
    /// An upper bound of the encoded size of the head.
    pub fn encoded_len(&self) -> usize {
        self.tensors.iter().map(|t| 16 + t.name.len() + 10 * t.shape.len()).sum::<usize>() + 20
    }

    /// The bytes of each part, or `None` on overflow.
    fn part_lens(&self) -> Option<Vec<u64>> {
        let tensors = self.tensors.iter().map(|t| byte_len(t.dtype, &t.shape));
        std::iter::once(Some(self.bytes_len)).chain(tensors).collect()
    }

    /// The bytes that the body must have, or `None` on overflow.
    pub fn body_len(&self) -> Option<u64> {
        self.tensors.iter().try_fold(self.bytes_len, |sum, t| sum.checked_add(byte_len(t.dtype, &t.shape)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel() -> Parcel {
        Parcel::from_bytes("hello")
            .with_tensor("x", Tensor::from_f32(vec![2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap())
            .with_tensor("empty", Tensor::from_f32(vec![0, 7], &[]).unwrap())
    }

    #[test]
    fn a_parcel_survives_being_cut_into_head_and_body() {
        let p = parcel();
        assert_eq!(Parcel::from_parts(p.head(), p.body()).unwrap(), p);
    }

    #[test]
    fn a_parcel_survives_being_sent_in_pieces() {
        let p = parcel();
        let parts: Vec<Bytes> = p.segments().cloned().collect();
        let whole = Parcel::from_pieces(p.head(), parts.clone()).unwrap();
        assert_eq!(whole, p);
        assert_eq!(whole.tensors[0].1.data().as_ptr(), parts[1].as_ptr(), "nothing is copied");
        let body = p.body();
        for cut in 0..=body.len() {
            let pieces = vec![body.slice(..cut), body.slice(cut..)];
            assert_eq!(Parcel::from_pieces(p.head(), pieces).as_ref(), Ok(&p));
        }
        let short = Parcel::from_pieces(p.head(), vec![Bytes::new()]);
        assert_eq!(short, Err(PartError::Length { described: 21, got: 0 }));
    }

    #[test]
    fn a_head_that_lies_about_its_body_is_refused() {
        let p = parcel();
        let mut head = p.head();
        head.bytes_len += 1;
        assert_eq!(Parcel::from_parts(head, p.body()), Err(PartError::Length { described: 22, got: 21 }));
        let mut head = p.head();
        head.tensors[0].shape = vec![u64::MAX, u64::MAX];
        assert_eq!(Parcel::from_parts(head, p.body()), Err(PartError::Overflow));
    }
}
