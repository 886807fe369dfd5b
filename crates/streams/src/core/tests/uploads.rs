use super::bench::*;
use crate::*;
use phalanx_types::{ByteSize, Incarnation, Time, UploadSequence};
use std::time::Duration;

#[test]
fn an_upload_counts_once_however_often_it_comes() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    assert_eq!(bench.open(&sim), [told(&sim, ToProducer::Opened { next: 0, closed: false })]);
    assert_eq!(bench.begin(&sim, 0, 3), [told(&sim, ToProducer::Admitted { number: 0 })]);
    assert_eq!(bench.begin(&sim, 0, 3), [told(&sim, ToProducer::Admitted { number: 0 })]);
    let accepted = Fact::UploadAccepted {
        sequence: UploadSequence(0),
        producer: sim.id.clone(),
        number: 0,
        samples: 3,
        bytes: ByteSize(30),
    };
    let acknowledged = told(&sim, ToProducer::Acknowledged { number: 0 });
    let completed = StreamEvent::UploadCompleted { producer: sim.clone(), number: 0 };
    assert_eq!(bench.feed_all(completed.clone()), [StreamCommand::Record(accepted), acknowledged.clone()]);
    assert_eq!(bench.feed_all(completed), std::slice::from_ref(&acknowledged));
    assert_eq!(bench.begin(&sim, 0, 3), [acknowledged]);
    // A restarted producer uploads it again.
    let later = producer("sim", 2);
    let fenced = StreamRefusal::Fenced { incarnation: Incarnation(1), current: Incarnation(2) };
    assert_eq!(
        bench.open(&later),
        [
            told(&sim, ToProducer::Refused(fenced)),
            told(&later, ToProducer::Opened { next: 1, closed: false })
        ]
    );
    assert_eq!(bench.begin(&later, 0, 3), [told(&later, ToProducer::Acknowledged { number: 0 })]);
    assert_eq!(bench.core.state().uploads().arrived(), 3);
}

#[test]
fn an_older_life_is_fenced_and_its_half_written_upload_dropped() {
    let mut bench = Bench::new(StreamSettings::default());
    let (old, new) = (producer("sim", 4), producer("sim", 5));
    bench.open(&old);
    bench.begin(&old, 0, 3);
    let fenced = StreamRefusal::Fenced { incarnation: Incarnation(4), current: Incarnation(5) };
    assert_eq!(
        bench.open(&new),
        [
            StreamCommand::DiscardUpload { producer: old.clone(), number: 0 },
            told(&old, ToProducer::Refused(fenced.clone())),
            told(&new, ToProducer::Opened { next: 0, closed: false }),
        ]
    );
    for commands in [bench.complete(&old, 0), bench.begin(&old, 0, 3), bench.open(&old)] {
        assert_eq!(commands, [told(&old, ToProducer::Refused(fenced.clone()))]);
    }
    assert_eq!(
        bench.complete(&new, 0),
        [told(&new, ToProducer::Refused(StreamRefusal::NotBegun { number: 0 }))]
    );
    assert_eq!(bench.core.state().uploads().arrived(), 0);
}

#[test]
fn a_silent_producer_is_lost_reported_and_may_come_back() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.begin(&sim, 0, 3);
    assert_eq!(bench.core.next_tick(), Some(Time::from_millis(30_000)));
    bench.now = Time::from_millis(20_000);
    assert_eq!(bench.feed(StreamEvent::ProducerHeard { producer: sim.clone() }), []);
    bench.now = Time::from_millis(50_000);
    assert_eq!(
        bench.feed(StreamEvent::Ticked),
        [
            StreamCommand::DiscardUpload { producer: sim.clone(), number: 0 },
            StreamCommand::Report(StreamReport::ProducerLost {
                producer: sim.id.clone(),
                silent_for: Duration::from_secs(30)
            }),
        ]
    );
    assert_eq!(bench.core.next_tick(), None);
    let not_open = StreamRefusal::NotOpen { producer: sim.id.clone() };
    assert_eq!(bench.complete(&sim, 0), [told(&sim, ToProducer::Refused(not_open))]);
    assert_eq!(
        bench.open(&sim),
        [
            told(&sim, ToProducer::Opened { next: 0, closed: false }),
            StreamCommand::Report(StreamReport::ProducerBack { producer: sim.id.clone() })
        ]
    );
}

#[test]
fn the_stream_ends_when_all_expected_producers_have_closed() {
    let mut bench = Bench::new(StreamSettings { expected_producers: Some(2), ..StreamSettings::default() });
    let (a, b) = (producer("a", 1), producer("b", 1));
    bench.open(&a);
    bench.open(&b);
    bench.upload(&a, 0, 3);
    let close = |producer: &ProducerLife, uploads| StreamEvent::ProducerClosed {
        producer: producer.clone(),
        uploads,
    };
    let missing = StreamRefusal::Incomplete { missing: 1, uploads: 2 };
    assert_eq!(bench.feed(close(&a, 2)), [told(&a, ToProducer::Refused(missing))]);
    assert_eq!(bench.feed(close(&a, 1)), [told(&a, ToProducer::Closed)]);
    assert!(!bench.core.state().has_ended());
    bench.feed(StreamEvent::ProducerLost { producer: b.clone() });
    let b = producer("b", 2);
    bench.open(&b);
    assert_eq!(
        bench.feed(close(&b, 0)),
        [told(&b, ToProducer::Closed), StreamCommand::Report(StreamReport::StreamEnded { samples: 3 })]
    );
    assert_eq!(bench.feed(close(&b, 0)), [told(&b, ToProducer::Closed)]);
    let late = producer("c", 1);
    assert_eq!(bench.open(&late), [told(&late, ToProducer::Refused(StreamRefusal::Ended { samples: 3 }))]);
}

#[test]
fn sealing_ends_the_stream_whatever_is_on_its_way() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    bench.begin(&sim, 0, 3);
    assert_eq!(
        bench.feed(StreamEvent::StreamSealed),
        [
            StreamCommand::DiscardUpload { producer: sim.clone(), number: 0 },
            told(&sim, ToProducer::Refused(StreamRefusal::Ended { samples: 0 })),
            StreamCommand::Report(StreamReport::StreamEnded { samples: 0 }),
        ]
    );
    assert_eq!(bench.feed(StreamEvent::StreamSealed), []);
}

#[test]
fn hostile_numbers_are_refused() {
    let mut bench = Bench::new(StreamSettings::default());
    let sim = producer("sim", 1);
    bench.open(&sim);
    let begin = |number, samples, bytes| StreamEvent::UploadBegun {
        producer: producer("sim", 1),
        number,
        samples,
        bytes: ByteSize(bytes),
    };
    let table = [
        (begin(0, 0, 1), StreamRefusal::Empty { number: 0 }),
        (begin(u64::MAX, 1, 1), StreamRefusal::TooFarAhead { number: u64::MAX, missing: 0 }),
        (begin(64, 1, 1), StreamRefusal::TooFarAhead { number: 64, missing: 0 }),
        (begin(1, 9, 8), StreamRefusal::TooManyInBytes { number: 1, samples: 9, bytes: ByteSize(8) }),
    ];
    for (event, refusal) in table {
        assert_eq!(bench.feed(event), [told(&sim, ToProducer::Refused(refusal))]);
    }
    assert_eq!(bench.feed(begin(0, 1, u64::MAX)), [told(&sim, ToProducer::Admitted { number: 0 })]);
    assert_eq!(bench.feed(begin(1, 1, 1)), [told(&sim, ToProducer::Refused(StreamRefusal::TooManySamples))]);
    bench.complete(&sim, 0);
    assert_eq!(bench.feed(begin(1, 1, 1)), [told(&sim, ToProducer::Refused(StreamRefusal::TooManySamples))]);
}
