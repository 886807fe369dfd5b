//! Peers that never complete the handshake.

use super::{Open, Target, refused};
use bytes::BytesMut;
use phalanx_testkit::{Process, hello};
use phalanx_wire::frame::{self, FrameKind};
use phalanx_wire::handshake::{Channel, HelloReply, Purpose, Refusal, preface};
use phalanx_wire::node::NodeKind;

/// The first bytes of strangers, and why they are refused.
fn first_words() -> Vec<(&'static str, Vec<u8>)> {
    let mut version = preface(Purpose::Node);
    version[5] = 1;
    let after_preface = |tail: &[u8]| [&preface(Purpose::Node)[..], tail].concat();
    let mut too_much = BytesMut::new();
    frame::put(FrameKind::Handshake, &(hello("default", "x", NodeKind::Main), 7u8), &mut too_much)
        .expect("a frame");
    vec![
        ("the other side does not speak Phalanx", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("the other side does not speak Phalanx", vec![0; 100_000]),
        ("protocol version 257, this side speaks 1", version.to_vec()),
        ("a node was dialed as a relay, or a relay as a node", preface(Purpose::Relay).to_vec()),
        ("connection ended 3 bytes into a frame", b"PHL".to_vec()),
        (
            "Handshake frame of 4294967295 bytes, at most 65536 are allowed",
            after_preface(&[255, 255, 255, 255, 1]),
        ),
        (
            "Chunk frame of 4294967295 bytes, at most 1048584 are allowed",
            after_preface(&[255, 255, 255, 255, 5]),
        ),
        ("unknown frame kind 99", after_preface(&[1, 0, 0, 0, 99, 0])),
        ("unexpected Jobs frame, expected Handshake", after_preface(&[1, 0, 0, 0, 3, 0])),
        ("malformed Hello", after_preface(&[2, 0, 0, 0, 1, 255, 255])),
        ("1 bytes left over after Hello", after_preface(&too_much)),
        ("connection ended 6 bytes into a frame", after_preface(&[9, 0, 0, 0, 1, 0])),
    ]
}

pub(crate) fn all(process: &Process, open: Open<'_>) {
    for (words, bytes) in first_words() {
        let (mut raw, from) = open("stranger-0001");
        raw.say_last(&bytes);
        refused(process, &from, words);
    }
}

/// Peers that know the protocol but not the secret, or claim the id of another node.
pub(crate) fn pretenders(target: &Target) {
    let process = &target.node.process;
    let say = |token: Option<&[u8]>, hello| {
        let (mut raw, from) = target.open();
        (raw.join(token, hello), from)
    };
    let stranger = || hello("default", "stranger-0001", NodeKind::Main);
    let token = Some(&target.token[..]);

    let (reply, from) = say(Some(&[0; 32]), stranger());
    assert_eq!(reply, HelloReply::Refused(Refusal::BadProof));
    refused(process, &from, "the proof of membership is wrong");

    let (reply, from) = say(token, hello("elsewhere", "stranger-0001", NodeKind::Main));
    assert!(matches!(reply, HelloReply::Refused(Refusal::WrongDomain { .. })), "{reply:?}");
    refused(process, &from, "this node is in domain default, not elsewhere");

    let (reply, from) = say(token, hello("default", &target.node.id, NodeKind::Main));
    assert!(matches!(reply, HelloReply::Refused(Refusal::IdTaken { .. })), "{reply:?}");
    refused(process, &from, "another process of this domain is running under the id");

    let mut attached = stranger();
    attached.channel = Channel::Bulk { link: 99 };
    let (reply, from) = say(token, attached);
    assert_eq!(reply, HelloReply::Refused(Refusal::UnknownLink { link: 99 }));
    refused(process, &from, "no control link 99 to attach a bulk connection to");
}
