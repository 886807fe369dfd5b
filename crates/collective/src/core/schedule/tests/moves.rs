//! Programs that only move elements.

use super::super::{Area, Program, Seat, Step, all_gather, all_to_all, barrier, broadcast, gather, scatter};
use super::machine::{Rank, run, values};
use crate::core::words::{Algorithm, Reduction};
use phalanx_types::DType;

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Direct, Algorithm::HalvingDoubling, Algorithm::Ring];

fn moved(ranks: usize, mut rank: impl FnMut(Seat) -> (Program, Vec<u8>, usize)) -> Vec<Vec<u8>> {
    let filled = (0..ranks).map(|index| {
        let (program, input, output) = rank(Seat { rank: index, ranks });
        Rank { program, input, output: vec![0xee; output] }
    });
    run(filled.collect(), DType::U8, Reduction::Sum, ranks as u64)
}

/// Different for every rank, with zeros among them.
fn counts(ranks: usize, seed: usize) -> Vec<usize> {
    (0..ranks).map(|rank| (rank * 37 + seed * 11) % 5 * 13).collect()
}

#[test]
fn all_gather_gives_everything_to_every_rank() {
    for ranks in 1..=9 {
        for seed in 0..5 {
            let counts = counts(ranks, seed);
            let parts: Vec<_> = (0..ranks).map(|rank| values(DType::U8, counts[rank], rank)).collect();
            let whole = parts.concat();
            for algorithm in [Algorithm::Direct, Algorithm::Ring] {
                let outputs = moved(ranks, |seat| {
                    let program = all_gather(algorithm, seat, &counts, Area::Input);
                    (program, parts[seat.rank].clone(), whole.len())
                });
                assert!(outputs.iter().all(|output| *output == whole), "{algorithm:?} {counts:?}");
                let mut start = 0;
                let filled = (0..ranks).map(|rank| {
                    let mut output = vec![0; whole.len()];
                    output[start..start + counts[rank]].copy_from_slice(&parts[rank]);
                    start += counts[rank];
                    let program = all_gather(algorithm, Seat { rank, ranks }, &counts, Area::Output);
                    Rank { program, input: Vec::new(), output }
                });
                let outputs = run(filled.collect(), DType::U8, Reduction::Sum, 1);
                assert!(outputs.iter().all(|output| *output == whole), "{algorithm:?} {counts:?} in place");
            }
        }
    }
}

#[test]
fn broadcast_gives_the_root_s_values_to_every_rank() {
    for ranks in 1..=9 {
        for root in 0..ranks {
            for n in [0, 1, 1000] {
                let sent = values(DType::U8, n, 3);
                for algorithm in ALGORITHMS {
                    let filled = (0..ranks).map(|rank| Rank {
                        program: broadcast(algorithm, Seat { rank, ranks }, root, n),
                        input: Vec::new(),
                        output: if rank == root { sent.clone() } else { vec![0; n] },
                    });
                    for output in run(filled.collect(), DType::U8, Reduction::Sum, 1) {
                        assert_eq!(output, sent, "{algorithm:?} from {root} of {ranks}");
                    }
                }
            }
        }
    }
}

#[test]
fn gather_and_scatter_are_opposites() {
    for ranks in 1..=9 {
        for root in 0..ranks {
            let counts = counts(ranks, root);
            let parts: Vec<_> = (0..ranks).map(|rank| values(DType::U8, counts[rank], rank)).collect();
            let whole = parts.concat();
            let outputs = moved(ranks, |seat| {
                let length = if seat.rank == root { whole.len() } else { 0 };
                (gather(seat, root, &counts), parts[seat.rank].clone(), length)
            });
            assert_eq!(outputs[root], whole);
            let outputs = moved(ranks, |seat| {
                let input = if seat.rank == root { whole.clone() } else { Vec::new() };
                (scatter(seat, root, &counts), input, counts[seat.rank])
            });
            assert_eq!(outputs, parts);
        }
    }
}

#[test]
fn all_to_all_exchanges_every_pair() {
    for ranks in 1..=9 {
        let count = |from: usize, to: usize| (from * 5 + to * 3) % 4 * 17;
        let part = |from: usize, to: usize| values(DType::U8, count(from, to), from * 16 + to);
        let outputs = moved(ranks, |seat| {
            let give: Vec<_> = (0..ranks).map(|to| count(seat.rank, to)).collect();
            let get: Vec<_> = (0..ranks).map(|from| count(from, seat.rank)).collect();
            let input = (0..ranks).flat_map(|to| part(seat.rank, to)).collect();
            (all_to_all(seat, &give, &get), input, get.iter().sum())
        });
        for (rank, output) in outputs.into_iter().enumerate() {
            assert_eq!(output, (0..ranks).flat_map(|from| part(from, rank)).collect::<Vec<_>>());
        }
    }
}

/// After the last round every rank has a signal, direct or indirect, from every rank.
#[test]
fn a_barrier_hears_of_every_rank() {
    for ranks in 1..=9 {
        moved(ranks, |seat| (barrier(seat), Vec::new(), 0));
        let programs: Vec<_> = (0..ranks).map(|rank| barrier(Seat { rank, ranks }).steps).collect();
        let mut heard: Vec<Vec<bool>> = (0..ranks).map(|a| (0..ranks).map(|b| a == b).collect()).collect();
        for round in 0..programs[0].len() / 2 {
            let before = heard.clone();
            for (rank, steps) in programs.iter().enumerate() {
                let Step::Receive { from, .. } = &steps[2 * round + 1] else { panic!("not a receive") };
                for (own, other) in heard[rank].iter_mut().zip(&before[*from]) {
                    *own |= other;
                }
            }
        }
        assert!(heard.iter().flatten().all(|heard| *heard), "{ranks}");
    }
}
