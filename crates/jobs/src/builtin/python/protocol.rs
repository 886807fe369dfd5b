//! The messages between a node and its Python workers; `docs/python-worker.md` describes them for other languages.
//!
//! Each is one packet of a Unix socket, so nothing frames it. All numbers are little-endian.

use bytes::{BufMut, Bytes};
use phalanx_wire::python::{FunctionHash, MAX_BUFFERS};
use phalanx_wire::reason::Raised;

/// The version a worker says in its first message.
pub(super) const VERSION: u16 = 3;
/// The longest message.
pub(super) const MAX_MESSAGE: usize = 64 << 10;
/// Data up to this many bytes ride in the message; more lie in a segment.
pub(super) const INLINE: usize = 16 << 10;
/// Segments of results up to this many bytes stay mapped for the next result in them.
pub(super) const POOLED: usize = 64 << 20;
/// What begins in a segment begins at a multiple of this.
pub(super) const ALIGN: usize = 64;

pub(super) const FIXED_CALL: usize = 64;

const HAS_FUNCTION: u8 = 1;
const IN_SEGMENT: u8 = 2;
const KEPT: u8 = 4;
const PLACED: u8 = 8;

const CALL: u8 = 1;
const FORGET: u8 = 2;
const FREE: u8 = 3;
const CLOSE: u8 = 4;
const MAP: u8 = 5;
const HELLO: u8 = 16;
const ANSWER: u8 = 17;
const RAISED: u8 = 18;
const RELEASED: u8 = 19;
const UNKNOWN: u8 = 20;

/// The numbers of a call, without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallHead {
    pub(super) id: u64,
    pub(super) hash: FunctionHash,
    /// Nothing when the worker has it already.
    pub(super) function_len: usize,
    pub(super) has_function: bool,
    pub(super) arguments_len: usize,
    pub(super) buffers: Vec<BufferHead>,
    /// The segment in which the data lie; else they follow.
    pub(super) segment: Option<u32>,
    /// Results of other calls among the buffers.
    pub(super) inputs: u32,
}

/// The numbers of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BufferHead {
    pub(super) len: usize,
    /// Where it lies on its own; else it is among the data.
    pub(super) placed: Option<Placed>,
}

/// A place in a segment that the node had the worker map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) segment: u32,
    pub(super) offset: u64,
}

/// What a node says besides calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// A function will not be called again.
    Forget(FunctionHash),
    /// The worker may write to a segment of its own again.
    Free(u32),
    /// A segment of the node will not be used again.
    Close(u32),
    /// A segment of another process, whose file comes with the message, will be used under this number.
    Map(u32),
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToPython {
    Call(CallHead),
    Control(Control),
}

/// What a worker says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FromPython {
    Hello {
        version: u16,
    },
    Answer {
        id: u64,
        kept: bool,
        result_len: usize,
        buffers: Vec<BufferHead>,
        place: Place,
    },
    Raised {
        id: u64,
        kept: bool,
        raised: Box<Raised>,
    },
    /// A segment of the node that was kept is not used any more.
    Released {
        segment: u32,
    },
    /// The function of this call is not known here: it was forgotten, or its definition was taken back.
    Unknown {
        id: u64,
    },
}

/// Where data lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In the message, from here on.
    Message {
        from: usize,
    },
    Segment {
        id: u32,
    },
}

/// A worker said something that means nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the Python worker broke the protocol ({0})")]
pub(super) struct Broken(pub(super) &'static str);

/// The next multiple of [`ALIGN`].
pub(super) fn aligned(offset: usize) -> usize {
    offset.next_multiple_of(ALIGN)
}

impl CallHead {
    /// Appends everything before the data.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let placed = any_placed(&self.buffers);
        let flags =
            [(self.has_function, HAS_FUNCTION), (self.segment.is_some(), IN_SEGMENT), (placed, PLACED)];
        out.put_u8(CALL);
        out.put_u8(flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum());
        out.put_u16_le(self.buffers.len() as u16);
        out.put_u32_le(self.function_len as u32);
        out.put_u64_le(self.id);
        out.put_u64_le(self.arguments_len as u64);
        out.put_slice(&self.hash);
        out.put_u32_le(self.segment.unwrap_or(0));
        out.put_u32_le(self.inputs);
        put_buffers(&self.buffers, out);
    }

    /// The lengths of what is among the data: function, arguments and buffers, as they follow each other.
    pub(super) fn lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let buffers = self.buffers.iter().filter(|buffer| buffer.placed.is_none());
        [self.function_len, self.arguments_len].into_iter().chain(buffers.map(|buffer| buffer.len))
    }

    /// The bytes before the data.
    pub(super) fn encoded_len(&self) -> usize {
        FIXED_CALL + heads_len(&self.buffers)
    }
}

fn any_placed(buffers: &[BufferHead]) -> bool {
    buffers.iter().any(|buffer| buffer.placed.is_some())
}

fn heads_len(buffers: &[BufferHead]) -> usize {
    buffers.len() * if any_placed(buffers) { 24 } else { 8 }
}

/// The lengths of all buffers, then the places of all, if there are any.
fn put_buffers(buffers: &[BufferHead], out: &mut Vec<u8>) {
    buffers.iter().for_each(|buffer| out.put_u64_le(buffer.len as u64));
    if any_placed(buffers) {
        for buffer in buffers {
            let Placed { segment, offset } = buffer.placed.unwrap_or(Placed { segment: 0, offset: 0 });
            out.put_u32_le(segment);
            out.put_u32_le(0);
            out.put_u64_le(offset);
        }
    }
}

impl Control {
    pub(super) fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        let (kind, id, hash) = match self {
            Control::Forget(hash) => (FORGET, 0, Some(hash)),
            Control::Free(id) => (FREE, id, None),
            Control::Close(id) => (CLOSE, id, None),
            Control::Map(id) => (MAP, id, None),
        };
        out.extend([kind, 0, 0, 0]);
        out.put_u32_le(id);
        out.extend(hash.into_iter().flatten());
        out
    }
}

/// Reads numbers out of a message.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Broken("a message is too short"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, Broken> {
        Ok(self.take::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, Broken> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, Broken> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Broken> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn len(&mut self) -> Result<usize, Broken> {
        usize::try_from(self.u64()?).map_err(|_large| Broken("a length cannot be counted"))
    }

    fn buffers(&mut self, count: u16, flags: u8) -> Result<Vec<BufferHead>, Broken> {
        let count = usize::from(count);
        if count > MAX_BUFFERS || count * 8 > self.0.len() {
            return Err(Broken("too many buffers"));
        }
        let heads = (0..count).map(|_| Ok(BufferHead { len: self.len()?, placed: None }));
        let mut heads = heads.collect::<Result<Vec<_>, _>>()?;
        if flags & PLACED != 0 {
            for head in &mut heads {
                let (segment, _zero, offset) = (self.u32()?, self.u32()?, self.u64()?);
                head.placed = (segment != 0).then_some(Placed { segment, offset });
            }
        }
        Ok(heads)
    }

    fn bytes(&mut self, len: u32) -> Result<&[u8], Broken> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (head, rest) = self.0.split_at_checked(len).ok_or(Broken("a message is too short"))?;
        self.0 = rest;
        Ok(head)
    }

    fn text(&mut self, len: u32) -> Result<String, Broken> {
        Ok(String::from_utf8_lossy(self.bytes(len)?).into_owned())
    }
}

/// Reads what a node said; used by stand-ins, and for what is taken back.
pub(super) fn decode_to(message: &[u8]) -> Result<ToPython, Broken> {
    let mut reader = Reader(message);
    let (kind, flags, count, number) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
    Ok(match kind {
        CALL => {
            let (id, arguments_len, hash, segment) =
                (reader.u64()?, reader.len()?, reader.take()?, reader.u32()?);
            let inputs = reader.u32()?;
            ToPython::Call(CallHead {
                inputs,
                id,
                hash,
                function_len: number as usize,
                has_function: flags & HAS_FUNCTION != 0,
                arguments_len,
                buffers: reader.buffers(count, flags)?,
                segment: (flags & IN_SEGMENT != 0).then_some(segment),
            })
        }
        FORGET => ToPython::Control(Control::Forget(reader.take()?)),
        FREE => ToPython::Control(Control::Free(number)),
        CLOSE => ToPython::Control(Control::Close(number)),
        MAP => ToPython::Control(Control::Map(number)),
        _ => return Err(Broken("an unknown message")),
    })
}

/// Reads what a worker said.
pub(super) fn decode_from(message: &[u8]) -> Result<FromPython, Broken> {
    let mut reader = Reader(message);
    let (kind, flags, count, number) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
    let kept = flags & KEPT != 0;
    Ok(match kind {
        HELLO => FromPython::Hello { version: count },
        RELEASED => FromPython::Released { segment: number },
        UNKNOWN => FromPython::Unknown { id: reader.u64()? },
        ANSWER => {
            let (id, result_len) = (reader.u64()?, reader.len()?);
            let buffers = reader.buffers(count, flags)?;
            let from = message.len() - reader.0.len();
            let place = match flags & IN_SEGMENT != 0 {
                true => Place::Segment { id: number },
                false => Place::Message { from },
            };
            FromPython::Answer { id, kept, result_len, buffers, place }
        }
        RAISED => {
            let id = reader.u64()?;
            let (message, traceback, pickled) = (reader.u32()?, reader.u32()?, reader.u32()?);
            reader.u32()?;
            let raised = Raised {
                exception: reader.text(number)?,
                message: reader.text(message)?,
                traceback: reader.text(traceback)?,
                pickled: Bytes::copy_from_slice(reader.bytes(pickled)?),
            };
            FromPython::Raised { id, kept, raised: Box::new(raised) }
        }
        _ => return Err(Broken("an unknown message")),
    })
}

impl FromPython {
    /// Appends everything before the data; for stand-ins.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, flags: u8, count: u16, number: u32| {
            out.extend([kind, flags]);
            out.put_u16_le(count);
            out.put_u32_le(number);
        };
        let kept_flag = |kept: &bool| if *kept { KEPT } else { 0 };
        match self {
            Self::Hello { version } => head(out, HELLO, 0, *version, 0),
            Self::Released { segment } => head(out, RELEASED, 0, 0, *segment),
            Self::Unknown { id } => {
                head(out, UNKNOWN, 0, 0, 0);
                out.put_u64_le(*id);
            }
            Self::Answer { id, kept, result_len, buffers, place } => {
                let (flag, number) = match place {
                    Place::Message { .. } => (0, 0),
                    Place::Segment { id } => (IN_SEGMENT, *id),
                };
                let placed = if any_placed(buffers) { PLACED } else { 0 };
                head(out, ANSWER, flag | kept_flag(kept) | placed, buffers.len() as u16, number);
                out.put_u64_le(*id);
                out.put_u64_le(*result_len as u64);
                put_buffers(buffers, out);
            }
            Self::Raised { id, kept, raised } => {
                head(out, RAISED, kept_flag(kept), 0, raised.exception.len() as u32);
                out.put_u64_le(*id);
                for len in [raised.message.len(), raised.traceback.len(), raised.pickled.len(), 0] {
                    out.put_u32_le(len as u32);
                }
                for part in [raised.exception.as_bytes(), raised.message.as_bytes()] {
                    out.extend(part);
                }
                out.extend(raised.traceback.as_bytes());
                out.extend(&raised.pickled[..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of an answer before the lengths of its buffers.
    const FIXED_ANSWER: usize = 24;

    fn among_the_data(len: usize) -> BufferHead {
        BufferHead { len, placed: None }
    }

    fn call() -> CallHead {
        CallHead {
            inputs: 3,
            id: 7,
            hash: [9; 32],
            function_len: 3,
            has_function: true,
            arguments_len: 2,
            buffers: vec![among_the_data(5), among_the_data(0)],
            segment: Some(4),
        }
    }

    fn from_worker() -> Vec<FromPython> {
        let raised = Raised {
            exception: "ValueError".into(),
            message: "no".into(),
            traceback: "Traceback\n".into(),
            pickled: Bytes::from_static(b"pp"),
        };
        let answer = |place, from| FromPython::Answer {
            id: 8,
            kept: from == 0,
            result_len: 6,
            buffers: vec![among_the_data(1), among_the_data(2)],
            place,
        };
        vec![
            FromPython::Hello { version: VERSION },
            answer(Place::Message { from: FIXED_ANSWER + 16 }, 1),
            answer(Place::Segment { id: 3 }, 0),
            FromPython::Raised { id: 8, kept: false, raised: Box::new(raised) },
            FromPython::Released { segment: 5 },
            FromPython::Unknown { id: 6 },
        ]
    }

    #[test]
    fn buffers_may_lie_in_places_of_their_own() {
        let placed = BufferHead { len: 9, placed: Some(Placed { segment: 3, offset: 128 }) };
        let buffers = vec![among_the_data(5), placed];
        let call = CallHead { buffers: buffers.clone(), ..call() };
        assert_eq!(call.lengths().collect::<Vec<_>>(), [3, 2, 5]);
        let mut out = Vec::new();
        call.encode(&mut out);
        assert_eq!((out[1], out.len()), (HAS_FUNCTION | IN_SEGMENT | PLACED, call.encoded_len()));
        let place = [[3, 0, 0, 0, 0, 0, 0, 0], [128, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(out[out.len() - 32..], [vec![0; 16], place].concat());
        assert_eq!(decode_to(&out), Ok(ToPython::Call(call)));
        let place = Place::Message { from: FIXED_ANSWER + 48 };
        let answer = FromPython::Answer { id: 1, kept: false, result_len: 4, buffers, place };
        let mut out = Vec::new();
        answer.encode(&mut out);
        assert_eq!(decode_from(&out), Ok(answer));
        assert!(decode_from(&out[..out.len() - 1]).is_err());
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut out = Vec::new();
        call().encode(&mut out);
        assert_eq!(out.len(), FIXED_CALL + 16);
        assert_eq!(decode_to(&out), Ok(ToPython::Call(call())));
        for control in [Control::Forget([3; 32]), Control::Free(4), Control::Close(5), Control::Map(6)] {
            assert_eq!(decode_to(&control.encode()), Ok(ToPython::Control(control)));
        }
        for message in from_worker() {
            let mut out = Vec::new();
            message.encode(&mut out);
            assert_eq!(decode_from(&out), Ok(message));
        }
    }

    #[test]
    fn the_bytes_of_messages_stay_as_they_are() {
        let mut out = Vec::new();
        call().encode(&mut out);
        let mut expected = vec![1, 3, 2, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([9; 32]);
        expected.extend([4, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out, expected);
        let mut out = Vec::new();
        from_worker()[2].encode(&mut out);
        let expected = [
            [17, 6, 2, 0, 3, 0, 0, 0],
            [8, 0, 0, 0, 0, 0, 0, 0],
            [6, 0, 0, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0],
            [2, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
        let mut out = Vec::new();
        from_worker()[3].encode(&mut out);
        assert_eq!(out.len(), 32 + 10 + 2 + 10 + 2);
    }

    #[test]
    fn messages_that_are_cut_short_or_lie_are_errors() {
        for message in from_worker() {
            let mut out = Vec::new();
            message.encode(&mut out);
            for len in 0..out.len() {
                // What follows the lengths of an answer is data, which is checked where it is taken.
                assert!(decode_from(&out[..len]).is_err(), "{message:?} of {len} bytes");
            }
        }
        assert!(
            decode_from(&[17, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
                .is_err()
        );
        assert!(decode_from(&[99; 64]).is_err());
    }
}
