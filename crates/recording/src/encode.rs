//! Encoding into a plain vector.

use phalanx_wire::codec::{CodecError, encode_into};
use serde::Serialize;

/// Appends the encoding of `value`; on an error `out` is as it was.
pub(crate) fn append<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    let result = encode_into(value, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}
