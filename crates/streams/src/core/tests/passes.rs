use super::bench::*;
use crate::*;
use phalanx_types::{ProducerId, Seed};

fn names(names: &[&str]) -> Names<ProducerId> {
    names.iter().map(|name| ProducerId::new(*name).unwrap()).collect()
}

fn finished(name: &str, ending: ReaderEnding) -> StreamCommand {
    StreamCommand::TellTrainer { trainer: trainer(name), message: ToTrainer::Finished(ending) }
}

#[test]
fn a_growing_pass_ends_at_its_horizon_and_the_next_takes_what_has_arrived() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 3);
    let mode = ReadMode::Grow { min_samples: 5, new_samples: 2 };
    bench.open_reader(ReaderSettings { mode, ..grow(4) });
    let open = names(&["sim"]);
    let few = StreamWait::Samples { arrived: 3, needed: 5, open: open.clone() };
    assert_eq!(bench.join("a"), [waits("a", few)]);
    let acknowledged = |number| told(&producer("sim", 1), ToProducer::Acknowledged { number });
    assert_eq!(bench.upload(&sim, 1, 3), [acknowledged(1), share("a", 1, 0, 1, (0, 6, 0))]);
    assert_eq!(bench.upload(&sim, 2, 1), [acknowledged(2)], "the horizon is sealed");
    assert_eq!(bench.done("a", 1, 0, 1), [share("a", 1, 0, 1, (0, 6, 1))]);
    let none = StreamWait::NewSamples { arrived: 1, needed: 2, open };
    assert_eq!(bench.done("a", 1, 0, 2), [waits("a", none)]);
    assert_eq!(bench.upload(&sim, 3, 1), [acknowledged(3), share("a", 1, 0, 1, (1, 8, 0))]);
}

#[test]
fn a_static_pass_waits_for_the_end_and_passes_are_counted() {
    let mut bench = Bench::new(StreamSettings { expected_producers: Some(1), ..StreamSettings::default() });
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.open_reader(ReaderSettings { mode: ReadMode::Static, passes: Some(2), ..grow(4) });
    let open = names(&["sim"]);
    let not_ended = StreamWait::EndOfStream { arrived: 0, closed: 0, expected: Some(1), open };
    assert_eq!(bench.join("a"), [waits("a", not_ended)]);
    bench.upload(&sim, 0, 3);
    let lost = bench.feed(StreamEvent::ProducerLost { producer: sim.clone() });
    let gone =
        StreamWait::ProducerLost { producer: sim.id.clone(), lost_for: std::time::Duration::ZERO, others: 0 };
    assert_eq!(lost.last(), Some(&waits("a", gone)));
    bench.open(&sim);
    let closed = bench.feed(StreamEvent::ProducerClosed { producer: sim, uploads: 1 });
    assert_eq!(closed.last(), Some(&share("a", 1, 0, 1, (0, 3, 0))));
    assert_eq!(bench.done("a", 1, 0, 1), [share("a", 1, 0, 1, (1, 3, 0))]);
    assert_eq!(bench.done("a", 1, 1, 1), [finished("a", ReaderEnding::PassesDone)]);
    assert_eq!(bench.done("a", 1, 1, 1), [finished("a", ReaderEnding::PassesDone)]);
}

#[test]
fn too_few_samples_for_a_step_end_a_reader_that_drops_partial_batches() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 3);
    bench.open_reader(ReaderSettings { partial: PartialBatch::Drop, ..grow(4) });
    bench.join("a");
    let ended = bench.feed(StreamEvent::StreamSealed);
    assert_eq!(ended.last(), Some(&finished("a", ReaderEnding::TooFewSamples { arrived: 3 })));
}

#[test]
fn every_sample_is_used_once_in_windows() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.open_reader(once(4, 2));
    bench.join("a");
    (0..5).for_each(|number| drop(bench.upload(&sim, number, 2)));
    bench.feed(StreamEvent::StreamSealed);
    let mut used = Vec::new();
    while let Some((cursor, pass)) = bench.core.state().readers()[&reader(1).id].open_pass() {
        used.extend(pass.positions(cursor.step).filter_map(|position| pass.sample(position)));
        bench.done("a", 1, cursor.pass, cursor.step + 1);
    }
    assert!(used[..4].iter().all(|sample| *sample < 4), "{used:?}");
    used.sort_unstable();
    assert_eq!(used, (0..10).collect::<Vec<_>>());
    assert_eq!(bench.join("a"), [finished("a", ReaderEnding::StreamUsed)]);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let table = [
        (ReaderSettings { batch: 0, ..grow(4) }, Retention::Keep),
        (ReaderSettings { batch: u64::MAX, ..grow(4) }, Retention::Keep),
        (ReaderSettings { passes: Some(0), ..grow(4) }, Retention::Keep),
        (grow(4), Retention::Free),
        (once(0, 4), Retention::Keep),
        (ReaderSettings { partial: PartialBatch::Drop, ..once(4, 4) }, Retention::Keep),
    ];
    for (settings, retention) in table {
        let mut bench = Bench::new(StreamSettings { retention, ..StreamSettings::default() });
        let error = settings.validate(retention).unwrap_err();
        let message = ToReader::Refused(StreamRefusal::Settings(error));
        assert_eq!(bench.open_reader(settings), [StreamCommand::TellReader { reader: reader(1), message }]);
    }
    let zero = StreamSettings { expected_producers: Some(0), ..StreamSettings::default() };
    assert!(zero.validate().is_err() && StreamSettings::default().validate().is_ok());
}

#[test]
fn a_run_that_goes_back_to_a_checkpoint_sees_the_same_samples_again() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 4);
    bench.open_reader(grow(4));
    bench.join("a");
    bench.upload(&sim, 1, 4);
    let checkpoint = Cursor { seed: Seed(7), pass: 0, base: 0, horizon: 4, step: 0 };
    assert_eq!(bench.done("a", 1, 0, 1), [share("a", 1, 0, 1, (1, 8, 0))]);
    bench.upload(&sim, 2, 4);
    bench.done("a", 1, 1, 2);
    // PassOrder 2 has 12 samples; the run comes back in the middle of pass 0.
    let open = |resume| StreamEvent::ReaderOpened { reader: reader(2), settings: grow(4), resume };
    let wrong = Cursor { horizon: 5, ..checkpoint };
    let refused = StreamRefusal::UnknownPlace { reader: reader(1).id, pass: 0, step: 0 };
    let message = ToReader::Refused(refused);
    assert_eq!(bench.feed(open(Some(wrong))), [StreamCommand::TellReader { reader: reader(2), message }]);
    let beyond = Cursor { horizon: u64::MAX, step: u64::MAX, ..checkpoint };
    assert_eq!(bench.feed(open(Some(beyond))).len(), 1);
    let opened = bench.feed(open(Some(checkpoint)));
    let message = ToReader::Opened { cursor: Some(checkpoint) };
    assert_eq!(opened.last(), Some(&StreamCommand::TellReader { reader: reader(2), message }));
    let trainer = TrainerLife { reader: reader(2), ..trainer("a") };
    let joined = bench.feed(StreamEvent::TrainerJoined { trainer: trainer.clone() });
    let horizon = |commands: &[StreamCommand]| match commands {
        [StreamCommand::TellTrainer { message: ToTrainer::Assigned(task), .. }] => {
            (task.epoch, task.cursor.pass, task.cursor.horizon)
        }
        other => panic!("{other:?}"),
    };
    let (epoch, pass, first) = horizon(&joined);
    assert_eq!((pass, first), (0, 4));
    let done = |pass, steps| StreamEvent::StepsDone { trainer: trainer.clone(), epoch, pass, steps };
    assert_eq!(horizon(&bench.feed(done(0, 1))).2, 8, "pass 1 has the horizon that it had");
    assert_eq!(horizon(&bench.feed(done(1, 2))).2, 12);
    assert_eq!(horizon(&bench.feed(done(2, 3))).2, 12);
}
