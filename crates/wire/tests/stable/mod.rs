//! What must hold of every body that decodes.

use bytes::BytesMut;
use phalanx_wire::codec::{self, CodecError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Checks a message against the body it came from and returns its own encoding.
///
/// The encoding may differ from the body, which may hold numbers longer than need be, but it is
/// never longer, decodes to the same message and encodes to the same bytes again. And the message
/// took the whole body and nothing but the body.
pub(crate) fn assert_stable<T>(message: &T, body: &[u8]) -> BytesMut
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let encoded = encode(message);
    assert!(encoded.len() <= body.len(), "{message:?} takes more bytes than it came from");
    let again: T = codec::decode(&encoded).expect("what was encoded decodes");
    // A float that is not a number makes a message unlike itself; its bytes still are the same.
    #[expect(clippy::eq_op, reason = "asks whether the message equals itself")]
    let comparable = message == message;
    if comparable {
        assert_eq!(&again, message);
    }
    assert_eq!(encode(&again), encoded, "{message:?} has two encodings");
    assert_exact::<T>(body);
    encoded
}

/// A body one byte shorter is no message, and of a longer one just the rest is left over.
fn assert_exact<T: DeserializeOwned + Debug>(body: &[u8]) {
    let Some((_, shorter)) = body.split_last() else { return };
    assert!(codec::decode::<T>(shorter).is_err(), "decoded without its last byte");
    for next in [0x00, 0xff] {
        let mut longer = body.to_vec();
        longer.push(next);
        match codec::decode::<T>(&longer) {
            Err(CodecError::Trailing { extra: 1, .. }) => {}
            other => panic!("the byte after the body changed the outcome: {other:?}"),
        }
    }
}

fn encode<T: Serialize>(message: &T) -> BytesMut {
    let mut out = BytesMut::new();
    codec::encode_into(message, &mut out).expect("messages can be encoded");
    out
}
