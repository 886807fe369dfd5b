//! Collective programs without data, for a simulator with virtual links.
//!
//! ```text
//!   choose(kind, bytes, ranks, hosts) ─► RankProgram of every rank ─► Walk: which frame may go out, what was taken in
//! ```
//! The choice, the programs and their order are those of real groups. The caller provides time, links and bytes.

use crate::Compression;
use crate::core::compress;
use crate::core::schedule::{self, Area, Program, Progress, Seat, Step};
use crate::core::select::{self, AlgorithmTable, GroupShape};
use crate::core::words::{Algorithm, Kind};

/// The most bytes of one frame between hosts, as links send them.
pub const BLOCK: usize = 256 << 10;

/// The algorithm that a group would choose if ranks of one host share memory; `bytes` is what all ranks together get of
/// one result.
pub fn choose(kind: Kind, bytes: u64, ranks: usize, hosts: usize) -> Algorithm {
    select::choose(kind, bytes, GroupShape { ranks, hosts, shared: true }, &AlgorithmTable::default())
}

/// The bytes on the wire of `elements` compressed `f32` values.
pub fn encoded_len(compression: Compression, elements: usize) -> usize {
    compress::encoded_len(compression, elements)
}

/// What one rank does in one collective.
#[derive(Debug)]
pub struct RankProgram(Program);

impl RankProgram {
    /// Every rank gets the combination of the elements of all ranks.
    pub fn all_reduce(algorithm: Algorithm, rank: usize, ranks: usize, elements: usize) -> Self {
        Self(schedule::all_reduce(algorithm, Seat { rank, ranks }, elements, Area::Output))
    }

    /// Every rank gets the elements of all ranks, `elements` of each.
    pub fn all_gather(algorithm: Algorithm, rank: usize, ranks: usize, elements: usize) -> Self {
        let counts = vec![elements; ranks];
        Self(schedule::all_gather(algorithm, Seat { rank, ranks }, &counts, Area::Input))
    }

    /// Every rank gets `elements` elements from every rank.
    pub fn all_to_all(rank: usize, ranks: usize, elements: usize) -> Self {
        let counts = vec![elements; ranks];
        Self(schedule::all_to_all(Seat { rank, ranks }, &counts, &counts))
    }

    /// Every rank gets the elements of rank 0.
    pub fn broadcast(algorithm: Algorithm, rank: usize, ranks: usize, elements: usize) -> Self {
        Self(schedule::broadcast(algorithm, Seat { rank, ranks }, 0, elements))
    }

    /// The algorithm that is actually used.
    pub fn algorithm(&self) -> Algorithm {
        self.0.algorithm
    }

    /// Starts the program with elements of `element` bytes.
    pub fn start(&self, element: usize) -> Walk<'_> {
        Walk(Progress::new(&self.0, element))
    }
}

/// The progress of one rank.
#[derive(Debug)]
pub struct Walk<'p>(Progress<'p>);

impl Walk<'_> {
    /// Takes the next frame that may go out: its target rank and its bytes. A frame has `block` bytes unless it is the
    /// last of its message.
    pub fn send(&mut self, block: usize) -> Option<(usize, usize)> {
        let mut first: Option<(usize, usize, usize, usize)> = None;
        for target in 0..self.0.targets() {
            while let Some((to, step)) = self.0.send(target) {
                let left = self.0.left(step).len();
                if left > 0 {
                    let take = self.0.sendable(step).len().min(block);
                    let whole = take == block || take == left;
                    if whole && first.is_none_or(|(earliest, ..)| step < earliest) {
                        first = Some((step, target, to, take));
                    }
                    break;
                }
                self.0.complete_send(target);
            }
        }
        let (step, target, to, take) = first?;
        self.0.did(step, take);
        if self.0.left(step).is_empty() {
            self.0.complete_send(target);
        }
        Some((to, take))
    }

    /// Does everything that is due besides sending. `take(rank, most)` hands over at most `most` bytes of what has
    /// arrived from a rank.
    pub fn receive(&mut self, take: &mut dyn FnMut(usize, usize) -> usize) {
        while let Some((index, step)) = self.0.turn() {
            let (left, room) = (self.0.left(index).len(), self.0.writable().len());
            let done = match step {
                Step::Receive { from, .. } if left > 0 => take(*from, room),
                Step::Receive { .. } => 0,
                Step::Send { .. } | Step::Copy { .. } | Step::Combine { .. } if room == left => left,
                Step::Send { .. } | Step::Copy { .. } | Step::Combine { .. } => return,
            };
            self.0.did(index, done);
            if done == left {
                self.0.complete_turn();
            } else if done == 0 {
                return;
            }
        }
    }

    pub fn finished(&self) -> bool {
        self.0.finished()
    }
}
