//! Samples of what launchers and the nodes of their ranks say.

use super::jobs::encoded;
use super::{Message, Samples, uses};
use crate::stable::assert_stable;
use bytes::{Bytes, BytesMut};
use phalanx_types::{ByteSize, Needs};
use phalanx_wire::codec::{self, CodecError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::launch::{
    FromRankHost, LAUNCH_SERVICE, RankProgram, RankSignal, Reserve, ReserveReply, ToRankHost,
};
use phalanx_wire::usage::Shortage;

impl Message for Reserve {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        let body = encoded(self);
        FabricMessage::Request { id: 14, service: LAUNCH_SERVICE.into(), deadline_ms: 10_000, body }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Request { body: inner, .. } = &outer else { panic!("{outer:?} is no request") };
        let question: Reserve = codec::decode(inner)?;
        assert_eq!(&assert_stable(&question, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for ReserveReply {
    const KIND: FrameKind = FrameKind::Fabric;

    fn frame(&self) -> Bytes {
        FabricMessage::Reply { id: 14, result: Ok(encoded(self)) }.frame()
    }

    fn round_trip(body: &[u8]) -> Result<BytesMut, CodecError> {
        let outer: FabricMessage = codec::decode(body)?;
        let FabricMessage::Reply { result: Ok(inner), .. } = &outer else { panic!("{outer:?} is no reply") };
        let answer: ReserveReply = codec::decode(inner)?;
        assert_eq!(&assert_stable(&answer, inner), inner);
        Ok(assert_stable(&outer, body))
    }
}

impl Message for ToRankHost {
    const KIND: FrameKind = FrameKind::Launch;
}

impl Message for FromRankHost {
    const KIND: FrameKind = FrameKind::Launch;
}

pub(super) fn add(samples: &mut Samples) {
    samples.one("reserve", &Reserve { stream: [7; 16], cores: 2, patience_ms: 500 });
    let (needed, memory) = (3, ByteSize::gib(64));
    let shortage = Shortage {
        needed: Needs { cores: needed, memory: ByteSize(0) },
        capacity: Needs { cores: 16, memory },
        uses: uses().into(),
    };
    let replies = [
        ReserveReply::Reserved,
        ReserveReply::Shortage(shortage),
        ReserveReply::NoStream { detail: "the link went down".into() },
    ];
    samples.each("reserve-reply", replies, |reply| reply);
    let program = RankProgram {
        command: vec![b"python".to_vec(), b"train.py".to_vec()],
        variables: vec![(b"PHALANX_RANK".to_vec(), b"1".to_vec())],
        defaults: vec![(b"OMP_NUM_THREADS".to_vec(), b"2".to_vec())],
        directory: b"/home/ada".to_vec(),
    };
    let orders = [ToRankHost::Start(program), ToRankHost::Signal(RankSignal::Terminate)];
    samples.each("to-rank-host", orders, |order| order);
    samples.each("rank-signal", [RankSignal::Terminate, RankSignal::Kill], ToRankHost::Signal);
    let reports = [
        FromRankHost::Out(b"loss 0.31\n".to_vec()),
        FromRankHost::Err(b"warning\n".to_vec()),
        FromRankHost::Exited { code: 7 },
        FromRankHost::Signaled { signal: 9 },
        FromRankHost::NotStarted { detail: "there is no such directory".into() },
    ];
    samples.each("from-rank-host", reports, |report| report);
}
