//! Programs: what one rank sends, receives and combines in one collective.
//!
//! A program is a list of steps. Sends start in list order but do not block the steps after them; all other steps run
//! one after the other. [`Progress`] tracks both: a send goes out as far as its data is final, and data that still has
//! to be sent is never overwritten. So a long message passes through a rank in pieces.
//!
//! The order of combination depends only on the algorithm, the number of ranks and the number of elements. Except in
//! [`Algorithm::Direct`], each part of a result is combined along one path of ranks and then copied.

mod direct;
mod exchange;
mod halving;
mod memory;
mod progress;
mod ring;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use exchange::{all_to_all, barrier, gather, scatter};
pub(crate) use memory::{Arithmetic, Memory};
pub(crate) use progress::Progress;
pub(crate) use ring::reduce_scatter;

use super::words::Algorithm;
use std::ops::Range;

/// The rank a program is for, and the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl Seat {
    /// The rank `by` places after this one in the ring.
    fn after(self, by: usize) -> usize {
        (self.rank + by) % self.ranks
    }

    /// The rank `by` places before this one in the ring.
    fn before(self, by: usize) -> usize {
        (self.rank + self.ranks - by % self.ranks) % self.ranks
    }
}

/// A memory area of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// The rank's values; read only.
    Input,
    /// The result.
    Output,
    /// Scratch memory of the length that the program asks for.
    Scratch,
}

/// A range of elements in an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) area: Area,
    pub(crate) range: Range<usize>,
}

impl Area {
    fn span(self, range: Range<usize>) -> Span {
        Span { area: self, range }
    }
}

/// One step of a program. Both sides of a message and of a combination have the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Send {
        to: usize,
        span: Span,
    },
    Receive {
        from: usize,
        into: Span,
        then: Then,
    },
    Copy {
        from: Span,
        into: Span,
    },
    /// Combines `other` into `into`; they are in different areas.
    Combine {
        into: Span,
        other: Span,
        last: bool,
    },
}

/// What happens to received elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    Store,
    /// Combined with `own`. The result goes to the `into` of the receive, which is `own` or in another area. After the
    /// `last` combination the result is complete.
    Combine {
        own: Span,
        last: bool,
    },
}

/// What one rank does in one collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) algorithm: Algorithm,
    pub(crate) steps: Vec<Step>,
    /// How many elements of scratch it needs.
    pub(crate) scratch: usize,
}

impl Program {
    fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, steps: Vec::new(), scratch: 0 }
    }

    /// How many elements of an area it uses.
    pub(crate) fn extent(&self, area: Area) -> usize {
        let end = |span: &Span| if span.area == area { span.range.end } else { 0 };
        let most = |step: &Step| match step {
            Step::Send { span, .. } => end(span),
            Step::Receive { into, then: Then::Store, .. } => end(into),
            Step::Receive { into, then: Then::Combine { own: other, .. }, .. }
            | Step::Copy { from: other, into }
            | Step::Combine { into, other, .. } => end(into).max(end(other)),
        };
        self.steps.iter().map(most).max().unwrap_or(0)
    }

    /// Whether it combines elements, rather than only moving them.
    pub(crate) fn combines(&self) -> bool {
        let combines = |step: &Step| {
            matches!(step, Step::Combine { .. } | Step::Receive { then: Then::Combine { .. }, .. })
        };
        self.steps.iter().any(combines)
    }

    fn send(&mut self, to: usize, span: Span) {
        self.steps.push(Step::Send { to, span });
    }

    fn store(&mut self, from: usize, into: Span) {
        self.steps.push(Step::Receive { from, into, then: Then::Store });
    }

    fn combine(&mut self, from: usize, into: Span, own: Span, last: bool) {
        self.steps.push(Step::Receive { from, into, then: Then::Combine { own, last } });
    }

    /// Copies unless source and destination are the same.
    fn copy(&mut self, from: Span, into: Span) {
        if from != into {
            self.steps.push(Step::Copy { from, into });
        }
    }
}

/// Every rank gets the combination of the `n` elements of all ranks. They are in `own`: the input, or the output when
/// computing in place.
pub(crate) fn all_reduce(algorithm: Algorithm, seat: Seat, n: usize, own: Area) -> Program {
    match algorithm {
        Algorithm::Direct => direct::all_reduce(seat, n, own),
        Algorithm::HalvingDoubling => halving::all_reduce(seat, n, own),
        Algorithm::Ring | Algorithm::Shared | Algorithm::Hierarchical => ring::all_reduce(seat, n, own),
    }
}

/// Every rank gets the elements of all ranks, `counts[rank]` from each. The rank's own are at the start of the input,
/// or at their position in the output.
pub(crate) fn all_gather(algorithm: Algorithm, seat: Seat, counts: &[usize], own: Area) -> Program {
    match algorithm {
        Algorithm::Direct => direct::all_gather(seat, counts, own),
        _ => ring::all_gather(seat, counts, own),
    }
}

/// Every rank gets the root's `n` elements, which are in the root's output.
pub(crate) fn broadcast(algorithm: Algorithm, seat: Seat, root: usize, n: usize) -> Program {
    match algorithm {
        Algorithm::Direct => direct::broadcast(seat, root, n),
        Algorithm::HalvingDoubling => tree::broadcast(seat, root, n),
        Algorithm::Ring | Algorithm::Shared | Algorithm::Hierarchical => ring::broadcast(seat, root, n),
    }
}

/// The root gets the combination of the `n` elements of all ranks, which are in `own`.
pub(crate) fn reduce(algorithm: Algorithm, seat: Seat, root: usize, n: usize, own: Area) -> Program {
    match algorithm {
        Algorithm::Direct => direct::reduce(seat, root, n, own),
        Algorithm::HalvingDoubling => tree::reduce(seat, root, n, own),
        Algorithm::Ring | Algorithm::Shared | Algorithm::Hierarchical => ring::reduce(seat, root, n, own),
    }
}

/// The range of each rank when `counts[rank]` elements of each follow each other.
fn spread(counts: &[usize]) -> Vec<Range<usize>> {
    counts
        .iter()
        .scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start..*end)
        })
        .collect()
}
