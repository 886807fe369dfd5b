//! Solutions of other jobs: fetched, held, dropped, and heard of twice.

use super::*;
use phalanx_wire::jobs::{Input, InputPlace, KeptSolution, MissingInput};

fn holder(name: &str) -> NodeId {
    NodeId::with_suffix(name, 1).unwrap()
}

/// An offer of a job that takes the solution of job 1, a copy of which is elsewhere.
fn taking(lease: LeaseId, node: &str, blob: u64) -> Offer {
    let place = InputPlace::At { node: holder(node), head: parcel().head(), blob: BlobId(blob) };
    Offer { inputs: vec![Input { job: JobId(1), place }], ..offer(lease) }
}

fn fetch_input(node: &str, blob: u64) -> WorkerCommand {
    let (head, blob) = (parcel().head(), BlobId(blob));
    WorkerCommand::FetchInput { session: s(1), input: JobId(1), node: holder(node), head, blob }
}

fn start_with(batch: u64, lease: LeaseId, held: u64) -> WorkerCommand {
    let inputs = vec![RunInput::Held(BlobId(held))];
    WorkerCommand::Start { batch: BatchId(batch), runs: vec![Run { inputs, ..run(key(1, lease)) }] }
}

fn forget(blob: u64) -> WorkerCommand {
    WorkerCommand::Forget { blob: BlobId(blob) }
}

fn drop_it() -> Dispatch {
    Dispatch { drops: vec![JobId(1)], ..dispatch() }
}

fn copies(blob: u64) -> Report {
    let kept = vec![KeptSolution { job: JobId(1), head: parcel().head(), blob: BlobId(blob) }];
    Report { kept, ..Report::default() }
}

impl Worker {
    fn arrived(&mut self, result: Result<u64, bool>) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_input(now, s(1), JobId(1), result.map(BlobId), out))
    }
}

#[test]
fn a_message_that_comes_again_late_neither_drops_a_newer_copy_nor_runs_a_job_again() {
    let mut worker = Worker::with_one_core(&[1]);
    let offers =
        |lease| Dispatch { offers: vec![group(ONE_CORE, vec![taking(lease, "a", 3)])], ..dispatch() };
    let first = Dispatch { number: 1, ..offers(l(5, 1)) };
    assert_eq!(worker.hear_numbered(1, first.clone()), [fetch_input("a", 3)]);
    assert_eq!(worker.arrived(Ok(7)), [start_with(0, l(5, 1), 7)]);
    assert_eq!(worker.finish(1, l(5, 1), end(), 9_000), []);
    let second = Dispatch { number: 2, acks: vec![l(5, 1)], ..drop_it() };
    assert_eq!(worker.hear_numbered(1, second.clone()), [forget(7)]);
    assert_eq!(worker.hear_numbered(1, Dispatch { number: 3, ..offers(l(6, 1)) }), [fetch_input("a", 3)]);
    assert_eq!(worker.arrived(Ok(8)), [start_with(1, l(6, 1), 8)]);
    for again in [first, second] {
        assert_eq!(worker.hear_numbered(1, again), []);
    }
    assert_eq!(worker.hear_numbered(1, Dispatch { number: 4, ..drop_it() }), [forget(8)]);
}

#[test]
fn messages_are_counted_anew_on_every_link() {
    let mut worker = Worker::new();
    let offers = |lease| vec![group(ONE_CORE, vec![offer(lease)])];
    let first = Dispatch { number: 900, offers: offers(l(1, 1)), ..dispatch() };
    assert_eq!(worker.hear_numbered(1, first), [start(0, 1, &[l(1, 1)])]);
    worker.lose(1, false);
    let held = vec![Held { lease: l(1, 1), running: true }];
    assert_eq!(worker.invite(11, s(1)), [joined(11, 3, held, vec![])]);
    let first = Dispatch { number: 1, cancels: vec![l(1, 1)], ..dispatch() };
    assert_eq!(worker.hear_numbered(11, first), [cancel_run(1, l(1, 1))]);
}

#[test]
fn what_was_dropped_before_its_job_could_start_is_fetched_again() {
    let mut worker = Worker::with_one_core(&[1]);
    assert_eq!(worker.offer(1, ONE_CORE, vec![taking(l(5, 1), "a", 3)]), [fetch_input("a", 3)]);
    assert_eq!(worker.arrived(Ok(7)), [start_with(0, l(5, 1), 7)]);
    assert_eq!(worker.offer(1, ONE_CORE, vec![taking(l(6, 1), "b", 4)]), [], "it is here");
    assert_eq!(worker.flush(), [report(1, 2, copies(7))]);
    assert_eq!(worker.hear(1, drop_it()), [forget(7)]);
    assert_eq!(worker.finish(1, l(5, 1), end(), 9_000), []);
    // Node b was not asked yet, so it is not to blame.
    assert_eq!(worker.room(), [fetch_input("b", 4)]);
    assert_eq!(
        worker.flush(),
        [report(1, 2, Report { done: vec![done(l(5, 1), 9_000)], ..Report::default() })]
    );
    assert_eq!(worker.arrived(Ok(8)), [start_with(1, l(6, 1), 8)]);
    assert_eq!(worker.flush(), [report(1, 2, copies(8))]);
}

#[test]
fn only_the_node_that_was_asked_is_named_as_lacking_a_solution() {
    let mut worker = Worker::new();
    let offers = vec![taking(l(5, 1), "a", 3), taking(l(6, 1), "b", 4)];
    assert_eq!(worker.offer(1, ONE_CORE, offers), [fetch_input("a", 3)], "it is fetched once");
    assert_eq!(worker.arrived(Err(true)), [fetch_input("b", 4)]);
    let (lease, input, node, blob) = (l(5, 1), JobId(1), holder("a"), BlobId(3));
    let missing = vec![MissingInput { lease, input, node, blob, is_gone: true }];
    assert_eq!(worker.flush(), [report(1, 3, Report { missing, ..Report::default() })]);
    assert_eq!(worker.arrived(Ok(8)), [start_with(0, l(6, 1), 8)]);
}
