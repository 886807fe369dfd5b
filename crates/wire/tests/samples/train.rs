//! Samples of what the driver of a run and the nodes that train it say to each other.

use super::{Message, Samples, node};
use bytes::Bytes;
use phalanx_types::{ByteSize, Epoch, RunId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::train::{
    Activity, AskRef, Asked, DataRef, Enlist, FileRef, FromReplica, Get, Give, HoldRef, Layout, LeftWhy, Ops,
    PartRef, RankReport, Recorded, ReplicaLayout, SeatRef, ShareAsk, Source, Span, StageReport, Start,
    StateRef, StepReport, ToReplica, ValidSums,
};

impl Message for ToReplica {
    const KIND: FrameKind = FrameKind::Train;
}

impl Message for FromReplica {
    const KIND: FrameKind = FrameKind::Train;
}

const RUN: RunId = RunId(0x0123_4567_89ab_cdef);
const EPOCH: Epoch = Epoch(4);

pub(super) fn add(samples: &mut Samples) {
    let state = StateRef { step: 200, bytes: 1 << 20, blob: BlobId(7) };
    let (run, epoch) = (RUN, EPOCH);
    let part = PartRef { part: 1, parts: 3, state: state.clone() };
    let recorded = Recorded { step: 199, validated: 150, saved: 100 };
    let orders = [
        ToReplica::Enlist { run, enlist: enlist() },
        ToReplica::Restore { run, state: Some(state.clone()) },
        ToReplica::Prepare { run, epoch, rank: 1, ranks: 3, layout: None },
        ToReplica::Connect {
            run,
            epoch,
            seats: vec![seat("n1", Some(200)), seat("n2", None)],
            recorded,
            start: None,
        },
        ToReplica::Abort { run, epoch, reason: "n3 is lost".into() },
        ToReplica::Ask { run, epoch, wish: Asked::Stop },
        ToReplica::Snapshot { run },
        ToReplica::Part { run, epoch, holder: node("n1"), part: part.clone() },
        ToReplica::Taken { run, blob: BlobId(7) },
        ToReplica::Dismiss { run },
        ToReplica::Give {
            run,
            epoch,
            give: Give { ops: Ops { start: 0, end: 2 }, step: 200, norm: None, to: node("n1") },
        },
        ToReplica::Compute {
            run,
            epoch,
            ask: AskRef { number: 3, samples: 100, batch: 64, bytes: 25_600, blob: BlobId(11) },
        },
    ];
    samples.each("to-replica", orders, |order| order);
    stages(samples);
    let wishes = [Asked::Reform, Asked::Stop];
    samples.each("asked", wishes, |wish| ToReplica::Ask { run, epoch, wish });
    let sums = ValidSums { samples: 719, loss: 3.5, metrics: vec![(703.0, 719)] };
    let answers = [
        FromReplica::Enlisted { run, step: Some(200) },
        FromReplica::Refused { run, reason: "there is no such file".into(), busy: false },
        FromReplica::Restored { run, step: 200 },
        FromReplica::Prepared { run, epoch, end: Bytes::from_static(b"end") },
        FromReplica::Left { run, epoch, step: Some(201), why: LeftWhy::Reformed, holds: Vec::new() },
        FromReplica::Steps { run, epoch, steps: vec![report()] },
        FromReplica::Validated { run, epoch, step: 300, sums },
        FromReplica::Snapshot { run, epoch, ops: None, state: state.clone() },
        FromReplica::Part { run, epoch, part },
        FromReplica::Spans { run, epoch, rank: 1, spans: vec![span(Activity::Compute)] },
        FromReplica::Waits { run, epoch, on: 2, millis: 5000 },
        FromReplica::Computed { run, number: 3, shape: vec![100, 10], outputs: state },
        FromReplica::NotComputed { run, number: 3, reason: "there is no class 11".into() },
    ];
    samples.each("from-replica", answers, |answer| answer);
    reasons_to_leave(samples);
    let activities = [
        Activity::Data,
        Activity::Compute,
        Activity::Bucket { number: 3 },
        Activity::Exchange,
        Activity::Vote,
        Activity::Update,
        Activity::Validate,
        Activity::Snapshot,
        Activity::Answer,
    ];
    let spans = |what| FromReplica::Spans { run, epoch, rank: 0, spans: vec![span(what)] };
    samples.each("activity", activities, spans);
}

fn reasons_to_leave(samples: &mut Samples) {
    let (run, epoch) = (RUN, EPOCH);
    let reasons = [
        LeftWhy::Broken { reason: "n3 is lost".into() },
        LeftWhy::Reformed,
        LeftWhy::Ended,
        LeftWhy::Failed { reason: "the loss is NaN".into(), cause: true },
        LeftWhy::WrongInput {
            reason: "the label of row 9 is 12".into(),
            hint: Some("number classes".into()),
        },
    ];
    samples.each("left-why", reasons, |why| FromReplica::Left {
        run,
        epoch,
        step: None,
        why,
        holds: Vec::new(),
    });
}

/// What is said only when nodes hold parts of a model.
fn stages(samples: &mut Samples) {
    let (run, epoch) = (RUN, EPOCH);
    let ops = |start, end| Ops { start, end };
    let replica = ReplicaLayout { samples: 64, micro: 16, stages: vec![ops(0, 5), ops(5, 9)] };
    let layout = Some(Layout { replicas: vec![replica] });
    let state = StateRef { step: 200, bytes: 1 << 20, blob: BlobId(7) };
    let gets = vec![
        Get { ops: ops(0, 2), from: Source::Node(node("n2")) },
        Get { ops: ops(2, 5), from: Source::Driver(state.clone()) },
    ];
    let start = Some(Start { step: 200, norm: Some(1.5f64.to_bits()), gets });
    let recorded = Recorded { step: 199, validated: 150, saved: 100 };
    samples.one("stage-prepare", &ToReplica::Prepare { run, epoch, rank: 1, ranks: 2, layout });
    let seats = vec![seat("n1", None)];
    samples.one("stage-connect", &ToReplica::Connect { run, epoch, seats, recorded, start });
    let hold = HoldRef { ops: ops(5, 9), step: 200, norm: Some(1.5f64.to_bits()), pending: true };
    let report = StageReport { replica: 0, stage: 1, memory: 4096, sent: 100, idle_us: 30, staleness: 2 };
    let rank = RankReport { stage: Some(report), ..RankReport::default() };
    let steps = vec![StepReport { ranks: vec![rank], ..self::report() }];
    let (step, why, holds) = (Some(200), LeftWhy::Reformed, vec![hold]);
    samples.one("stage-left", &FromReplica::Left { run, epoch, step, why, holds });
    samples.one(
        "stage-snapshot",
        &FromReplica::Snapshot { run, epoch, ops: Some(ops(5, 9)), state: state.clone() },
    );
    samples.one("stage-steps", &FromReplica::Steps { run, epoch, steps });
    let sources = [Source::Node(node("n2")), Source::Driver(state)];
    let get = |from| Start { step: 0, norm: None, gets: vec![Get { ops: ops(0, 2), from }] };
    samples.each("source", sources, |from| ToReplica::Connect {
        run,
        epoch,
        seats: Vec::new(),
        recorded,
        start: Some(get(from)),
    });
}

fn enlist() -> Enlist {
    let (key, path) = ("data.train.file".into(), "digits.npz".into());
    let file = FileRef { key, path, bytes: 70_000, sha256: [0x33; 32], blob: BlobId(5) };
    let data =
        DataRef { samples: 60_000, validation: 10_000, classes: Some(vec!["cat".into(), "dog".into()]) };
    let share = ShareAsk { cores: Some(2), memory: Some(ByteSize::gib(3)), estimate: ByteSize(70_000) };
    Enlist { config: "[model]\n".into(), files: vec![file], trace: true, data, share }
}

fn seat(name: &str, step: Option<u64>) -> SeatRef {
    SeatRef { node: node(name), end: Bytes::from_static(b"end"), step }
}

fn report() -> StepReport {
    let rank = RankReport { samples: 16, compute_us: 900, exchange_us: 40, wait_us: 10, stage: None };
    StepReport {
        step: 201,
        epoch: EPOCH,
        pass: 3,
        loss: 0.25,
        lr: 0.001,
        grad_norm: 1.5,
        seen: 1 << 60,
        hash: 0x1234,
        sent: 4096,
        took_us: 1000,
        ranks: vec![rank, RankReport::default()],
    }
}

fn span(what: Activity) -> Span {
    Span { what, step: 200, start_us: 1_000_000, len_us: 900 }
}
