//! Samples of trials: what rides in requests and replies, and in jobs and solutions.

use super::jobs::encoded;
use super::{Message, Samples, variant_of};
use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_types::{ByteSize, DType, ParcelHead, TensorHead};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::trial::{
    FromTrials, SavedFiles, TRIAL_SERVICE, ToTrials, TrialFile, TrialOrder, TrialPoint, TrialReport,
    TrialResult, TrialSolution, TrialTask, TrialWork,
};
use std::collections::BTreeMap;

impl Message for ToTrials {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        let body = encoded(self);
        FabricMessage::Request { id: 15, service: TRIAL_SERVICE.into(), deadline_ms: 10_000, body }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Request { body: inner, .. } = &outer else { panic!("{outer:?} is no request") };
        let question: ToTrials = codec::decode(inner)?;
        assert_eq!(&assert_stable(&question, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for FromTrials {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        FabricMessage::Reply { id: 15, result: Ok(encoded(self)) }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Reply { result: Ok(inner), .. } = &outer else { panic!("{outer:?} is no reply") };
        let answer: FromTrials = codec::decode(inner)?;
        assert_eq!(&assert_stable(&answer, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

fn values() -> BTreeMap<String, f64> {
    [("valid.accuracy".to_owned(), 0.875), ("valid.loss".to_owned(), f64::INFINITY)].into()
}

pub(super) fn add(samples: &mut Samples) {
    let report =
        TrialReport { search: "s1".to_owned(), trial: 7, attempt: 1, budget: 0.25, values: values() };
    let tensor = TensorHead { name: "run/run.toml".to_owned(), dtype: DType::U8, shape: vec![4096] };
    let files = SavedFiles { head: ParcelHead { bytes_len: 0, tensors: vec![tensor] }, blob: BlobId(12) };
    let questions = [
        ToTrials::File { sha256: [7; 32] },
        ToTrials::Report(report.clone()),
        ToTrials::Saved { report, files: files.clone() },
        ToTrials::Newest { search: "s1".to_owned(), trial: 7, attempt: 1 },
    ];
    samples.each("to-trials", questions, |question| question);
    let answers = [
        FromTrials::File { blob: BlobId(11), bytes: 1 << 20 },
        FromTrials::NoFile,
        FromTrials::Noted,
        FromTrials::Newest(files),
        FromTrials::NothingSaved,
    ];
    samples.each("from-trials", answers, |answer| answer);
    let works = tasks().into_iter().map(|task| variant_of(&task.order.work)).collect();
    samples.cover::<TrialWork>(&works);
}

/// A task of each kind of work.
pub(super) fn tasks() -> [TrialTask; 2] {
    let train = TrialWork::Train { run: "[model]\n".to_owned(), model: Some("input = [4]\n".to_owned()) };
    let program = TrialWork::Program {
        argv: vec!["sh".to_owned(), "train.sh".to_owned()],
        genes: [("width".to_owned(), "32".to_owned())].into(),
    };
    let order = |work| TrialOrder {
        search: "s1".to_owned(),
        trial: 7,
        attempt: 1,
        work,
        from: 0.25,
        to: 1.0,
        full: 10.0,
        values: vec!["valid.accuracy".to_owned()],
        latency_trials: 3,
        cores: 2,
        memory: ByteSize::gib(1),
        keep: true,
    };
    let file = TrialFile {
        key: "data.train.file".to_owned(),
        path: "digits.npz".to_owned(),
        bytes: 4096,
        sha256: [7; 32],
    };
    [
        TrialTask { order: order(train), files: vec![file] },
        TrialTask { order: order(program), files: Vec::new() },
    ]
}

pub(super) fn solution() -> TrialSolution {
    let curve =
        vec![TrialPoint { budget: 0.5, values: values() }, TrialPoint { budget: 1.0, values: values() }];
    let result = TrialResult { values: values(), curve, seconds: 12.5 };
    TrialSolution { search: "s1".to_owned(), trial: 7, result }
}
