//! A node of which training uses a part.

use super::*;
use phalanx_types::RunId;
use phalanx_wire::usage::Holder;

fn run(cores: u32, gib: u64) -> Vec<NodeUse> {
    let holder = Holder::Run { run: RunId(1), driver: "main-4f2a".parse().unwrap() };
    vec![NodeUse { holder, cores, memory: ByteSize::gib(gib) }]
}

impl Worker {
    fn taken(&mut self, taken: Vec<NodeUse>) -> Vec<WorkerCommand> {
        self.feed(|core, _, _| core.on_taken(taken))
    }
}

#[test]
fn jobs_start_on_what_training_leaves_them() {
    let mut worker = Worker::new();
    assert_eq!(worker.taken(run(1, 6)), []);
    assert_eq!(worker.core.share(), Needs { cores: 1, memory: ByteSize::gib(2) });
    assert_eq!(worker.flush(), [report(1, 2, Report { taken: run(1, 6), ..Report::default() })]);
    let offers = vec![offer(l(1, 1)), offer(l(2, 1))];
    assert_eq!(worker.offer(1, ONE_CORE, offers), [start(0, 1, &[l(1, 1)])], "one core is left");
    assert_eq!(worker.room(), []);
    worker.taken(Vec::new());
    assert_eq!(worker.room(), [start(1, 1, &[l(2, 1)])]);
    assert_eq!(worker.flush(), [report(1, 3, Report::default())]);
}

#[test]
fn a_node_that_trains_with_all_its_cores_takes_no_jobs() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), offer(l(3, 1))]);
    assert_eq!(worker.core.running(), 2);
    // What runs goes on, whatever waits goes back.
    worker.taken(run(2, 0));
    let back = Report { taken: run(2, 0), handed_back: vec![l(3, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 0, back)]);
    for job in [1, 2] {
        worker.finish(1, l(job, 1), end(), 9_000);
    }
    assert_eq!(worker.room(), []);
    worker.flush();
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(4, 1))]), [], "sent before the main node knew");
    let back = Report { taken: run(2, 0), handed_back: vec![l(4, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 0, back)]);
    // A main node that comes now hears of it at once.
    let commands = worker.invite(2, s(2));
    let [WorkerCommand::Join { join, .. }] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((join.window, &join.taken, join.capacity.cores), (0, &run(2, 0), 2));
}

#[test]
fn a_job_too_large_for_the_rest_goes_back_and_a_smaller_one_stays() {
    let two_cores = Needs { cores: 2, memory: ByteSize(0) };
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]);
    worker.offer(1, two_cores, vec![offer(l(2, 1))]);
    worker.offer(1, ONE_CORE, vec![offer(l(3, 1))]);
    worker.taken(run(1, 0));
    let back = Report { taken: run(1, 0), handed_back: vec![l(2, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 2, back)]);
    worker.finish(1, l(1, 1), end(), 9_000);
    assert_eq!(worker.room(), [start(1, 1, &[l(3, 1)])], "it does not wait behind the large one");
}

#[test]
fn a_payload_that_arrives_when_there_is_no_room_any_more_goes_back() {
    let mut worker = Worker::new();
    let fetch = worker.offer(1, ONE_CORE, vec![large(l(1, 1))]);
    assert!(matches!(fetch[..], [WorkerCommand::Fetch { .. }]), "{fetch:?}");
    worker.taken(run(2, 0));
    worker.flush();
    worker.feed(|core, now, out| core.on_fetched(now, key(1, l(1, 1)), Some(parcel()), out));
    let back = Report { taken: run(2, 0), handed_back: vec![l(1, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 0, back)]);
}
