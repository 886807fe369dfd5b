//! The encoding of a call in shared memory, which peers compare with their own call.

use super::abort::{cut, read_text, word_of, write_text};
use super::header::{CallWords, NAME_BYTES};
use crate::core::words::{Kind, Reduction, Signature};
use phalanx_types::DType;
use std::sync::atomic::{AtomicU64, Ordering};

/// One call, as its caller describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedCall<'a> {
    pub(super) kind: Kind,
    pub(super) reduction: Option<Reduction>,
    pub(super) dtype: DType,
    /// Elements that every rank must contribute; 0 where ranks may contribute different amounts.
    pub(super) count: usize,
    pub(super) name: &'a str,
    /// Its offset in shared memory, if it has one: the same for all ranks that made their buffers in the same order.
    pub(super) place: usize,
}

impl SharedCall<'_> {
    /// Writes the details and returns their hash.
    pub(super) fn write(&self, sequence: u64, words: &CallWords) -> u64 {
        let name = cut(self.name, NAME_BYTES);
        let fields = [
            (&words.sequence, sequence),
            (&words.kind, kind_code(self.kind)),
            (&words.reduction, self.reduction.map_or(0, |reduction| 1 + code(&Reduction::ALL, &reduction))),
            (&words.dtype, code(&DType::ALL, &self.dtype)),
            (&words.count, self.count as u64),
            (&words.place, self.place as u64),
            (&words.name_bytes, name.len() as u64),
        ];
        let mut hash = 0;
        for (word, value) in fields {
            word.store(value, Ordering::Relaxed);
            hash = mix(hash, value);
        }
        write_text(&words.name, name);
        name.chunks(8).fold(hash, |hash, chunk| mix(hash, word_of(chunk)))
    }

    pub(super) fn signature(&self, sequence: u64) -> Signature {
        Signature {
            sequence,
            kind: self.kind,
            reduction: self.reduction,
            dtype: self.dtype,
            count: self.count as u64,
            name: self.name.to_owned(),
        }
    }
}

/// Decodes a peer's call.
pub(super) fn read(words: &CallWords) -> Option<Signature> {
    let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let index = |word: &AtomicU64| usize::try_from(load(word)).unwrap_or(usize::MAX);
    Some(Signature {
        sequence: load(&words.sequence),
        kind: kind_of(load(&words.kind))?,
        reduction: match index(&words.reduction).checked_sub(1) {
            None => None,
            Some(reduction) => Some(*Reduction::ALL.get(reduction)?),
        },
        dtype: *DType::ALL.get(index(&words.dtype))?,
        count: load(&words.count),
        name: read_text(&words.name, index(&words.name_bytes)),
    })
}

/// The offset of a peer's call in shared memory.
pub(super) fn read_place(words: &CallWords) -> u64 {
    words.place.load(Ordering::Relaxed)
}

fn code<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().position(|one| one == value).unwrap_or(all.len()) as u64
}

/// Never 0, the value of words that were never written.
fn kind_code(kind: Kind) -> u64 {
    let (code, root) = kind.code();
    (u64::from(code) + 1) << 32 | u64::from(root)
}

fn kind_of(word: u64) -> Option<Kind> {
    let code = (word >> 32).checked_sub(1)?;
    Kind::from_code(u8::try_from(code).ok()?, word as u32)
}

fn mix(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}
