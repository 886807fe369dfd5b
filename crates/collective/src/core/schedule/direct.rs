//! Direct algorithms: every rank sends to every other rank, in one exchange.

use super::{Area, Program, Seat, Step, spread};
use crate::core::words::Algorithm;

/// Every rank combines all values itself, in rank order.
pub(super) fn all_reduce(seat: Seat, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    let own = aside(&mut program, seat, n, own);
    for by in 1..seat.ranks {
        program.send(seat.after(by), own.span(0..n));
    }
    fold(&mut program, seat, n, own);
    program
}

/// The root combines all values, in rank order.
pub(super) fn reduce(seat: Seat, root: usize, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    if seat.rank == root {
        let own = aside(&mut program, seat, n, own);
        fold(&mut program, seat, n, own);
    } else {
        program.send(root, own.span(0..n));
    }
    program
}

/// Moves values out of the output, which is filled in rank order.
fn aside(program: &mut Program, seat: Seat, n: usize, own: Area) -> Area {
    if own != Area::Output || seat.ranks == 1 {
        return own;
    }
    program.scratch = n;
    program.copy(Area::Output.span(0..n), Area::Scratch.span(0..n));
    Area::Scratch
}

fn fold(program: &mut Program, seat: Seat, n: usize, own: Area) {
    let all = Area::Output.span(0..n);
    for rank in 0..seat.ranks {
        let last = rank + 1 == seat.ranks;
        match (rank == seat.rank, rank) {
            (true, 0) => program.copy(own.span(0..n), all.clone()),
            (true, _) => {
                program.steps.push(Step::Combine { into: all.clone(), other: own.span(0..n), last });
            }
            (false, 0) => program.store(rank, all.clone()),
            (false, _) => program.combine(rank, all.clone(), all.clone(), last),
        }
    }
}

pub(super) fn all_gather(seat: Seat, counts: &[usize], own: Area) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    let places = spread(counts);
    let mine = Area::Output.span(places[seat.rank].clone());
    let start = if own == Area::Output { mine.clone() } else { own.span(0..counts[seat.rank]) };
    for by in 1..seat.ranks {
        program.send(seat.after(by), start.clone());
    }
    program.copy(start, mine);
    for by in 1..seat.ranks {
        let from = seat.before(by);
        program.store(from, Area::Output.span(places[from].clone()));
    }
    program
}

pub(super) fn broadcast(seat: Seat, root: usize, n: usize) -> Program {
    let mut program = Program::new(Algorithm::Direct);
    if seat.rank == root {
        for by in 1..seat.ranks {
            program.send(seat.after(by), Area::Output.span(0..n));
        }
    } else {
        program.store(root, Area::Output.span(0..n));
    }
    program
}
