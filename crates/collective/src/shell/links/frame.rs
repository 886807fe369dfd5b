//! Frames on a link: a head and a body.
//!
//! ```text
//!   head: kind (1 byte), 3 zeros, length of the body (4 bytes, little-endian)
//!   call: epoch and what the sender computes; the first frame of every collective in each direction
//!   data: elements
//!   abort: why the group is over; the last frame
//! ```

use crate::core::words::{Algorithm, Kind, Reduction, Signature};
use phalanx_types::DType;

pub(super) const HEAD: usize = 8;
/// The most bytes of a call or of an abort.
pub(super) const NOTE: usize = 512;
/// The most bytes of a tensor's name that are compared.
const NAME: usize = 64;

const CALL: u8 = 1;
const DATA: u8 = 2;
const ABORT: u8 = 3;

/// A frame at the start of the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Call(&'a [u8]),
    /// The length of the body, which follows.
    Data(usize),
    Abort(&'a [u8]),
}

/// A head that no peer of this version sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Parses the next frame if the head of a data frame, or the whole body of another frame, has arrived.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [what, 0, 0, 0, length @ ..] = *head else { return Err(Malformed) };
    let length = u32::from_le_bytes(length) as usize;
    match what {
        DATA if length > 0 => Ok(Some(Frame::Data(length))),
        CALL if length <= NOTE => Ok(rest.get(..length).map(Frame::Call)),
        ABORT if length <= NOTE => Ok(rest.get(..length).map(Frame::Abort)),
        _ => Err(Malformed),
    }
}

fn head(what: u8, length: usize) -> [u8; HEAD] {
    let mut head = [what, 0, 0, 0, 0, 0, 0, 0];
    head[4..].copy_from_slice(&(length as u32).to_le_bytes());
    head
}

pub(super) fn data_head(length: usize) -> [u8; HEAD] {
    head(DATA, length)
}

pub(super) fn abort(reason: &str) -> Vec<u8> {
    let reason = cut(reason, NOTE);
    [&head(ABORT, reason.len()), reason.as_bytes()].concat()
}

/// The content of a call frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallFrame {
    pub(super) epoch: u64,
    pub(super) algorithm: Algorithm,
    /// With the name shortened.
    pub(super) signature: Signature,
}

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::Direct,
    Algorithm::Shared,
    Algorithm::Ring,
    Algorithm::HalvingDoubling,
    Algorithm::Hierarchical,
];

impl CallFrame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Signature { sequence, kind, reduction, dtype, count, name } = &self.signature;
        let (kind, root) = kind.code();
        let name = cut(name, NAME);
        let mut body = Vec::with_capacity(HEAD + 36 + NAME);
        body.extend(self.epoch.to_le_bytes());
        body.extend(sequence.to_le_bytes());
        body.extend(count.to_le_bytes());
        body.extend(root.to_le_bytes());
        body.push(kind);
        body.push(code(&ALGORITHMS, self.algorithm));
        body.push(reduction.map_or(0, |reduction| 1 + code(&Reduction::ALL, reduction)));
        body.push(code(&DType::ALL, *dtype));
        body.extend(name.as_bytes());
        [&head(CALL, body.len()), body.as_slice()].concat()
    }

    /// Reads the body of a call frame.
    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let (epoch, rest) = body.split_first_chunk().ok_or(Malformed)?;
        let (sequence, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (count, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (root, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let ([kind, algorithm, reduction, dtype], name) = rest.split_first_chunk().ok_or(Malformed)?;
        if name.len() > NAME {
            return Err(Malformed);
        }
        let reduction = match reduction.checked_sub(1) {
            None => None,
            Some(index) => Some(*Reduction::ALL.get(usize::from(index)).ok_or(Malformed)?),
        };
        Ok(Self {
            epoch: u64::from_le_bytes(*epoch),
            algorithm: *ALGORITHMS.get(usize::from(*algorithm)).ok_or(Malformed)?,
            signature: Signature {
                sequence: u64::from_le_bytes(*sequence),
                kind: Kind::from_code(*kind, u32::from_le_bytes(*root)).ok_or(Malformed)?,
                reduction,
                dtype: *DType::ALL.get(usize::from(*dtype)).ok_or(Malformed)?,
                count: u64::from_le_bytes(*count),
                name: String::from_utf8_lossy(name).into_owned(),
            },
        })
    }
}

/// If this is the body of a call frame of this epoch that announces a join: since which call the sender has joined, and
/// the last rank to join among those it speaks for.
pub(super) fn joined(body: &[u8], epoch: u64) -> Option<(u64, u64)> {
    const KIND: usize = 28;
    let (join, _) = Kind::Join.code();
    if body.get(KIND) != Some(&join) {
        return None;
    }
    let call = CallFrame::decode(body).ok()?;
    (call.epoch == epoch).then_some((call.signature.sequence, call.signature.count))
}

/// The index of a value in the list of all values of its kind.
fn code<T: PartialEq>(all: &[T], word: T) -> u8 {
    all.iter().position(|other| *other == word).expect("the list is complete") as u8
}

/// The longest prefix of a text of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_come_back_as_they_went() {
        for algorithm in ALGORITHMS {
            for reduction in Reduction::ALL.map(Some).into_iter().chain([None]) {
                for (dtype, code) in DType::ALL.into_iter().zip((0..10).cycle()) {
                    let signature = Signature {
                        sequence: 7,
                        kind: Kind::from_code(code, if (3..7).contains(&code) { 9 } else { 0 }).unwrap(),
                        reduction,
                        dtype,
                        count: u64::MAX,
                        name: "layer 3 gewicht ä".into(),
                    };
                    let call = CallFrame { epoch: 3, algorithm, signature };
                    let bytes = call.encode();
                    let Ok(Some(Frame::Call(body))) = parse(&bytes) else { panic!("no call") };
                    let since = (call.signature.kind == Kind::Join).then_some((7, u64::MAX));
                    assert_eq!((joined(body, 3), joined(body, 4)), (since, None));
                    assert_eq!(CallFrame::decode(body), Ok(call));
                    assert_eq!(parse(&bytes[..bytes.len() - 1]), Ok(None));
                }
            }
        }
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let signature = Signature {
            sequence: 0,
            kind: Kind::Barrier,
            reduction: None,
            dtype: DType::U8,
            count: 0,
            name: "ä".repeat(40) + "b" + &"ä".repeat(400),
        };
        let bytes = CallFrame { epoch: 0, algorithm: Algorithm::Ring, signature }.encode();
        assert_eq!(CallFrame::decode(&bytes[HEAD..]).unwrap().signature.name, "ä".repeat(32));
        assert_eq!(parse(&abort(&"ä".repeat(400))), Ok(Some(Frame::Abort("ä".repeat(256).as_bytes()))));
    }

    #[test]
    fn no_bytes_of_a_peer_do_harm() {
        assert_eq!(parse(&[CALL, 0, 0, 0, 1, 2, 0, 0]), Err(Malformed));
        assert_eq!(parse(&[DATA, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(parse(&[9, 0, 0, 0, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(parse(&[ABORT, 1, 0, 0, 0, 0, 0, 0]), Err(Malformed));
        for length in 0..NOTE {
            for byte in [0, 1, 8, 255] {
                // Checks only that it returns.
                let _ = CallFrame::decode(&vec![byte; length]);
            }
        }
    }
}
