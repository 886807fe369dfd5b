//! Samples of what is asked about the model of a run that is being trained.

use super::jobs::encoded;
use super::{Message, Samples};
use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::live::{FromLive, LIVE_SERVICE, LiveOutputs, LiveRefusal, LiveRun, LiveSamples, ToLive};

impl Message for ToLive {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        let body = encoded(self);
        FabricMessage::Request { id: 14, service: LIVE_SERVICE.into(), deadline_ms: 60_000, body }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Request { body: inner, .. } = &outer else { panic!("{outer:?} is no request") };
        let question: ToLive = codec::decode(inner)?;
        assert_eq!(&assert_stable(&question, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for FromLive {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        FabricMessage::Reply { id: 14, result: Ok(encoded(self)) }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Reply { result: Ok(inner), .. } = &outer else { panic!("{outer:?} is no reply") };
        let answer: FromLive = codec::decode(inner)?;
        assert_eq!(&assert_stable(&answer, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

pub(super) fn add(samples: &mut Samples) {
    let asked = LiveSamples { count: 100, batch: 64, bytes: 25_600, blob: BlobId(11) };
    let questions = [
        ToLive::About,
        ToLive::Predict { samples: asked, wait_ms: 60_000 },
        ToLive::Taken { blob: BlobId(12) },
    ];
    samples.each("to-live", questions, |question| question);
    let (config, dir) = ("[model]\n".to_owned(), "runs/first".to_owned());
    let run = LiveRun { config: config.clone(), classes: None, dir: dir.clone() };
    let outputs = LiveOutputs { step: 200, shape: vec![100, 10], bytes: 4000, blob: BlobId(12) };
    let answers = [
        FromLive::About(run),
        FromLive::Outputs(outputs),
        FromLive::Released,
        FromLive::Refused(LiveRefusal::Over),
    ];
    samples.each("from-live", answers, |answer| answer);
    let classes = Some(vec!["cat".to_owned(), "dog".to_owned()]);
    samples.one("from-live-about-classes", &FromLive::About(LiveRun { config, classes, dir }));
    let refusals = [
        LiveRefusal::Over,
        LiveRefusal::Late { wait_ms: 60_000 },
        LiveRefusal::Size { want: 25_600, got: 25_604 },
        LiveRefusal::TooMuch { bytes: 1 << 30 },
        LiveRefusal::Failed { detail: "there is no class 11".into() },
    ];
    samples.each("live-refusal", refusals, FromLive::Refused);
}
