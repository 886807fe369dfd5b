use super::bench::*;
use crate::*;
use phalanx_types::Epoch;

/// A stream of two uploads with a reader in the middle of a pass.
fn in_the_middle() -> Bench {
    let mut bench = Bench::new(freeing(1000));
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 4);
    bench.upload(&sim, 1, 4);
    bench.open_reader(once(8, 2));
    bench.join("a");
    bench.done("a", 1, 0, 1);
    bench.done("a", 1, 0, 2);
    bench
}

#[test]
fn the_journal_and_a_snapshot_lead_to_the_same_state() {
    let bench = in_the_middle();
    let mut replayed = StreamState::new(freeing(1000));
    let mut snapshots = vec![replayed.clone()];
    for fact in &bench.journal {
        replayed.apply(fact).unwrap();
        snapshots.push(replayed.clone());
    }
    assert_eq!(replayed, *bench.core.state());
    for (facts, snapshot) in snapshots.iter().enumerate() {
        let bytes = postcard::to_allocvec(snapshot).unwrap();
        let mut state: StreamState = postcard::from_bytes(&bytes).unwrap();
        bench.journal[facts..].iter().for_each(|fact| state.apply(fact).unwrap());
        assert_eq!(state, replayed);
    }
}

#[test]
fn a_journal_with_a_hole_is_an_error() {
    let bench = in_the_middle();
    let errors = (0..bench.journal.len()).filter(|hole| {
        let mut state = StreamState::new(freeing(1000));
        let rest = bench.journal.iter().enumerate().filter(|(at, _)| at != hole);
        rest.map(|(_, fact)| state.apply(fact)).any(|applied| applied.is_err())
    });
    assert!(errors.count() >= 4);
}

#[test]
fn clients_that_repeat_their_last_request_go_on_after_a_restart() {
    let sim = producer("sim", 1);
    let whole = in_the_middle().journal.len();
    // The last fact is lost with its answer, or only the answer is.
    for (facts, step) in [(whole, 2), (whole - 1, 1)] {
        let mut bench = in_the_middle();
        assert_eq!(bench.restart(facts), []);
        let not_joined = ToTrainer::Refused(StreamRefusal::NotJoined { reader: reader(1).id });
        let refused = StreamCommand::TellTrainer { trainer: trainer("a"), message: not_joined };
        assert_eq!(bench.done("a", 1, 0, 2), [refused]);
        assert_eq!(bench.join("a"), [share("a", 2, 0, 1, (0, 8, step))]);
        assert_eq!(bench.core.state().readers()[&reader(1).id].epoch(), Epoch(2));
        let not_open = told(&sim, ToProducer::Refused(StreamRefusal::NotOpen { producer: sim.id.clone() }));
        assert_eq!(bench.begin(&sim, 1, 4), [not_open]);
        let opened = told(&sim, ToProducer::Opened { next: 2, closed: false });
        assert_eq!(bench.open(&sim)[0], opened);
        assert_eq!(bench.begin(&sim, 1, 4), [told(&sim, ToProducer::Acknowledged { number: 1 })]);
        assert_eq!(bench.upload(&sim, 2, 1), [told(&sim, ToProducer::Acknowledged { number: 2 })]);
    }
}

#[test]
fn what_was_used_but_not_freed_before_a_restart_is_freed_after_it() {
    let mut bench = in_the_middle();
    bench.done("a", 1, 0, 3);
    bench.done("a", 1, 0, 4);
    let freed = |fact: &Fact| matches!(fact, Fact::UploadFreed { .. });
    let facts = bench.journal.iter().position(freed).unwrap();
    let commands = bench.restart(facts);
    assert!(commands.iter().any(|command| matches!(command, StreamCommand::FreeUpload { .. })));
}
