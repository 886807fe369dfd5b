//! The leader alone, and leader and ranks in a simulation with delayed messages.

mod simulation;

use super::*;
use crate::core::signature::{Difference, TensorSpec};
use phalanx_collective::Reduction;
use phalanx_types::DType;

pub(super) fn limits() -> LeaderLimits {
    LeaderLimits {
        bucket_bytes: 1 << 10,
        hold: Duration::ZERO,
        stall_report: Duration::from_secs(60),
        stall_limit: None,
        known: 64,
    }
}

pub(super) fn sum(elements: u64) -> OpSignature {
    OpSignature::new(OpKind::AllReduce { reduction: Reduction::Sum }, TensorSpec::new(DType::F32, [elements]))
}

fn announce(name: &str, signature: OpSignature) -> ToLeader {
    ToLeader::Announce { name: name.to_owned(), signature }
}

/// Tells the leader something and gives all that follows.
fn tell(leader: &mut Leader, now: Time, rank: u32, message: ToLeader) -> Vec<LeaderCommand> {
    let mut out = Outbox::default();
    leader.on_message(now, rank, message, &mut out);
    while leader.dispatch(now, &mut out) {}
    out.drain().collect()
}

fn run(to: &[u32], units: &[UnitId]) -> LeaderCommand {
    LeaderCommand { to: to.to_vec(), message: ToRank::Run { units: units.to_vec() } }
}

fn failures(commands: &[LeaderCommand]) -> Vec<(Vec<u32>, OpFailure)> {
    let failure = |command: &LeaderCommand| match &command.message {
        ToRank::Fail { failure, .. } => Some((command.to.clone(), failure.clone())),
        _ => None,
    };
    commands.iter().filter_map(failure).collect()
}

#[test]
fn an_operation_runs_when_all_ranks_have_it_and_is_known_then() {
    let mut leader = Leader::new(2, limits());
    let define = ToRank::Define { unit: 0, name: "a".to_owned(), signature: sum(3) };
    let defined = tell(&mut leader, Time::ZERO, 1, announce("a", sum(3)));
    assert_eq!(defined, [LeaderCommand { to: vec![0, 1], message: define }]);
    assert_eq!(tell(&mut leader, Time::ZERO, 0, announce("a", sum(3))), [run(&[0, 1], &[0])]);
    assert_eq!(tell(&mut leader, Time::ZERO, 0, ToLeader::Ready { unit: 0 }), []);
    assert_eq!(tell(&mut leader, Time::ZERO, 1, ToLeader::Ready { unit: 0 }), [run(&[0, 1], &[0])]);
}

#[test]
fn ready_operations_are_fused() {
    let mut leader = Leader::new(2, limits());
    let mut out = Outbox::default();
    for name in ["a", "b", "c"] {
        for rank in [1, 0] {
            leader.on_message(Time::ZERO, rank, announce(name, sum(100)), &mut out);
        }
    }
    out.drain();
    assert!(leader.dispatch(Time::ZERO, &mut out));
    assert!(leader.dispatch(Time::ZERO, &mut out));
    assert!(!leader.dispatch(Time::ZERO, &mut out));
    assert_eq!(out.commands(), [run(&[0, 1], &[0, 1]), run(&[0, 1], &[2])]);
}

#[test]
fn a_small_batch_waits_shortly_for_what_some_ranks_have() {
    let hold = Duration::from_micros(100);
    let mut leader = Leader::new(2, LeaderLimits { hold, ..limits() });
    for (rank, name) in [(0, "a"), (0, "b"), (1, "a")] {
        tell(&mut leader, Time(5), rank, announce(name, sum(1)));
    }
    assert_eq!(leader.next_time(), Some(Time(105)));
    let mut out = Outbox::default();
    assert!(!leader.dispatch(Time(104), &mut out));
    assert!(leader.dispatch(Time(105), &mut out));
    assert_eq!(out.commands(), [run(&[0, 1], &[0])]);
    // With everything there it does not wait.
    let commands = tell(&mut leader, Time(201), 1, ToLeader::Ready { unit: 1 });
    assert_eq!(commands, [run(&[0, 1], &[1])]);
}

#[test]
fn a_mismatch_fails_on_every_rank_whenever_it_comes() {
    let mut leader = Leader::new(3, limits());
    tell(&mut leader, Time::ZERO, 2, announce("a", sum(3)));
    let told = failures(&tell(&mut leader, Time::ZERO, 0, announce("a", sum(4))));
    let (to, failure) = &told[0];
    assert_eq!(to, &[2]);
    let OpFailure::Mismatch { difference, rank, other_rank, .. } = failure else { panic!("{failure:?}") };
    assert_eq!((*difference, *rank, *other_rank), (Difference::Shape, 2, 0));
    assert_eq!(told[1], (vec![0], failure.clone()));
    let late = failures(&tell(&mut leader, Time::ZERO, 1, announce("a", sum(3))));
    assert_eq!(late, [(vec![1], failure.clone())]);
    // Then the name can be used again.
    for rank in [0, 1] {
        assert_eq!(failures(&tell(&mut leader, Time::ZERO, rank, announce("a", sum(3)))), []);
    }
    assert_eq!(tell(&mut leader, Time::ZERO, 2, announce("a", sum(3))), [run(&[0, 1, 2], &[0])]);
}

#[test]
fn a_changed_operation_gets_a_new_number() {
    let mut leader = Leader::new(1, limits());
    tell(&mut leader, Time::ZERO, 0, announce("a", sum(3)));
    let commands = tell(&mut leader, Time::ZERO, 0, announce("a", sum(4)));
    assert_eq!(commands.last(), Some(&run(&[0], &[1])));
    // The old number still means the old operation.
    let commands = tell(&mut leader, Time::ZERO, 0, ToLeader::Ready { unit: 0 });
    let message = ToRank::Define { unit: 2, name: "a".to_owned(), signature: sum(3) };
    assert_eq!(commands, [LeaderCommand { to: vec![0], message }, run(&[0], &[2])]);
}

#[test]
fn a_number_is_forgotten_when_all_ranks_have_heard() {
    let mut leader = Leader::new(1, LeaderLimits { known: 2, ..limits() });
    for name in ["a", "b"] {
        tell(&mut leader, Time::ZERO, 0, announce(name, sum(1)));
    }
    let commands = tell(&mut leader, Time::ZERO, 0, announce("c", sum(1)));
    assert_eq!(commands[0].message, ToRank::Forget { unit: 0 });
    // The rank said so before it heard of it.
    let commands = tell(&mut leader, Time::ZERO, 0, ToLeader::Ready { unit: 0 });
    assert_eq!(commands.last(), Some(&run(&[0], &[3])));
    tell(&mut leader, Time::ZERO, 0, ToLeader::Forgotten { unit: 0 });
    assert!(!leader.units.contains_key(&0));
}

#[test]
fn a_rank_may_be_ahead_by_a_failure() {
    let mut leader = Leader::new(2, LeaderLimits { stall_limit: Some(Duration::from_secs(1)), ..limits() });
    tell(&mut leader, Time::ZERO, 0, announce("a", sum(3)));
    leader.on_time(Time::from_millis(1000), &mut Outbox::default());
    let again = tell(&mut leader, Time::from_millis(1001), 0, ToLeader::Ready { unit: 0 });
    assert_eq!(again, []);
    let late = tell(&mut leader, Time::from_millis(1002), 1, ToLeader::Ready { unit: 0 });
    assert!(matches!(&failures(&late)[..], [(to, OpFailure::Stalled { .. })] if to == &[1]));
    let commands = tell(&mut leader, Time::from_millis(1003), 1, ToLeader::Ready { unit: 0 });
    assert_eq!(commands, [run(&[0, 1], &[0])]);
}

#[test]
fn a_stall_is_reported_again_and_again_and_fails_at_its_limit() {
    let mut leader = Leader::new(3, LeaderLimits { stall_limit: Some(Duration::from_secs(150)), ..limits() });
    let secs = |secs: u64| Time::from_millis(secs * 1000);
    tell(&mut leader, secs(1), 1, announce("a", sum(3)));
    assert_eq!(leader.next_time(), Some(secs(61)));
    let mut at = |now| {
        let mut out = Outbox::default();
        leader.on_time(now, &mut out);
        out.drain().map(|command| command.message).collect::<Vec<_>>()
    };
    assert_eq!(at(secs(60)), []);
    let stalled = |waited| ToRank::Stalled {
        name: "a".to_owned(),
        missing: vec![0, 2],
        waited: Duration::from_secs(waited),
    };
    assert_eq!(at(secs(61)), [stalled(60)]);
    assert_eq!(at(secs(62)), []);
    assert_eq!(at(secs(121)), [stalled(120)]);
    let failure =
        OpFailure::Stalled { name: "a".to_owned(), missing: vec![0, 2], waited: Duration::from_secs(150) };
    assert_eq!(at(secs(151)), [ToRank::Fail { set: SetId::WORLD, failure: failure.clone() }]);
    assert_eq!(at(secs(400)), []);
    let late = failures(&tell(&mut leader, secs(401), 0, announce("a", sum(3))));
    assert_eq!(late, [(vec![0], failure)]);
}

#[test]
fn ranks_that_have_joined_take_part_with_zeros() {
    let mut leader = Leader::new(2, limits());
    tell(&mut leader, Time::ZERO, 0, announce("a", sum(3)));
    assert_eq!(tell(&mut leader, Time::ZERO, 1, ToLeader::Join), [run(&[0, 1], &[0])]);
    assert_eq!(tell(&mut leader, Time::ZERO, 0, ToLeader::Ready { unit: 0 }), [run(&[0, 1], &[0])]);
    let broadcast = OpSignature::new(OpKind::Broadcast { root: 0 }, TensorSpec::new(DType::F32, [1]));
    let told = failures(&tell(&mut leader, Time::ZERO, 0, announce("b", broadcast)));
    let failure = OpFailure::Joined { name: "b".to_owned(), kind: "broadcast".to_owned(), rank: 1 };
    assert_eq!(told, [(vec![0], failure)]);
    let commands = tell(&mut leader, Time::ZERO, 0, ToLeader::Join);
    assert_eq!(commands, [LeaderCommand { to: vec![0, 1], message: ToRank::AllJoined { last: 0 } }]);
    // Nobody has joined any more.
    assert_eq!(tell(&mut leader, Time::ZERO, 0, ToLeader::Ready { unit: 0 }), []);
}

#[test]
fn what_needs_a_rank_that_left_fails() {
    let mut leader = Leader::new(3, limits());
    tell(&mut leader, Time::ZERO, 0, announce("a", sum(3)));
    let failure = OpFailure::ShutDown { name: "a".to_owned(), rank: 2 };
    let told = failures(&tell(&mut leader, Time::ZERO, 2, ToLeader::Leave));
    assert_eq!(told, [(vec![0], failure.clone())]);
    let told = failures(&tell(&mut leader, Time::ZERO, 1, announce("a", sum(3))));
    assert_eq!(told, [(vec![1], failure)]);
}

#[test]
fn sets_have_their_own_operations() {
    let mut leader = Leader::new(3, limits());
    let add = OpSignature::of(OpKind::AddSet { ranks: vec![1, 2] }, Vec::new());
    for rank in 0..3 {
        tell(&mut leader, Time::ZERO, rank, announce("set", add.clone()));
    }
    let of_set = sum(3).on(SetId(1));
    let told = failures(&tell(&mut leader, Time::ZERO, 0, announce("a", of_set.clone())));
    assert_eq!(told, [(vec![0], OpFailure::NoSet { name: "a".to_owned(), set: 1 })]);
    tell(&mut leader, Time::ZERO, 1, announce("a", of_set.clone()));
    assert_eq!(tell(&mut leader, Time::ZERO, 2, announce("a", of_set)), [run(&[1, 2], &[1])]);
    let bad = OpSignature::of(OpKind::AddSet { ranks: vec![1, 3] }, Vec::new());
    let told = failures(&tell(&mut leader, Time::ZERO, 1, announce("bad", bad)));
    assert!(matches!(told[0].1, OpFailure::NoSet { .. }));
    let world = OpSignature::of(OpKind::RemoveSet { set: SetId::WORLD }, Vec::new());
    let told = failures(&tell(&mut leader, Time::ZERO, 1, announce("world", world)));
    assert!(matches!(told[0].1, OpFailure::NoSet { .. }));
}

#[test]
fn a_lost_rank_ends_everything() {
    let mut leader = Leader::new(3, limits());
    let mut out = Outbox::default();
    leader.on_lost(1, &mut out);
    leader.on_lost(2, &mut out);
    assert_eq!(out.commands(), [LeaderCommand { to: vec![0, 2], message: ToRank::Lost { rank: 1 } }]);
    assert_eq!(tell(&mut leader, Time::ZERO, 0, announce("a", sum(3))), []);
}
