//! Decompression that never yields more bytes than declared.

use crate::error::Fault;
use crate::limit::reserve;
use std::io::Read;

/// zlib's maximum compression ratio (its technical notes).
const BEST_RATIO: u64 = 1032;

/// The most bytes that `compressed` bytes of deflate can become.
pub(crate) const fn most(compressed: u64) -> u64 {
    compressed.saturating_mul(BEST_RATIO)
}

/// Reads until `data` has `len` bytes, into memory that is reserved once; it is an error if there are fewer.
///
/// The caller has checked `len` against the size of the compressed data and against a limit.
pub(crate) fn fill(reader: &mut impl Read, data: &mut Vec<u8>, len: usize) -> Result<(), Fault> {
    let missing = len.saturating_sub(data.len());
    reserve(data, missing)?;
    match reader.by_ref().take(missing as u64).read_to_end(data) {
        Ok(got) if got == missing => Ok(()),
        _ => Err(Fault::Compressed),
    }
}

/// Reads exactly `len` bytes.
pub(crate) fn read_exactly(reader: &mut impl Read, len: usize) -> Result<Vec<u8>, Fault> {
    let mut data = Vec::new();
    fill(reader, &mut data, len)?;
    Ok(data)
}

/// The number of remaining bytes, up to a few.
pub(crate) fn rest(reader: &mut impl Read) -> Option<u64> {
    reader.take(16).read_to_end(&mut Vec::new()).ok().map(|n| n as u64)
}
