//! Programs that move values without combining them: gather, scatter, all-to-all, barrier.

use super::{Area, Program, Seat, spread};
use crate::core::words::Algorithm;

/// The root gets the input of every rank, `counts[rank]` elements from each, in rank order.
pub(crate) fn gather(seat: Seat, root: usize, counts: &[usize]) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    let mine = Area::Input.span(0..counts[seat.rank]);
    if seat.rank != root {
        program.send(root, mine);
        return program;
    }
    let places = spread(counts);
    program.copy(mine, Area::Output.span(places[root].clone()));
    for by in 1..seat.ranks {
        let from = seat.after(by);
        program.store(from, Area::Output.span(places[from].clone()));
    }
    program
}

/// Every rank gets its part of the root's input, which holds `counts[rank]` elements for each rank in order.
pub(crate) fn scatter(seat: Seat, root: usize, counts: &[usize]) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    let mine = Area::Output.span(0..counts[seat.rank]);
    if seat.rank != root {
        program.store(root, mine);
        return program;
    }
    let places = spread(counts);
    for by in 1..seat.ranks {
        let to = seat.after(by);
        program.send(to, Area::Input.span(places[to].clone()));
    }
    program.copy(Area::Input.span(places[root].clone()), mine);
    program
}

/// Every rank gives `give[rank]` elements of its input to each rank and gets `get[rank]` from each, in rank order.
pub(crate) fn all_to_all(seat: Seat, give: &[usize], get: &[usize]) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    let (given, got) = (spread(give), spread(get));
    for by in 0..seat.ranks {
        let (to, from) = (seat.after(by), seat.before(by));
        let (span, into) = (Area::Input.span(given[to].clone()), Area::Output.span(got[from].clone()));
        if by == 0 {
            program.copy(span, into);
        } else {
            program.send(to, span);
            program.store(from, into);
        }
    }
    program
}

/// Dissemination barrier: in round `k` every rank signals the rank `2^k` places further that all ranks it has heard of
/// have arrived. A signal is one element, and is sent only after the signal of the round before has arrived.
pub(crate) fn barrier(seat: Seat) -> Program {
    let mut program = Program::new(Algorithm::HalvingDoubling);
    program.scratch = 1;
    let mut distance = 1;
    while distance < seat.ranks {
        program.send(seat.after(distance), Area::Scratch.span(0..1));
        program.store(seat.before(distance), Area::Scratch.span(0..1));
        distance *= 2;
    }
    program
}
