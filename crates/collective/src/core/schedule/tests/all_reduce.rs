//! Reductions: each result equals the combination in the order that the algorithm documents.

use super::super::{Area, Program, Seat, all_reduce, reduce, reduce_scatter};
use super::machine::{Aligned, DTYPES, REDUCTIONS, Rank, run, values};
use crate::core::numbers::{combine, finish};
use crate::core::parts::part;
use crate::core::words::{Algorithm, Reduction};
use phalanx_types::DType;
use std::ops::Range;

const SIZES: [usize; 6] = [0, 1, 15, 16, 17, MANY];
/// More than 16 for each of 9 ranks, and a multiple of none of the block sizes.
const MANY: usize = 401;
const ALGORITHMS: [Algorithm; 3] = [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring];

/// The combinations of some elements of all ranks, each computed on its own.
struct Expected<'a> {
    dtype: DType,
    reduction: Reduction,
    inputs: &'a [Vec<u8>],
    range: Range<usize>,
}

impl Expected<'_> {
    fn of(&self, rank: usize) -> Vec<u8> {
        let size = self.dtype.size();
        self.inputs[rank][self.range.start * size..self.range.end * size].to_vec()
    }

    fn both(&self, a: Vec<u8>, b: Vec<u8>) -> Vec<u8> {
        let mut into = Aligned::new(&a);
        combine(self.dtype, self.reduction, into.bytes_mut(), Aligned::new(&b).bytes());
        into.bytes().to_vec()
    }

    /// Combined in ring order, starting with rank `start`.
    fn around(&self, start: usize) -> Vec<u8> {
        let ranks = self.inputs.len();
        (1..ranks).fold(self.of(start), |sum, by| self.both(sum, self.of((start + by) % ranks)))
    }

    /// `s(i, d)` of halving and doubling.
    fn halves(&self, rank: usize, distance: usize) -> Vec<u8> {
        let ranks = self.inputs.len();
        let power = 1 << ranks.ilog2();
        match distance == power {
            true if rank + power < ranks => self.both(self.of(rank), self.of(rank + power)),
            true => self.of(rank),
            false => self.both(self.halves(rank, 2 * distance), self.halves(rank ^ distance, 2 * distance)),
        }
    }

    /// The subtree of `place` with children nearer than `reach`.
    fn subtree(&self, root: usize, place: usize, reach: usize) -> Vec<u8> {
        let ranks = self.inputs.len();
        let mut sum = self.of((root + place) % ranks);
        let mut distance = 1;
        while distance < reach && place + distance < ranks {
            sum = self.both(sum, self.subtree(root, place + distance, distance));
            distance *= 2;
        }
        sum
    }

    fn finish(&self, sum: Vec<u8>) -> Vec<u8> {
        let mut result = Aligned::new(&sum);
        finish(self.dtype, self.reduction, self.inputs.len(), result.bytes_mut());
        result.bytes().to_vec()
    }
}

fn expected_all_reduce(algorithm: Algorithm, mut expected: Expected<'_>) -> Vec<u8> {
    let (ranks, n) = (expected.inputs.len(), expected.range.end);
    let cuts = match algorithm {
        Algorithm::Direct => 1,
        Algorithm::HalvingDoubling => 1 << ranks.ilog2(),
        _ => ranks,
    };
    let mut result = Vec::new();
    for index in 0..cuts {
        expected.range = part(n, cuts, index);
        let sum = match algorithm {
            Algorithm::Direct => expected.around(0),
            Algorithm::HalvingDoubling => expected.halves(index, 1),
            _ => expected.around(index),
        };
        result.extend(expected.finish(sum));
    }
    result
}

fn seats(ranks: usize) -> impl Iterator<Item = Seat> {
    (0..ranks).map(move |rank| Seat { rank, ranks })
}

/// All ranks with the program that each gets, in place or not.
fn filled(inputs: &[Vec<u8>], own: Area, length: usize, program: impl Fn(Seat) -> Program) -> Vec<Rank> {
    let rank = |seat: Seat| {
        let mine = inputs[seat.rank].clone();
        let (input, output) = match own {
            Area::Output => (Vec::new(), mine),
            _ => (mine, vec![0xee; length]),
        };
        Rank { program: program(seat), input, output }
    };
    seats(inputs.len()).map(rank).collect()
}

/// Every number of ranks and every size; every combination of type and reduction only for one size.
fn each_case(mut check: impl FnMut(DType, Reduction, usize, &[Vec<u8>], Area)) {
    for ranks in 1..=9 {
        for own in [Area::Input, Area::Output] {
            for n in SIZES {
                for dtype in DTYPES {
                    let several = n == 17 || dtype == DType::F32;
                    for reduction in
                        REDUCTIONS.into_iter().filter(|one| several || *one == Reduction::Average)
                    {
                        let inputs: Vec<_> = (0..ranks).map(|rank| values(dtype, n, rank + 1)).collect();
                        check(dtype, reduction, n, &inputs, own);
                    }
                }
            }
        }
    }
}

#[test]
fn all_reduce_combines_in_its_order() {
    each_case(|dtype, reduction, n, inputs, own| {
        for algorithm in ALGORITHMS {
            let expected = Expected { dtype, reduction, inputs, range: 0..n };
            let expected = expected_all_reduce(algorithm, expected);
            let ranks = filled(inputs, own, n * dtype.size(), |seat| all_reduce(algorithm, seat, n, own));
            for output in run(ranks, dtype, reduction, n as u64) {
                assert_eq!(output, expected, "{algorithm:?} {dtype:?} {reduction} {n} × {}", inputs.len());
            }
        }
    });
}

#[test]
fn many_interleavings_give_the_same_bits() {
    let (n, ranks) = (700, 5);
    let inputs: Vec<_> = (0..ranks).map(|rank| values(DType::F32, n, rank + 1)).collect();
    for algorithm in ALGORITHMS {
        for own in [Area::Input, Area::Output] {
            let outputs = |seed| {
                let ranks = filled(&inputs, own, n * 4, |seat| all_reduce(algorithm, seat, n, own));
                run(ranks, DType::F32, Reduction::Sum, seed)
            };
            let first = outputs(0);
            for seed in 1..100 {
                assert_eq!(outputs(seed), first);
            }
        }
    }
}

#[test]
fn reduce_scatter_gives_each_rank_its_part() {
    each_case(|dtype, reduction, n, inputs, own| {
        if own == Area::Output {
            return;
        }
        let ranks = inputs.len();
        let mut filled = filled(inputs, own, 0, |seat| reduce_scatter(seat, n));
        for (rank, filled) in filled.iter_mut().enumerate() {
            filled.output = vec![0; part(n, ranks, rank).len() * dtype.size()];
        }
        for (rank, output) in run(filled, dtype, reduction, n as u64).into_iter().enumerate() {
            let expected = Expected { dtype, reduction, inputs, range: part(n, ranks, rank) };
            assert_eq!(output, expected.finish(expected.around((rank + 1) % ranks)));
        }
    });
}

#[test]
fn reduce_gives_the_root_the_combination() {
    each_case(|dtype, reduction, n, inputs, own| {
        let ranks = inputs.len();
        for root in [0, ranks / 2] {
            for algorithm in ALGORITHMS {
                let expected = Expected { dtype, reduction, inputs, range: 0..n };
                let sum = match algorithm {
                    Algorithm::Direct => expected.around(0),
                    Algorithm::HalvingDoubling => expected.subtree(root, 0, ranks.next_power_of_two()),
                    _ => expected.around((root + 1) % ranks),
                };
                let program = |seat| reduce(algorithm, seat, root, n, own);
                let mut filled = filled(inputs, own, n * dtype.size(), program);
                for (rank, filled) in filled.iter_mut().enumerate() {
                    if rank != root && own == Area::Input {
                        filled.output.clear();
                    }
                }
                let outputs = run(filled, dtype, reduction, n as u64);
                assert_eq!(outputs[root], expected.finish(sum), "{algorithm:?} {n} × {ranks} to {root}");
            }
        }
    });
}
