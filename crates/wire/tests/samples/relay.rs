//! Samples of what nodes and a relay say to each other.

use super::{Message, Samples, node};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::relay::{FromRelay, RelayChallenge, RelayRefusal, ToRelay};

impl Message for RelayChallenge {
    const KIND: FrameKind = FrameKind::Relay;
}

impl Message for ToRelay {
    const KIND: FrameKind = FrameKind::Relay;
}

impl Message for FromRelay {
    const KIND: FrameKind = FrameKind::Relay;
}

pub(super) fn add(samples: &mut Samples) {
    samples.one("relay-challenge", &RelayChallenge { nonce: *b"0123456789abcdef" });
    let (tag, proof) = ([0x11; 32], [0x22; 32]);
    let asks = [
        ToRelay::Register { tag, node: node("n1"), proof },
        ToRelay::Dial { tag, node: node("n1"), to: node("n2"), proof },
        ToRelay::Accept { tag, node: node("n2"), ticket: 77, proof },
        ToRelay::Heartbeat,
    ];
    samples.each("to-relay", asks, |ask| ask);
    let answers = [
        FromRelay::Present(vec![node("n1"), node("n2")]),
        FromRelay::Incoming { ticket: 77, from: node("n1") },
        FromRelay::Spliced,
        FromRelay::Refused(RelayRefusal::Busy),
        FromRelay::Heartbeat,
    ];
    samples.each("from-relay", answers, |answer| answer);
    let refusals = [
        RelayRefusal::BadProof,
        RelayRefusal::NotPresent { node: node("n2") },
        RelayRefusal::NoAnswer { node: node("n2") },
        RelayRefusal::UnknownTicket,
        RelayRefusal::Busy,
    ];
    samples.each("relay-refusal", refusals, FromRelay::Refused);
}
