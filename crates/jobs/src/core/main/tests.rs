mod hostile;
mod kept;
mod share;

use super::*;
use phalanx_types::ByteSize;
use phalanx_wire::jobs::{Done, DoneResult, Held, JobState, Join, ParcelRef, Progress, Report};
use std::time::Duration;

const SESSION: SessionId = SessionId(7);
const EPOCH: Epoch = Epoch(3);

fn at_ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn w(key: u64) -> WorkerKey {
    WorkerKey(key)
}

fn l(job: u64, number: u32) -> LeaseId {
    LeaseId { job: JobId(job), number }
}

fn node(key: u64) -> NodeId {
    NodeId::with_suffix("n", key as u16).unwrap()
}

fn spec() -> JobSpec {
    JobSpec::new("square", Parcel::from_bytes("x"))
}

fn parcel() -> Parcel {
    Parcel::from_bytes("y")
}

fn join(cores: u32, window: u32) -> Join {
    let capacity = Needs { cores, memory: ByteSize::gib(8) };
    let kinds = vec!["square".into()];
    let taken = vec![];
    Join {
        session: SESSION,
        epoch: EPOCH,
        kinds,
        capacity,
        window,
        taken,
        held: vec![],
        done: vec![],
        kept: vec![],
    }
}

fn report() -> Report {
    Report { epoch: EPOCH, window: 9, ..Report::default() }
}

fn solved(lease: LeaseId) -> Done {
    Done { lease, result: DoneResult::Solved(ParcelRef::inline(&parcel())), run_micros: 5 }
}

fn solved_large(lease: LeaseId) -> Done {
    let result = DoneResult::Solved(ParcelRef::Blob { head: parcel().head(), blob: BlobId(4) });
    Done { lease, result, run_micros: 5 }
}

fn failed(lease: LeaseId, retry: bool) -> Done {
    Done { lease, result: DoneResult::Failed { reason: broken(), retry }, run_micros: 5 }
}

fn broken() -> FailReason {
    FailReason::Handler { message: "broken".to_owned() }
}

fn offer(worker: u64, lease: LeaseId) -> MainCommand {
    MainCommand::Offer { worker: w(worker), lease }
}

fn ack(worker: u64, lease: LeaseId) -> MainCommand {
    MainCommand::Ack { worker: w(worker), lease }
}

fn cancel(worker: u64, lease: LeaseId) -> MainCommand {
    MainCommand::Cancel { worker: w(worker), lease }
}

fn take(worker: u64, lease: LeaseId) -> MainCommand {
    MainCommand::Take { worker: w(worker), lease, head: parcel().head(), blob: BlobId(4) }
}

fn finished(job: u64, outcome: Outcome) -> MainCommand {
    MainCommand::Finished { job: JobId(job), outcome, solver: None }
}

fn solved_by(worker: u64, job: u64) -> MainCommand {
    let (outcome, solver) = (Outcome::Solved(parcel()), Some(w(worker)));
    MainCommand::Finished { job: JobId(job), outcome, solver }
}

fn attempt(job: u64, attempts: u32) -> MainCommand {
    MainCommand::Attempt { job: JobId(job), attempts }
}

/// A main node at a moment; every event is followed by a check of the books.
struct Main {
    core: MainCore,
    now: Time,
    /// The number of the last report of a worker.
    said: u64,
}

impl Main {
    fn new() -> Self {
        Self { core: MainCore::new(SESSION, EPOCH), now: Time::ZERO, said: 0 }
    }

    /// A main node with jobs that need one core each.
    fn with_jobs(jobs: usize) -> Self {
        let mut main = Self::new();
        for _ in 0..jobs {
            main.core.on_submit(Time::ZERO, spec());
        }
        main
    }

    fn at(&mut self, ms: u64) -> &mut Self {
        self.now = at_ms(ms);
        self
    }

    fn feed(
        &mut self,
        event: impl FnOnce(&mut MainCore, Time, &mut Outbox<MainCommand>),
    ) -> Vec<MainCommand> {
        let mut out = Outbox::default();
        event(&mut self.core, self.now, &mut out);
        self.core.check_invariants();
        out.drain().collect()
    }

    fn submit(&mut self, spec: JobSpec) -> JobId {
        self.core.on_submit(self.now, spec)
    }

    fn up(&mut self, key: u64, join: Join) -> Vec<MainCommand> {
        self.up_as(key, key, join)
    }

    /// A worker under the name of another one: the same node, with a new link.
    fn up_as(&mut self, key: u64, name: u64, join: Join) -> Vec<MainCommand> {
        let invited = self.feed(|core, _, out| core.on_worker_up(w(key), node(name), out));
        assert_eq!(invited, [MainCommand::Invite { worker: w(key) }]);
        self.feed(|core, now, out| core.on_join(now, w(key), join, out))
    }

    fn dispatch(&mut self) -> Vec<MainCommand> {
        self.feed(|core, now, out| core.dispatch(now, out))
    }

    fn report(&mut self, key: u64, report: Report) -> Vec<MainCommand> {
        self.said += 1;
        self.report_numbered(key, Report { number: self.said, ..report })
    }

    fn report_numbered(&mut self, key: u64, report: Report) -> Vec<MainCommand> {
        self.feed(|core, now, out| core.on_report(now, w(key), report, out))
    }

    fn done(&mut self, key: u64, done: Done) -> Vec<MainCommand> {
        self.report(key, Report { done: vec![done], ..report() })
    }

    fn started(&mut self, key: u64, lease: LeaseId) -> Vec<MainCommand> {
        self.report(key, Report { started: vec![lease], ..report() })
    }

    fn lost(&mut self, key: u64) -> Vec<MainCommand> {
        self.feed(|core, _, out| core.on_worker_lost(w(key), false, out))
    }

    fn tick(&mut self) -> Vec<MainCommand> {
        self.feed(|core, now, out| core.on_tick(now, out))
    }

    fn state(&self, job: u64) -> JobState {
        self.core.info(self.now, JobId(job)).unwrap().state
    }
}

#[test]
fn the_best_priority_goes_first_and_then_the_oldest() {
    let mut main = Main::new();
    for priority in [0, 5, -1, 5] {
        main.submit(JobSpec { priority, ..spec() });
    }
    // Another class, to see that order holds across classes.
    main.submit(JobSpec { priority: 1, needs: Needs { cores: 1, memory: ByteSize(9) }, ..spec() });
    assert_eq!(main.up(1, join(8, 8)), []);
    let order = [2, 4, 5, 1, 3].map(|job| offer(1, l(job, 1)));
    assert_eq!(main.dispatch(), order);
    assert_eq!(main.dispatch(), []);
}

#[test]
fn each_job_goes_to_the_worker_with_the_least_load() {
    let mut main = Main::with_jobs(5);
    main.up(1, join(2, 9));
    main.up(2, join(4, 9));
    let spread = [(1, 1), (2, 2), (2, 3), (1, 4), (2, 5)].map(|(worker, job)| offer(worker, l(job, 1)));
    assert_eq!(main.dispatch(), spread);
}

#[test]
fn no_worker_gets_more_than_its_window() {
    let mut main = Main::with_jobs(4);
    main.up(1, join(8, 2));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1)), offer(1, l(2, 1))]);
    assert_eq!(main.report(1, Report { window: 3, ..report() }), []);
    assert_eq!(main.dispatch(), [offer(1, l(3, 1))]);
    assert_eq!(main.report(1, Report { window: 9, draining: true, ..report() }), []);
    assert_eq!(
        main.dispatch(),
        [MainCommand::Explain {
            kind: "square".into(),
            needs: Needs::default(),
            reason: WaitReason::NodesDraining { nodes: 1 },
        }]
    );
    assert_eq!(main.report(1, report()), []);
    assert_eq!(main.dispatch(), [offer(1, l(4, 1))], "it takes jobs again");
}

#[test]
fn a_worker_gets_nothing_before_it_joined_nor_with_another_epoch() {
    let mut main = Main::with_jobs(1);
    assert_eq!(main.up(1, Join { epoch: Epoch(2), ..join(2, 9) }), []);
    main.dispatch();
    assert_eq!(main.state(1), JobState::Waiting(WaitReason::NoNodes));
    main.up(2, join(2, 9));
    assert_eq!(main.dispatch(), [offer(2, l(1, 1))]);
}

#[test]
fn memory_that_is_free_now_is_preferred_and_one_job_more_may_wait() {
    let mut main = Main::new();
    for _ in 0..4 {
        main.submit(JobSpec { needs: Needs { cores: 1, memory: ByteSize::gib(5) }, ..spec() });
    }
    main.up(1, join(8, 9));
    main.up(2, join(2, 9));
    // The third fits nowhere now; it waits where there is least to do. So does the fourth.
    let offers = [(1, 1), (2, 2), (1, 3), (2, 4)].map(|(worker, job)| offer(worker, l(job, 1)));
    assert_eq!(main.dispatch(), offers);
    main.submit(JobSpec { needs: Needs { cores: 1, memory: ByteSize::gib(5) }, ..spec() });
    assert_eq!(main.dispatch(), []);
}

#[test]
fn a_lost_worker_puts_its_jobs_back_by_age_and_they_become_careful() {
    let mut main = Main::with_jobs(5);
    main.up(1, join(3, 2));
    main.up(2, join(2, 2));
    let out = main.dispatch();
    assert_eq!(out, [(1, 1), (2, 2), (1, 3), (2, 4)].map(|(worker, job)| offer(worker, l(job, 1))));
    assert_eq!(main.lost(1), []);
    assert_eq!(main.lost(2), []);
    assert_eq!(main.core.counts().reruns, 4);
    main.up(3, join(8, 8));
    let again = [l(1, 2), l(2, 2), l(3, 2), l(4, 2), l(5, 1)].map(|lease| offer(3, lease));
    assert_eq!(main.dispatch(), again);
    assert!(main.core.offer_of(JobId(1)).unwrap().careful);
    assert!(!main.core.offer_of(JobId(5)).unwrap().careful);
}

#[test]
fn a_worker_that_says_goodbye_harms_no_job() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.started(1, l(1, 1));
    assert_eq!(main.feed(|core, _, out| core.on_worker_lost(w(1), true, out)), []);
    assert!(!main.core.offer_of(JobId(1)).unwrap().careful);
    assert_eq!(main.core.info(Time::ZERO, JobId(1)).unwrap().attempts, 0);
}

#[test]
fn a_careful_job_may_go_when_its_worker_asks_and_counts_as_running_from_then() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    assert_eq!(main.lost(1), []);
    main.up(2, join(1, 1));
    assert_eq!(main.dispatch(), [offer(2, l(1, 2))]);
    let asks = Report { asks: vec![l(1, 2)], ..report() };
    assert_eq!(main.report(2, asks.clone()), [MainCommand::Go { worker: w(2), lease: l(1, 2) }]);
    assert_eq!(main.lost(2), [attempt(1, 1)]);
    // The same question by somebody who does not have the lease.
    main.up(3, join(1, 1));
    assert_eq!(main.report(3, asks), [cancel(3, l(1, 2))]);
}

#[test]
fn a_job_that_takes_its_nodes_down_is_set_aside_with_their_names() {
    let mut main = Main::new();
    main.submit(JobSpec { max_attempts: 2, ..spec() });
    for key in [1, 2] {
        main.up(key, join(1, 1));
        assert_eq!(main.dispatch(), [offer(key, l(1, key as u32))]);
        assert_eq!(main.started(key, l(1, key as u32)), []);
        let nodes = vec![node(1), node(2)];
        let expected = match key {
            1 => attempt(1, 1),
            _ => finished(1, Outcome::Failed(FailReason::NodesLost { attempts: 2, nodes })),
        };
        assert_eq!(main.lost(key), [expected]);
    }
    assert_eq!(main.core.counts().failed, 1);
    assert!(matches!(main.state(1), JobState::Failed(FailReason::NodesLost { .. })));
}

#[test]
fn a_solution_that_comes_twice_counts_once() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    assert_eq!(main.done(1, solved(l(1, 1))), [solved_by(1, 1), ack(1, l(1, 1))]);
    assert_eq!(main.done(1, solved(l(1, 1))), [ack(1, l(1, 1))]);
    let counts = main.core.counts();
    assert_eq!((counts.solved, counts.duplicates, counts.ended()), (1, 1, 1));
}

#[test]
fn a_late_solution_from_an_old_lease_wins_and_ends_the_newer_lease() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.lost(1);
    main.up(2, join(1, 1));
    assert_eq!(main.dispatch(), [offer(2, l(1, 2))]);
    let late = Join { done: vec![solved(l(1, 1))], ..join(1, 1) };
    let out = main.up_as(3, 1, late);
    assert_eq!(out, [cancel(2, l(1, 2)), solved_by(3, 1), ack(3, l(1, 1))]);
    // The newer lease was solved before the cancellation arrived.
    assert_eq!(main.done(2, solved(l(1, 2))), [ack(2, l(1, 2))]);
}

#[test]
fn a_large_solution_is_fetched_before_it_counts() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    assert_eq!(main.done(1, solved_large(l(1, 1))), [take(1, l(1, 1))]);
    assert_eq!(main.done(1, solved_large(l(1, 1))), [], "it is being fetched already");
    assert_eq!(main.core.counts().ended(), 0);
    let out = main.feed(|core, _, out| core.on_taken(w(1), l(1, 1), Ok(parcel()), out));
    assert_eq!(out, [solved_by(1, 1), ack(1, l(1, 1))]);
}

#[test]
fn a_large_solution_that_cannot_be_fetched_costs_an_attempt() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.done(1, solved_large(l(1, 1)));
    let out = main.feed(|core, _, out| core.on_taken(w(1), l(1, 1), Err("gone".to_owned()), out));
    assert_eq!(out, [attempt(1, 1), ack(1, l(1, 1))]);
    assert_eq!(main.dispatch(), [offer(1, l(1, 2))]);
}

#[test]
fn of_two_large_solutions_the_second_is_acknowledged_and_forgotten() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.lost(1);
    main.up(2, join(1, 1));
    main.dispatch();
    assert_eq!(main.done(2, solved_large(l(1, 2))), [take(2, l(1, 2))]);
    let late = Join { done: vec![solved_large(l(1, 1))], ..join(1, 1) };
    assert_eq!(main.up_as(3, 1, late), [ack(3, l(1, 1))]);
    let out = main.feed(|core, _, out| core.on_taken(w(2), l(1, 2), Ok(parcel()), out));
    assert_eq!(out, [solved_by(2, 1), ack(2, l(1, 2))]);
}

#[test]
fn a_job_that_ended_while_its_solution_was_fetched_lets_the_worker_forget_it() {
    for result in [Ok(parcel()), Err("gone".to_owned())] {
        let mut main = Main::with_jobs(1);
        main.up(1, join(1, 1));
        main.dispatch();
        main.done(1, solved_large(l(1, 1)));
        main.feed(|core, _, out| assert!(core.on_cancel(JobId(1), out)));
        let out = main.feed(|core, _, out| core.on_taken(w(1), l(1, 1), result, out));
        assert_eq!(out, [ack(1, l(1, 1))]);
    }
}

#[test]
fn a_worker_that_comes_back_keeps_what_it_runs_unless_the_job_moved_on() {
    let held = |number| Join { held: vec![Held { lease: l(1, number), running: true }], ..join(1, 1) };
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.lost(1);
    assert_eq!(main.up_as(2, 1, held(1)), []);
    assert_eq!(main.state(1), JobState::Running { node: node(1), for_ms: 0, progress: None });
    assert_eq!(main.up(3, held(1)), [cancel(3, l(1, 1))]);
    assert_eq!(main.done(2, solved(l(1, 1))), [solved_by(2, 1), ack(2, l(1, 1))]);
    assert_eq!(main.up(4, held(1)), [cancel(4, l(1, 1))]);
}

#[test]
fn a_join_said_twice_is_no_news() {
    let mut main = Main::new();
    main.core.on_restore(Time::ZERO, spec(), 0);
    let held = Join { held: vec![Held { lease: l(1, 1), running: true }], ..join(1, 1) };
    assert_eq!(main.up(1, held.clone()), []);
    assert_eq!(main.done(1, failed(l(1, 1), true)), [attempt(1, 1), ack(1, l(1, 1))]);
    assert_eq!(main.feed(|core, now, out| core.on_join(now, w(1), held, out)), []);
    assert_eq!(main.dispatch(), [offer(1, l(1, 2))], "the lease of the old message is over");
}

#[test]
fn a_job_can_be_cancelled_wherever_it_is() {
    let cancelled = || finished(1, Outcome::Cancelled);
    let cancels = |main: &mut Main| main.feed(|core, _, out| assert!(core.on_cancel(JobId(1), out)));

    let mut waiting = Main::with_jobs(1);
    assert_eq!(cancels(&mut waiting), [cancelled()]);
    assert_eq!(waiting.feed(|core, _, out| assert!(!core.on_cancel(JobId(1), out))), [], "once is enough");
    assert_eq!(waiting.feed(|core, _, out| assert!(!core.on_cancel(JobId(9), out))), [], "never was");

    let mut given = Main::with_jobs(1);
    given.up(1, join(1, 1));
    given.dispatch();
    assert_eq!(cancels(&mut given), [cancel(1, l(1, 1)), cancelled()]);
    assert_eq!(given.done(1, solved(l(1, 1))), [ack(1, l(1, 1))]);

    let mut running = Main::with_jobs(1);
    running.up(1, join(1, 1));
    running.dispatch();
    running.started(1, l(1, 1));
    assert_eq!(cancels(&mut running), [cancel(1, l(1, 1)), cancelled()]);
    assert_eq!(running.started(1, l(1, 1)), [cancel(1, l(1, 1))], "the worker had not heard yet");

    let mut all = Main::with_jobs(3);
    let out = all.feed(|core, _, out| assert_eq!(core.on_cancel_all(out), 3));
    assert_eq!(out, [1, 2, 3].map(|job| finished(job, Outcome::Cancelled)));
    assert_eq!(all.core.counts().cancelled, 3);
}

#[test]
fn a_deadline_ends_a_job_that_waits_or_runs() {
    let mut main = Main::new();
    for ms in [30, 20] {
        main.submit(JobSpec { deadline: Some(Duration::from_millis(ms)), ..spec() });
    }
    main.up(1, join(1, 1));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    assert_eq!(main.core.next_wake(), at_ms(20));
    assert_eq!(main.at(19).tick(), []);
    assert_eq!(main.at(20).tick(), [finished(2, Outcome::Expired)]);
    assert_eq!(main.at(30).tick(), [cancel(1, l(1, 1)), finished(1, Outcome::Expired)]);
    assert_eq!((main.core.counts().expired, main.core.next_wake()), (2, Time::NEVER));
}

#[test]
fn what_waits_at_a_busy_worker_is_recalled_for_an_idle_one() {
    let mut main = Main::with_jobs(3);
    main.up(1, join(1, 3));
    main.dispatch();
    main.started(1, l(1, 1));
    main.up(2, join(1, 3));
    assert_eq!(main.dispatch(), []);
    assert_eq!(main.core.next_wake(), at_ms(20));
    assert_eq!(main.at(20).tick(), [MainCommand::Recall { worker: w(1), lease: l(3, 1) }]);
    assert_eq!(main.report(1, Report { handed_back: vec![l(3, 1)], ..report() }), []);
    assert_eq!(main.dispatch(), [offer(2, l(3, 2))]);
    // Handed back twice: the newer lease stays.
    assert_eq!(main.report(1, Report { handed_back: vec![l(3, 1)], ..report() }), []);
    assert_eq!(main.state(3), JobState::Leased { node: node(2) });
}

#[test]
fn what_a_worker_that_others_hold_hands_back_goes_to_an_idle_one() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 3));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    main.up(2, join(1, 3));
    assert_eq!(main.dispatch(), []);
    assert_eq!(main.at(20).tick(), [MainCommand::Recall { worker: w(1), lease: l(1, 1) }]);
    main.report(1, Report { handed_back: vec![l(1, 1)], ..report() });
    // Both have nothing from here, and the first one is not known to be busy.
    assert_eq!(main.dispatch(), [offer(2, l(1, 2))]);
    main.done(2, solved(l(1, 2)));
    // It is still the last choice, and a choice: with a second job in hand the other one is no better.
    main.submit(spec());
    main.submit(spec());
    assert_eq!(main.dispatch(), [offer(2, l(2, 1)), offer(1, l(3, 1))]);
    main.started(1, l(3, 1));
    main.done(1, solved(l(3, 1)));
    main.done(2, solved(l(2, 1)));
    main.submit(spec());
    assert_eq!(main.dispatch(), [offer(1, l(4, 1))], "it has started something since");
}

#[test]
fn an_error_worth_retrying_is_retried_until_the_attempts_are_used_up() {
    let mut main = Main::new();
    main.submit(JobSpec { max_attempts: 2, ..spec() });
    main.submit(spec());
    main.up(1, join(2, 9));
    main.dispatch();
    assert_eq!(main.done(1, failed(l(1, 1), true)), [attempt(1, 1), ack(1, l(1, 1))]);
    assert_eq!(main.dispatch(), [offer(1, l(1, 2))]);
    let last = finished(1, Outcome::Failed(broken()));
    assert_eq!(main.done(1, failed(l(1, 2), true)), [last, ack(1, l(1, 2))]);
    let at_once = finished(2, Outcome::Failed(broken()));
    assert_eq!(main.done(1, failed(l(2, 1), false)), [at_once, ack(1, l(2, 1))]);
    assert_eq!(main.state(2), JobState::Failed(broken()));
}

#[test]
fn a_failure_of_an_old_lease_does_not_touch_the_newer_one() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    main.lost(1);
    main.up(2, join(1, 1));
    main.dispatch();
    let late = Join { done: vec![failed(l(1, 1), false)], ..join(1, 1) };
    assert_eq!(main.up_as(3, 1, late), [ack(3, l(1, 1))]);
    assert_eq!(main.state(1), JobState::Leased { node: node(2) });
}

#[test]
fn a_worker_that_solves_what_was_never_given_out_is_cut_off() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    let why = "it solved a job that was never given out";
    assert_eq!(main.done(1, solved(l(2, 1))), [MainCommand::CutOff { worker: w(1), why }]);
    let head = Parcel::from_bytes("longer").head();
    let lie = DoneResult::Solved(ParcelRef::Inline { head, body: parcel().body() });
    let why = "its solution does not fit its own head";
    let done = Done { lease: l(1, 1), result: lie, run_micros: 0 };
    assert_eq!(main.done(1, done), [MainCommand::CutOff { worker: w(1), why }]);
}

#[test]
fn a_lease_number_at_its_limit_does_not_overflow() {
    let mut main = Main::new();
    main.core.on_restore(Time::ZERO, spec(), 0);
    let held = vec![Held { lease: l(1, u32::MAX), running: true }];
    assert_eq!(main.up(1, Join { held, ..join(1, 1) }), []);
    assert_eq!(main.lost(1), [attempt(1, 1)]);
    main.up(2, join(1, 1));
    assert_eq!(main.dispatch(), [offer(2, l(1, u32::MAX))]);
}

#[test]
fn a_restored_session_keeps_ids_endings_and_attempts() {
    let mut main = Main::new();
    main.core.on_restore_ended(&"square".into(), Needs::default(), &Outcome::Failed(broken()));
    main.core.on_restore(Time::ZERO, spec(), 2);
    main.core.on_restore(Time::ZERO, spec(), 0);
    assert_eq!(main.core.next_id(), JobId(4));
    assert_eq!(main.state(1), JobState::Failed(broken()));
    assert!(main.core.offer_of(JobId(2)).unwrap().careful);
    assert!(!main.core.offer_of(JobId(3)).unwrap().careful);
    main.up(1, join(2, 2));
    assert_eq!(main.dispatch(), [offer(1, l(2, 1)), offer(1, l(3, 1))]);
    assert_eq!(main.done(1, solved(l(1, 1))), [ack(1, l(1, 1))], "it had ended in an earlier life");
}

#[test]
fn progress_is_shown_while_the_job_runs() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    main.dispatch();
    let progress = vec![Progress { lease: l(1, 1), permille: 4000, note: "half".to_owned() }];
    main.at(5).report(1, Report { started: vec![l(1, 1)], progress, ..report() });
    let shown = Some((1000, "half".to_owned()));
    assert_eq!(main.at(9).state(1), JobState::Running { node: node(1), for_ms: 4, progress: shown });
    let listed: Vec<JobId> = main.core.list(main.now, JobId(0), false).map(|info| info.job).collect();
    assert_eq!(listed, [JobId(1)]);
}

#[test]
fn every_reason_to_wait_is_told_once() {
    let explains = |main: &mut Main, kind: &str, needs: Needs, reason: WaitReason| {
        let said = MainCommand::Explain { kind: kind.into(), needs, reason: reason.clone() };
        assert_eq!(main.dispatch(), [said], "{reason}");
        assert_eq!(main.dispatch(), [], "the same is not said again");
        let job = JobId(main.core.next_id().0 - 1);
        assert_eq!(main.state(job.0), JobState::Waiting(reason));
    };
    let large = Needs { cores: 1, memory: ByteSize::gib(12) };
    let wide = Needs { cores: 4, memory: ByteSize::gib(8) };

    let mut main = Main::with_jobs(1);
    explains(&mut main, "square", Needs::default(), WaitReason::NoNodes);
    main.up(1, join(2, 1));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);

    main.submit(JobSpec { kind: "cube".into(), ..spec() });
    explains(&mut main, "cube", Needs::default(), WaitReason::NoHandler { kind: "cube".into() });
    main.report(1, report());

    main.submit(JobSpec { needs: large, ..spec() });
    let (needed, largest) = (ByteSize::gib(12), ByteSize::gib(8));
    explains(&mut main, "square", large, WaitReason::NeedsMemory { needed, largest, node: node(1) });

    // A second node has the cores for it, but not the memory.
    let small = Needs { cores: 8, memory: ByteSize::gib(1) };
    main.up(2, Join { capacity: small, ..join(8, 9) });
    main.submit(JobSpec { needs: wide, ..spec() });
    explains(&mut main, "square", wide, WaitReason::NeedsCores { needed: 4, largest: 2, node: node(1) });
}

#[test]
fn a_job_behind_others_knows_how_many_are_ahead() {
    let mut main = Main::with_jobs(3);
    main.up(1, join(1, 1));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    assert_eq!(main.state(3), JobState::Waiting(WaitReason::AllBusy { nodes: 1, ahead: 1 }));
    main.submit(JobSpec { priority: 1, ..spec() });
    assert_eq!(main.state(4), JobState::Waiting(WaitReason::AllBusy { nodes: 1, ahead: 0 }));
}

#[test]
fn an_older_lease_that_was_adopted_is_the_one_that_counts() {
    let adopted = || {
        let mut main = Main::with_jobs(1);
        for key in [1, 2] {
            main.up(key, join(1, 1));
            main.dispatch();
            main.lost(key);
        }
        let held = vec![Held { lease: l(1, 1), running: true }];
        assert_eq!(main.up_as(3, 1, Join { held, ..join(1, 1) }), []);
        main
    };
    assert_eq!(adopted().started(3, l(1, 1)), []);
    assert_eq!(adopted().done(3, failed(l(1, 1), true)), [attempt(1, 1), ack(3, l(1, 1))]);
    assert_eq!(
        adopted().feed(|core, _, out| assert!(core.on_cancel(JobId(1), out))),
        [cancel(3, l(1, 1)), finished(1, Outcome::Cancelled),]
    );
    let mut main = adopted();
    assert_eq!(main.report(3, Report { handed_back: vec![l(1, 1)], ..report() }), []);
    assert_eq!(main.dispatch(), [offer(3, l(1, 3))], "no number is used twice");
}

#[test]
fn a_node_that_comes_back_with_its_job_is_not_blamed_for_the_break() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 2));
    main.dispatch();
    main.started(1, l(1, 1));
    assert_eq!(main.feed(|core, _, out| core.on_worker_lost(w(1), false, out)), [attempt(1, 1)]);
    assert_eq!(main.core.counts().reruns, 1);
    // The same node under a new link.
    main.feed(|core, _, out| core.on_worker_up(w(2), node(1), out));
    let held = vec![Held { lease: l(1, 1), running: true }];
    let out = main.feed(|core, now, out| core.on_join(now, w(2), Join { held, ..join(1, 2) }, out));
    assert_eq!(out, [attempt(1, 0)]);
    assert_eq!(main.core.counts().reruns, 0);
    assert_eq!(main.done(2, solved(l(1, 1))), [solved_by(2, 1), ack(2, l(1, 1))]);
}

#[test]
fn a_new_link_of_a_node_ends_its_old_one_before_the_old_ones_end_is_heard() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 2));
    main.dispatch();
    main.started(1, l(1, 1));
    main.feed(|core, _, out| core.on_worker_up(w(2), node(1), out));
    let held = vec![Held { lease: l(1, 1), running: true }];
    let out = main.feed(|core, now, out| core.on_join(now, w(2), Join { held, ..join(1, 2) }, out));
    assert_eq!(out, [], "the job goes on under the new link");
    assert_eq!(main.feed(|core, _, out| core.on_worker_lost(w(1), false, out)), []);
    assert_eq!(main.dispatch(), []);
    assert_eq!(main.done(2, solved(l(1, 1))), [solved_by(2, 1), ack(2, l(1, 1))]);
}

#[test]
fn a_job_that_says_it_needs_no_core_needs_one() {
    let mut main = Main::new();
    main.submit(JobSpec { needs: Needs { cores: 0, memory: ByteSize(0) }, ..spec() });
    assert_eq!(main.core.offer_of(JobId(1)).map(|o| o.needs.cores), Some(1));
}
