//! Aborting a group from any thread of any rank.

use super::header::{Parting, REASON_BYTES};
use super::segment::Segment;
use super::waiter::Counter;
use crate::error::CollectiveError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The segments of all ranks, in rank order.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) segments: Vec<Segment>,
    pub(super) epoch: u64,
    pub(super) rank: usize,
}

impl Members {
    pub(super) fn progress(&self, rank: usize) -> Counter<'_> {
        let progress = &self.segments[rank].header().progress;
        Counter { word: &progress.step, sleepers: &progress.sleepers }
    }

    pub(super) fn gate(&self) -> Counter<'_> {
        let gate = &self.segments[0].header().gate;
        Counter { word: &gate.step, sleepers: &gate.sleepers }
    }

    pub(super) fn abort(&self, reason: &str) {
        // The reason is written first, so that a rank that sees the mark finds it.
        for segment in &self.segments {
            write_reason(&segment.header().parting, reason);
        }
        self.gate().end();
        for rank in 0..self.segments.len() {
            self.progress(rank).end();
        }
    }

    pub(super) fn aborted(&self) -> CollectiveError {
        let own = std::iter::once(&self.segments[self.rank]);
        let reason = own
            .chain(&self.segments)
            .find_map(|segment| read_reason(&segment.header().parting))
            .unwrap_or_else(|| "a rank ended it without a reason".to_owned());
        CollectiveError::Aborted { epoch: self.epoch, reason }
    }
}

/// Aborts a group: the calls of all its ranks fail, current and future ones.
#[derive(Debug, Clone)]
pub struct Aborter {
    pub(super) members: Arc<Members>,
}

impl Aborter {
    /// Aborts the group. The first reason counts.
    pub fn abort(&self, reason: String) {
        self.members.abort(&reason);
    }
}

fn write_reason(parting: &Parting, reason: &str) {
    if parting.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let bytes = cut(reason, REASON_BYTES);
    write_text(&parting.text, bytes);
    parting.bytes.store(bytes.len() as u32, Ordering::Relaxed);
    parting.state.store(2, Ordering::Release);
}

fn read_reason(parting: &Parting) -> Option<String> {
    let complete = parting.state.load(Ordering::Acquire) == 2;
    complete.then(|| read_text(&parting.text, parting.bytes.load(Ordering::Relaxed) as usize))
}

/// The longest prefix of whole characters.
pub(super) fn cut(text: &str, most: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(most)]
}

pub(super) fn write_text(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        word.store(word_of(chunk), Ordering::Relaxed);
    }
}

/// Reads a text that a peer may have written: any length and any bytes are safe.
pub(super) fn read_text(words: &[AtomicU64], bytes: usize) -> String {
    let mut text: Vec<u8> =
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    text.truncate(bytes);
    String::from_utf8_lossy(&text).into_owned()
}

/// Up to 8 bytes as a number.
pub(super) fn word_of(chunk: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..chunk.len()].copy_from_slice(chunk);
    u64::from_le_bytes(word)
}
