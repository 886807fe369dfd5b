//! Aborts, lost ranks and calls that differ: all ranks fail, at once and for the same reason.

use crate::harness::{EPOCH, SORTS, TOPOLOGIES, groups, run_groups};
use phalanx_collective::{CollectiveError, Group, Reduction};
use phalanx_types::DType;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

fn reason(error: &CollectiveError) -> &str {
    match error {
        CollectiveError::Aborted { epoch: EPOCH, reason } => reason,
        other => panic!("not aborted: {other:?}"),
    }
}

/// All ranks but one wait in a barrier. The other rank computes, and its group is aborted meanwhile.
#[test]
fn an_abort_between_calls_ends_the_waits_of_all_others() {
    for topology in SORTS {
        for idle in 0..topology.len() {
            let mut groups = groups(topology);
            let (waits, waiting) = mpsc::channel();
            for group in &mut groups {
                let waits = waits.clone();
                // The receiver is gone once the abort is under way.
                group.set_on_wait(Duration::from_millis(1), move |_, _| {
                    let _heard = waits.send(());
                });
            }
            let waiting = Mutex::new(waiting);
            let results = run_groups(groups, |group| {
                if group.rank() != idle {
                    return (group.barrier("never").unwrap_err(), Instant::now());
                }
                if group.ranks() > 1 {
                    waiting.lock().unwrap().recv().unwrap();
                }
                let start = Instant::now();
                group.aborter().abort("the user left".to_owned());
                group.aborter().abort("too late".to_owned());
                let (error, _) = wait_for_others(group, start);
                (error, start)
            });
            let start = results[idle].1;
            for (error, end) in &results {
                assert_eq!(reason(error), "the user left", "{topology} {idle}");
                assert!(end.saturating_duration_since(start) < Duration::from_secs(1), "{topology} {idle}");
            }
        }
    }
}

/// The rank that aborted the group finds it over too.
fn wait_for_others(group: &mut Group, start: Instant) -> (CollectiveError, Duration) {
    (group.barrier("over").unwrap_err(), start.elapsed())
}

/// The aborted rank itself waits for a rank that never comes.
#[test]
fn an_abort_within_a_call_ends_it() {
    for topology in SORTS {
        let late = topology.len() - 1;
        for ended in 0..late {
            let mut groups = groups(topology);
            let late_group = groups.pop().unwrap();
            let aborter = groups[ended].aborter();
            let (waits, waiting) = mpsc::channel();
            groups[ended].set_on_wait(Duration::from_millis(1), move |_, _| {
                let _heard = waits.send(());
            });
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    waiting.recv().unwrap();
                    aborter.abort("stopped".to_owned());
                });
                let errors = run_groups(groups, |group| group.barrier("never").unwrap_err());
                assert!(
                    errors.iter().all(|error| reason(error) == "stopped"),
                    "{topology} {ended} {errors:?}"
                );
            });
            drop(late_group);
        }
    }
}

/// A call that a rank refuses to make does not leave the others waiting.
#[test]
fn a_rank_that_gives_up_tells_the_others() {
    type Try = fn(&mut Group, bool) -> Result<(), CollectiveError>;
    let tries: [Try; 4] = [
        |group, wrong| {
            group.all_reduce(&mut vec![0; if wrong { 7 } else { 8 }], DType::F32, Reduction::Sum, "x")
        },
        |group, wrong| group.broadcast(if wrong { 99 } else { 0 }, &mut [0; 4], DType::F32, "x"),
        |group, wrong| {
            let dtype = if wrong { DType::Bool } else { DType::U8 };
            group.reduce(0, &mut [0; 4], dtype, Reduction::Max, "x")
        },
        |group, wrong| {
            let mut mine = vec![0; 8];
            let all = vec![0; 8 * group.ranks() + if wrong { 8 } else { 0 }];
            group.reduce_scatter(&all, &mut mine, DType::I64, Reduction::Sum, "x")
        },
    ];
    for topology in SORTS {
        for wrong in [0, topology.len() - 1] {
            for attempt in tries {
                let errors = run_groups(groups(topology), |group| {
                    // A rank that needs nothing from that rank is done, and fails in the next call.
                    let first = attempt(group, group.rank() == wrong);
                    let next = group.barrier("next").unwrap_err();
                    (first.err().unwrap_or(next.clone()), next)
                });
                for (rank, (first, next)) in errors.iter().enumerate() {
                    if rank == wrong {
                        assert!(!matches!(first, CollectiveError::Aborted { .. }), "{first}");
                    } else {
                        assert!(reason(first).starts_with(&format!("rank {wrong} gave up")), "{first}");
                    }
                    assert!(reason(next).starts_with(&format!("rank {wrong} gave up")), "{next}");
                }
            }
        }
    }
}

#[test]
fn calls_that_differ_are_named() {
    type Calls = fn(&mut Group, bool) -> Result<(), CollectiveError>;
    let calls: [(Calls, [&str; 2]); 4] = [
        (
            |group, other| {
                let name = if other { "bias" } else { "weight" };
                group.all_reduce(&mut [0; 8], DType::F32, Reduction::Sum, name)
            },
            ["\"bias\"", "\"weight\""],
        ),
        (
            |group, other| {
                let reduction = if other { Reduction::Average } else { Reduction::Sum };
                group.all_reduce(&mut [0; 8], DType::F32, reduction, "x")
            },
            ["average", "sum"],
        ),
        (
            |group, other| match other {
                true => group.all_gather(&[1; 8], DType::F32, "x").map(drop),
                false => group.gather(0, &[1; 8], DType::F32, "x").map(drop),
            },
            ["all-gather", "gather of"],
        ),
        (
            |group, other| {
                let count = if other { 2 } else { 3 };
                group.broadcast(1, &mut vec![0; 4 * count], DType::I32, "x")
            },
            ["2 × I32", "3 × I32"],
        ),
    ];
    for topology in SORTS {
        for different in [0, topology.len() - 1] {
            for (calls, words) in calls {
                let errors = run_groups(groups(topology), |group| {
                    let first = calls(group, group.rank() == different);
                    // A rank that receives nothing in this call may be done before it is compared.
                    first.err().unwrap_or_else(|| group.barrier("next").unwrap_err())
                });
                for (rank, error) in errors.iter().enumerate() {
                    let text = error.to_string();
                    if let CollectiveError::Mismatch { own_rank, rank: other, ours, theirs } = error {
                        assert_eq!(*own_rank, rank);
                        assert!((rank == different) != (*other == different), "{topology}: {text}");
                        assert_ne!(ours, theirs);
                    }
                    for word in words {
                        assert!(text.contains(word), "{topology} {different} {rank}: {text}");
                    }
                    assert!(text.contains(&format!("rank {different} calls")), "{topology}: {text}");
                }
            }
        }
    }
}

#[test]
fn a_rank_that_panics_ends_the_group() {
    for topology in TOPOLOGIES {
        let last = topology.len() - 1;
        let mut groups = groups(topology);
        let panics = groups.pop().unwrap();
        let thread = std::thread::spawn(move || {
            let _group = panics;
            std::panic::resume_unwind(Box::new("no message"));
        });
        let errors = run_groups(groups, |group| group.barrier("never").unwrap_err());
        let wanted = format!("rank {last} panicked");
        assert!(errors.iter().all(|error| reason(error) == wanted), "{topology} {errors:?}");
        assert!(thread.join().is_err());
    }
}

/// Waiting ranks name the rank they wait for by its number in the whole group.
#[test]
fn waits_name_ranks_of_the_whole_group() {
    for (topology, late, waits_for) in
        [("aaa", 2, [(0, 2), (1, 2)]), ("abc", 1, [(0, 1), (2, 1)]), ("ababac", 3, [(1, 3), (0, 1)])]
    {
        let mut groups = groups(topology);
        let (told, tells) = mpsc::channel();
        for (rank, group) in groups.iter_mut().enumerate() {
            let told = told.clone();
            group.set_on_wait(Duration::from_millis(1), move |other, waited| {
                assert!(waited >= Duration::from_millis(1));
                let _heard = told.send((rank, other));
            });
        }
        let tells = Mutex::new(tells);
        run_groups(groups, |group| {
            if group.rank() == late {
                let mut missing = waits_for.to_vec();
                while !missing.is_empty() {
                    let wait = tells.lock().unwrap().recv_timeout(Duration::from_secs(30)).unwrap();
                    missing.retain(|expected| *expected != wait);
                }
            }
            let all = group.all_gather(&[1], DType::U8, "late").unwrap();
            assert_eq!(all.bytes, vec![1; group.ranks()]);
        });
    }
}
