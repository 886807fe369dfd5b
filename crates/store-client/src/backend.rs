//! How tensors lie in the server.

use crate::StoreError;
use crate::connection::Command;
use bytes::Bytes;
use phalanx_resp::{Reply, named_type, type_name};
use phalanx_types::{DType, Tensor};

/// What kind of server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Has commands for tensors: our store.
    Tensors,
    /// A plain Redis or Valkey: a tensor is a hash of `dtype`, `shape` and `data`.
    Plain,
}

pub(crate) fn words<const N: usize>(words: [&[u8]; N]) -> Command {
    words.into_iter().map(Bytes::copy_from_slice).collect()
}

impl Backend {
    /// Stores a tensor whose bytes are appended to the command.
    pub(crate) fn set_head(self, key: &str, dtype: DType, shape: &[u64]) -> Command {
        let name = type_name(dtype).as_bytes();
        match self {
            Self::Tensors => {
                let mut command = words([b"AI.TENSORSET", key.as_bytes(), name]);
                command.extend(shape.iter().map(|len| Bytes::from(len.to_string())));
                command.push(Bytes::from_static(b"BLOB"));
                command
            }
            Self::Plain => {
                let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
                let shape = shape.join(",");
                words([b"HSET", key.as_bytes(), b"dtype", name, b"shape", shape.as_bytes(), b"data"])
            }
        }
    }

    pub(crate) fn set(self, key: &str, tensor: &Tensor) -> Command {
        let mut command = self.set_head(key, tensor.dtype(), tensor.shape());
        command.push(tensor.data().clone());
        command
    }

    pub(crate) fn get(self, key: &str) -> Command {
        match self {
            Self::Tensors => words([b"AI.TENSORGET", key.as_bytes(), b"META", b"BLOB"]),
            Self::Plain => words([b"HMGET", key.as_bytes(), b"dtype", b"shape", b"data"]),
        }
    }

    /// Reads the reply to [`Self::get`]; `None` if there is no tensor.
    pub(crate) fn tensor(self, name: &str, reply: Reply) -> Result<Option<Tensor>, StoreError> {
        let wrong = || StoreError::Unexpected { what: "a tensor" };
        if let Reply::Error(text) = &reply {
            let text = String::from_utf8_lossy(text);
            let is_missing = text.contains("tensor key is empty") || text.contains("is empty");
            return if is_missing { Ok(None) } else { Err(StoreError::Refused { text: text.into_owned() }) };
        }
        let Reply::Array(fields) = reply else { return Err(wrong()) };
        let (dtype, shape, data) = match (self, &fields[..]) {
            (Self::Tensors, [_, Reply::Bulk(dtype), _, Reply::Array(shape), _, Reply::Bulk(data)]) => {
                let lens = shape.iter().map(|len| match len {
                    Reply::Integer(len) => u64::try_from(*len).ok(),
                    _ => None,
                });
                (dtype, lens.collect::<Option<Vec<u64>>>().ok_or_else(wrong)?, data)
            }
            (Self::Plain, [Reply::Null, ..]) => return Ok(None),
            (Self::Plain, [Reply::Bulk(dtype), Reply::Bulk(shape), Reply::Bulk(data)]) => {
                let shape = std::str::from_utf8(shape).ok().ok_or_else(wrong)?;
                let lens = shape.split(',').filter(|len| !len.is_empty()).map(|len| len.parse().ok());
                (dtype, lens.collect::<Option<Vec<u64>>>().ok_or_else(wrong)?, data)
            }
            _ => return Err(wrong()),
        };
        let dtype = named_type(dtype).ok_or_else(wrong)?;
        let tensor = Tensor::new(dtype, shape, data.clone());
        tensor.map(Some).map_err(|source| StoreError::Tensor { name: name.to_owned(), source })
    }
}
