//! Recursive halving and doubling: halves are exchanged with ever nearer ranks, then gathered from ever farther ones.

use super::{Area, Program, Seat};
use crate::core::parts::part;
use crate::core::words::Algorithm;
use std::ops::Range;

/// Let `p` be the greatest power of two of ranks. Ranks from `p` on first give their values to the rank `p` below.
/// Then rank `i` exchanges with `i ^ p/2`, `i ^ p/4` and so on: each gives away one half of what it still holds and
/// combines the other half with what it gets. At last rank `i` alone holds part `i` of `p`.
///
/// So with `s(i, p) = x(i) ∘ x(i + p)` part `i` is `s(i, 1)`, where `s(i, d) = s(i, 2d) ∘ s(i ^ d, 2d)`.
pub(super) fn all_reduce(seat: Seat, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::HalvingDoubling);
    let Seat { rank, ranks } = seat;
    let whole = Area::Output.span(0..n);
    if ranks == 1 {
        program.copy(own.span(0..n), whole);
        return program;
    }
    let power = 1 << ranks.ilog2();
    if rank >= power {
        program.send(rank - power, own.span(0..n));
        program.store(rank - power, whole);
        return program;
    }
    let mut sum = own;
    let outside = rank + power < ranks;
    if outside {
        program.combine(rank + power, whole.clone(), own.span(0..n), false);
        sum = Area::Output;
    }
    let elements =
        |parts: &Range<usize>| part(n, power, parts.start).start..part(n, power, parts.end - 1).end;
    let mut held = 0..power;
    let mut given = Vec::new();
    let mut distance = power / 2;
    while distance > 0 {
        let middle = held.start + distance;
        let (low, high) = (held.start..middle, middle..held.end);
        let (keep, give) = if rank & distance == 0 { (low, high) } else { (high, low) };
        program.send(rank ^ distance, sum.span(elements(&give)));
        let range = elements(&keep);
        program.combine(rank ^ distance, Area::Output.span(range.clone()), sum.span(range), distance == 1);
        given.push((distance, give));
        (held, sum) = (keep, Area::Output);
        distance /= 2;
    }
    for (distance, give) in given.into_iter().rev() {
        program.send(rank ^ distance, Area::Output.span(elements(&held)));
        program.store(rank ^ distance, Area::Output.span(elements(&give)));
        held = held.start.min(give.start)..held.end.max(give.end);
    }
    if outside {
        program.send(rank + power, whole);
    }
    program
}
