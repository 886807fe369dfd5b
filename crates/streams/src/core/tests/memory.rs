use super::bench::*;
use crate::*;
use phalanx_types::{ByteSize, Incarnation, ReaderId, Seed, UploadSequence};

fn free(sequence: u64) -> StreamCommand {
    StreamCommand::FreeUpload { sequence: UploadSequence(sequence) }
}

fn held(number: u64, reason: StreamWait) -> StreamCommand {
    told(&producer("sim", 1), ToProducer::Wait { number, reason })
}

#[test]
fn producers_are_held_back_until_samples_were_used() {
    let mut bench = Bench::new(freeing(100));
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.upload(&sim, 0, 4);
    bench.upload(&sim, 1, 4);
    let (used, budget) = (ByteSize(80), ByteSize(100));
    assert_eq!(bench.begin(&sim, 2, 4), [held(2, StreamWait::NoReader { used, budget })]);
    let id = reader(1).id;
    let away_for = std::time::Duration::ZERO;
    let away = StreamWait::ReaderAway { used, budget, reader: id.clone(), away_for };
    assert_eq!(bench.open_reader(once(4, 4)).last(), Some(&held(2, away)));
    let joined = bench.join("a");
    let behind = StreamWait::Budget { used, budget, behind: Some((id, 8)), trainer: None };
    assert_eq!(joined, [share("a", 1, 0, 1, (0, 4, 0)), held(2, behind)]);
    assert_eq!(bench.begin(&sim, 2, 4).len(), 1, "a repeated request is answered");
    let done = bench.done("a", 1, 0, 1);
    assert_eq!(done[..2], [free(0), told(&sim, ToProducer::Admitted { number: 2 })]);
    assert_eq!(bench.core.state().uploads().stored(), ByteSize(40));
}

#[test]
fn a_window_is_cut_when_the_budget_is_full() {
    let mut bench = Bench::new(freeing(100));
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.open_reader(once(50, 4));
    bench.join("a");
    bench.upload(&sim, 0, 9);
    let cut = StreamReport::WindowCut { reader: reader(1).id, pass: 0, samples: 8, window: 50 };
    let begun = bench.begin(&sim, 1, 2);
    assert_eq!(begun[..2], [share("a", 1, 0, 1, (0, 8, 0)), StreamCommand::Report(cut)]);
    bench.done("a", 1, 0, 1);
    // One sample of the first upload is left, and the second still does not fit: a window of one sample.
    let done = bench.done("a", 1, 0, 2);
    assert!(
        done.iter().any(|command| matches!(command, StreamCommand::Report(StreamReport::WindowCut { .. })))
    );
    assert_eq!(bench.done("a", 1, 1, 1)[..2], [free(0), told(&sim, ToProducer::Admitted { number: 1 })]);
}

#[test]
fn an_upload_is_kept_until_the_last_reader_has_used_it() {
    let mut bench = Bench::new(freeing(100));
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.open_reader(once(4, 4));
    let other = ReaderLife { id: ReaderId::new("slow").unwrap(), incarnation: Incarnation(1) };
    let settings = once(4, 4);
    bench.feed(StreamEvent::ReaderOpened { reader: other.clone(), settings, resume: None });
    bench.join("a");
    bench.upload(&sim, 0, 4);
    assert!(!bench.done("a", 1, 0, 1).contains(&free(0)));
    let released = StreamCommand::Report(StreamReport::ReaderReleased { reader: other.id.clone() });
    assert_eq!(bench.feed(StreamEvent::ReaderReleased { reader: other.id.clone() }), [released, free(0)]);
    let refused = ToReader::Refused(StreamRefusal::ReaderReleased { reader: other.id.clone() });
    let again = StreamEvent::ReaderOpened { reader: other.clone(), settings: once(4, 4), resume: None };
    assert_eq!(bench.feed(again), [StreamCommand::TellReader { reader: other, message: refused }]);
}

#[test]
fn what_can_never_fit_is_refused() {
    let mut bench = Bench::new(freeing(100));
    let sim = producer("sim", 1);
    bench.open(&sim);
    let large = StreamRefusal::TooLarge { bytes: ByteSize(110), budget: ByteSize(100) };
    assert_eq!(bench.begin(&sim, 0, 11), [told(&sim, ToProducer::Refused(large))]);
    // A reservoir that alone fills the budget.
    let mode = ReadMode::Reservoir { capacity: 50, min_samples: 1, steps: None };
    bench.open_reader(ReaderSettings::new(mode, Seed(7), 4));
    bench.join("a");
    bench.upload(&sim, 0, 6);
    bench.begin(&sim, 1, 6);
    bench.done("a", 1, 0, 1);
    let full = StreamRefusal::Full { used: ByteSize(60), budget: ByteSize(100), bytes: ByteSize(60) };
    assert!(
        bench.begin(&sim, 1, 6).contains(&told(&sim, ToProducer::Refused(full.clone())))
            || bench.done("a", 1, 0, 2).contains(&told(&sim, ToProducer::Refused(full)))
    );
    // With every sample kept, nothing will be freed.
    let budget = Some(ByteSize(100));
    let mut bench = Bench::new(StreamSettings { budget, ..StreamSettings::default() });
    bench.open(&sim);
    bench.upload(&sim, 0, 6);
    let full = StreamRefusal::Full { used: ByteSize(60), budget: ByteSize(100), bytes: ByteSize(60) };
    assert_eq!(bench.begin(&sim, 1, 6), [told(&sim, ToProducer::Refused(full))]);
}

#[test]
fn a_reservoir_keeps_memory_bounded_in_an_endless_stream() {
    let mut bench = Bench::new(freeing(400));
    let sim = producer("sim", 1);
    bench.open(&sim);
    let mode = ReadMode::Reservoir { capacity: 8, min_samples: 1, steps: Some(1) };
    bench.open_reader(ReaderSettings::new(mode, Seed(7), 4));
    bench.join("a");
    let mut largest = 0;
    for number in 0..500 {
        bench.upload(&sim, number, 5);
        let cursor = bench.core.state().readers()[&reader(1).id].cursor().unwrap();
        bench.done("a", 1, cursor.pass, 1);
        largest = largest.max(bench.core.state().uploads().stored().0);
    }
    assert_eq!(bench.core.state().uploads().arrived(), 2500);
    assert!(largest <= 2 * 16 * 10, "{largest}");
    // Old and new samples are drawn alike.
    let places: Vec<u64> = (0..2)
        .flat_map(|step| bench.core.places(&reader(1).id, step))
        .map(|place| place.unwrap().sequence.0)
        .collect();
    assert!(places.iter().any(|sequence| *sequence < 400), "{places:?}");
}
