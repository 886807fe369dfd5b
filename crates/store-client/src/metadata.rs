//! Metadata of datasets, to the byte as SmartRedis has it: a type, then little-endian values one after the other.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Values of one field of a dataset.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaValues {
    F64(Vec<f64>),
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Text(Vec<String>),
}

/// Why bytes are no metadata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    #[error("field {field:?} has the unknown type {kind}")]
    Kind { field: String, kind: u8 },
    #[error("field {field:?} is cut short")]
    Short { field: String },
    #[error("field {field:?} holds bytes that are no text")]
    Text { field: String },
    #[error("field {field:?} holds {have}, not {added}")]
    Mixed { field: String, have: &'static str, added: &'static str },
}

impl MetaValues {
    pub fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::F64(_) => "float64",
            Self::F32(_) => "float32",
            Self::I32(_) => "int32",
            Self::I64(_) => "int64",
            Self::U32(_) => "uint32",
            Self::U64(_) => "uint64",
            Self::Text(_) => "text",
        }
    }

    /// Adds the values of the same type.
    ///
    /// # Errors
    /// They have another type.
    pub fn extend(&mut self, field: &str, more: Self) -> Result<(), MetaError> {
        let mixed = MetaError::Mixed { field: field.to_owned(), have: self.kind(), added: more.kind() };
        match (self, more) {
            (Self::F64(have), Self::F64(more)) => have.extend(more),
            (Self::F32(have), Self::F32(more)) => have.extend(more),
            (Self::I32(have), Self::I32(more)) => have.extend(more),
            (Self::I64(have), Self::I64(more)) => have.extend(more),
            (Self::U32(have), Self::U32(more)) => have.extend(more),
            (Self::U64(have), Self::U64(more)) => have.extend(more),
            (Self::Text(have), Self::Text(more)) => have.extend(more),
            _ => return Err(mixed),
        }
        Ok(())
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        match self {
            Self::F64(values) => put(&mut out, 1, values, |out, v| out.put_f64_le(*v)),
            Self::F32(values) => put(&mut out, 2, values, |out, v| out.put_f32_le(*v)),
            Self::I32(values) => put(&mut out, 3, values, |out, v| out.put_i32_le(*v)),
            Self::I64(values) => put(&mut out, 4, values, |out, v| out.put_i64_le(*v)),
            Self::U32(values) => put(&mut out, 5, values, |out, v| out.put_u32_le(*v)),
            Self::U64(values) => put(&mut out, 6, values, |out, v| out.put_u64_le(*v)),
            Self::Text(values) => put(&mut out, 7, values, |out, v| {
                out.put_u64_le(v.len() as u64);
                out.put_slice(v.as_bytes());
            }),
        }
        out.freeze()
    }

    pub(crate) fn decode(field: &str, mut data: Bytes) -> Result<Self, MetaError> {
        let short = || MetaError::Short { field: field.to_owned() };
        if data.is_empty() {
            return Err(short());
        }
        let kind = data.get_u8();
        let width = match kind {
            1 | 4 | 6 => 8,
            2 | 3 | 5 => 4,
            7 => 1,
            kind => return Err(MetaError::Kind { field: field.to_owned(), kind }),
        };
        if !data.len().is_multiple_of(width) {
            return Err(short());
        }
        Ok(match kind {
            1 => Self::F64(all(data, Buf::get_f64_le)),
            2 => Self::F32(all(data, Buf::get_f32_le)),
            3 => Self::I32(all(data, Buf::get_i32_le)),
            4 => Self::I64(all(data, Buf::get_i64_le)),
            5 => Self::U32(all(data, Buf::get_u32_le)),
            6 => Self::U64(all(data, Buf::get_u64_le)),
            _ => Self::Text(texts(field, data)?),
        })
    }
}

fn put<T>(out: &mut BytesMut, kind: u8, values: &[T], one: impl Fn(&mut BytesMut, &T)) {
    out.put_u8(kind);
    values.iter().for_each(|value| one(out, value));
}

fn all<T>(mut data: Bytes, one: impl Fn(&mut Bytes) -> T) -> Vec<T> {
    let mut values = Vec::new();
    while data.has_remaining() {
        values.push(one(&mut data));
    }
    values
}

fn texts(field: &str, mut data: Bytes) -> Result<Vec<String>, MetaError> {
    let mut values = Vec::new();
    while data.has_remaining() {
        let short = || MetaError::Short { field: field.to_owned() };
        let len = data.try_get_u64_le().ok().and_then(|len| usize::try_from(len).ok()).ok_or_else(short)?;
        if len > data.len() {
            return Err(short());
        }
        let text = String::from_utf8(data.split_to(len).to_vec());
        values.push(text.ok().ok_or_else(|| MetaError::Text { field: field.to_owned() })?);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let all = [
            MetaValues::F64(vec![1.5, -2.0]),
            MetaValues::F32(vec![0.25]),
            MetaValues::I32(vec![-7]),
            MetaValues::I64(vec![i64::MIN]),
            MetaValues::U32(vec![7]),
            MetaValues::U64(vec![u64::MAX, 0]),
            MetaValues::Text(vec!["a".into(), String::new(), "länger".into()]),
        ];
        for values in all {
            assert_eq!(MetaValues::decode("f", values.encode()), Ok(values));
        }
        assert_eq!(MetaValues::Text(vec!["ab".into()]).encode()[..], [7, 2, 0, 0, 0, 0, 0, 0, 0, b'a', b'b']);
    }

    #[test]
    fn bytes_that_lie_are_errors() {
        for bytes in [&[][..], &[9, 1], &[1, 1, 2], &[7, 1, 2], &[7, 255, 255, 255, 255, 255, 255, 255, 255]]
        {
            assert!(MetaValues::decode("f", Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }
}
