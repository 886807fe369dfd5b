//! Ranks run out of values at different times.

use super::{CORES, run};
use crate::core::words::{Kind, Reduction};
use crate::error::CollectiveError;
use crate::shell::shared::SharedGroup;
use bytemuck::{cast_slice, cast_slice_mut};
use phalanx_types::DType;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// One call that all ranks with values left make.
struct Planned {
    count: usize,
    average: bool,
    shared: bool,
}

/// How many calls each rank makes before it joins, all the calls, and the result of each.
struct Round {
    steps: Vec<usize>,
    plan: Vec<Planned>,
    expected: Vec<Vec<u32>>,
}

/// Sums of these depend on the order, and some are -0.
fn value(rank: usize, call: usize, index: usize) -> f32 {
    match (index + call) % 5 {
        0 => -0.0,
        rest => (rest as f32 - 2.5) / (1 + rank * 31 + index % 1009) as f32,
    }
}

/// The sum in rank order, with zeros for joined ranks.
fn expected(steps: &[usize], call: usize, planned: &Planned) -> Vec<u32> {
    let of = |rank: usize, index: usize| if steps[rank] > call { value(rank, call, index) } else { 0.0 };
    let sum = |index: usize| {
        let sum = (1..steps.len()).fold(of(0, index), |sum, rank| sum + of(rank, index));
        if planned.average { sum / steps.len() as f32 } else { sum }
    };
    (0..planned.count).map(|index| sum(index).to_bits()).collect()
}

fn carry_out(group: &mut SharedGroup, round: &Round) {
    let Round { steps, plan, expected } = round;
    let rank = group.rank();
    let most = plan.iter().map(|planned| planned.count).max().unwrap_or(0);
    let mut buffer = group.buffer(4 * most).unwrap();
    for (call, planned) in plan.iter().enumerate().take(steps[rank]) {
        let reduction = if planned.average { Reduction::Average } else { Reduction::Sum };
        let mut values: Vec<f32> = (0..planned.count).map(|index| value(rank, call, index)).collect();
        let bytes: &mut [u8] = cast_slice_mut(&mut values);
        if planned.shared {
            buffer.slice_mut::<u8>().unwrap()[..bytes.len()].copy_from_slice(bytes);
            group.all_reduce_shared(&mut buffer, 0..bytes.len(), DType::F32, reduction, "shared").unwrap();
            bytes.copy_from_slice(&buffer.slice::<u8>().unwrap()[..bytes.len()]);
        } else {
            group.all_reduce(bytes, DType::F32, reduction, "private").unwrap();
        }
        assert!(cast_slice::<u8, u32>(bytes) == expected[call], "call {call} of {rank}");
    }
    buffer.slice_mut::<u8>().unwrap().fill(rank as u8 + 1);
    let last = (0..steps.len()).max_by_key(|rank| (steps[*rank], *rank)).unwrap();
    assert_eq!(group.join(), Ok(last));
    // No rank has touched the buffer of a joined rank.
    assert!(buffer.slice::<u8>().unwrap().iter().all(|byte| *byte == rank as u8 + 1));
}

#[test]
fn ranks_join_at_any_time() {
    for seed in 0..16 {
        let mut random = Pcg64::seed_from_u64(seed);
        let ranks = random.random_range(1..=5_usize);
        let mut round = || {
            let steps: Vec<usize> = (0..ranks).map(|_| random.random_range(0..6_usize)).collect();
            let plan = (0..6).map(|_| Planned {
                count: [0, 1, 100, 4096, 4097, 9_000, 70_001, 140_000][random.random_range(0..8_usize)],
                average: random.random(),
                shared: random.random(),
            });
            let plan: Vec<Planned> = plan.collect();
            let sums = plan.iter().enumerate().map(|(call, planned)| expected(&steps, call, planned));
            let expected = sums.collect();
            Round { steps, plan, expected }
        };
        let (first, second) = (round(), round());
        run(ranks, CORES[seed as usize % 2], |group| {
            carry_out(group, &first);
            carry_out(group, &second);
            group.barrier("all are back").unwrap();
        });
    }
}

#[test]
fn integers_of_all_sizes_take_zeros() {
    run(3, 64, |group| {
        for dtype in [DType::U8, DType::I32, DType::I64] {
            if group.rank() == 1 {
                assert_eq!(group.join(), Ok(2));
                continue;
            }
            for count in [1, 40_000] {
                let mut data = vec![0_u8; count * dtype.size()];
                data.chunks_mut(dtype.size()).for_each(|element| element[0] = 3);
                group.all_reduce(&mut data, dtype, Reduction::Sum, "tokens").unwrap();
                assert!(data.chunks(dtype.size()).all(|element| element[0] == 6));
            }
            assert_eq!(group.join(), Ok(2));
        }
    });
}

#[test]
fn what_takes_no_zeros_fails_on_all_ranks() {
    for cores in CORES {
        run(3, cores, |group| {
            let rank = group.rank();
            for trial in 0..3 {
                let failed = match trial {
                    _ if rank == 0 => group.join().map(drop),
                    0 => group.broadcast(1, &mut [0; 8], DType::F32, "weights"),
                    1 => group.all_reduce(&mut [0; 8], DType::F32, Reduction::Max, "grad"),
                    _ => group.all_reduce(&mut vec![0; 8 * rank], DType::F32, Reduction::Sum, "grad"),
                };
                let Err(CollectiveError::Mismatch { own_rank, rank: other, ours, theirs }) = failed else {
                    panic!("rank {rank} got {failed:?}");
                };
                assert_ne!(ours, theirs);
                if trial < 2 {
                    assert_eq!(own_rank, rank);
                    assert!([ours.kind, theirs.kind].contains(&Kind::Join));
                } else if rank == 0 {
                    assert_eq!([own_rank, other], [1, 2]);
                    assert_eq!([ours.count, theirs.count], [2, 4]);
                }
            }
            // The group is still usable: all ranks failed alike.
            let mut data = 1_f32.to_ne_bytes();
            group.all_reduce(&mut data, DType::F32, Reduction::Sum, "agreed").unwrap();
            assert_eq!(data, 3_f32.to_ne_bytes());
        });
    }
}
