//! Ranks that leave, come again, or are lost.

use crate::harness::*;
use phalanx_ops::{
    DType, Meeting, OpFailure, Ops, OpsError, OpsOptions, Reduction, RendezvousServer, Secret, SetId,
};
use std::time::{Duration, Instant};

#[test]
fn what_needs_a_rank_that_left_fails_and_nothing_is_lost() {
    // Without rank 0 there would be another error.
    let both = std::sync::Barrier::new(2);
    run(3, |ops| {
        ops.barrier("all", SetId::WORLD).unwrap();
        if ops.rank() == 1 {
            return;
        }
        let error = ops.run_on("a", reduce(Reduction::Sum, DType::F32, &[1]), &mut [0; 4]).unwrap_err();
        both.wait();
        assert!(matches!(error, OpsError::Failed(OpFailure::ShutDown { rank: 1, .. })), "{error:?}");
    });
}

#[test]
fn a_leader_that_left_is_told() {
    run(3, |ops| {
        ops.barrier("all", SetId::WORLD).unwrap();
        if ops.rank() == 0 {
            return;
        }
        let error = ops.run_on("a", reduce(Reduction::Sum, DType::F32, &[1]), &mut [0; 4]).unwrap_err();
        assert!(matches!(error, OpsError::ShutDown { rank: 0 }), "{error:?}");
        assert!(matches!(ops.barrier("b", SetId::WORLD), Err(OpsError::ShutDown { rank: 0 })));
    });
}

#[test]
fn init_can_be_repeated() {
    let server = RendezvousServer::start("127.0.0.1:0", Secret::default(), 0..2).unwrap();
    let address = &server.address().to_string();
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                for pass in 1..=5 {
                    let secret = Secret::default();
                    let meeting = Meeting::At { address: address.clone(), worker, serve: None, secret };
                    let ops = Ops::init(meeting, options()).unwrap();
                    assert_eq!((ops.rank(), ops.epoch()), (worker, pass));
                    let mut bytes = values(DType::F32, worker, 9);
                    ops.run_on("a", reduce(Reduction::Sum, DType::F32, &[9]), &mut bytes).unwrap();
                    assert_eq!(bytes, combined(DType::F32, Reduction::Sum, &[0, 1], 9));
                }
            });
        }
    });
}

#[test]
fn rank_zero_serves_where_no_launcher_does() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::thread::scope(|scope| {
        for worker in 0..3_u32 {
            scope.spawn(move || {
                for _ in 0..3 {
                    let (address, secret) = (format!("127.0.0.1:{port}"), Secret::default());
                    let serve = (worker == 0).then_some(3);
                    let ops = Ops::init(Meeting::At { address, worker, serve, secret }, options()).unwrap();
                    ops.barrier("b", SetId::WORLD).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_stranger_without_the_secret_is_not_let_in() {
    let secret = Secret::random().unwrap();
    let server = RendezvousServer::start("127.0.0.1:0", secret, 0..1).unwrap();
    let (address, secret) = (server.address().to_string(), Secret::random().unwrap());
    let timeout = Duration::from_millis(300);
    let error = Ops::init(
        Meeting::At { address, worker: 0, serve: None, secret },
        OpsOptions { timeout, ..options() },
    );
    assert!(matches!(error, Err(OpsError::Rendezvous(_))));
    assert_eq!(server.epoch(), 0);
}

/// A rank that vanishes: all its connections close without a word.
fn vanish(ops: Ops) {
    ops.sever_for_tests();
    std::mem::forget(ops);
}

#[test]
fn a_lost_rank_ends_all_operations_at_once() {
    for share in [true, false] {
        for lost in 0..3_u32 {
            let lossy = OpsOptions { share, ..options() };
            let ended = run_with(3, &lossy, |ops| {
                for pass in 0_u32.. {
                    if ops.rank() == lost && pass == 20 {
                        vanish(ops);
                        return Instant::now();
                    }
                    let mut bytes = values(DType::F32, ops.rank(), 1000);
                    let done = ops.run_on("g", reduce(Reduction::Sum, DType::F32, &[1000]), &mut bytes);
                    let Err(error) = done else { continue };
                    assert!(matches!(error, OpsError::PeerLost { rank } if rank == lost), "{error:?}");
                    assert!(matches!(ops.barrier("b", SetId::WORLD), Err(OpsError::PeerLost { .. })));
                    return Instant::now();
                }
                unreachable!()
            });
            let vanished = ended[lost as usize];
            for end in ended {
                assert!(end.saturating_duration_since(vanished) < Duration::from_secs(1));
            }
        }
    }
}

#[test]
fn a_rank_that_left_is_not_lost_to_ranks_that_hear_of_it_later() {
    for share in [true, false] {
        for (leaves, deaf) in [(2, 0), (0, 1)] {
            let (all, apart) = (std::sync::Barrier::new(3), OpsOptions { share, ..options() });
            run_with(3, &apart, |ops| {
                let stay = ops.add_set(&[3 - leaves - deaf, deaf]).unwrap();
                ops.barrier("all", SetId::WORLD).unwrap();
                if ops.rank() == leaves {
                    all.wait();
                    return;
                }
                if ops.rank() == deaf {
                    ops.busy_for_tests(|hung_up| {
                        all.wait();
                        let until = Instant::now() + DEADLINE;
                        while !hung_up() {
                            assert!(Instant::now() < until, "the rank that leaves closes its streams");
                            std::thread::yield_now();
                        }
                    });
                } else {
                    all.wait();
                }
                let mut bytes = values(DType::F32, ops.rank(), 5);
                let done = ops.run_on("s", reduce(Reduction::Sum, DType::F32, &[5]).on(stay), &mut bytes);
                match leaves {
                    // Without rank 0 there is no order.
                    0 => assert!(matches!(done, Err(OpsError::ShutDown { rank: 0 })), "{done:?}"),
                    _ => assert!(done.is_ok(), "{done:?}"),
                }
            });
        }
    }
}

#[test]
fn survivors_meet_again_under_a_new_epoch() {
    let server = RendezvousServer::start("127.0.0.1:0", Secret::default(), 0..3).unwrap();
    let (server, address) = (&server, server.address().to_string());
    let meeting = |worker| {
        let (address, secret) = (address.clone(), Secret::default());
        Meeting::At { address, worker, serve: None, secret }
    };
    let sum = |ops: &Ops| {
        let mut bytes = encode(DType::F32, [1.0]);
        ops.run_on("g", reduce(Reduction::Sum, DType::F32, &[1]), &mut bytes).map(|_| bytes)
    };
    std::thread::scope(|scope| {
        for worker in 0..3_u32 {
            let (meeting, sum) = (&meeting, &sum);
            scope.spawn(move || {
                let ops = Ops::init(meeting(worker), options()).unwrap();
                assert_eq!(sum(&ops).unwrap(), encode(DType::F32, [3.0]));
                let ops = if worker == 0 {
                    vanish(ops);
                    // In its place comes a new process, which has no state.
                    Ops::init(meeting(0), options()).unwrap()
                } else {
                    assert!(matches!(sum(&ops), Err(OpsError::PeerLost { rank: 0 })));
                    ops.reset().unwrap()
                };
                assert_eq!(ops.epoch(), 2);
                assert_eq!(ops.rank(), [2, 0, 1][worker as usize]);
                assert_eq!(sum(&ops).unwrap(), encode(DType::F32, [3.0]));
                // Then the set of processes shrinks.
                ops.barrier("end", SetId::WORLD).unwrap();
                if worker == 0 {
                    server.expect([1, 2].into(), [].into());
                    return drop(ops);
                }
                let ops = ops.reset().unwrap();
                assert_eq!((ops.epoch(), ops.size()), (3, 2));
                assert_eq!(sum(&ops).unwrap(), encode(DType::F32, [2.0]));
            });
        }
    });
}
