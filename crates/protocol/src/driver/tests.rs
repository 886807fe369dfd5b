mod hostile;

use super::*;
use crate::progress::{End, Plan};
use crate::{Every, Length, Limits, PassLengths};
use phalanx_types::RunId;
use phalanx_wire::group_end::RankEnds;
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{
    FromReplica, HoldRef, Layout, LeftWhy, ReplicaLayout, SealedPass, StateRef, StepReport, ValidSums,
};
use phalanx_wire::train_reason::{BreakReason, QueryRefusal, RankFailure, RunRefusal, StepFailure};

const RUN: RunId = RunId(1);

fn node(name: &str) -> NodeId {
    format!("{name}-0000").parse().unwrap()
}

fn config(staged: Option<StagedConfig>) -> DriverConfig {
    let plan = Plan {
        passes: PassLengths::Fixed(100),
        length: Length::Steps(10),
        validate: Every::Never,
        checkpoint: Every::Steps(4),
        until: None,
    };
    let limits = Limits { min: 1, wanted: 1, max: 4, patience: Duration::from_secs(10) };
    DriverConfig {
        driver: node("driver"),
        run: RUN,
        plan,
        validates: false,
        limits,
        operators: 6,
        staged,
        private_nodes: None,
        place: Place::default(),
        validated: 0,
    }
}

struct Run {
    core: DriverCore,
    now: Time,
}

impl Run {
    fn new(staged: Option<StagedConfig>) -> Self {
        Self { core: DriverCore::new(config(staged)), now: Time::ZERO }
    }

    fn on(&mut self, event: DriverEvent) -> Vec<DriverCommand> {
        let mut out = Outbox::default();
        self.core.on(self.now, event, &mut out);
        out.drain().collect()
    }

    fn says(&mut self, name: &str, message: FromReplica) -> Vec<DriverCommand> {
        self.on(DriverEvent::Message { node: node(name), message })
    }

    /// One replica trains.
    fn running() -> Self {
        Self::running_with(config(None))
    }

    fn running_with(config: DriverConfig) -> Self {
        let mut run = Self { core: DriverCore::new(config), now: Time::ZERO };
        run.on(DriverEvent::NodeUp { node: node("a") });
        let restore = run.says("a", FromReplica::Enlisted { run: RUN, step: None });
        assert_eq!(restore, [DriverCommand::Restore { node: node("a") }]);
        run.says("a", FromReplica::Restored { run: RUN, step: 0 });
        let begun =
            run.says("a", FromReplica::Prepared { run: RUN, epoch: Epoch(1), ends: RankEnds::default() });
        assert!(matches!(&begun[..], [DriverCommand::Begin(start)] if start.from_step == 0), "{begun:?}");
        run
    }

    fn steps(&mut self, name: &str, steps: std::ops::RangeInclusive<u64>) -> Vec<DriverCommand> {
        let epoch = self.core.epoch();
        let report = |step| StepReport { step, epoch, ..StepReport::default() };
        self.says(name, FromReplica::Steps { run: RUN, epoch, steps: steps.map(report).collect() })
    }

    fn left(&mut self, name: &str, step: u64, why: LeftWhy, holds: Vec<HoldRef>) -> Vec<DriverCommand> {
        let epoch = self.core.epoch();
        self.says(name, FromReplica::Left { run: RUN, epoch, step: Some(step), why, holds })
    }
}

fn steps_in(commands: &[DriverCommand]) -> Vec<u64> {
    let step = |command: &DriverCommand| match command {
        DriverCommand::RecordStep(report) => Some(report.step),
        _ => None,
    };
    commands.iter().filter_map(step).collect()
}

#[test]
fn the_last_step_is_recorded_when_another_follows_and_the_run_ends_with_the_model() {
    let mut run = Run::running();
    assert_eq!(run.core.phase(), DriverPhase::Running);
    assert_eq!(steps_in(&run.steps("a", 1..=9)), [0_u64; 0]);
    assert_eq!(steps_in(&run.steps("a", 10..=10)), (1..=9).collect::<Vec<u64>>());
    let asked = run.left("a", 10, LeftWhy::Ended, Vec::new());
    let message = ToReplica::Snapshot { run: RUN };
    assert_eq!(asked, [DriverCommand::Send { node: node("a"), message }]);
    let state = StateRef { step: 10, bytes: 1, blob: BlobId(4) };
    let fetch = run.says("a", FromReplica::Snapshot { run: RUN, epoch: Epoch(0), ops: None, state });
    let [DriverCommand::Fetch { ticket, .. }] = fetch[..] else { panic!("{fetch:?}") };
    let end = run.on(DriverEvent::Fetched { ticket, result: Ok(10) });
    assert_eq!(steps_in(&end), [10]);
    let finish = DriverCommand::Finish { step: 10, end: End::Finished, states: vec![ticket] };
    assert_eq!(end.last(), Some(&finish));
    assert_eq!(run.core.phase(), DriverPhase::Over);
}

#[test]
fn a_model_that_is_lost_at_the_end_is_trained_again() {
    let mut run = Run::running();
    run.steps("a", 1..=9);
    run.steps("a", 10..=10);
    run.left("a", 10, LeftWhy::Ended, Vec::new());
    run.on(DriverEvent::NodeDown { node: node("a"), loss: LostReason::Replaced });
    assert!(matches!(run.core.phase(), DriverPhase::Paused(_) | DriverPhase::Gathering));
    run.on(DriverEvent::NodeUp { node: node("b") });
    let rewind = run.says("b", FromReplica::Enlisted { run: RUN, step: None });
    assert_eq!(rewind, [DriverCommand::Rewind]);
    let restore = run.on(DriverEvent::Rewound { place: Place::default(), validated: 0 });
    let told = DriverCommand::Tell(Notice::WentBack { from: 9, to: 0, held: false });
    assert_eq!(restore, [told, DriverCommand::Restore { node: node("b") }]);
}

#[test]
fn a_rank_that_fails_ends_the_run_when_others_had_time_to_say_why() {
    let mut run = Run::running();
    let seen = RankFailure::Step(StepFailure::NotFinite { rank: 0 });
    let cause = RankFailure::Error { detail: "the loss is NaN".into() };
    assert_eq!(run.left("a", 0, LeftWhy::Failed(seen), Vec::new()), []);
    assert_eq!(run.core.phase(), DriverPhase::Failing);
    assert_eq!(run.on(DriverEvent::Tick), [], "others may say more");
    run.left("a", 0, LeftWhy::Failed(cause.clone()), Vec::new());
    let failure = DriverFailure::Rank { node: node("a"), failure: cause };
    assert_eq!(run.on(DriverEvent::Tick), [DriverCommand::Fail(failure)]);
    assert_eq!(run.on(DriverEvent::Tick), []);
}

/// One replica has done four steps, and its checkpoint of the last one is being fetched.
fn saving() -> (Run, Ticket) {
    let mut run = Run::running();
    assert_eq!(run.steps("a", 1..=4), [], "the last steps are not sure");
    let state = StateRef { step: 4, bytes: 1, blob: BlobId(4) };
    let fetch = run.says("a", FromReplica::Snapshot { run: RUN, epoch: Epoch(1), ops: None, state });
    let [DriverCommand::Fetch { ticket, .. }] = fetch[..] else { panic!("{fetch:?}") };
    (run, ticket)
}

#[test]
fn a_stopped_run_writes_the_checkpoint_of_its_last_step_whatever_dies_then() {
    let (mut run, ticket) = saving();
    run.on(DriverEvent::StopAsked);
    let ended = run.left("a", 4, LeftWhy::Ended, Vec::new());
    assert_eq!(steps_in(&ended), [1, 2, 3, 4]);
    let fetched = run.on(DriverEvent::Fetched { ticket, result: Ok(4) });
    assert_eq!(fetched[1], DriverCommand::Save { step: 4, states: vec![ticket] });
    let lost = run.on(DriverEvent::NodeDown { node: node("a"), loss: LostReason::Replaced });
    assert_eq!(lost, [DriverCommand::Rewind]);
    let end =
        run.on(DriverEvent::Rewound { place: Place { step: 4, batch: 4, ..Place::default() }, validated: 0 });
    let finish = DriverCommand::Finish { step: 4, end: End::Interrupted, states: Vec::new() };
    assert_eq!(end.last(), Some(&finish));
}

#[test]
fn a_checkpoint_that_is_here_is_written_before_the_run_goes_back() {
    let (mut run, ticket) = saving();
    run.on(DriverEvent::Fetched { ticket, result: Ok(4) });
    run.on(DriverEvent::NodeDown { node: node("a"), loss: LostReason::Replaced });
    run.on(DriverEvent::NodeUp { node: node("b") });
    let back = run.says("b", FromReplica::Enlisted { run: RUN, step: None });
    assert_eq!(steps_in(&back), [1, 2, 3, 4]);
    let save = DriverCommand::Save { step: 4, states: vec![ticket] };
    assert_eq!(back[4..], [DriverCommand::Draft { step: 4 }, save, DriverCommand::Rewind]);
}

#[test]
fn a_step_that_one_replica_is_ahead_is_recorded_when_the_group_goes_on_from_it() {
    let mut run = Run::running();
    run.on(DriverEvent::NodeUp { node: node("b") });
    run.says("b", FromReplica::Enlisted { run: RUN, step: None });
    run.steps("a", 1..=1);
    let prepared = |run: &mut Run| {
        let epoch = run.core.epoch();
        for name in ["a", "b"] {
            let begun = run.says(name, FromReplica::Prepared { run: RUN, epoch, ends: RankEnds::default() });
            if !begun.is_empty() {
                return begun;
            }
        }
        panic!("no group begins")
    };
    run.left("a", 1, LeftWhy::Reformed, Vec::new());
    prepared(&mut run);
    run.steps("a", 2..=2);
    run.steps("a", 3..=3);
    // Only one of the two has heard all votes on step 3.
    let broken = || LeftWhy::Broken { reason: BreakReason::Failed { detail: "n1 is lost".into() } };
    run.left("a", 3, broken(), Vec::new());
    run.left("b", 2, broken(), Vec::new());
    let begun = prepared(&mut run);
    let Some(DriverCommand::Begin(start)) = begun.last() else { panic!("{begun:?}") };
    assert_eq!((start.from_step, start.recorded.step), (3, 2), "the one that is ahead may be lost");
    assert_eq!(steps_in(&run.steps("b", 4..=4)), [3]);
}

fn planned(members: &[&str]) -> PlannedGroup {
    let stages = vec![Ops { start: 0, end: 3 }, Ops { start: 3, end: 6 }];
    PlannedGroup {
        members: members.iter().map(|name| node(name)).collect(),
        layout: Layout { replicas: vec![ReplicaLayout { samples: 8, micro: 4, stages }] },
        micro_batches: 2,
        left_out: Vec::new(),
    }
}

/// Two nodes are ready, and their plan is being made.
fn planning() -> (Run, Ticket) {
    let mut run = Run::new(Some(StagedConfig::default()));
    let mut asked = Vec::new();
    for name in ["a", "b"] {
        run.on(DriverEvent::NodeUp { node: node(name) });
    }
    for name in ["a", "b"] {
        asked.extend(run.says(name, FromReplica::Enlisted { run: RUN, step: None }));
    }
    let Some(DriverCommand::Plan(request)) = asked.pop() else { panic!("{asked:?}") };
    (run, request.ticket)
}

#[test]
fn a_plan_is_asked_for_and_a_late_one_changes_nothing() {
    let (mut run, ticket) = planning();
    assert_eq!(run.core.phase(), DriverPhase::Planning);
    assert_eq!(run.on(DriverEvent::Planned { ticket: Ticket(99), plan: Ok(planned(&["a", "b"])) }), []);
    // The plan was asked for when the first of the two was ready.
    let no_plan = NoPlan { detail: "2 stages".into(), kind: NoPlanKind::NeedsNodes };
    let again = run.on(DriverEvent::Planned { ticket, plan: Err(no_plan) });
    let [DriverCommand::Plan(request)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(request.nodes, [node("a"), node("b")]);
    let prepare = run.on(DriverEvent::Planned { ticket: request.ticket, plan: Ok(planned(&["b", "a"])) });
    let [DriverCommand::Prepare { members, layout, .. }] = &prepare[..] else { panic!("{prepare:?}") };
    assert_eq!((&members[..], layout), (&[node("b"), node("a")][..], &Some(planned(&[]).layout)));
    assert_eq!(run.core.phase(), DriverPhase::Forming);
}

#[test]
fn a_break_is_told_once_and_not_when_the_driver_gave_the_reason() {
    let mut run = Run::running();
    let loss = LostReason::Silent { heartbeat_ms: 2000 };
    let known = BreakReason::NodeLost { node: node("b"), loss };
    let told = |commands: Vec<DriverCommand>| -> Vec<Notice> {
        let notice = |command| if let DriverCommand::Tell(notice) = command { Some(notice) } else { None };
        commands.into_iter().filter_map(notice).collect()
    };
    assert_eq!(told(run.left("a", 0, LeftWhy::Broken { reason: known }, Vec::new())), []);
    let mut run = Run::running();
    // Text decides nothing: a word of the driver's in it changes nothing.
    let reason = BreakReason::Failed { detail: "a connection was lost".into() };
    let notice = Notice::NodeLeft { node: node("a"), reason: reason.clone() };
    let why = LeftWhy::Broken { reason };
    let left = FromReplica::Left { run: RUN, epoch: Epoch(1), step: Some(0), why, holds: Vec::new() };
    assert_eq!(told(run.says("a", left.clone())), [notice]);
    assert_eq!(told(run.says("a", left)), []);
}

#[test]
fn a_node_that_is_cut_off_is_lost_with_the_reason_even_when_it_was_not_needed() {
    let loss = || LostReason::Misbehaved { detail: "malformed FromReplica".into() };
    let told = |name: &str| DriverCommand::Tell(Notice::NodeLost { node: node(name), loss: loss() });
    let mut run = Run::running();
    run.on(DriverEvent::NodeUp { node: node("b") });
    assert_eq!(run.on(DriverEvent::NodeDown { node: node("b"), loss: loss() }), [told("b")]);
    let lost = run.on(DriverEvent::NodeDown { node: node("a"), loss: loss() });
    assert_eq!(lost.first(), Some(&told("a")));
    let reason = BreakReason::NodeLost { node: node("a"), loss: loss() };
    let abort = DriverCommand::Abort { epoch: Epoch(1), nodes: vec![node("a")], reason };
    assert!(lost.contains(&abort), "{lost:?}");
    // One that was not needed and just went is not worth a notice.
    run.on(DriverEvent::NodeUp { node: node("c") });
    let mut quiet = run.on(DriverEvent::NodeDown { node: node("c"), loss: LostReason::Replaced });
    quiet.retain(|command| matches!(command, DriverCommand::Tell(Notice::NodeLost { .. })));
    assert_eq!(quiet, []);
}

#[test]
fn a_run_that_is_stopped_while_it_waits_ends_with_one_state_of_one_step() {
    let mut run = Run::new(Some(StagedConfig::default()));
    run.on(DriverEvent::NodeUp { node: node("a") });
    let asked = run.says("a", FromReplica::Enlisted { run: RUN, step: None });
    let [DriverCommand::Plan(request)] = &asked[..] else { panic!("{asked:?}") };
    let whole = Ops { start: 0, end: 6 };
    let layout = Layout { replicas: vec![ReplicaLayout { samples: 8, micro: 4, stages: vec![whole] }] };
    let alone = PlannedGroup { layout, ..planned(&["a"]) };
    run.on(DriverEvent::Planned { ticket: request.ticket, plan: Ok(alone) });
    run.says("a", FromReplica::Prepared { run: RUN, epoch: Epoch(1), ends: RankEnds::default() });
    run.steps("a", 1..=2);
    let holds = vec![HoldRef { ops: whole, step: 2, norm: Some(1), pending: false }];
    let why = LeftWhy::Broken { reason: BreakReason::Failed { detail: "it stumbled".into() } };
    let again = run.left("a", 2, why, holds);
    let Some(DriverCommand::Plan(request)) = again.last() else { panic!("{again:?}") };
    let no_plan = NoPlan { detail: "it is too small".into(), kind: NoPlanKind::NeedsNodes };
    run.on(DriverEvent::Planned { ticket: request.ticket, plan: Err(no_plan) });
    assert!(matches!(run.core.phase(), DriverPhase::Paused(_)));
    let fetches = |commands: &[DriverCommand]| {
        commands.iter().filter(|command| matches!(command, DriverCommand::FetchPart { .. })).count()
    };
    let asked = run.on(DriverEvent::StopAsked);
    assert_eq!(fetches(&asked), 1);
    run.now += 2 * SHORT_PAUSE;
    assert_eq!(run.on(DriverEvent::Tick), [], "the pause is over");
    // The node was told to give the same part of another step before.
    let Some(DriverCommand::FetchPart { ticket, .. }) = asked.last() else { panic!("{asked:?}") };
    let other = run.on(DriverEvent::Fetched { ticket: *ticket, result: Ok(1) });
    let [DriverCommand::Discard { ticket: dropped }, DriverCommand::FetchPart { ticket: next, .. }] =
        other[..]
    else {
        panic!("{other:?}")
    };
    assert_eq!((dropped, next > *ticket), (*ticket, true));
    let end = run.on(DriverEvent::Fetched { ticket: next, result: Ok(2) });
    let finish = DriverCommand::Finish { step: 2, end: End::Interrupted, states: vec![next] };
    assert_eq!(end.last(), Some(&finish));
}

#[test]
fn a_busy_node_is_asked_again_after_a_while() {
    let mut run = Run::new(None);
    run.on(DriverEvent::NodeUp { node: node("a") });
    let refused = FromReplica::Refused { run: RUN, refusal: RunRefusal::OtherDriver };
    let told = Notice::NodeRefused { node: node("a"), refusal: RunRefusal::OtherDriver };
    assert_eq!(run.says("a", refused), [DriverCommand::Tell(told)]);
    let due = run.core.next_tick().unwrap();
    run.now = due;
    let enlist = run.on(DriverEvent::Tick);
    assert!(enlist.contains(&DriverCommand::Enlist { node: node("a") }), "{enlist:?}");
    assert!(run.core.next_tick().is_none_or(|next| next > due), "it is asked once");
}

#[test]
fn queries_wait_for_a_group_and_are_asked_again_by_the_next() {
    let mut run = Run::running();
    let forward = |epoch| DriverCommand::ForwardQuery { query: 5, node: node("a"), epoch: Epoch(epoch) };
    assert_eq!(run.on(DriverEvent::QueryAsked { query: 5 }), [forward(1)]);
    assert_eq!(run.on(DriverEvent::Tick), []);
    let refusal = QueryRefusal::SampleSize { values: 784 };
    let refused = run.says("a", FromReplica::NotComputed { run: RUN, number: 5, refusal: refusal.clone() });
    assert_eq!(refused, [DriverCommand::RefuseQuery { query: 5, refusal }]);
    let late = StateRef { step: 1, bytes: 1, blob: BlobId(3) };
    let taken = run.says("a", FromReplica::Computed { run: RUN, number: 5, shape: vec![1], outputs: late });
    let message = ToReplica::Taken { run: RUN, blob: BlobId(3) };
    assert_eq!(taken, [DriverCommand::Send { node: node("a"), message }]);
}

/// One replica trains from a stream that frees samples, and waits for the pass after four steps.
fn waits_for_samples() -> Run {
    let mut run = Run::running_with(DriverConfig {
        plan: Plan { passes: PassLengths::Sealed, ..config(None).plan },
        ..config(None)
    });
    let ended = SealedPass { pass: 0, start: 0, steps: 4, samples: 32, base: 0, horizon: 32 };
    let (epoch, wait) = (Epoch(1), Detail::new("steps of pass 0 are not committed"));
    let message = FromReplica::StreamWaits { run: RUN, epoch, step: 4, wait, ended: Some(ended) };
    let told = run.says("a", message);
    assert!(matches!(&told[..], [DriverCommand::Tell(Notice::StreamWaits { .. })]), "{told:?}");
    run
}

fn save_at_four(run: &mut Run) -> (Vec<DriverCommand>, Vec<DriverCommand>) {
    let state = StateRef { step: 4, bytes: 1, blob: BlobId(4) };
    let told = run.says("a", FromReplica::Snapshot { run: RUN, epoch: Epoch(1), ops: None, state });
    let fetch = told.iter().find_map(|command| match command {
        DriverCommand::Fetch { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let fetched = run.on(DriverEvent::Fetched { ticket: fetch.unwrap(), result: Ok(4) });
    (told, fetched)
}

#[test]
fn a_group_that_waits_for_samples_saves_although_its_reports_are_lost() {
    let mut run = waits_for_samples();
    let (told, fetched) = save_at_four(&mut run);
    assert!(matches!(&told[..], [DriverCommand::Fetch { .. }]), "{told:?}");
    assert!(matches!(&fetched[..], [DriverCommand::Send { .. }]), "ranks may still report: {fetched:?}");
    run.now = run.core.next_tick().unwrap();
    let unknown = DriverCommand::Tell(Notice::StepsUnknown { from: 1, to: 4 });
    let saved = run.on(DriverEvent::Tick);
    assert_eq!(saved[..2], [unknown, DriverCommand::Draft { step: 4 }]);
    assert!(matches!(saved[2..], [DriverCommand::Save { step: 4, .. }]), "{saved:?}");
    assert_eq!(run.core.place(4).map(|place| (place.pass, place.batch)), Ok((1, 0)));
    assert_eq!(run.core.next_tick(), None, "nothing is left to wait for");
}

#[test]
fn a_checkpoint_that_the_store_has_not_heard_of_is_told_to_it_again() {
    let mut run = waits_for_samples();
    run.steps("a", 1..=4);
    run.core.on(run.now, DriverEvent::Tick, &mut Outbox::default());
    let (_, saved) = save_at_four(&mut run);
    assert!(saved.iter().any(|command| matches!(command, DriverCommand::Save { step: 4, .. })), "{saved:?}");
    let (told, fetched) = save_at_four(&mut run);
    assert_eq!(told.last(), Some(&DriverCommand::CommitStream { step: 4 }));
    assert!(fetched.iter().any(|command| matches!(command, DriverCommand::Discard { .. })), "{fetched:?}");
}

#[test]
fn ranks_that_end_say_that_the_stream_has_ended_though_the_message_is_lost() {
    let mut run = waits_for_samples();
    run.steps("a", 1..=4);
    let asked = run.left("a", 4, LeftWhy::Ended, Vec::new());
    let message = ToReplica::Snapshot { run: RUN };
    assert_eq!(asked.last(), Some(&DriverCommand::Send { node: node("a"), message }), "{asked:?}");
}
