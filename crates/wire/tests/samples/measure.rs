//! Samples of what nodes ask each other about their speed.

use super::jobs::encoded;
use super::{Message, Samples, node};
use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::measure::{FromMeasured, LinkSpeed, MEASURE_SERVICE, MeasureRefusal, Speed, ToMeasured};

impl Message for ToMeasured {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        let body = encoded(self);
        FabricMessage::Request { id: 13, service: MEASURE_SERVICE.into(), deadline_ms: 10_000, body }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Request { body: inner, .. } = &outer else { panic!("{outer:?} is no request") };
        let question: ToMeasured = codec::decode(inner)?;
        assert_eq!(&assert_stable(&question, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for FromMeasured {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        FabricMessage::Reply { id: 13, result: Ok(encoded(self)) }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Reply { result: Ok(inner), .. } = &outer else { panic!("{outer:?} is no reply") };
        let answer: FromMeasured = codec::decode(inner)?;
        assert_eq!(&assert_stable(&answer, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

pub(super) fn add(samples: &mut Samples) {
    let questions = [
        ToMeasured::Speed,
        ToMeasured::Link { to: node("n2"), bytes: 64 << 20 },
        ToMeasured::Known,
        ToMeasured::Ping,
        ToMeasured::Hold { bytes: 4 << 20 },
        ToMeasured::Release { blob: BlobId(9) },
    ];
    samples.each("to-measured", questions, |question| question);
    let speed = Speed { gflops: 12.5, threads: 2, millis: 260 };
    let link = LinkSpeed { to: node("n2"), bytes_per_s: 1.25e8, latency_s: 0.000_125, bytes: 16 << 20 };
    let answers = [
        FromMeasured::Speed(speed),
        FromMeasured::Link(link.clone()),
        FromMeasured::Known { speed: Some(speed), links: vec![link] },
        FromMeasured::Pong,
        FromMeasured::Held { blob: BlobId(9) },
        FromMeasured::Released,
        FromMeasured::Refused(MeasureRefusal::Measures),
    ];
    samples.each("from-measured", answers, |answer| answer);
    samples.one("from-measured-known-nothing", &FromMeasured::Known { speed: None, links: Vec::new() });
    let refusals = [
        MeasureRefusal::Trains { driver: node("driver") },
        MeasureRefusal::RunsJobs { jobs: 3 },
        MeasureRefusal::Measures,
        MeasureRefusal::OtherEnd { node: node("n2"), detail: "no link".into() },
        MeasureRefusal::Failed { detail: "no thread".into() },
    ];
    samples.each("measure-refusal", refusals, FromMeasured::Refused);
}
