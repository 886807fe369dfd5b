//! Samples of what the driver of a run and the nodes that train it say to each other.

use super::{Message, Samples, node, uses};
use phalanx_types::{ByteSize, Epoch, Needs, RunId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::detail::Detail;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::group_end::{EndRef, RankEnds, RingEnd, SegmentRef};
use phalanx_wire::node::LostReason;
use phalanx_wire::train::{
    Activity, AskRef, Asked, DataRef, Enlist, FileRef, FromReplica, Get, Give, HoldRef, Layout, LeftWhy, Ops,
    PartRef, PassStart, RankReport, Recorded, ReplicaLayout, SealedPass, SeatRef, ShareAsk, Source, Span,
    StageReport, Start, StateRef, StepReport, StreamRef, ToReplica, ValidSums,
};
use phalanx_wire::train_reason::{
    BreakReason, CloseReason, FileFault, FileRefusal, QueryRefusal, RankFailure, RunRefusal, StepFailure,
};
use phalanx_wire::usage::Shortage;

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
    let pass = PassStart { pass: 2, step: 180 };
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
            pass,
        },
        ToReplica::Abort { run, epoch, reason: BreakReason::StateLost { node: node("n3") } },
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
    let detail = || Detail::new("120 of 1,024 samples have arrived");
    let sealed = SealedPass { pass: 2, start: 180, steps: 50, samples: 3190, base: 0, horizon: 3190 };
    let sums = ValidSums { samples: 719, loss: 3.5, metrics: vec![(703.0, 719)] };
    let answers = [
        FromReplica::Enlisted { run, step: Some(200) },
        FromReplica::Refused { run, refusal: RunRefusal::Panicked },
        FromReplica::Restored { run, step: 200 },
        FromReplica::Prepared { run, epoch, ends: ends() },
        FromReplica::Left { run, epoch, step: Some(201), why: LeftWhy::Reformed, holds: Vec::new() },
        FromReplica::Steps { run, epoch, steps: vec![report()] },
        FromReplica::Validated { run, epoch, step: 300, sums },
        FromReplica::Snapshot { run, epoch, ops: None, state: state.clone() },
        FromReplica::Part { run, epoch, part },
        FromReplica::Spans { run, epoch, rank: 1, spans: vec![span(Activity::Compute)] },
        FromReplica::Waits { run, epoch, on: 2, millis: 5000 },
        FromReplica::Computed { run, number: 3, shape: vec![100, 10], outputs: state },
        FromReplica::NotComputed { run, number: 3, refusal: QueryRefusal::SampleSize { values: 784 } },
        FromReplica::StreamWaits { run, epoch, step: 230, wait: detail(), ended: None },
        FromReplica::StreamEnded { run, epoch, step: 230, ended: Some(sealed) },
    ];
    samples.each("from-replica", answers, |answer| answer);
    let steps = vec![StepReport { sealed: Some(sealed), ..report() }];
    samples.one("stream-steps", &FromReplica::Steps { run, epoch, steps });
    reasons(samples);
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

fn reasons(samples: &mut Samples) {
    let (run, epoch) = (RUN, EPOCH);
    let detail = || Detail::new("no such file");
    let left = |why| FromReplica::Left { run, epoch, step: None, why, holds: Vec::new() };
    let whys = [
        LeftWhy::Broken { reason: BreakReason::NotPrepared },
        LeftWhy::Reformed,
        LeftWhy::Ended,
        LeftWhy::Failed(RankFailure::Step(StepFailure::NoState)),
    ];
    samples.each("left-why", whys, left);
    let failures = [
        RankFailure::Step(StepFailure::NormNotFinite),
        RankFailure::WrongInput { detail: detail(), hint: Some("number classes".into()) },
        RankFailure::Error { detail: detail() },
    ];
    samples.each("rank-failure", failures, |failure| left(LeftWhy::Failed(failure)));
    let failures = [
        StepFailure::NormNotFinite,
        StepFailure::NotFinite { rank: 2 },
        StepFailure::NoState,
        StepFailure::NoSamples,
        StepFailure::OtherLabels { step: 200, part: 3 },
    ];
    samples.each("step-failure", failures, |failure| left(LeftWhy::Failed(RankFailure::Step(failure))));
    let loss = LostReason::Silent { heartbeat_ms: 2000 };
    let abort = |reason| ToReplica::Abort { run, epoch, reason };
    let breaks = [
        BreakReason::NodeLost { node: node("n3"), loss: loss.clone() },
        BreakReason::NodeRefused { node: node("n3"), refusal: RunRefusal::Panicked },
        BreakReason::StateLost { node: node("n3") },
        BreakReason::NotPrepared,
        BreakReason::Closed(CloseReason::Dismissed),
        BreakReason::Failed { detail: detail() },
    ];
    samples.each("break-reason", breaks, abort);
    let closes = [
        CloseReason::Dismissed,
        CloseReason::EnlistedAnew,
        CloseReason::DriverLost { loss },
        CloseReason::Refused,
        CloseReason::NodeStops,
    ];
    samples.each("close-reason", closes, |reason| abort(BreakReason::Closed(reason)));
    let (needed, capacity) = (Needs { cores: 2, memory: ByteSize(0) }, Needs::default());
    let refusals = [
        RunRefusal::OtherDriver,
        RunRefusal::Shortage(Shortage { needed, capacity, uses: uses().into() }),
        RunRefusal::NoState { detail: detail() },
        RunRefusal::NoThread { detail: detail() },
        RunRefusal::Panicked,
        RunRefusal::Unable { detail: detail() },
        RunRefusal::NoLoss { name: "loss_fn".into() },
        RunRefusal::File { file: "data.train.file".into(), refusal: FileRefusal::NotListed },
        RunRefusal::WrongFile { fault: FileFault::Malformed },
        RunRefusal::TooMuch { bytes: 1 << 40, limit: 1 << 30 },
        RunRefusal::TooManyOrders,
    ];
    samples.each("run-refusal", refusals, |refusal| FromReplica::Refused { run, refusal });
    files(samples);
    let refusals = [
        QueryRefusal::SampleSize { values: 784 },
        QueryRefusal::NoSamples { detail: detail() },
        QueryRefusal::Failed { detail: detail() },
    ];
    let refuse = |refusal| FromReplica::NotComputed { run, number: 3, refusal };
    samples.each("query-refusal", refusals, refuse);
}

/// Why a node does not have a file of a run, or cannot use it.
fn files(samples: &mut Samples) {
    let (run, detail) = (RUN, || Detail::new("no such file"));
    let refused = |refusal| FromReplica::Refused { run, refusal };
    let refusals = [
        FileRefusal::NotListed,
        FileRefusal::Fetch { detail: detail() },
        FileRefusal::OtherBytes,
        FileRefusal::TooLong { bytes: 1 << 40, limit: 1 << 30 },
        FileRefusal::Name,
        FileRefusal::NotKept { detail: detail() },
    ];
    samples.each("file-refusal", refusals, |refusal| {
        refused(RunRefusal::File { file: "data.train.file".into(), refusal })
    });
    let faults = [
        FileFault::Unreadable,
        FileFault::Malformed,
        FileFault::NoSuchArray,
        FileFault::ArrayNotNamed,
        FileFault::NotNumbers { line: 7 },
        FileFault::Row { row: 7 },
        FileFault::Label { row: 7, classes: 10 },
        FileFault::UnknownClass,
        FileFault::Samples,
        FileFault::Image,
        FileFault::Onnx,
        FileFault::Layers,
        FileFault::Weights,
    ];
    samples.each("file-fault", faults, |fault| refused(RunRefusal::WrongFile { fault }));
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
    let pass = PassStart { pass: 2, step: 180 };
    samples.one("stage-prepare", &ToReplica::Prepare { run, epoch, rank: 1, ranks: 2, layout });
    let seats = vec![seat("n1", None)];
    samples.one("stage-connect", &ToReplica::Connect { run, epoch, seats, recorded, start, pass });
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
        pass,
    });
}

fn enlist() -> Enlist {
    let (key, path) = ("data.train.file".into(), "digits.npz".into());
    let file = FileRef { key, path, bytes: 70_000, sha256: [0x33; 32], blob: BlobId(5) };
    let data = DataRef {
        samples: 60_000,
        validation: 10_000,
        classes: Some(vec!["cat".into(), "dog".into()]),
        stream: Some(StreamRef { reader: "first-1a2b".into(), host: [0x55; 16] }),
    };
    let share = ShareAsk { cores: Some(2), memory: Some(ByteSize::gib(3)), estimate: ByteSize(70_000) };
    Enlist { config: "[model]\n".into(), files: vec![file], trace: true, data, share }
}

fn seat(name: &str, step: Option<u64>) -> SeatRef {
    SeatRef { node: node(name), ends: ends(), step }
}

fn ends() -> RankEnds {
    let segment = SegmentRef { pid: 4711, fd: 9, bytes: 1 << 20, token: 0x0123_4567 };
    let end = EndRef { host: [0x44; 16], segment: Some(segment) };
    let alone = EndRef { segment: None, ..end };
    RankEnds { control: end, rings: vec![RingEnd { ring: 0, end }, RingEnd { ring: 3, end: alone }] }
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
        sealed: None,
    }
}

fn span(what: Activity) -> Span {
    Span { what, step: 200, start_us: 1_000_000, len_us: 900 }
}
