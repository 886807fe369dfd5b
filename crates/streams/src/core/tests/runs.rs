//! Runs that share their batches out themselves.

use super::bench::*;
use crate::*;
use phalanx_types::{Incarnation, Seed};

fn wanted(bench: &mut Bench, pass: u64) -> Result<PassAnswer, StreamRefusal> {
    bench.feed(StreamEvent::PassWanted { reader: reader(1), pass });
    bench.core.pass_answer(bench.now, &reader(1).id, pass)
}

fn commit(bench: &mut Bench, pass: u64, steps: u64) -> ToReader {
    let told = bench.feed(StreamEvent::RunCommitted { reader: reader(1), pass, steps });
    let message = told.into_iter().find_map(|command| match command {
        StreamCommand::TellReader { message, .. } => Some(message),
        _ => None,
    });
    message.unwrap()
}

fn cursor(pass: u64, base: u64, horizon: u64, step: u64) -> Cursor {
    Cursor { seed: Seed(7), pass, base, horizon, step }
}

fn sealed(pass: u64, base: u64, horizon: u64, step: u64) -> Result<PassAnswer, StreamRefusal> {
    Ok(PassAnswer::Sealed(cursor(pass, base, horizon, step)))
}

/// A stream that frees, a run in mode `once` with windows of 4 samples and batches of 2, and uploads of 4 samples.
fn once_run(uploads: u64) -> Bench {
    let mut bench = Bench::new(freeing(100));
    bench.open(&producer("sim", 1));
    bench.open_reader(once(4, 2));
    bench.join("run");
    (0..uploads).for_each(|number| drop(bench.upload(&producer("sim", 1), number, 4)));
    bench
}

#[test]
fn a_run_has_passes_before_it_commits_the_ones_before() {
    let mut bench = once_run(2);
    assert_eq!(wanted(&mut bench, 0), sealed(0, 0, 4, 0));
    assert_eq!(wanted(&mut bench, 1), sealed(1, 4, 8, 0));
    let waits = wanted(&mut bench, 2).unwrap();
    assert!(matches!(waits, PassAnswer::Waiting(StreamWait::Samples { arrived: 0, needed: 4, .. })));
    assert_eq!(bench.core.state().uploads().len(), 2, "nothing is freed that was not committed");
    // One commit ends the first pass and takes a step of the second.
    assert_eq!(commit(&mut bench, 1, 1), ToReader::Committed { cursor: Some(cursor(1, 4, 8, 1)) });
    assert_eq!(bench.core.state().uploads().len(), 1);
    assert_eq!(commit(&mut bench, 1, 1), ToReader::Committed { cursor: Some(cursor(1, 4, 8, 1)) });
    assert_eq!(commit(&mut bench, 0, 2), ToReader::Committed { cursor: Some(cursor(1, 4, 8, 1)) });
    assert!(matches!(commit(&mut bench, 1, 3), ToReader::Refused(StreamRefusal::BeyondPass { .. })));
    assert!(matches!(commit(&mut bench, 9, 1), ToReader::Refused(StreamRefusal::UnknownPlace { .. })));
    assert!(matches!(wanted(&mut bench, 9), Err(StreamRefusal::UnknownPlace { .. })));
    let facts = bench.journal.len();
    let state = bench.core.state().clone();
    bench.restart(facts);
    assert_eq!(*bench.core.state(), state, "passes ahead survive a restart");
}

#[test]
fn a_run_is_told_to_commit_when_its_steps_keep_producers_waiting() {
    let mut bench = once_run(2);
    (0..2).for_each(|pass| drop(wanted(&mut bench, pass)));
    bench.begin(&producer("sim", 1), 2, 4);
    let waits = wanted(&mut bench, 2).unwrap();
    assert_eq!(waits, PassAnswer::Waiting(StreamWait::Uncommitted { pass: 0, step: 0 }));
    commit(&mut bench, 0, 2);
    bench.complete(&producer("sim", 1), 2);
    assert_eq!(wanted(&mut bench, 2), sealed(2, 8, 12, 0));
}

#[test]
fn a_run_resumes_where_its_checkpoint_is_even_if_the_commit_was_lost() {
    for (resume, stands, left) in [
        (cursor(1, 4, 8, 1), cursor(1, 4, 8, 1), 2),
        (cursor(0, 0, 4, 2), cursor(1, 4, 8, 0), 2),
        (cursor(0, 0, 4, 1), cursor(0, 0, 4, 1), 3),
        (cursor(2, 8, 12, 0), cursor(2, 8, 12, 0), 1),
    ] {
        let mut bench = Bench::new(freeing(200));
        bench.open(&producer("sim", 1));
        bench.open_reader(once(4, 2));
        bench.join("run");
        (0..3).for_each(|number| drop(bench.upload(&producer("sim", 1), number, 4)));
        (0..3).for_each(|pass| drop(wanted(&mut bench, pass)));
        let open =
            StreamEvent::ReaderOpened { reader: reader(2), settings: once(4, 2), resume: Some(resume) };
        let told = bench.feed(open);
        let opened = ToReader::Opened { cursor: Some(stands) };
        assert!(told.contains(&StreamCommand::TellReader { reader: reader(2), message: opened }), "{told:?}");
        assert_eq!(bench.core.state().uploads().len(), left, "{resume:?}");
        // The same checkpoint once more, when the store has moved on to the beginning of the next pass.
        let life = ReaderLife { incarnation: Incarnation(3), ..reader(2) };
        let again =
            StreamEvent::ReaderOpened { reader: life.clone(), settings: once(4, 2), resume: Some(resume) };
        let opened = ToReader::Opened { cursor: Some(stands) };
        assert!(bench.feed(again).contains(&StreamCommand::TellReader { reader: life, message: opened }));
    }
}

#[test]
fn the_last_steps_may_be_repeated_until_they_are_committed() {
    let mut bench = once_run(1);
    bench.feed(StreamEvent::StreamSealed);
    assert_eq!(wanted(&mut bench, 0), sealed(0, 0, 4, 0));
    assert_eq!(wanted(&mut bench, 1), Ok(PassAnswer::Finished(ReaderEnding::StreamUsed)));
    assert_eq!(bench.core.state().uploads().len(), 1, "the samples are kept for a run that resumes");
    commit(&mut bench, 0, 2);
    assert_eq!(bench.core.state().uploads().len(), 0);
    assert_eq!(wanted(&mut bench, 1), Ok(PassAnswer::Finished(ReaderEnding::StreamUsed)));
}

#[test]
fn kept_samples_need_no_commits_and_passes_are_the_same_again() {
    let mut bench = Bench::new(StreamSettings::default());
    bench.open(&producer("sim", 1));
    bench.upload(&producer("sim", 1), 0, 4);
    bench.open_reader(grow(2));
    bench.join("run");
    assert_eq!(wanted(&mut bench, 0), sealed(0, 0, 4, 0));
    bench.upload(&producer("sim", 1), 1, 3);
    assert_eq!(wanted(&mut bench, 1), sealed(1, 0, 7, 0));
    assert_eq!(wanted(&mut bench, 2), sealed(2, 0, 7, 0));
    assert!(matches!(wanted(&mut bench, 0), Ok(PassAnswer::Sealed(first)) if first.horizon == 4));
    let resume = Some(cursor(0, 0, 4, 1));
    bench.feed(StreamEvent::ReaderOpened { reader: reader(2), settings: grow(2), resume });
    let state = &bench.core.state().readers()[&reader(2).id];
    assert_eq!(state.cursor(), resume);
    assert_eq!(state.sealed_pass(1), Some(cursor(1, 0, 7, 0)));
}

#[test]
fn a_reservoir_that_frees_needs_the_end_of_a_pass() {
    let mut bench = Bench::new(freeing(1000));
    bench.open(&producer("sim", 1));
    let mode = ReadMode::Reservoir { capacity: 4, min_samples: 4, steps: None };
    bench.open_reader(ReaderSettings::new(mode, Seed(7), 2));
    bench.join("run");
    bench.upload(&producer("sim", 1), 0, 4);
    assert_eq!(wanted(&mut bench, 0), sealed(0, 0, 4, 0));
    let waits = wanted(&mut bench, 1).unwrap();
    assert_eq!(waits, PassAnswer::Waiting(StreamWait::Uncommitted { pass: 0, step: 0 }));
    commit(&mut bench, 0, 2);
    assert_eq!(wanted(&mut bench, 1), sealed(1, 0, 4, 0));
}
