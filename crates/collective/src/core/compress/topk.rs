//! The `topk` codec: sends only the values of greatest magnitude.

use super::{DecodeError, INFINITE, greatest, magnitude, remainder};
use crate::core::numbers::wide::wide;

/// Bytes of an index and a value.
const PAIR: usize = 8;
/// Values that are skipped together if none of them is large enough.
const BLOCK: usize = 32;
/// Bits of a magnitude (of 31) that the first search determines.
const HIGH: u32 = 11;
/// Bits that each of the other two searches determines.
const LOW: u32 = 10;

/// A histogram of magnitudes by some of their bits.
type Counts = [u32; 1 << HIGH];

pub(super) fn encoded_len(elements: usize, per_mille: u32) -> usize {
    let count = (elements as u128 * u128::from(per_mille)).div_ceil(1000);
    PAIR * count.max(1).min(elements as u128) as usize
}

/// Encodes as many values as `bytes` has room for.
pub(super) fn encode(values: &[f32], bytes: &mut [u8]) {
    encode_and_tell(values, bytes);
}

/// Encodes as many values as `bytes` has room for. Leaves in `values` only the finite ones that were not sent.
pub(super) fn encode_rest(values: &mut [f32], bytes: &mut [u8]) {
    let least = encode_and_tell(values, bytes);
    decode(bytes, values, remainder);
    if least >= INFINITE {
        values.iter_mut().filter(|value| !value.is_finite()).for_each(|value| *value = 0.0);
    }
}

/// Encodes and returns the least magnitude that was sent.
///
/// Counts the magnitudes by their highest bits first, then looks again only at values that may be sent.
fn encode_and_tell(values: &[f32], bytes: &mut [u8]) -> u32 {
    assert!(u32::try_from(values.len()).is_ok(), "an index is a u32");
    let mut missing = (bytes.len() / PAIR) as u32;
    let mut least = search(&count_high(values), HIGH, &mut missing);
    let candidates = wide!(candidates(values, least << (2 * LOW)));
    let magnitude = |index: u32| magnitude(values[index as usize]);
    for shift in [LOW, 0] {
        let mut counts = [0; 1 << HIGH];
        for magnitude in candidates.iter().map(|index| magnitude(*index)) {
            if magnitude >> (shift + LOW) == least {
                counts[((magnitude >> shift) & ((1 << LOW) - 1)) as usize] += 1;
            }
        }
        least = least << LOW | search(&counts, LOW, &mut missing);
    }
    // Among values equal to the least magnitude, the first ones are sent until `bytes` is full.
    let sent = candidates.into_iter().filter(|index| {
        let tie = magnitude(*index) == least && missing > 0;
        missing -= u32::from(tie);
        tie || magnitude(*index) > least
    });
    for (index, pair) in sent.zip(bytes.as_chunks_mut::<PAIR>().0) {
        pair[..4].copy_from_slice(&index.to_le_bytes());
        pair[4..].copy_from_slice(&values[index as usize].to_le_bytes());
    }
    least
}

/// The bits of the last magnitude that is sent if the `missing` greatest are. Leaves in `missing` how many values with
/// these bits are sent.
fn search(counts: &Counts, bits: u32, missing: &mut u32) -> u32 {
    let mut found = (1 << bits) - 1;
    while found > 0 && counts[found as usize] < *missing {
        *missing -= counts[found as usize];
        found -= 1;
    }
    found
}

/// Counts all magnitudes by their highest bits. Uses two tables, because neighbours often have the same bits and their
/// increments would wait for each other.
fn count_high(values: &[f32]) -> Counts {
    let (mut counts, mut others): (Counts, Counts) = ([0; 1 << HIGH], [0; 1 << HIGH]);
    let (two, rest) = values.as_chunks::<2>();
    for [a, b] in two {
        counts[(magnitude(*a) >> (2 * LOW)) as usize] += 1;
        others[(magnitude(*b) >> (2 * LOW)) as usize] += 1;
    }
    for value in rest {
        counts[(magnitude(*value) >> (2 * LOW)) as usize] += 1;
    }
    for (count, other) in counts.iter_mut().zip(others) {
        *count += other;
    }
    counts
}

/// The indices of all magnitudes of at least `least`.
#[inline(always)]
fn candidates(values: &[f32], least: u32) -> Vec<u32> {
    let mut candidates = Vec::new();
    for (block, values) in values.chunks(BLOCK).enumerate() {
        if greatest(values) < least {
            continue;
        }
        let (mut found, mut count) = ([0; BLOCK], 0);
        for (i, value) in values.iter().enumerate() {
            found[count] = (block * BLOCK + i) as u32;
            count += usize::from(magnitude(*value) >= least);
        }
        candidates.extend_from_slice(&found[..count]);
    }
    candidates
}

/// The indices and values.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = (u32, f32)> {
    bytes
        .as_chunks::<PAIR>()
        .0
        .iter()
        .map(|[a, b, c, d, value @ ..]| (u32::from_le_bytes([*a, *b, *c, *d]), f32::from_le_bytes(*value)))
}

pub(super) fn decode(bytes: &[u8], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for (index, value) in pairs(bytes) {
        if let Some(out) = out.get_mut(index as usize) {
            *out = f(*out, value);
        }
    }
}

pub(super) fn check(bytes: &[u8], elements: usize) -> Result<(), DecodeError> {
    let mut last: Option<u32> = None;
    for (index, _) in pairs(bytes) {
        if index as usize >= elements {
            return Err(DecodeError::Index { index, elements });
        }
        if let Some(before) = last.filter(|before| *before >= index) {
            return Err(DecodeError::Order { index, before });
        }
        last = Some(index);
    }
    Ok(())
}
