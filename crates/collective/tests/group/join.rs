//! Ranks run out of values at different times, on one host and on several.

use crate::harness::{SORTS, TOPOLOGIES, groups, run, run_groups};
use bytemuck::cast_slice_mut;
use phalanx_collective::{CollectiveError, Group, Kind, Reduction};
use phalanx_types::DType;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Mutex;

/// The most bytes of a buffer.
const BUFFER: usize = 400_000;
const CALLS: usize = 4;

/// How ranks with values left sum them.
#[derive(Debug, Clone, Copy)]
enum Way {
    Private,
    Buffer,
    Grouped,
}

#[derive(Debug)]
struct Planned {
    count: usize,
    average: bool,
    way: Way,
}

/// How many calls each rank makes before it joins, and all the calls.
#[derive(Debug)]
struct Round {
    steps: Vec<usize>,
    plan: Vec<Planned>,
}

impl Round {
    fn new(random: &mut Pcg64, ranks: usize) -> Self {
        let steps = (0..ranks).map(|_| random.random_range(0..=CALLS)).collect();
        let planned = |_| Planned {
            count: [0, 1, 100, 5_000, 90_000][random.random_range(0..5_usize)],
            average: random.random(),
            way: [Way::Private, Way::Buffer, Way::Grouped][random.random_range(0..3_usize)],
        };
        let plan = (0..CALLS).map(planned).collect();
        Self { steps, plan }
    }

    /// The rank that joins last.
    fn last(&self) -> usize {
        (0..self.steps.len()).max_by_key(|rank| (self.steps[*rank], *rank)).unwrap()
    }

    fn expected(&self, call: usize) -> Vec<f32> {
        let Planned { count, average, .. } = self.plan[call];
        let ranks = self.steps.len();
        let left = || (0..ranks).filter(|rank| self.steps[*rank] > call);
        let sum = |index: usize| left().map(|rank| value(rank, index)).sum::<f32>();
        repeated(count, |index| if average { sum(index) / ranks as f32 } else { sum(index) })
    }
}

/// Values repeat after this many elements.
const PERIOD: usize = 101;

/// A whole number, so that the order of a sum does not matter.
fn value(rank: usize, index: usize) -> f32 {
    ((index * 7 + rank * 13) % PERIOD) as f32 - 50.0
}

/// Computes one period: computing every element would take a debug build long.
fn repeated(count: usize, value: impl Fn(usize) -> f32) -> Vec<f32> {
    let period: Vec<f32> = (0..PERIOD).map(value).collect();
    let mut values = period.repeat(count.div_ceil(PERIOD));
    values.truncate(count);
    values
}

fn carry_out(group: &mut Group, round: &Round) {
    let rank = group.rank();
    let mut buffer = group.buffer(BUFFER).unwrap();
    for (call, Planned { count, average, way }) in round.plan.iter().enumerate().take(round.steps[rank]) {
        let reduction = if *average { Reduction::Average } else { Reduction::Sum };
        let mut values = repeated(*count, |index| value(rank, index));
        match way {
            Way::Private => {
                group.all_reduce(cast_slice_mut(&mut values), DType::F32, reduction, "private").unwrap();
            }
            Way::Buffer => {
                buffer.slice_mut::<f32>().unwrap()[..*count].copy_from_slice(&values);
                group.all_reduce_buffer(&mut buffer, 0..4 * count, DType::F32, reduction, "buffer").unwrap();
                values.copy_from_slice(&buffer.slice::<f32>().unwrap()[..*count]);
            }
            Way::Grouped => {
                let (first, second) = values.split_at_mut(count / 3);
                group.all_reduce_grouped(&mut [first, second], reduction, "grouped").unwrap();
            }
        }
        assert!(values == round.expected(call), "call {call} of rank {rank}: {round:?}");
    }
    buffer.slice_mut::<u8>().unwrap().fill(rank as u8 + 1);
    assert_eq!(group.join(), Ok(round.last()), "rank {rank}: {round:?}");
    // No rank has touched the buffer of a joined rank.
    assert!(buffer.slice::<u8>().unwrap().iter().all(|byte| *byte == rank as u8 + 1));
}

#[test]
fn ranks_join_at_any_time() {
    for (index, topology) in TOPOLOGIES.into_iter().enumerate() {
        for seed in 0..2 {
            let mut random = Pcg64::seed_from_u64(seed * 100 + index as u64);
            let ranks = topology.len();
            let rounds = [Round::new(&mut random, ranks), Round::new(&mut random, ranks)];
            run(topology, |group| {
                for round in &rounds {
                    carry_out(group, round);
                    // All ranks are back, and their call numbers agree.
                    let all = group.all_gather(&[group.rank() as u8], DType::U8, "back").unwrap();
                    assert_eq!(all.bytes, (0..ranks as u8).collect::<Vec<_>>(), "{topology}");
                }
            });
        }
    }
}

/// Each rank in turn is the only one that continues, and the only one that does not.
#[test]
fn leaders_and_others_join_first_or_last() {
    for topology in SORTS {
        let ranks = topology.len();
        run(topology, |group| {
            for one in 0..ranks {
                for goes_on in [true, false] {
                    let left = if goes_on { 1.0 } else { ranks as f32 - 1.0 };
                    if (group.rank() == one) == goes_on {
                        let mut values = [1.0_f32; 3];
                        for reduction in [Reduction::Sum, Reduction::Average] {
                            values.fill(1.0);
                            group
                                .all_reduce(cast_slice_mut(&mut values), DType::F32, reduction, "x")
                                .unwrap();
                            let wanted = if reduction == Reduction::Sum { left } else { left / ranks as f32 };
                            assert_eq!(values, [wanted; 3], "{topology} {one}");
                        }
                    }
                    let last = if goes_on { one } else { (0..ranks).rfind(|rank| *rank != one).unwrap() };
                    assert_eq!(group.join(), Ok(last), "{topology} {one}");
                }
            }
        });
    }
}

#[test]
fn integers_take_zeros() {
    for topology in SORTS {
        run(topology, |group| {
            for dtype in [DType::U8, DType::I32, DType::I64] {
                if group.rank() == 0 {
                    group.join().unwrap();
                    continue;
                }
                let mut data = vec![0; 5 * dtype.size()];
                data.chunks_mut(dtype.size()).for_each(|element| element[0] = 3);
                group.all_reduce(&mut data, dtype, Reduction::Sum, "tokens").unwrap();
                let wanted = 3 * (group.ranks() - 1) as u8;
                assert!(data.chunks(dtype.size()).all(|element| element[0] == wanted), "{topology}");
                group.join().unwrap();
            }
        });
    }
}

/// One rank has joined, and the others make a call that takes no zeros; then the other way around.
#[test]
fn other_calls_differ_from_joining() {
    type Calls = fn(&mut Group) -> Result<(), CollectiveError>;
    let calls: [(Calls, &str); 5] = [
        (|group| group.barrier("x"), "barrier"),
        (|group| group.broadcast(1, &mut [0; 4], DType::F32, "x"), "broadcast"),
        (|group| group.gather(0, &[1], DType::U8, "x").map(drop), "gather"),
        (|group| group.all_reduce(&mut [0; 4], DType::F32, Reduction::Max, "x"), "max"),
        (|group| group.all_reduce(&mut [0; 4], DType::F32, Reduction::Adasum, "x"), "all-to-all"),
    ];
    for topology in SORTS {
        for odd in [0, topology.len() - 1] {
            for (call, word) in calls {
                for odd_joins in [true, false] {
                    let errors = run_groups(groups(topology), |group| {
                        let joins = (group.rank() == odd) == odd_joins;
                        let first = if joins { group.join().map(drop) } else { call(group) };
                        // A rank that receives nothing in this call may be done before it is compared.
                        first.err().unwrap_or_else(|| group.join().unwrap_err())
                    });
                    let differs = |error: &CollectiveError| matches!(error, CollectiveError::Mismatch { .. });
                    assert!(errors.iter().any(differs), "{topology} {odd} {errors:?}");
                    for (rank, error) in errors.iter().enumerate() {
                        let text = error.to_string();
                        let named = text.contains(word) && text.contains("join");
                        assert!(named, "{topology} {odd} {odd_joins} {rank}: {text}");
                        if let CollectiveError::Mismatch { own_rank, rank: other, ours, theirs } = error {
                            assert!([ours.kind, theirs.kind].contains(&Kind::Join), "{text}");
                            assert!((*own_rank == odd) != (*other == odd), "{topology} {odd}: {text}");
                        }
                    }
                }
            }
        }
    }
}

/// Calls of ranks that have not joined differ while another one of the same host has.
#[test]
fn calls_that_differ_are_found_while_a_rank_has_joined() {
    for topology in ["aaa", "abc", "aaab", "baaa", "abab"] {
        let errors = run_groups(groups(topology), |group| {
            let rank = group.rank();
            match rank {
                0 => group.join().map(drop),
                _ => group.all_reduce(&mut vec![0; 4 * rank], DType::F32, Reduction::Sum, "x"),
            }
        });
        for (rank, error) in errors.into_iter().enumerate() {
            let text = error.unwrap_err().to_string();
            assert!(text.contains("all-reduce of \"x\""), "{topology} {rank}: {text}");
        }
    }
}

/// Joined ranks detect an abort and a lost rank.
#[test]
fn an_abort_ends_a_join() {
    for topology in SORTS {
        for (late, panics) in [(0, false), (topology.len() - 1, true)] {
            let mut groups = groups(topology);
            let (waits, waiting) = std::sync::mpsc::channel();
            for group in &mut groups {
                let waits = waits.clone();
                group.set_on_wait(std::time::Duration::from_millis(1), move |_, _| {
                    let _heard = waits.send(());
                });
            }
            let last = Mutex::new(Some((groups.remove(late), waiting)));
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let (group, waiting) = last.lock().unwrap().take().unwrap();
                    waiting.recv().unwrap();
                    if panics {
                        let _group = group;
                        std::panic::resume_unwind(Box::new("no message"));
                    }
                    group.aborter().abort(format!("rank {late} panicked"));
                });
                let errors = run_groups(groups, |group| group.join().unwrap_err().to_string());
                let wanted = format!("rank {late} panicked");
                assert!(errors.iter().all(|error| error.ends_with(&wanted)), "{topology} {errors:?}");
                assert_eq!(thread.join().is_err(), panics);
            });
        }
    }
}

#[test]
fn zeros_that_are_sent_are_counted() {
    for topology in ["aaaa", "abcd"] {
        let sent = run(topology, |group| {
            if group.rank() > 0 {
                let mut data = vec![0; 1 << 20];
                group.all_reduce(&mut data, DType::F32, Reduction::Sum, "x").unwrap();
            }
            group.join().unwrap();
            group.sent()
        });
        assert_eq!(sent, [2 * 3 * (1 << 18); 4], "{topology}");
    }
}
