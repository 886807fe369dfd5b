use super::bench::*;
use crate::*;
use phalanx_types::{Incarnation, Time, TrainerId};
use std::time::Duration;

fn names(names: &[&str]) -> Names<TrainerId> {
    names.iter().map(|name| TrainerId::new(*name).unwrap()).collect()
}

/// Ten samples, batches of four, two trainers in epoch 2 at step 0.
fn two_trainers() -> Bench {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 10);
    bench.open_reader(grow(4));
    assert_eq!(bench.join("a"), [share("a", 1, 0, 1, (0, 10, 0))]);
    assert_eq!(bench.join("b"), [waits("b", StreamWait::NextStep { pass: 0, step: 0 })]);
    let next = [share("a", 2, 0, 2, (0, 10, 1)), share("b", 2, 1, 2, (0, 10, 1))];
    assert_eq!(bench.done("a", 1, 0, 1), next);
    bench
}

#[test]
fn a_step_is_committed_when_all_have_done_their_share() {
    let mut bench = two_trainers();
    let busy = StreamWait::OtherTrainers { pass: 0, step: 1, busy: names(&["b"]) };
    assert_eq!(bench.done("a", 2, 0, 2), [waits("a", busy.clone())]);
    assert_eq!(bench.done("a", 2, 0, 2), [waits("a", busy)], "a repeated request is answered again");
    let next = [share("a", 2, 0, 2, (0, 10, 2)), share("b", 2, 1, 2, (0, 10, 2))];
    assert_eq!(bench.done("b", 2, 0, 2), next);
    assert_eq!(bench.done("b", 2, 0, 2), [share("b", 2, 1, 2, (0, 10, 2))]);
}

#[test]
fn a_lost_trainer_makes_a_new_epoch_and_the_step_begins_again() {
    let mut bench = two_trainers();
    bench.done("a", 2, 0, 2);
    let (reader, lost) = (reader(1).id, TrainerId::new("b").unwrap());
    let report = StreamReport::TrainerLost { reader, trainer: lost, silent_for: Duration::ZERO };
    assert_eq!(
        bench.feed(StreamEvent::TrainerLost { trainer: trainer("b") }),
        [StreamCommand::Report(report), share("a", 3, 0, 1, (0, 10, 1))]
    );
    // What it did in the old epoch does not count.
    assert_eq!(bench.done("a", 2, 0, 2), [share("a", 3, 0, 1, (0, 10, 1))]);
    let not_joined = ToTrainer::Refused(StreamRefusal::NotJoined { reader: super::bench::reader(1).id });
    assert_eq!(
        bench.done("b", 2, 0, 2),
        [StreamCommand::TellTrainer { trainer: trainer("b"), message: not_joined }]
    );
    assert_eq!(bench.done("a", 3, 0, 2), [share("a", 3, 0, 1, (0, 10, 2))]);
}

#[test]
fn silent_trainers_are_lost_and_a_reader_without_trainers_is_released() {
    let release = Some(Duration::from_secs(60));
    let mut bench =
        Bench::new(StreamSettings { release_readers_after: release, ..StreamSettings::default() });
    bench.open_reader(grow(4));
    bench.join("a");
    bench.now = Time::from_millis(30_000);
    assert_eq!(bench.core.next_tick(), Some(bench.now));
    let id = reader(1).id;
    let lost = StreamReport::TrainerLost {
        reader: id.clone(),
        trainer: TrainerId::new("a").unwrap(),
        silent_for: Duration::from_secs(30),
    };
    assert_eq!(
        bench.feed(StreamEvent::Ticked),
        [StreamCommand::Report(lost), StreamCommand::Report(StreamReport::ReaderLost { reader: id.clone() })]
    );
    bench.now = Time::from_millis(90_000);
    assert_eq!(bench.core.next_tick(), Some(bench.now));
    let released = StreamCommand::Report(StreamReport::ReaderReleased { reader: id.clone() });
    assert_eq!(bench.feed(StreamEvent::Ticked), [released]);
    let refused = ToTrainer::Refused(StreamRefusal::ReaderReleased { reader: id });
    assert_eq!(bench.join("a"), [StreamCommand::TellTrainer { trainer: trainer("a"), message: refused }]);
}

#[test]
fn a_new_life_of_a_trainer_replaces_the_old_one() {
    let mut bench = two_trainers();
    let new = TrainerLife { incarnation: Incarnation(2), ..trainer("b") };
    let commands = bench.feed(StreamEvent::TrainerJoined { trainer: new.clone() });
    let fenced = StreamRefusal::Fenced { incarnation: Incarnation(1), current: Incarnation(2) };
    let told_old = StreamCommand::TellTrainer { trainer: trainer("b"), message: ToTrainer::Refused(fenced) };
    assert_eq!(commands.first(), Some(&told_old));
    assert_eq!(commands.get(1), Some(&share("a", 3, 0, 2, (0, 10, 1))));
    assert_eq!(bench.done("b", 2, 0, 2), std::slice::from_ref(&told_old));
    assert_eq!(bench.join("b"), [told_old]);
}

#[test]
fn steps_that_a_pass_does_not_have_are_refused() {
    let mut bench = two_trainers();
    let refused = StreamRefusal::BeyondPass { pass: 0, steps: 3, done: u64::MAX };
    assert_eq!(
        bench.done("a", 2, 0, u64::MAX),
        [StreamCommand::TellTrainer { trainer: trainer("a"), message: ToTrainer::Refused(refused) }]
    );
    // Another pass or epoch is answered with the current place.
    assert_eq!(bench.done("a", 2, 9, 1), [share("a", 2, 0, 2, (0, 10, 1))]);
    assert_eq!(bench.done("a", 99, 0, 1), [share("a", 2, 0, 2, (0, 10, 1))]);
}
