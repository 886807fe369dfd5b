//! Ranks as threads and as processes, through shared memory.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use half::{bf16, f16};
use phalanx_collective::{CollectiveError, Kind, Prepared, Reduction, SegmentAddress, SharedGroup};
use phalanx_types::DType;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Average, Reduction::Min, Reduction::Max, Reduction::Product];
const NUMBERS: [DType; 7] =
    [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U8];
/// More cores than a test has ranks, and fewer: both ways of waiting.
const CORES: [usize; 2] = [64, 1];
/// Every page of it is touched for every group.
const ROOM: usize = 2 << 20;
/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn prepared(ranks: usize, cores: usize) -> (Vec<Prepared>, Vec<SegmentAddress>) {
    (0..ranks).map(|rank| SharedGroup::prepare_for_cores(rank, ranks, 7, ROOM, cores).unwrap()).unzip()
}

/// Runs one thread per rank and returns their results in rank order.
fn run<T: Send>(ranks: usize, cores: usize, rank: impl Fn(&mut SharedGroup) -> T + Sync) -> Vec<T> {
    let (prepared, addresses) = prepared(ranks, cores);
    let groups: Vec<_> = prepared.into_iter().map(|one| one.connect(&addresses).unwrap()).collect();
    let rank = &rank;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            groups.into_iter().map(|mut group| scope.spawn(move || rank(&mut group))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Runs for groups of 1 to 5 ranks, both ways of waiting.
fn run_all(rank: impl Fn(&mut SharedGroup) + Sync) {
    for cores in CORES {
        for ranks in 1..=5 {
            run(ranks, cores, &rank);
        }
    }
}

/// The values of [`value`], and results computed from them, repeat after this many elements.
const PERIOD: usize = 33;

/// Repeats one period of bytes up to a length: computing every byte would take a debug build minutes.
fn repeated(period: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = period.repeat(length.div_ceil(period.len().max(1)));
    bytes.truncate(length);
    bytes
}

/// Small whole numbers: every type holds them, their sums and their products.
fn value(rank: usize, index: usize) -> f64 {
    (1 + (index * 7 + rank * 5 + index / 11) % 3) as f64
}

fn encode(dtype: DType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DType::F32 => bytes.extend((value as f32).to_ne_bytes()),
            DType::F64 => bytes.extend(value.to_ne_bytes()),
            DType::F16 => bytes.extend(f16::from_f32(value as f32).to_ne_bytes()),
            DType::Bf16 => bytes.extend(bf16::from_f32(value as f32).to_ne_bytes()),
            DType::I32 => bytes.extend((value as i32).to_ne_bytes()),
            DType::I64 => bytes.extend((value as i64).to_ne_bytes()),
            DType::U8 => bytes.push(value as u8),
            _ => unreachable!("no test gives {dtype:?}"),
        }
    }
    bytes
}

fn given(dtype: DType, rank: usize, count: usize) -> Vec<u8> {
    let period = encode(dtype, (0..PERIOD).map(|index| value(rank, index)));
    repeated(&period, count * dtype.size())
}

fn expected(dtype: DType, reduction: Reduction, ranks: usize, range: std::ops::Range<usize>) -> Vec<u8> {
    let combined = |index: usize| {
        let values = (0..ranks).map(|rank| value(rank, index));
        match reduction {
            Reduction::Sum => values.sum(),
            Reduction::Average => match dtype {
                DType::F64 => values.sum::<f64>() / ranks as f64,
                _ => f64::from(values.sum::<f64>() as f32 / ranks as f32),
            },
            Reduction::Min => values.fold(f64::MAX, f64::min),
            Reduction::Max => values.fold(0.0, f64::max),
            Reduction::Product => values.product(),
            Reduction::Adasum => unreachable!("no test gives it"),
        }
    };
    let period = encode(dtype, (range.start..range.start + PERIOD).map(combined));
    repeated(&period, range.len() * dtype.size())
}

#[test]
fn all_reduces_private_memory() {
    run_all(|group| {
        for dtype in NUMBERS {
            for reduction in REDUCTIONS {
                for count in [0, 1, 13, 1000, 5003] {
                    let mut data = given(dtype, group.rank(), count);
                    group.all_reduce(&mut data, dtype, reduction, "grad").unwrap();
                    assert!(
                        data == expected(dtype, reduction, group.ranks(), 0..count),
                        "{dtype:?} {reduction}"
                    );
                }
            }
        }
        // The longest takes four blocks when there are more ranks than cores.
        for count in [1 << 17, 300_001, 1_000_003].into_iter().take(if group.ranks() == 3 { 3 } else { 1 }) {
            let mut data = given(DType::F32, group.rank(), count);
            group.all_reduce(&mut data, DType::F32, Reduction::Sum, "large").unwrap();
            assert!(data == expected(DType::F32, Reduction::Sum, group.ranks(), 0..count));
        }
    });
}

#[test]
fn all_reduces_shared_buffers() {
    run_all(|group| {
        let (rank, ranks) = (group.rank(), group.ranks());
        let mut small = group.buffer(40).unwrap();
        let mut buffer = group.buffer(3 << 19).unwrap();
        for dtype in NUMBERS {
            for reduction in REDUCTIONS {
                for (start, count) in [(0, 0), (3, 1), (5, 777), (1, 9001), (0, 17_000)] {
                    let all = start + count + 5;
                    let before = given(dtype, rank, all);
                    buffer.slice_mut::<u8>().unwrap()[..before.len()].copy_from_slice(&before);
                    let range = start * dtype.size()..(start + count) * dtype.size();
                    group.all_reduce_shared(&mut buffer, range.clone(), dtype, reduction, "shared").unwrap();
                    let after = &buffer.slice::<u8>().unwrap()[..before.len()];
                    assert_eq!(after[..range.start], before[..range.start]);
                    assert!(after[range.clone()] == expected(dtype, reduction, ranks, start..start + count));
                    assert_eq!(after[range.end..], before[range.end..]);
                }
            }
        }
        // Large enough to be claimed in several pieces.
        for count in [131_072, 300_001, 262_144] {
            let before = given(DType::F32, rank, count);
            buffer.slice_mut::<u8>().unwrap()[..before.len()].copy_from_slice(&before);
            group.all_reduce_shared(&mut buffer, 0..4 * count, DType::F32, Reduction::Sum, "large").unwrap();
            let after = &buffer.slice::<u8>().unwrap()[..before.len()];
            assert!(after == expected(DType::F32, Reduction::Sum, ranks, 0..count));
        }
        small.slice_mut::<f32>().unwrap().fill(2.0);
        group.all_reduce_shared(&mut small, 0..40, DType::F32, Reduction::Product, "small").unwrap();
        assert_eq!(small.slice::<f32>().unwrap(), [2_f32.powi(ranks as i32); 10]);
    });
}

#[test]
fn all_paths_give_the_bits_of_the_sum_in_the_order_of_ranks() {
    for cores in CORES {
        for count in [100_usize, 5_000, 50_000, 300_001] {
            let of = |rank: usize, index: usize| 1.0_f32 / (1 + rank * 31 + index % 1009) as f32;
            let sum = |index: usize| (1..4).fold(of(0, index), |sum, rank| sum + of(rank, index)).to_bits();
            let wanted: Vec<u32> = (0..count).map(sum).collect();
            run(4, cores, |group| {
                let mut buffer = group.buffer(4 * count).unwrap();
                let values: Vec<f32> = (0..count).map(|index| of(group.rank(), index)).collect();
                buffer.slice_mut::<f32>().unwrap().copy_from_slice(&values);
                group.all_reduce_shared(&mut buffer, 0..4 * count, DType::F32, Reduction::Sum, "x").unwrap();
                assert!(buffer.slice::<u32>().unwrap() == wanted);
                let mut private = values;
                let bytes = bytemuck::cast_slice_mut(&mut private);
                group.all_reduce(bytes, DType::F32, Reduction::Sum, "x").unwrap();
                assert!(bytemuck::cast_slice::<f32, u32>(&private) == wanted);
            });
        }
    }
}

#[test]
fn unaligned_memory_is_taken_too() {
    run(2, 64, |group| {
        let mut data = [0; 4 * 9 + 1];
        data[1..].copy_from_slice(&given(DType::F32, group.rank(), 9));
        group.all_reduce(&mut data[1..], DType::F32, Reduction::Sum, "odd").unwrap();
        assert_eq!(data[1..], expected(DType::F32, Reduction::Sum, 2, 0..9));
    });
}

#[test]
fn reduces_to_the_root() {
    run_all(|group| {
        for root in 0..group.ranks() {
            for count in [0, 17, 70_003] {
                let before = given(DType::I32, group.rank(), count);
                let mut data = before.clone();
                group.reduce(root, &mut data, DType::I32, Reduction::Max, "loss").unwrap();
                let combined = expected(DType::I32, Reduction::Max, group.ranks(), 0..count);
                assert!(data == if group.rank() == root { combined } else { before });
            }
        }
    });
}

#[test]
fn reduces_and_scatters() {
    run_all(|group| {
        let (rank, ranks) = (group.rank(), group.ranks());
        for dtype in [DType::F32, DType::Bf16, DType::U8] {
            for reduction in REDUCTIONS {
                let long = dtype == DType::F32 && reduction == Reduction::Sum;
                for part in [0, 1, 19, 70_001].into_iter().take(if long { 4 } else { 3 }) {
                    let all = given(dtype, rank, part * ranks);
                    let mut mine = vec![0; part * dtype.size()];
                    group.reduce_scatter(&all, &mut mine, dtype, reduction, "shards").unwrap();
                    assert!(mine == expected(dtype, reduction, ranks, rank * part..(rank + 1) * part));
                }
            }
        }
    });
}

fn pattern(from: usize, to: usize, length: usize) -> Vec<u8> {
    const RUN: usize = 251;
    let counts: Vec<u8> = (0..256 + RUN).map(|index| index as u8).collect();
    // The byte at `index` is `from * 31 + to * 17 + index + index / RUN`: 64 runs, and then all again.
    let run = |run: usize| {
        let start = (from * 31 + to * 17 + run * (RUN + 1)) % 256;
        &counts[start..start + RUN]
    };
    repeated(&(0..length.div_ceil(RUN).min(64)).map(run).collect::<Vec<_>>().concat(), length)
}

#[test]
fn moves_values() {
    run_all(|group| {
        let (rank, ranks) = (group.rank(), group.ranks());
        // Three ranks take several rounds.
        for length in [0, 1, 1000, if ranks == 3 { 1_100_001 } else { 50_001 }] {
            for root in [0, ranks - 1] {
                let mut data = if rank == root { pattern(root, 0, length) } else { vec![0; length] };
                group.broadcast(root, &mut data, DType::Bool, "weights").unwrap();
                assert!(data == pattern(root, 0, length));

                // Every rank contributes a different amount, one of them nothing.
                let mine = pattern(rank, 0, length * rank);
                let gathered = group.gather(root, &mine, DType::U8, "rows").unwrap();
                assert_eq!(gathered.is_some(), rank == root);
                for gathered in
                    gathered.into_iter().chain([group.all_gather(&mine, DType::U8, "rows").unwrap()])
                {
                    for from in 0..ranks {
                        assert!(gathered.part(from).unwrap() == pattern(from, 0, length * from));
                    }
                    assert_eq!(gathered.part(ranks), None);
                }

                let all: Vec<u8> = (0..ranks).flat_map(|to| pattern(root, to, length)).collect();
                let mut mine = vec![0; length];
                group.scatter(root, (rank == root).then_some(&all), &mut mine, DType::I8, "parts").unwrap();
                assert!(mine == pattern(root, rank, length));
            }
            let send: Vec<u8> = (0..ranks).flat_map(|to| pattern(rank, to, length)).collect();
            let mut receive = vec![0; send.len()];
            group.all_to_all(&send, &mut receive, DType::U8, "tokens").unwrap();
            assert!(receive == (0..ranks).flat_map(|from| pattern(from, rank, length)).collect::<Vec<_>>());
            group.barrier("round").unwrap();
        }
    });
}

#[test]
fn no_rank_passes_a_barrier_before_all_have_arrived() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for cores in CORES {
        let come = AtomicUsize::new(0);
        run(4, cores, |group| {
            for round in 1..=200 {
                come.fetch_add(1, Ordering::Relaxed);
                group.barrier("here").unwrap();
                assert!(come.load(Ordering::Relaxed) >= 4 * round);
            }
        });
    }
}

#[test]
fn ten_thousand_small_calls() {
    for (ranks, cores) in [(2, 64), (4, 1)] {
        run(ranks, cores, |group| {
            for call in 0..10_000_u64 {
                let mut data = [call + group.rank() as u64; 3].map(|value| value as i64);
                let bytes = bytemuck::cast_slice_mut(&mut data);
                group.all_reduce(bytes, DType::I64, Reduction::Sum, "count").unwrap();
                let ranks = ranks as i64;
                assert_eq!(data, [call as i64 * ranks + ranks * (ranks - 1) / 2; 3]);
            }
        });
    }
}

#[test]
fn calls_of_all_kinds_and_sizes_in_any_order() {
    for (seed, ranks, cores) in [(1, 2, 64), (2, 3, 64), (3, 3, 1), (4, 5, 1)] {
        run(ranks, cores, |group| {
            let rank = group.rank();
            let mut random = Pcg64::seed_from_u64(seed);
            let mut buffer = group.buffer(1 << 20).unwrap();
            for _ in 0..300 {
                let count = 1_usize << random.random_range(0..18_u32);
                let count = random.random_range(0..=count);
                match random.random_range(0..6_u32) {
                    0 | 1 => {
                        let mut data = given(DType::F32, rank, count);
                        group.all_reduce(&mut data, DType::F32, Reduction::Sum, "a").unwrap();
                        assert!(data == expected(DType::F32, Reduction::Sum, ranks, 0..count));
                    }
                    2 | 3 => {
                        let values = given(DType::I32, rank, count);
                        buffer.slice_mut::<u8>().unwrap()[..4 * count].copy_from_slice(&values);
                        group
                            .all_reduce_shared(&mut buffer, 0..4 * count, DType::I32, Reduction::Max, "b")
                            .unwrap();
                        let after = &buffer.slice::<u8>().unwrap()[..4 * count];
                        assert!(after == expected(DType::I32, Reduction::Max, ranks, 0..count));
                    }
                    4 => {
                        let gathered =
                            group.all_gather(&pattern(rank, 1, count / (rank + 1)), DType::U8, "c");
                        let gathered = gathered.unwrap();
                        assert!((0..ranks).all(|from| {
                            gathered.part(from).unwrap() == pattern(from, 1, count / (from + 1))
                        }));
                    }
                    _ => {
                        let root = count % ranks;
                        let mut data = if rank == root { pattern(root, 2, count) } else { vec![0; count] };
                        group.broadcast(root, &mut data, DType::U8, "d").unwrap();
                        assert!(data == pattern(root, 2, count));
                    }
                }
            }
        });
    }
}

#[test]
fn a_call_that_differs_fails_on_every_rank() {
    for cores in CORES {
        run(3, cores, |group| {
            let rank = group.rank();
            let odd = rank == 1;
            let differs = |result: Result<(), CollectiveError>| match result {
                Err(CollectiveError::Mismatch { own_rank, rank: other, ours, theirs }) => {
                    assert_eq!(own_rank, rank);
                    assert_eq!(other, usize::from(!odd));
                    assert_ne!(ours, theirs);
                    assert_eq!(ours.sequence, theirs.sequence);
                    (ours, theirs)
                }
                other => panic!("rank {rank} got {other:?}"),
            };
            let sum = Reduction::Sum;
            let mut data = vec![0; if odd { 8 } else { 400_000 }];
            let (ours, theirs) = differs(group.all_reduce(&mut data, DType::F32, sum, "count"));
            assert_eq!([ours.count, theirs.count], if odd { [2, 100_000] } else { [100_000, 2] });
            let dtype = if odd { DType::I32 } else { DType::F32 };
            differs(group.all_reduce(&mut [0; 8], dtype, sum, "dtype"));
            let reduction = if odd { Reduction::Max } else { sum };
            differs(group.all_reduce(&mut [0; 8], DType::F32, reduction, "reduction"));
            let name = if odd { "b" } else { "a" };
            let (ours, theirs) = differs(group.all_reduce(&mut [0; 8], DType::F32, sum, name));
            assert_eq!([ours.name, theirs.name], if odd { ["b", "a"] } else { ["a", "b"] });
            let (ours, _) = differs(group.broadcast(usize::from(odd), &mut [0; 8], DType::F32, "root"));
            assert_eq!(ours.kind, Kind::Broadcast { root: u32::from(odd) });
            differs(if odd {
                group.barrier("x")
            } else {
                group.reduce(0, &mut [0; 8], DType::F32, sum, "x")
            });
            differs(if odd {
                group.all_gather(&[0; 99], DType::U8, "x").map(drop)
            } else {
                group.reduce_scatter(&[0; 24], &mut [0; 8], DType::F32, sum, "x")
            });
            // The group is still usable: all ranks failed alike.
            let mut data = given(DType::F32, rank, 3);
            group.all_reduce(&mut data, DType::F32, sum, "agreed").unwrap();
            assert_eq!(data, expected(DType::F32, sum, 3, 0..3));
        });
    }
}

#[test]
fn what_cannot_be_done_is_refused() {
    run(1, 64, |group| {
        let mut buffer = group.buffer(64).unwrap();
        let adasum = group.reduce(0, &mut [0; 8], DType::F32, Reduction::Adasum, "x");
        assert!(matches!(adasum, Err(CollectiveError::DType { dtype: DType::F32, .. })));
        let adasum = group.all_reduce(&mut [0; 8], DType::I32, Reduction::Adasum, "x");
        assert!(matches!(adasum, Err(CollectiveError::DType { dtype: DType::I32, .. })));
        let bools = group.all_reduce(&mut [0; 8], DType::Bool, Reduction::Sum, "x");
        assert!(matches!(bools, Err(CollectiveError::DType { dtype: DType::Bool, .. })));
        let torn = group.all_reduce(&mut [0; 7], DType::F32, Reduction::Sum, "x");
        assert!(matches!(torn, Err(CollectiveError::Length { got: 7, .. })));
        let root = group.broadcast(1, &mut [0; 8], DType::F32, "x");
        assert_eq!(root, Err(CollectiveError::NoRank { rank: 1, ranks: 1 }));
        for range in [0..68, 2..6, 60..72] {
            let beyond = group.all_reduce_shared(&mut buffer, range, DType::F32, Reduction::Sum, "x");
            assert!(matches!(beyond, Err(CollectiveError::Length { .. })));
        }
        assert!(matches!(group.buffer(ROOM + 4096), Err(CollectiveError::Length { .. })));
        assert!(matches!(group.buffer(usize::MAX), Err(CollectiveError::Length { .. })));
        assert!(matches!(buffer.slice::<[u8; 48]>(), Err(CollectiveError::System { .. })));
        group.barrier("still works").unwrap();
    });
    assert!(matches!(SharedGroup::prepare(2, 2, 0, 0), Err(CollectiveError::NoRank { rank: 2, ranks: 2 })));
}

#[test]
fn a_segment_that_is_not_the_expected_one_is_refused() {
    let connect = |change: fn(&mut SegmentAddress)| {
        let (mut prepared, mut addresses) = prepared(2, 64);
        change(&mut addresses[1]);
        prepared.swap_remove(0).connect(&addresses).map(drop)
    };
    connect(|_| {}).unwrap();
    let changes: [fn(&mut SegmentAddress); 5] = [
        |address| address.token ^= 1,
        |address| address.fd = 0,
        |address| address.fd = 9999,
        |address| address.bytes += 4096,
        |address| address.pid = u32::MAX,
    ];
    for change in changes {
        assert!(matches!(connect(change), Err(CollectiveError::System { .. })));
    }
    let (mut one, mut addresses) = prepared(2, 64);
    let (_other, others) = SharedGroup::prepare(1, 2, 8, ROOM).unwrap();
    addresses[1] = others;
    let other_epoch = one.swap_remove(0).connect(&addresses);
    assert!(matches!(other_epoch, Err(CollectiveError::System { .. })));
}

#[test]
fn an_abort_ends_waiting_and_later_calls_of_all_ranks() {
    for cores in CORES {
        for spinning in [true, false] {
            let (tell, told) = mpsc::channel();
            let told = Mutex::new(told);
            run(3, cores, |group| {
                let mut data = given(DType::F32, group.rank(), 10);
                group.all_reduce(&mut data, DType::F32, Reduction::Sum, "before").unwrap();
                let mut buffer = group.buffer(64).unwrap();
                let over = CollectiveError::Aborted { epoch: 7, reason: "rank 2 is lost".to_owned() };
                let rank = group.rank();
                if group.rank() < 2 && !spinning {
                    // Much longer than a rank spins: a rank that reports a wait is asleep.
                    let tell = tell.clone();
                    group.set_on_wait(Duration::from_millis(5), move |_, _| tell.send(rank).unwrap());
                }
                if group.rank() == 2 {
                    let mut awake = if spinning { vec![] } else { vec![0, 1] };
                    while !awake.is_empty() {
                        let asleep = told.lock().unwrap().recv_timeout(DEADLINE).unwrap();
                        awake.retain(|rank| *rank != asleep);
                    }
                    group.aborter().abort("rank 2 is lost".to_owned());
                    group.aborter().abort("too late".to_owned());
                }
                assert_eq!(group.barrier("never"), Err(over.clone()));
                assert_eq!(group.all_reduce(&mut data, DType::F32, Reduction::Sum, "x"), Err(over.clone()));
                // A buffer that no failed call used still belongs to this rank.
                assert!(buffer.slice::<f32>().is_ok());
                let reduced = group.all_reduce_shared(&mut buffer, 0..64, DType::F32, Reduction::Sum, "y");
                assert_eq!(reduced, Err(over.clone()));
                assert_eq!(buffer.slice_mut::<f32>(), Err(over));
            });
        }
    }
}

/// Of five ranks, two form one group and two another; one is alone.
#[test]
fn some_ranks_connect_without_the_others() {
    for cores in CORES {
        let (prepared, addresses) = prepared(5, cores);
        let members = |rank: usize| match rank {
            1 | 3 => vec![1, 3],
            0 | 4 => vec![4, 0],
            _ => vec![rank],
        };
        let connect = |(rank, one): (usize, Prepared)| {
            let members = members(rank);
            let addresses: Vec<_> = members.iter().map(|member| addresses[*member]).collect();
            one.connect_members(&members, &addresses).unwrap()
        };
        let groups: Vec<_> = prepared.into_iter().enumerate().map(connect).collect();
        std::thread::scope(|scope| {
            for (rank, mut group) in groups.into_iter().enumerate() {
                let members = members(rank);
                scope.spawn(move || {
                    assert_eq!((members[group.rank()], group.ranks()), (rank, members.len()));
                    let all = group.all_gather(&[rank as u8], DType::U8, "who").unwrap();
                    assert_eq!(all.bytes, members.iter().map(|member| *member as u8).collect::<Vec<_>>());
                    let mut data = given(DType::F32, group.rank(), 9_000);
                    group.all_reduce(&mut data, DType::F32, Reduction::Sum, "sum").unwrap();
                    assert!(data == expected(DType::F32, Reduction::Sum, group.ranks(), 0..9_000));
                });
            }
        });
    }
}

#[test]
fn members_must_be_who_they_say() {
    let connect = |members: &[usize], order: &[usize]| {
        let (mut prepared, addresses) = prepared(4, 64);
        let addresses: Vec<_> = order.iter().map(|member| addresses[*member]).collect();
        prepared.swap_remove(1).connect_members(members, &addresses).map(drop)
    };
    connect(&[1, 3], &[1, 3]).unwrap();
    assert_eq!(connect(&[0, 3], &[0, 3]), Err(CollectiveError::NoRank { rank: 1, ranks: 2 }));
    assert!(matches!(connect(&[1, 3], &[1]), Err(CollectiveError::Length { wanted: 2, got: 1, .. })));
    for order in [[1, 2], [1, 0]] {
        let error = connect(&[1, 3], &order).unwrap_err();
        assert!(error.to_string().contains("rank 3 of 4"), "{error}");
    }
}

#[test]
fn aborts_are_noticed_at_any_moment() {
    for round in 0..80 {
        let ended = run(2, if round % 2 == 0 { 64 } else { 1 }, |group| {
            let aborter = group.aborter();
            let first = group.rank() == 0;
            let calls = AtomicU64::new(0);
            let calls = &calls;
            std::thread::scope(|scope| {
                if first {
                    // After some calls, at an arbitrary point of the current call.
                    scope.spawn(move || {
                        while calls.load(Ordering::Relaxed) < round % 40 {
                            std::thread::yield_now();
                        }
                        (0..round * 7).for_each(|_| std::hint::spin_loop());
                        aborter.abort("x".repeat(2000));
                    });
                }
                loop {
                    calls.fetch_add(1, Ordering::Relaxed);
                    let mut data = [0; 64];
                    if let Err(error) = group.all_reduce(&mut data, DType::F32, Reduction::Sum, "x") {
                        break error;
                    }
                }
            })
        });
        assert_eq!(ended, vec![CollectiveError::Aborted { epoch: 7, reason: "x".repeat(512) }; 2]);
    }
}

#[test]
fn a_long_wait_is_told() {
    for cores in CORES {
        let (tell, told) = mpsc::channel();
        let told = Mutex::new(told);
        let told = run(2, cores, |group| {
            let mut heard = Vec::new();
            if group.rank() == 0 {
                let tell = tell.clone();
                group.set_on_wait(Duration::from_millis(10), move |rank, time| {
                    tell.send((rank, time)).unwrap()
                });
            } else {
                // It arrives when the other rank has reported three times that it waits.
                let told = told.lock().unwrap();
                heard.extend((0..3).map(|_| told.recv_timeout(DEADLINE).unwrap()));
            }
            group.barrier("slow").unwrap();
            heard
        });
        let told = &told[1];
        assert!(told.len() == 3 && told.iter().all(|(rank, _)| *rank == 1), "{told:?}");
        assert!(told.is_sorted() && told[0].1 >= Duration::from_millis(10));
    }
}

/// Not a test by itself: the process that `a_killed_process_does_not_hang_the_others` starts.
#[test]
fn rank_in_another_process() {
    let Ok(cores) = std::env::var("SHARED_TEST_CORES") else { return };
    let (prepared, own) = SharedGroup::prepare_for_cores(2, 3, 7, ROOM, cores.parse().unwrap()).unwrap();
    println!("\naddress {} {} {} {}", own.pid, own.fd, own.bytes, own.token);
    let lines: Vec<String> = std::io::stdin().lines().take(2).map(Result::unwrap).collect();
    let mut addresses: Vec<_> = lines.iter().map(|line| address(line)).collect();
    addresses.push(own);
    let mut group = prepared.connect(&addresses).unwrap();
    let mut buffer = group.buffer(1 << 20).unwrap();
    buffer.slice_mut::<f32>().unwrap().fill(3.0);
    group.all_reduce_shared(&mut buffer, 0..1 << 20, DType::F32, Reduction::Sum, "together").unwrap();
    println!("\nready");
    // Until it is killed; or until the test that started it is gone, and with it this end of the pipe.
    let _end = std::io::stdin().read_line(&mut String::new());
}

fn address(line: &str) -> SegmentAddress {
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    SegmentAddress {
        pid: words[0].parse().unwrap(),
        fd: words[1].parse().unwrap(),
        bytes: words[2].parse().unwrap(),
        token: words[3].parse().unwrap(),
    }
}

#[test]
fn a_killed_process_does_not_hang_the_others() {
    for cores in CORES {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["rank_in_another_process", "--exact", "--nocapture"])
            .env("SHARED_TEST_CORES", cores.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (prepared, mut addresses): (Vec<_>, Vec<_>) =
            (0..2).map(|rank| SharedGroup::prepare_for_cores(rank, 3, 7, ROOM, cores).unwrap()).unzip();
        let mut input = child.stdin.take().unwrap();
        for own in &addresses {
            writeln!(input, "address {} {} {} {}", own.pid, own.fd, own.bytes, own.token).unwrap();
        }
        addresses.push(address(&output.find(|line| line.starts_with("address")).unwrap()));
        let (ended, ends) = mpsc::channel();
        let (aborters, aborter) = mpsc::channel();
        let (wait, waits) = mpsc::channel();
        for one in prepared {
            let (addresses, ended, aborters) = (addresses.clone(), ended.clone(), aborters.clone());
            let wait = wait.clone();
            std::thread::spawn(move || {
                let mut group = one.connect(&addresses).unwrap();
                let mut buffer = group.buffer(1 << 20).unwrap();
                let rank = group.rank();
                buffer.slice_mut::<f32>().unwrap().fill(rank as f32);
                group
                    .all_reduce_shared(&mut buffer, 0..1 << 20, DType::F32, Reduction::Sum, "together")
                    .unwrap();
                assert!(buffer.slice::<f32>().unwrap().iter().all(|value| *value == 4.0));
                aborters.send(group.aborter()).unwrap();
                // The receiver is gone once all have ended.
                group.set_on_wait(Duration::from_millis(5), move |_, _| _ = wait.send(rank));
                let error = group.barrier("never complete").unwrap_err();
                ended.send((error, Instant::now())).unwrap();
            });
        }
        output.find(|line| line == "ready").unwrap();
        let aborter = aborter.recv_timeout(DEADLINE).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // Reports from before the kill do not count.
        while waits.try_recv().is_ok() {}
        for rank in 0..2 {
            while waits.recv_timeout(DEADLINE).unwrap() != rank {}
        }
        assert!(ends.try_recv().is_err(), "the others wait");
        let start = Instant::now();
        aborter.abort("rank 2 is lost".to_owned());
        for _ in 0..2 {
            let (error, end) = ends.recv_timeout(DEADLINE).unwrap();
            assert_eq!(error, CollectiveError::Aborted { epoch: 7, reason: "rank 2 is lost".to_owned() });
            assert!(end.saturating_duration_since(start) < Duration::from_secs(1));
        }
    }
}
