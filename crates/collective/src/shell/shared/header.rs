//! The header of a segment: words that other processes read and write.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Values written for step `s` are in place `s mod PLACES`.
pub(super) const PLACES: usize = 3;
/// Names of calls are cut to this many bytes.
pub(super) const NAME_BYTES: usize = 64;
/// Reasons of an abort are cut to this many bytes.
pub(super) const REASON_BYTES: usize = 512;
/// Set in a word that a rank may wait for: the group is over.
pub(super) const OVER: u32 = 1;
/// What one step adds to such a word.
pub(super) const STEP: u32 = 2;

/// Every field is atomic and valid when zero, so that a fresh segment is a header and a peer can write nothing that
/// is not one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    pub(super) identity: Identity,
    pub(super) progress: RankProgress,
    pub(super) gate: Gate,
    pub(super) claims: Claims,
    pub(super) calls: [CallWords; PLACES],
    pub(super) parting: Parting,
}

/// Written before the address is published.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Identity {
    pub(super) token: AtomicU64,
    pub(super) epoch: AtomicU64,
    pub(super) rank: AtomicU64,
    pub(super) ranks: AtomicU64,
    pub(super) cores: AtomicU64,
}

/// The owner's progress. One cache line, so that a waiting peer gets all of it at once.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct RankProgress {
    /// Steps × [`STEP`], and [`OVER`].
    pub(super) step: AtomicU32,
    /// How many ranks sleep until `step` changes.
    pub(super) sleepers: AtomicU32,
    /// The hash of the owner's call.
    pub(super) hash: [AtomicU64; PLACES],
    /// The bytes that the owner contributes, where ranks may contribute different amounts.
    pub(super) length: [AtomicU64; PLACES],
}

/// The barrier that all ranks use when there are more ranks than cores: a waiting rank sleeps once, not once for every
/// other rank. Only rank 0's is used.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Gate {
    /// Complete steps × [`STEP`], and [`OVER`].
    pub(super) step: AtomicU32,
    pub(super) sleepers: AtomicU32,
    /// The number of arrivals of all ranks.
    pub(super) arrivals: AtomicU64,
}

/// How many pieces of the owner's part have been claimed, by the owner or by ranks that finished their own part.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Claims {
    pub(super) next: AtomicU64,
}

/// The details of a call, read only when the hashes differ and by ranks that have joined.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct CallWords {
    pub(super) sequence: AtomicU64,
    pub(super) kind: AtomicU64,
    pub(super) reduction: AtomicU64,
    pub(super) dtype: AtomicU64,
    pub(super) count: AtomicU64,
    pub(super) place: AtomicU64,
    pub(super) name_bytes: AtomicU64,
    pub(super) name: [AtomicU64; NAME_BYTES / 8],
}

/// Why the group is over.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Parting {
    /// 0: nothing written, 1: a rank is writing, 2: complete.
    pub(super) state: AtomicU32,
    pub(super) bytes: AtomicU32,
    pub(super) text: [AtomicU64; REASON_BYTES / 8],
}
