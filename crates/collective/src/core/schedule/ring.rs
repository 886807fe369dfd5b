//! Ring algorithms: the least data per rank.

use super::{Area, Program, Seat, spread};
use crate::core::parts::part;
use crate::core::words::Algorithm;

/// Part `p` starts at rank `p`, is combined with the values of `p + 1`, `p + 2` and so on around the ring, is complete
/// at rank `p - 1`, and goes around once more to be copied.
pub(super) fn all_reduce(seat: Seat, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::Ring);
    let Seat { ranks, .. } = seat;
    if ranks == 1 {
        program.copy(own.span(0..n), Area::Output.span(0..n));
        return program;
    }
    let (next, previous) = (seat.after(1), seat.before(1));
    for turn in 0..ranks - 1 {
        let from = if turn == 0 { own } else { Area::Output };
        program.send(next, from.span(part(n, ranks, seat.before(turn))));
        let range = part(n, ranks, seat.before(turn + 1));
        program.combine(previous, Area::Output.span(range.clone()), own.span(range), turn == ranks - 2);
    }
    for turn in 0..ranks - 1 {
        program.send(next, Area::Output.span(part(n, ranks, seat.before(turn + ranks - 1))));
        program.store(previous, Area::Output.span(part(n, ranks, seat.before(turn))));
    }
    program
}

/// Every rank gets its part of the combination of the `n` input elements of all ranks.
///
/// Part `p` starts at rank `p + 1`, is combined with the values of `p + 2` and so on, and is complete at rank `p`.
pub(crate) fn reduce_scatter(seat: Seat, n: usize) -> Program {
    let mut program = Program::new(Algorithm::Ring);
    let Seat { rank, ranks } = seat;
    let mine = Area::Output.span(0..part(n, ranks, rank).len());
    if ranks == 1 {
        program.copy(Area::Input.span(0..n), mine);
        return program;
    }
    // Two slots: one part still goes out while the next comes in.
    let slot = part(n, ranks, 0).len();
    program.scratch = 2 * slot;
    let mut sent = Area::Input.span(part(n, ranks, seat.before(1)));
    for turn in 0..ranks - 1 {
        program.send(seat.after(1), sent);
        let range = part(n, ranks, seat.before(turn + 2));
        let last = turn == ranks - 2;
        let start = slot * (turn % 2);
        let into = if last { mine.clone() } else { Area::Scratch.span(start..start + range.len()) };
        program.combine(seat.before(1), into.clone(), Area::Input.span(range), last);
        sent = into;
    }
    program
}

/// The elements of all ranks go around the ring once.
pub(super) fn all_gather(seat: Seat, counts: &[usize], own: Area) -> Program {
    let mut program = Program::new(Algorithm::Ring);
    let places = spread(counts);
    let mine = Area::Output.span(places[seat.rank].clone());
    let start = if own == Area::Output { mine.clone() } else { own.span(0..counts[seat.rank]) };
    let mut sent = start.clone();
    for turn in 1..seat.ranks {
        program.send(seat.after(1), sent);
        if turn == 1 {
            program.copy(start.clone(), mine.clone());
        }
        sent = Area::Output.span(places[seat.before(turn)].clone());
        program.store(seat.before(1), sent.clone());
    }
    if seat.ranks == 1 {
        program.copy(start, mine);
    }
    program
}

/// The root's elements pass from rank to rank, in pieces: each link carries them once.
pub(super) fn broadcast(seat: Seat, root: usize, n: usize) -> Program {
    let mut program = Program::new(Algorithm::Ring);
    if seat.rank != root {
        program.store(seat.before(1), Area::Output.span(0..n));
    }
    if seat.after(1) != root {
        program.send(seat.after(1), Area::Output.span(0..n));
    }
    program
}

/// The combination passes from rank to rank, in pieces: it starts at `root + 1` and is complete at the root.
pub(super) fn reduce(seat: Seat, root: usize, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::Ring);
    let mut sum = own.span(0..n);
    if seat.ranks > 1 && seat.before(1) != root {
        let area = if seat.rank == root { Area::Output } else { Area::Scratch };
        let into = area.span(0..n);
        program.combine(seat.before(1), into.clone(), sum, seat.rank == root);
        sum = into;
    }
    if seat.rank != root {
        program.scratch = n;
        program.send(seat.after(1), sum);
    } else if seat.ranks == 1 {
        program.copy(sum, Area::Output.span(0..n));
    }
    program
}
