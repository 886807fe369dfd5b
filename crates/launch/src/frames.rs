//! Messages on the stream of a rank.

use bytes::BytesMut;
use phalanx_wire::codec;
use phalanx_wire::frame::{self, FrameError, FrameKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};

const CHUNK: usize = 16 << 10;

pub(crate) fn write_message(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    frame::put(FrameKind::Launch, message, &mut bytes).map_err(io::Error::other)?;
    to.write_all(&bytes)
}

/// Reads messages one by one.
#[derive(Debug)]
pub(crate) struct MessageReader<R> {
    from: R,
    buffer: BytesMut,
}

impl<R: Read> MessageReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new() }
    }

    /// The next message; none at the end of the stream.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let mut chunk = [0; CHUNK];
        loop {
            if let Some(frame) = frame::take(&mut self.buffer).map_err(invalid)? {
                if frame.kind != FrameKind::Launch {
                    return Err(invalid(FrameError::Unexpected {
                        expected: FrameKind::Launch,
                        got: frame.kind,
                    }));
                }
                return codec::decode(&frame.body).map(Some).map_err(invalid);
            }
            match self.from.read(&mut chunk) {
                Ok(0) if self.buffer.is_empty() => return Ok(None),
                Ok(0) => return Err(invalid(FrameError::Truncated { have: self.buffer.len() })),
                Ok(read) => self.buffer.extend_from_slice(chunk.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_wire::launch::{FromRankHost, RankSignal, ToRankHost};

    #[test]
    fn messages_are_read_as_they_were_written() {
        let mut stream = Vec::new();
        write_message(&mut stream, &FromRankHost::Out(vec![b'x'; 60_000])).unwrap();
        write_message(&mut stream, &FromRankHost::Exited { code: 7 }).unwrap();
        let mut reader = MessageReader::new(stream.as_slice());
        assert_eq!(reader.next().unwrap(), Some(FromRankHost::Out(vec![b'x'; 60_000])));
        assert_eq!(reader.next().unwrap(), Some(FromRankHost::Exited { code: 7 }));
        assert_eq!(reader.next::<FromRankHost>().unwrap(), None);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let mut stream = Vec::new();
        write_message(&mut stream, &ToRankHost::Signal(RankSignal::Kill)).unwrap();
        let cut = MessageReader::new(&stream[..stream.len() - 1]).next::<ToRankHost>();
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut other = stream.clone();
        other[4] = FrameKind::Jobs as u8;
        assert!(MessageReader::new(other.as_slice()).next::<ToRankHost>().is_err());
        let long = [0xff, 0xff, 0xff, 0xff, FrameKind::Launch as u8];
        assert!(MessageReader::new(long.as_slice()).next::<ToRankHost>().is_err());
        *stream.last_mut().unwrap() = 9;
        assert!(MessageReader::new(stream.as_slice()).next::<ToRankHost>().is_err());
    }
}
