//! Samples of the first words on a connection.

use super::{Message, Samples, node};
use phalanx_types::{DomainName, Incarnation};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{Challenge, Channel, Hello, HelloReply, Refusal, Welcome};
use phalanx_wire::node::{NodeKind, PeerAddr};

impl Message for Challenge {
    const KIND: FrameKind = FrameKind::Handshake;
}

impl Message for Hello {
    const KIND: FrameKind = FrameKind::Handshake;
}

impl Message for HelloReply {
    const KIND: FrameKind = FrameKind::Handshake;
}

pub(super) fn add(samples: &mut Samples) {
    samples.one("challenge", &Challenge { nonce: *b"0123456789abcdef" });
    let link = 0x1122_3344_5566_7788;
    let channels =
        [Channel::Control, Channel::Bulk { link }, Channel::Stream { link, key: *b"abcdefghijklmnop" }];
    samples.each("hello", channels, hello);
    samples
        .each("hello-addr", addresses(), |addr| Hello { addresses: vec![addr], ..hello(Channel::Control) });
    let v6 = PeerAddr::Tcp("[fe80::1]:47001".parse().expect("an address"));
    samples.one("hello-addr-tcp-v6", &Hello { addresses: vec![v6], ..hello(Channel::Control) });
    samples.each("hello-kind", NODE_KINDS, |kind| Hello { kind, ..hello(Channel::Control) });
    let welcome = Welcome {
        node: node("n2"),
        incarnation: Incarnation(2),
        kind: NodeKind::Computing,
        addresses: addresses().into(),
        heartbeat_ms: 3_000,
        link: 7,
        proof: [0xcd; 32],
    };
    let replies = [HelloReply::Welcome(welcome), HelloReply::Refused(Refusal::Busy)];
    samples.each("hello-reply", replies, |reply| reply);
    samples.each("refusal", refusals(), HelloReply::Refused);
}

pub(super) fn addresses() -> [PeerAddr; 2] {
    [
        PeerAddr::Tcp("192.168.7.20:47001".parse().expect("an address")),
        PeerAddr::Relay("relay.example.org:7000".into()),
    ]
}

fn domain(name: &str) -> DomainName {
    DomainName::new(name).expect("sample names are names")
}

fn hello(channel: Channel) -> Hello {
    Hello {
        domain: domain("lab"),
        node: node("n1"),
        incarnation: Incarnation(0xfeed_beef),
        kind: NodeKind::Main,
        channel,
        addresses: addresses().into(),
        heartbeat_ms: 3_000,
        nonce: *b"fedcba9876543210",
        proof: [0xab; 32],
    }
}

fn refusals() -> [Refusal; 9] {
    [
        Refusal::WrongDomain { ours: domain("lab"), theirs: domain("office") },
        Refusal::BadProof,
        Refusal::IdentityMismatch { claimed: node("n1") },
        Refusal::Duplicate,
        Refusal::Myself,
        Refusal::IdTaken { id: node("n1") },
        Refusal::UnknownLink { link: 300 },
        Refusal::Stopping,
        Refusal::Busy,
    ]
}

const NODE_KINDS: [NodeKind; 5] =
    [NodeKind::Main, NodeKind::Computing, NodeKind::Observer, NodeKind::Edge, NodeKind::Inference];
