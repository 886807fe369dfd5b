//! Any bytes as what driver, nodes and ranks of a training run send each other; the first byte says as what.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use phalanx_wire::ballot::{Ballot, Greeting};
use phalanx_wire::codec;
use phalanx_wire::stage_frame::FrameHead;
use phalanx_wire::state_frame::{CopyHead, CopyReply, StateHead, StateLength};
use phalanx_wire::train::{FromReplica, ToReplica};
use phalanx_wire::vote::Vote;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else { return };
    match kind % 9 {
        0 => message::<ToReplica>(data),
        1 => message::<FromReplica>(data),
        2 => message::<Ballot>(data),
        3 => fixed(data, Vote::from_bytes, Vote::to_bytes),
        4 => fixed(data, Greeting::from_bytes, Greeting::to_bytes),
        5 => fixed(data, FrameHead::from_bytes, |head| head.to_bytes()),
        6 => fixed(data, CopyHead::from_bytes, |head| head.to_bytes()),
        7 => fixed(data, |bytes| CopyReply::from_bytes(*bytes), |reply| reply.to_bytes()),
        _ => {
            fixed(data, |bytes| Some(StateLength::from_bytes(*bytes)), |len| len.to_bytes());
            if let Some((head, weights, optimizer)) = StateHead::split(data) {
                assert_eq!(data[..StateHead::LEN], head.to_bytes());
                assert_eq!((weights.end, optimizer.end), (optimizer.start, data.len()));
            }
        }
    }
});

/// What is understood is encoded as something that is understood again, to the same bytes.
fn message<T: Serialize + DeserializeOwned>(body: &[u8]) {
    let Ok(message) = codec::decode::<T>(body) else { return };
    let mut bytes = BytesMut::new();
    codec::encode_into(&message, &mut bytes).expect("messages can be encoded");
    let again: T = codec::decode(&bytes).expect("what was encoded decodes");
    let mut same = BytesMut::new();
    codec::encode_into(&again, &mut same).expect("messages can be encoded");
    assert_eq!(bytes, same);
}

/// What is read is written as the same bytes.
fn fixed<const N: usize, T>(
    data: &[u8],
    read: impl Fn(&[u8; N]) -> Option<T>,
    write: impl Fn(&T) -> [u8; N],
) {
    let Some(bytes) = data.first_chunk::<N>() else { return };
    if let Some(value) = read(bytes) {
        assert_eq!(&write(&value), bytes);
    }
}
