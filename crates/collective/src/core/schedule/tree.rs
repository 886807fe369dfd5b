//! Binomial-tree algorithms: few exchanges.

use super::{Area, Program, Seat};
use crate::core::words::Algorithm;

/// Counted from the root, rank `v` gets the elements from the rank that is `v` without its lowest bit.
pub(super) fn broadcast(seat: Seat, root: usize, n: usize) -> Program {
    let mut program = Program::new(Algorithm::HalvingDoubling);
    let place = seat.before(root);
    let reach = if place == 0 { seat.ranks.next_power_of_two() } else { lowest_bit(place) };
    if place != 0 {
        program.store(seat.before(reach), Area::Output.span(0..n));
    }
    let mut distance = reach / 2;
    while distance > 0 {
        if place + distance < seat.ranks {
            program.send(seat.after(distance), Area::Output.span(0..n));
        }
        distance /= 2;
    }
    program
}

/// Counted from the root, rank `v` combines its values with the results of `v + 1`, `v + 2`, `v + 4` and so on, up to
/// its lowest bit. It then sends the result to the rank that is `v` without that bit.
pub(super) fn reduce(seat: Seat, root: usize, n: usize, own: Area) -> Program {
    let mut program = Program::new(Algorithm::HalvingDoubling);
    let place = seat.before(root);
    let area = if place == 0 { Area::Output } else { Area::Scratch };
    let reach = if place == 0 { seat.ranks.next_power_of_two() } else { lowest_bit(place) };
    let mut sum = own.span(0..n);
    let mut distance = 1;
    while distance < reach && place + distance < seat.ranks {
        let last = place == 0 && 2 * distance >= seat.ranks;
        program.combine(seat.after(distance), area.span(0..n), sum, last);
        sum = area.span(0..n);
        distance *= 2;
    }
    if place != 0 {
        program.scratch = n;
        program.send(seat.before(reach), sum);
    } else if seat.ranks == 1 {
        program.copy(sum, area.span(0..n));
    }
    program
}

fn lowest_bit(place: usize) -> usize {
    1 << place.trailing_zeros()
}
