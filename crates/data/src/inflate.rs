//! Decompression that never yields more bytes than declared.

use std::io::Read;

/// zlib's maximum compression ratio (its technical notes).
const BEST_RATIO: u64 = 1032;
/// Bytes allocated at a time, so that memory grows only with data that actually arrives.
const STEP: usize = 1 << 20;

/// The most bytes that `compressed` bytes of deflate can become.
pub(crate) const fn most(compressed: u64) -> u64 {
    compressed.saturating_mul(BEST_RATIO)
}

/// Reads until `data` has `len` bytes; false if there are fewer or they are broken.
pub(crate) fn fill(reader: &mut impl Read, data: &mut Vec<u8>, len: usize) -> bool {
    while data.len() < len {
        let step = STEP.max(data.len()).min(len - data.len());
        data.reserve_exact(step);
        let got = reader.by_ref().take(step as u64).read_to_end(data);
        if !got.is_ok_and(|got| got == step) {
            return false;
        }
    }
    true
}

/// Reads exactly `len` bytes, or `None` if there are fewer or they are broken.
pub(crate) fn read_exactly(reader: &mut impl Read, len: usize) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    fill(reader, &mut data, len).then_some(data)
}

/// The number of remaining bytes, up to a few.
pub(crate) fn rest(reader: &mut impl Read) -> Option<u64> {
    reader.take(16).read_to_end(&mut Vec::new()).ok().map(|n| n as u64)
}
