mod gather;
mod kept;
mod share;

use super::*;
use phalanx_types::{ByteSize, Epoch, JobId};
use phalanx_wire::jobs::{Dispatch, Done, DoneResult, Held, Offer, OfferGroup, Progress};

const EPOCH: Epoch = Epoch(3);
const GRACE: Duration = Duration::from_secs(2);
const ONE_CORE: Needs = Needs { cores: 1, memory: ByteSize(0) };

fn at_us(us: u64) -> Time {
    Time(us)
}

fn l(job: u64, number: u32) -> LeaseId {
    LeaseId { job: JobId(job), number }
}

/// The session of the main node on link `main`.
fn s(main: u64) -> SessionId {
    SessionId(main)
}

fn key(main: u64, lease: LeaseId) -> RunKey {
    RunKey { session: s(main), lease }
}

fn parcel() -> Parcel {
    Parcel::from_bytes("x")
}

fn offer(lease: LeaseId) -> Offer {
    Offer { lease, priority: 0, careful: false, payload: ParcelRef::inline(&parcel()), inputs: vec![] }
}

fn careful(lease: LeaseId) -> Offer {
    Offer { careful: true, ..offer(lease) }
}

fn large(lease: LeaseId) -> Offer {
    Offer { payload: ParcelRef::Blob { head: parcel().head(), blob: BlobId(4) }, ..offer(lease) }
}

fn group(needs: Needs, offers: Vec<Offer>) -> OfferGroup {
    OfferGroup { kind: "square".into(), needs, offers }
}

fn dispatch() -> Dispatch {
    Dispatch { epoch: EPOCH, ..Dispatch::default() }
}

fn report(main: u64, window: u32, report: Report) -> WorkerCommand {
    WorkerCommand::Report { main: MainKey(main), report: Report { epoch: EPOCH, window, ..report } }
}

fn joined(main: u64, window: u32, held: Vec<Held>, done: Vec<Done>) -> WorkerCommand {
    let capacity = Needs { cores: 2, memory: ByteSize::gib(8) };
    let kinds = vec!["square".into()];
    let session = s(main % 10);
    let join =
        Join { session, epoch: EPOCH, kinds, capacity, window, taken: vec![], held, done, kept: vec![] };
    WorkerCommand::Join { main: MainKey(main), join }
}

fn run(key: RunKey) -> Run {
    Run { key, kind: "square".into(), payload: parcel(), inputs: vec![] }
}

fn start(batch: u64, main: u64, leases: &[LeaseId]) -> WorkerCommand {
    let run = |lease: &LeaseId| run(key(main, *lease));
    WorkerCommand::Start { batch: BatchId(batch), runs: leases.iter().map(run).collect() }
}

fn cancel_run(main: u64, lease: LeaseId) -> WorkerCommand {
    WorkerCommand::CancelRun { key: key(main, lease) }
}

fn end() -> HandlerEnd {
    HandlerEnd::Solved(ParcelRef::inline(&parcel()))
}

fn large_end() -> HandlerEnd {
    HandlerEnd::Solved(ParcelRef::Blob { head: parcel().head(), blob: BlobId(9) })
}

fn done(lease: LeaseId, run_micros: u64) -> Done {
    Done { lease, result: DoneResult::Solved(ParcelRef::inline(&parcel())), run_micros }
}

fn large_done(lease: LeaseId, run_micros: u64) -> Done {
    let result = DoneResult::Solved(ParcelRef::Blob { head: parcel().head(), blob: BlobId(9) });
    Done { lease, result, run_micros }
}

/// A computing node at a moment; every event is followed by a check of the books.
struct Worker {
    core: WorkerCore,
    now: Time,
    /// The number of the last message of a main node.
    said: u64,
}

impl Worker {
    /// Two cores, 8 GiB, one kind.
    fn with(change: impl FnOnce(&mut WorkerConfig)) -> Self {
        let mut config = WorkerConfig {
            kinds: BTreeSet::from(["square".into()]),
            capacity: Needs { cores: 2, memory: ByteSize::gib(8) },
            once: false,
            prefetch: ByteSize(100),
            orphan_grace: GRACE,
        };
        change(&mut config);
        Self { core: WorkerCore::new(config), now: Time::ZERO, said: 0 }
    }

    /// Two cores, and already invited by the main node on link 1.
    fn new() -> Self {
        let mut worker = Self::with(|_| {});
        worker.invite(1, s(1));
        worker
    }

    /// One core, and already invited by these main nodes.
    fn with_one_core(mains: &[u64]) -> Self {
        let mut worker = Self::with(|config| config.capacity.cores = 1);
        for main in mains {
            worker.invite(*main, s(*main));
        }
        worker
    }

    fn at(&mut self, us: u64) -> &mut Self {
        self.now = at_us(us);
        self
    }

    fn feed(
        &mut self,
        event: impl FnOnce(&mut WorkerCore, Time, &mut Outbox<WorkerCommand>),
    ) -> Vec<WorkerCommand> {
        let mut out = Outbox::default();
        event(&mut self.core, self.now, &mut out);
        self.core.check_invariants();
        out.drain().collect()
    }

    fn invite(&mut self, main: u64, session: SessionId) -> Vec<WorkerCommand> {
        self.feed(|core, _, out| core.on_invite(MainKey(main), session, EPOCH, out))
    }

    fn hear(&mut self, main: u64, dispatch: Dispatch) -> Vec<WorkerCommand> {
        self.said += 1;
        self.hear_numbered(main, Dispatch { number: self.said, ..dispatch })
    }

    fn hear_numbered(&mut self, main: u64, dispatch: Dispatch) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_dispatch(now, MainKey(main), dispatch, out))
    }

    fn offer(&mut self, main: u64, needs: Needs, offers: Vec<Offer>) -> Vec<WorkerCommand> {
        self.hear(main, Dispatch { offers: vec![group(needs, offers)], ..dispatch() })
    }

    fn cancel(&mut self, lease: LeaseId) -> Vec<WorkerCommand> {
        self.hear(1, Dispatch { cancels: vec![lease], ..dispatch() })
    }

    fn ack(&mut self, lease: LeaseId) -> Vec<WorkerCommand> {
        self.hear(1, Dispatch { acks: vec![lease], ..dispatch() })
    }

    fn finish(&mut self, main: u64, lease: LeaseId, end: HandlerEnd, micros: u64) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_finished(now, key(main, lease), end, micros, out))
    }

    fn room(&mut self) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_room(now, out))
    }

    fn flush(&mut self) -> Vec<WorkerCommand> {
        self.feed(|core, _, out| core.flush(out))
    }

    fn tick(&mut self) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_tick(now, out))
    }

    fn drain(&mut self) -> Vec<WorkerCommand> {
        self.feed(|core, _, out| core.on_drain(out))
    }

    fn lose(&mut self, main: u64, goodbye: bool) -> Vec<WorkerCommand> {
        self.feed(|core, now, out| core.on_main_lost(now, MainKey(main), goodbye, out))
    }

    /// Runs jobs of this length until they are known to be so short.
    fn learn(&mut self, micros: u64) {
        for job in 1_000..1_020 {
            self.offer(1, ONE_CORE, vec![offer(l(job, 1))]);
            self.finish(1, l(job, 1), end(), micros);
            self.ack(l(job, 1));
        }
        self.flush();
    }
}

#[test]
fn an_invitation_is_answered_once() {
    let mut worker = Worker::with(|_| {});
    assert_eq!(worker.invite(1, s(1)), [joined(1, 3, vec![], vec![])]);
    assert_eq!(worker.invite(1, s(1)), []);
    let older = worker.feed(|core, _, out| core.on_invite(MainKey(2), s(1), Epoch(2), out));
    assert_eq!(older, [], "an older life of the same main node");
    assert_eq!(worker.flush(), []);
}

#[test]
fn an_offer_starts_at_once_and_is_told_when_it_lasts() {
    let mut worker = Worker::new();
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]), [start(0, 1, &[l(1, 1)])]);
    assert_eq!(worker.flush(), []);
    assert_eq!(worker.core.next_wake(), at_us(2_000));
    assert_eq!(worker.at(2_000).tick(), []);
    assert_eq!(worker.flush(), [report(1, 3, Report { started: vec![l(1, 1)], ..Report::default() })]);
    assert_eq!((worker.core.next_wake(), worker.core.running()), (Time::NEVER, 1));
    worker.feed(|core, _, _| core.on_progress(key(1, l(1, 1)), 500, "half".to_owned()));
    assert_eq!(worker.at(9_000).finish(1, l(1, 1), end(), 9_000), []);
    let progress = vec![Progress { lease: l(1, 1), permille: 500, note: "half".to_owned() }];
    let told = Report { progress, done: vec![done(l(1, 1), 9_000)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 3, told)]);
    assert_eq!(worker.ack(l(1, 1)), []);
    assert_eq!((worker.core.running(), worker.core.done()), (0, 1));
}

#[test]
fn what_is_said_twice_or_by_an_older_life_is_no_news() {
    let mut worker = Worker::new();
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]), [start(0, 1, &[l(1, 1)])]);
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]), []);
    let old = Dispatch { epoch: Epoch(2), cancels: vec![l(1, 1)], ..Dispatch::default() };
    assert_eq!(worker.hear(1, old), []);
    assert_eq!(worker.hear(8, dispatch()), [], "a link nobody invited us on");
}

#[test]
fn better_priority_starts_first() {
    let mut worker = Worker::with_one_core(&[1]);
    let offers = vec![offer(l(1, 1)), offer(l(2, 1)), Offer { priority: 4, ..offer(l(3, 1)) }];
    assert_eq!(worker.offer(1, ONE_CORE, offers), [start(0, 1, &[l(3, 1)])]);
    worker.finish(1, l(3, 1), end(), 9_000);
    assert_eq!(worker.room(), [start(1, 1, &[l(1, 1)])]);
}

#[test]
fn nothing_starts_without_memory_and_a_large_job_is_not_overtaken() {
    let needs = |gib| Needs { cores: 1, memory: ByteSize::gib(gib) };
    let mut worker = Worker::new();
    assert_eq!(worker.offer(1, needs(6), vec![offer(l(1, 1))]), [start(0, 1, &[l(1, 1)])]);
    assert_eq!(worker.offer(1, needs(4), vec![offer(l(2, 1))]), [], "4 GiB are not free");
    assert_eq!(worker.offer(1, needs(1), vec![offer(l(3, 1))]), [], "it came after the large one");
    assert_eq!(worker.core.in_use(), needs(6));
    worker.finish(1, l(1, 1), end(), 9_000);
    assert_eq!(worker.room(), [start(1, 1, &[l(2, 1)]), start(2, 1, &[l(3, 1)])]);
    assert_eq!(worker.core.in_use(), Needs { cores: 2, memory: ByteSize::gib(5) });
}

#[test]
fn two_main_nodes_share_the_node_by_the_time_their_jobs_take() {
    let mut worker = Worker::with_one_core(&[1, 2]);
    let many = |from: u64| (from..from + 6).map(|job| offer(l(job, 1))).collect::<Vec<_>>();
    worker.offer(1, ONE_CORE, many(1));
    worker.offer(2, ONE_CORE, many(1));
    // The first one's jobs take three times as long, so it gets a third as many.
    let mut served = vec![(1, 1)];
    for _ in 0..7 {
        let (main, job) = *served.last().unwrap();
        worker.finish(main, l(job, 1), end(), if main == 1 { 30_000 } else { 10_000 });
        match worker.room().as_slice() {
            [WorkerCommand::Start { runs, .. }] => {
                served.push((runs[0].key.session.0, runs[0].key.lease.job.0));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(served, [(1, 1), (2, 1), (2, 2), (2, 3), (1, 2), (2, 4), (2, 5), (2, 6)]);
}

#[test]
fn a_job_on_two_cores_costs_its_main_node_twice() {
    let two = Needs { cores: 2, memory: ByteSize(0) };
    let mut worker = Worker::new();
    worker.invite(2, s(2));
    assert_eq!(worker.offer(1, two, vec![offer(l(1, 1)), offer(l(2, 1))]), [start(0, 1, &[l(1, 1)])]);
    worker.offer(2, two, (1..4).map(|job| careful(l(job, 1))).collect());
    worker.finish(1, l(1, 1), end(), 10_000);
    // Careful jobs are charged like others: after one of 10 ms on both cores it is a draw.
    assert_eq!(worker.room(), []);
    let go = Dispatch { go: vec![l(1, 1)], ..dispatch() };
    assert_eq!(worker.hear(2, go), [start(1, 2, &[l(1, 1)])]);
    worker.finish(2, l(1, 1), end(), 10_000);
    assert_eq!(worker.room(), [start(2, 1, &[l(2, 1)])]);
}

#[test]
fn short_jobs_start_in_batches_spread_over_the_free_cores() {
    let mut worker = Worker::new();
    worker.learn(50);
    let offers = (1..=6).map(|job| offer(l(job, 1))).collect();
    let out = worker.offer(1, ONE_CORE, offers);
    assert_eq!(
        out,
        [start(20, 1, &[l(1, 1), l(2, 1), l(3, 1)]), start(21, 1, &[l(4, 1), l(5, 1), l(6, 1)]),]
    );
    assert_eq!(worker.core.in_use(), Needs { cores: 2, memory: ByteSize(0) });
}

#[test]
fn the_rest_of_a_slow_batch_is_taken_back_and_runs_elsewhere() {
    let mut worker = Worker::new();
    worker.learn(50);
    let out = worker.offer(1, ONE_CORE, (1..=4).map(|job| offer(l(job, 1))).collect());
    assert_eq!(out, [start(20, 1, &[l(1, 1), l(2, 1)]), start(21, 1, &[l(3, 1), l(4, 1)])]);
    worker.at(60).finish(1, l(3, 1), end(), 60);
    worker.at(120).finish(1, l(4, 1), end(), 60);
    assert_eq!(worker.room(), []);
    assert_eq!(worker.at(2_000).tick(), []);
    assert_eq!(worker.core.next_wake(), at_us(5_000));
    assert_eq!(worker.at(5_000).tick(), [WorkerCommand::TakeBack { batch: BatchId(20) }]);
    assert_eq!(worker.core.next_wake(), Time::NEVER);
    let runs = vec![run(key(1, l(2, 1)))];
    let out = worker.feed(|core, now, out| core.on_taken_back(now, BatchId(20), runs, out));
    assert_eq!(out, [start(22, 1, &[l(2, 1)])]);
}

#[test]
fn a_careful_job_asks_and_starts_alone_when_it_may() {
    let mut worker = Worker::new();
    worker.learn(50);
    assert_eq!(worker.offer(1, ONE_CORE, vec![careful(l(1, 2)), careful(l(2, 2)), offer(l(3, 1))]), []);
    let asks = Report { asks: vec![l(1, 2), l(2, 2)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 162, asks)]);
    let go = Dispatch { go: vec![l(1, 2)], ..dispatch() };
    assert_eq!(worker.hear(1, go.clone()), [start(20, 1, &[l(1, 2)])]);
    assert_eq!(worker.hear(1, go), [], "said twice");
    // The second one is refused, and the room it held goes to the next.
    assert_eq!(worker.cancel(l(2, 2)), [start(21, 1, &[l(3, 1)])]);
}

#[test]
fn draining_hands_back_what_waits_and_ends_when_all_is_recorded() {
    let mut worker = Worker::with_one_core(&[1]);
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), large(l(3, 1))]);
    assert_eq!(worker.drain(), []);
    let back = Report { draining: true, handed_back: vec![l(2, 1), l(3, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 0, back)]);
    let late = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(3, 1)), Some(parcel()), out));
    assert_eq!(late, []);
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(4, 1))]), [], "nothing new is taken");
    worker.finish(1, l(1, 1), end(), 9_000);
    assert_eq!(worker.room(), []);
    let last = Report {
        draining: true,
        done: vec![done(l(1, 1), 9_000)],
        handed_back: vec![l(4, 1)],
        ..Report::default()
    };
    assert_eq!(worker.flush(), [report(1, 0, last)]);
    assert_eq!(worker.ack(l(1, 1)), []);
    assert_eq!(worker.room(), [WorkerCommand::Drained]);
    assert_eq!(worker.flush(), []);
}

#[test]
fn an_idle_node_is_drained_after_it_has_said_so() {
    let mut worker = Worker::new();
    assert_eq!(worker.drain(), []);
    let said = report(1, 0, Report { draining: true, ..Report::default() });
    assert_eq!(worker.flush(), [said, WorkerCommand::Drained]);
    assert_eq!(Worker::with(|_| {}).drain(), [WorkerCommand::Drained], "nobody to say it to");
}

#[test]
fn a_main_node_that_comes_back_gets_its_results_and_what_still_runs() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), offer(l(3, 1))]);
    assert_eq!(worker.lose(1, false), []);
    worker.finish(1, l(1, 1), end(), 9_000);
    assert_eq!(worker.room(), [], "what had not started belongs to others now");
    assert_eq!(worker.flush(), []);
    assert_eq!(worker.core.next_wake(), at_us(2_000));
    let held = vec![Held { lease: l(2, 1), running: true }];
    assert_eq!(worker.invite(11, s(1)), [joined(11, 3, held, vec![done(l(1, 1), 9_000)])]);
    assert_eq!(worker.hear(11, Dispatch { acks: vec![l(1, 1)], ..dispatch() }), []);
    worker.finish(1, l(2, 1), end(), 9_000);
    assert_eq!(
        worker.flush(),
        [report(11, 3, Report { done: vec![done(l(2, 1), 9_000)], ..Report::default() })]
    );
    assert_eq!(worker.lose(1, false), [], "the old link was noticed late");
}

#[test]
fn a_main_node_that_stays_away_or_leaves_loses_its_runs() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1))]);
    worker.finish(1, l(2, 1), large_end(), 9_000);
    worker.at(2_000).tick();
    worker.lose(1, false);
    let until = worker.now + GRACE;
    assert_eq!(worker.core.next_wake(), until);
    assert_eq!(worker.at(until.0 - 1).tick(), []);
    let forgotten = [cancel_run(1, l(1, 1)), WorkerCommand::Forget { blob: BlobId(9) }];
    assert_eq!(worker.at(until.0).tick(), forgotten);
    assert_eq!(worker.finish(1, l(1, 1), large_end(), 9_000), [WorkerCommand::Forget { blob: BlobId(9) }]);

    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]);
    assert_eq!(worker.lose(1, true), [cancel_run(1, l(1, 1))]);
}

#[test]
fn a_lease_is_cancelled_wherever_it_is() {
    let mut worker = Worker::with_one_core(&[1]);
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), large(l(3, 1))]);
    assert_eq!(worker.cancel(l(2, 1)), [], "it waited for room");
    assert_eq!(worker.cancel(l(3, 1)), [], "it waited for its payload");
    assert_eq!(worker.cancel(l(1, 2)), [], "another lease of the job");
    assert_eq!(worker.cancel(l(1, 1)), [cancel_run(1, l(1, 1))]);
    assert_eq!(worker.cancel(l(1, 1)), []);
    assert_eq!(worker.finish(1, l(1, 1), HandlerEnd::Cancelled, 9), []);
    assert_eq!(worker.flush(), []);
}

#[test]
fn a_result_that_crossed_its_cancellation_is_kept_until_it_is_acknowledged() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]);
    worker.finish(1, l(1, 1), large_end(), 9_000);
    let told = Report { done: vec![large_done(l(1, 1), 9_000)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 3, told)]);
    assert_eq!(worker.cancel(l(1, 1)), []);
    // A newer lease of the same job goes back: the result decides.
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 2))]), []);
    let back = Report { handed_back: vec![l(1, 2)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 3, back)]);
    assert_eq!(worker.ack(l(1, 1)), [WorkerCommand::Forget { blob: BlobId(9) }]);
}

#[test]
fn a_newer_lease_replaces_an_older_one_but_never_a_run_of_its_own_number() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]);
    let out = worker.offer(1, ONE_CORE, vec![offer(l(1, 2))]);
    assert_eq!(out, [cancel_run(1, l(1, 1)), start(1, 1, &[l(1, 2)])]);
    // The main node forgot its numbers and gives out the first again, which still winds down.
    assert_eq!(worker.cancel(l(1, 2)), [cancel_run(1, l(1, 2))]);
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]), []);
    assert_eq!(worker.flush(), [report(1, 3, Report { handed_back: vec![l(1, 1)], ..Report::default() })]);
}

#[test]
fn what_does_not_run_is_handed_back_when_recalled() {
    let mut worker = Worker::with_one_core(&[1]);
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), large(l(3, 1))]);
    let recalls = vec![l(1, 1), l(2, 1), l(3, 1), l(4, 1)];
    assert_eq!(worker.hear(1, Dispatch { recalls, ..dispatch() }), []);
    assert_eq!(worker.flush(), [report(1, 2, Report { handed_back: vec![l(2, 1)], ..Report::default() })]);
    let out = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(3, 1)), Some(parcel()), out));
    assert_eq!(out, []);
    assert_eq!(worker.flush(), [report(1, 2, Report { handed_back: vec![l(3, 1)], ..Report::default() })]);
}

#[test]
fn a_large_payload_is_fetched_before_the_job_starts() {
    let mut worker = Worker::new();
    let fetch = |job| WorkerCommand::Fetch {
        main: MainKey(1),
        key: key(1, l(job, 1)),
        head: parcel().head(),
        blob: BlobId(4),
    };
    assert_eq!(worker.offer(1, ONE_CORE, vec![large(l(1, 1)), large(l(2, 1))]), [fetch(1), fetch(2)]);
    let out = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(1, 1)), Some(parcel()), out));
    assert_eq!(out, [start(0, 1, &[l(1, 1)])]);
    let out = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(2, 1)), None, out));
    assert_eq!(out, []);
    assert_eq!(worker.flush(), [report(1, 3, Report { handed_back: vec![l(2, 1)], ..Report::default() })]);
}

#[test]
fn a_payload_that_is_too_large_for_the_node_fails_with_the_reason() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![large(l(1, 1))]);
    let out = worker.feed(|core, _now, _out| core.on_too_large(key(1, l(1, 1)), "40 GiB".to_owned()));
    assert_eq!(out, []);
    let reason = FailReason::Handler { message: "40 GiB".to_owned() };
    let result = DoneResult::Failed { reason, retry: true };
    let done = vec![Done { lease: l(1, 1), result, run_micros: 0 }];
    assert_eq!(worker.flush(), [report(1, 3, Report { done, ..Report::default() })]);
}

#[test]
fn what_the_node_cannot_run_fails_with_the_reason() {
    let mut worker = Worker::new();
    let offers = vec![OfferGroup { kind: "cube".into(), ..group(ONE_CORE, vec![offer(l(1, 1))]) }];
    assert_eq!(worker.hear(1, Dispatch { offers, ..dispatch() }), []);
    let reason = FailReason::Handler { message: "this node does not handle \"cube\"".to_owned() };
    let result = DoneResult::Failed { reason, retry: false };
    let done = vec![Done { lease: l(1, 1), result, run_micros: 0 }];
    assert_eq!(worker.flush(), [report(1, 3, Report { done, ..Report::default() })]);
}

#[test]
fn a_handler_that_stops_by_itself_lets_another_node_try() {
    let mut worker = Worker::new();
    worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]);
    assert_eq!(worker.finish(1, l(1, 1), HandlerEnd::Cancelled, 9_000), []);
    assert_eq!(worker.flush(), [report(1, 3, Report { handed_back: vec![l(1, 1)], ..Report::default() })]);
}

#[test]
fn once_means_one_job_of_one_main_node_and_then_drained() {
    let mut worker = Worker::with(|config| config.once = true);
    assert_eq!(worker.invite(1, s(1)), [joined(1, 1, vec![], vec![])]);
    worker.invite(2, s(2));
    assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(1, 1))]), [start(0, 1, &[l(1, 1)])]);
    assert_eq!(worker.offer(2, ONE_CORE, vec![offer(l(1, 1))]), [], "there is room, but one is enough");
    assert_eq!(worker.finish(1, l(1, 1), end(), 9_000), []);
    assert_eq!(worker.room(), []);
    let solved = Report { draining: true, done: vec![done(l(1, 1), 9_000)], ..Report::default() };
    let back = Report { draining: true, handed_back: vec![l(1, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, 0, solved), report(2, 0, back)]);
    worker.ack(l(1, 1));
    assert_eq!(worker.room(), [WorkerCommand::Drained]);
}

#[test]
fn a_node_that_took_one_job_can_take_another() {
    let mut worker = Worker::new();
    worker.feed(|core, _, _| core.on_take_one());
    assert_eq!(worker.flush(), [report(1, 1, Report::default())]);
    for job in [1, 2] {
        assert_eq!(worker.offer(1, ONE_CORE, vec![offer(l(job, 1))]), [start(job - 1, 1, &[l(job, 1)])]);
        worker.finish(1, l(job, 1), end(), 9_000);
        worker.flush();
        worker.ack(l(job, 1));
        assert_eq!(worker.room(), [WorkerCommand::Drained]);
        worker.feed(|core, _, _| core.on_take_one());
        assert_eq!(worker.flush(), [report(1, 1, Report::default())]);
    }
}

#[test]
fn priority_counts_across_main_nodes_before_fair_shares() {
    let mut worker = Worker::new();
    worker.invite(2, s(2));
    let urgent = |lease| Offer { priority: 5, ..offer(lease) };
    assert_eq!(
        worker.offer(1, ONE_CORE, vec![offer(l(1, 1)), offer(l(2, 1)), offer(l(3, 1))]),
        [start(0, 1, &[l(1, 1)]), start(1, 1, &[l(2, 1)])]
    );
    assert_eq!(worker.offer(2, ONE_CORE, vec![urgent(l(1, 1)), urgent(l(2, 1))]), []);
    worker.finish(1, l(1, 1), end(), 9_000);
    assert_eq!(worker.room(), [start(2, 2, &[l(1, 1)])]);
    worker.finish(2, l(1, 1), end(), 9_000_000);
    assert_eq!(worker.room(), [start(3, 2, &[l(2, 1)])], "though main node 1 was served less");
    worker.finish(2, l(2, 1), end(), 9_000);
    assert_eq!(worker.room(), [start(4, 1, &[l(3, 1)])]);
}

#[test]
fn large_payloads_are_fetched_a_few_at_a_time_and_one_always() {
    let mut worker = Worker::new();
    let head = |len| phalanx_types::ParcelHead { bytes_len: len, tensors: vec![] };
    let heavy = |job, len| Offer {
        payload: ParcelRef::Blob { head: head(len), blob: BlobId(job) },
        ..offer(l(job, 1))
    };
    let fetch = |job, len| WorkerCommand::Fetch {
        main: MainKey(1),
        key: key(1, l(job, 1)),
        head: head(len),
        blob: BlobId(job),
    };
    // A hundred bytes may be in hand.
    let offers = vec![heavy(1, 500), heavy(2, 60), heavy(3, 60), heavy(4, 20)];
    assert_eq!(worker.offer(1, ONE_CORE, offers), [fetch(1, 500)]);
    let out = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(1, 1)), Some(parcel()), out));
    assert_eq!(out, [start(0, 1, &[l(1, 1)]), fetch(2, 60)], "what runs is no longer in hand");
    let out = worker.feed(|core, now, out| core.on_fetched(now, key(1, l(2, 1)), Some(parcel()), out));
    assert_eq!(out, [start(1, 1, &[l(2, 1)]), fetch(3, 60), fetch(4, 20)]);
}

#[test]
fn a_payload_that_was_left_where_it_is_goes_back_at_once() {
    let mut worker = Worker::new();
    let head = phalanx_types::ParcelHead { bytes_len: 500, tensors: vec![] };
    let heavy = |job| Offer {
        payload: ParcelRef::Blob { head: head.clone(), blob: BlobId(job) },
        ..offer(l(job, 1))
    };
    worker.offer(1, ONE_CORE, vec![heavy(1), heavy(2)]);
    assert_eq!(worker.hear(1, Dispatch { recalls: vec![l(2, 1)], ..dispatch() }), []);
    assert_eq!(worker.flush(), [report(1, 3, Report { handed_back: vec![l(2, 1)], ..Report::default() })]);
}
