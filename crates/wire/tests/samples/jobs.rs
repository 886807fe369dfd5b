//! Samples of what main nodes and computing nodes say to each other.
//!
//! Questions about jobs and their answers have no frame of their own: they ride in the body of a
//! request and of its reply, and so do their samples.

use super::{Message, Samples, node, variant_of};
use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_types::{
    ByteSize, DType, Epoch, JobId, LeaseId, Needs, Parcel, ParcelHead, SessionId, Tensor, TensorHead,
};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::jobs::{
    Dispatch, Done, DoneResult, FromWorker, Held, Input, InputPlace, JobAnswer, JobInfo, JobQuery, JobState,
    Join, KeptSolution, MissingInput, Offer, OfferGroup, ParcelRef, Progress, QUERY_SERVICE, Report,
    ToWorker,
};
use phalanx_wire::reason::{FailReason, LostInput, Raised, WaitReason};
use phalanx_wire::usage::{Holder, Shortage};
use serde::Serialize;

impl Message for ToWorker {
    const KIND: FrameKind = FrameKind::Jobs;
}

impl Message for FromWorker {
    const KIND: FrameKind = FrameKind::Jobs;
}

impl Message for JobQuery {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        let body = encoded(self);
        FabricMessage::Request { id: 12, service: QUERY_SERVICE.into(), deadline_ms: 5_000, body }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Request { body: inner, .. } = &outer else { panic!("{outer:?} is no request") };
        let query: JobQuery = codec::decode(inner)?;
        assert_eq!(&assert_stable(&query, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for JobAnswer {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        FabricMessage::Reply { id: 12, result: Ok(encoded(self)) }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Reply { result: Ok(inner), .. } = &outer else { panic!("{outer:?} is no reply") };
        let answer: JobAnswer = codec::decode(inner)?;
        assert_eq!(&assert_stable(&answer, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

pub(super) fn encoded<T: Serialize>(message: &T) -> Bytes {
    let mut out = BytesMut::new();
    codec::encode_into(message, &mut out).expect("messages can be encoded");
    out.freeze()
}

pub(super) fn add(samples: &mut Samples) {
    add_work(samples);
    add_questions(samples);
}

fn add_work(samples: &mut Samples) {
    let invite = ToWorker::Invite { session: SessionId(0xabcd), epoch: Epoch(2) };
    samples.each("to-worker", [invite, ToWorker::Dispatch(dispatch())], |message| message);
    let from_worker = [FromWorker::Join(join()), FromWorker::Report(report())];
    samples.each("from-worker", from_worker, |message| message);
    samples.one("to-worker-dispatch-empty", &ToWorker::Dispatch(Dispatch::default()));
    samples.one("from-worker-report-empty", &FromWorker::Report(Report::default()));

    let blob = ParcelRef::Blob { head: all_dtypes(samples), blob: BlobId(9) };
    samples.each("parcel", [ParcelRef::inline(&parcel()), blob], |payload| {
        ToWorker::Dispatch(Dispatch { epoch: Epoch(2), offers: vec![offer(payload)], ..Dispatch::default() })
    });
    let at = InputPlace::At { node: node("n2"), head: parcel().head(), blob: BlobId(u64::MAX) };
    samples.each("input", [given(), at], |place| {
        let mut offers = offer(ParcelRef::inline(&parcel()));
        offers.offers[0].inputs = vec![input(place)];
        ToWorker::Dispatch(Dispatch { epoch: Epoch(2), offers: vec![offers], ..Dispatch::default() })
    });
    let results = [
        DoneResult::Solved(ParcelRef::inline(&parcel())),
        DoneResult::Failed { reason: FailReason::Handler { message: "no such file".into() }, retry: true },
    ];
    samples.each("done", results, finished);
    let uses = || super::uses().into_iter().chain(super::later_uses());
    samples.each("holder", uses().map(|part| part.holder), |holder: Holder| {
        let part = uses().find(|part| part.holder == holder);
        FromWorker::Report(Report { epoch: Epoch(2), taken: part.into_iter().collect(), ..Report::default() })
    });
    samples.each("fail", fail_reasons(), |reason| finished(DoneResult::Failed { reason, retry: false }));
    samples.each("lost-input", lost_inputs(), |why| {
        let reason = FailReason::InputLost { job: JobId(12), why };
        finished(DoneResult::Failed { reason, retry: false })
    });
}

fn add_questions(samples: &mut Samples) {
    let queries = [
        JobQuery::List { after: JobId(100), limit: 50, all: true },
        JobQuery::Show { job: JobId(17) },
        JobQuery::Cancel { jobs: vec![JobId(17), JobId(300)] },
        JobQuery::CancelAll,
    ];
    samples.each("job-query", queries, |query| query);
    let urgent = JobInfo { deadline_in_ms: Some(60_000), priority: i32::MIN, ..info(JobState::Solved) };
    let answers = [
        JobAnswer::Jobs { jobs: vec![info(JobState::Leased { node: node("n2") }), urgent], more: true },
        JobAnswer::Cancelled { jobs: 2 },
        JobAnswer::NoSuchJob { job: JobId(17) },
    ];
    samples.each("job-answer", answers, |answer| answer);
    samples.each("job-state", job_states(), show);
    let unknown = JobState::Running { node: node("n2"), for_ms: 1, progress: None };
    samples.one("job-state-running-without-progress", &show(unknown));
    samples.each("wait", wait_reasons(), |reason| show(JobState::Waiting(reason)));
}

fn lease(job: u64, number: u32) -> LeaseId {
    LeaseId { job: JobId(job), number }
}

fn needs() -> Needs {
    Needs { cores: 2, memory: ByteSize::mib(512) }
}

fn parcel() -> Parcel {
    let x = Tensor::from_f32(vec![2, 2], &[1.0, -2.0, 0.5, 0.0]).expect("four values");
    Parcel::from_bytes("solve me").with_tensor("x", x)
}

/// A head with a tensor of every element type, which the samples then cover.
fn all_dtypes(samples: &mut Samples) -> ParcelHead {
    let names = DType::ALL.map(|dtype| variant_of(&dtype));
    samples.cover::<DType>(&names.into());
    let tensors =
        DType::ALL.map(|dtype| TensorHead { name: variant_of(&dtype), dtype, shape: vec![128, 300_000] });
    ParcelHead { bytes_len: 70_000, tensors: tensors.into() }
}

fn offer(payload: ParcelRef) -> OfferGroup {
    let offers = vec![Offer { lease: lease(17, 1), priority: -3, careful: false, payload, inputs: vec![] }];
    OfferGroup { kind: "train".into(), needs: needs(), offers }
}

fn given() -> InputPlace {
    InputPlace::Inline { head: parcel().head(), body: parcel().body() }
}

fn input(place: InputPlace) -> Input {
    Input { job: JobId(12), place }
}

fn kept() -> KeptSolution {
    KeptSolution { job: JobId(12), head: parcel().head(), blob: BlobId(u64::MAX) }
}

fn missing() -> MissingInput {
    let (node, blob) = (node("n2"), BlobId(u64::MAX));
    MissingInput { lease: lease(20, 2), input: JobId(12), node, blob, is_gone: true }
}

fn dispatch() -> Dispatch {
    let payload = ParcelRef::inline(&Parcel::from_bytes("again"));
    let careful =
        Offer { lease: lease(18, 3), priority: 10, careful: true, payload, inputs: vec![input(given())] };
    let mut offers = offer(ParcelRef::inline(&Parcel::from_bytes("once")));
    offers.offers.push(careful);
    Dispatch {
        epoch: Epoch(2),
        number: 300,
        acks: vec![lease(1, 1), lease(2, 1)],
        keeps: vec![lease(7, 1)],
        drops: vec![JobId(8), JobId(900)],
        go: vec![lease(3, 2)],
        cancels: vec![lease(4, 1)],
        recalls: vec![lease(5, 1), lease(600, 1)],
        offers: vec![offers],
    }
}

fn solved() -> Done {
    let result = DoneResult::Solved(ParcelRef::inline(&Parcel::from_bytes("42")));
    Done { lease: lease(17, 1), result, run_micros: 1_500_000 }
}

fn join() -> Join {
    Join {
        session: SessionId(0xabcd),
        epoch: Epoch(2),
        kinds: vec!["train".into(), "eval".into()],
        capacity: Needs { cores: 16, memory: ByteSize::gib(64) },
        window: 32,
        taken: super::uses()[1..].to_vec(),
        held: vec![Held { lease: lease(3, 1), running: true }, Held { lease: lease(4, 1), running: false }],
        done: vec![solved()],
        kept: vec![kept()],
    }
}

fn report() -> Report {
    Report {
        epoch: Epoch(2),
        number: 300,
        window: 32,
        draining: true,
        taken: super::uses()[1..2].to_vec(),
        asks: vec![lease(18, 3)],
        started: vec![lease(17, 1)],
        progress: vec![Progress { lease: lease(17, 1), permille: 333, note: "epoch 1 of 3".into() }],
        done: vec![solved()],
        handed_back: vec![lease(19, 1)],
        kept: vec![kept()],
        missing: vec![missing()],
    }
}

fn finished(result: DoneResult) -> FromWorker {
    let done = vec![Done { lease: lease(17, 2), result, run_micros: 250 }];
    FromWorker::Report(Report { epoch: Epoch(2), window: 1, done, ..Report::default() })
}

fn lost_inputs() -> [LostInput; 6] {
    [
        LostInput::NotKept,
        LostInput::AttemptsUsedUp { attempts: 5 },
        LostInput::NoRecipe,
        LostInput::FailedAgain { why: "no such file".into() },
        LostInput::Input { job: JobId(11) },
        LostInput::Unreachable { node: node("n2") },
    ]
}

fn raised() -> Box<Raised> {
    Box::new(Raised {
        exception: "ValueError".into(),
        message: "three".into(),
        traceback: "Traceback (most recent call last):\nValueError: three\n".into(),
        pickled: (&b"\x80\x05."[..]).into(),
    })
}

fn fail_reasons() -> [FailReason; 7] {
    [
        FailReason::Handler { message: "no such file".into() },
        FailReason::Panicked { message: "index out of bounds".into() },
        FailReason::NodesLost { attempts: 2, nodes: vec![node("n1"), node("n2")] },
        FailReason::Unreadable { message: "blob b9 is gone".into() },
        FailReason::Raised(raised()),
        FailReason::InputFailed { job: JobId(12), why: "no such file".into(), raised: Some(raised()) },
        FailReason::InputLost { job: JobId(12), why: LostInput::NoRecipe },
    ]
}

fn info(state: JobState) -> JobInfo {
    JobInfo {
        job: JobId(17),
        kind: "train".into(),
        priority: 0,
        needs: needs(),
        state,
        attempts: 1,
        max_attempts: 3,
        age_ms: 12_345,
        deadline_in_ms: None,
    }
}

fn show(state: JobState) -> JobAnswer {
    JobAnswer::Jobs { jobs: vec![info(state)], more: false }
}

fn job_states() -> [JobState; 7] {
    [
        JobState::Waiting(WaitReason::NoNodes),
        JobState::Leased { node: node("n2") },
        JobState::Running { node: node("n2"), for_ms: 4_000, progress: Some((333, "epoch 1 of 3".into())) },
        JobState::Solved,
        JobState::Failed(FailReason::Handler { message: "no such file".into() }),
        JobState::Cancelled,
        JobState::Expired,
    ]
}

fn wait_reasons() -> [WaitReason; 8] {
    let (needed, largest) = (ByteSize::gib(80), ByteSize::gib(64));
    [
        WaitReason::NoNodes,
        WaitReason::NoHandler { kind: "train".into() },
        WaitReason::NeedsMemory { needed, largest, node: node("n2") },
        WaitReason::NeedsCores { needed: 32, largest: 16, node: node("n2") },
        WaitReason::NodesDraining { nodes: 2 },
        WaitReason::AllBusy { nodes: 4, ahead: 1_000 },
        WaitReason::Inputs { missing: 2, first: JobId(12) },
        WaitReason::InUse {
            nodes: 2,
            node: node("n2"),
            shortage: Shortage {
                needed: needs(),
                capacity: Needs { cores: 16, memory: ByteSize::gib(64) },
                uses: super::uses().into(),
            },
        },
    ]
}
