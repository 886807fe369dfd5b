//! Encoding of one message: postcard, with nothing left over.

use bytes::BufMut;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A frame's body was not the message its kind promised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    #[error("malformed {what}")]
    Malformed {
        what: &'static str,
        #[source]
        source: postcard::Error,
    },
    #[error("{extra} bytes left over after {what}")]
    Trailing { what: &'static str, extra: usize },
    #[error("{what} could not be encoded")]
    Encode {
        what: &'static str,
        #[source]
        source: postcard::Error,
    },
}

struct Tail<'a, B>(&'a mut B);

impl<B: BufMut> postcard::ser_flavors::Flavor for Tail<'_, B> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.put_u8(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.put_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends the encoding of `message` to `out`.
///
/// # Errors
/// Only when a `Serialize` implementation fails; the messages of this crate do not.
pub fn encode_into<T: Serialize + ?Sized>(message: &T, out: &mut impl BufMut) -> Result<(), CodecError> {
    postcard::serialize_with_flavor(message, Tail(out))
        .map_err(|source| CodecError::Encode { what: short_name::<T>(), source })
}

/// Decodes exactly one message.
///
/// # Errors
/// The bytes are not a `T`, or more bytes follow it.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    let what = short_name::<T>();
    let (message, rest) =
        postcard::take_from_bytes(body).map_err(|source| CodecError::Malformed { what, source })?;
    if rest.is_empty() { Ok(message) } else { Err(CodecError::Trailing { what, extra: rest.len() }) }
}

fn short_name<T: ?Sized>() -> &'static str {
    let full = std::any::type_name::<T>();
    full.rsplit("::").next().unwrap_or(full)
}
