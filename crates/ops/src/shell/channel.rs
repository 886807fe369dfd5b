//! Messages between a rank and the leader: over a stream, or through rings with the stream as a doorbell.
//!
//! The last bytes of a stream tell a rank that left from one that is lost, also to a thread that does not read the
//! messages before them: see [`END`].

use super::ring::RingEnd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// The most bytes of a message.
const MOST: usize = 16 << 20;
const LENGTH: usize = 4;
/// What a stream ends with when its rank has left in order: the length of no message, and no message ends with it
/// (their last byte belongs to a varint or to UTF-8).
const END: [u8; LENGTH] = [0xff; LENGTH];

#[derive(Debug)]
pub(super) struct Channel {
    stream: TcpStream,
    rings: Option<RingEnd>,
    /// Bytes that found no room yet.
    unsent: Vec<u8>,
    received: Vec<u8>,
    /// Where the next message begins.
    start: usize,
    closed: bool,
    /// Something was written since the doorbell was thought of.
    bell_due: bool,
}

impl Channel {
    pub(super) fn new(stream: TcpStream, rings: Option<RingEnd>) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        notice_dead_hosts(&stream)?;
        Ok(Self {
            stream,
            rings,
            unsent: Vec::new(),
            received: Vec::new(),
            start: 0,
            closed: false,
            bell_due: false,
        })
    }

    /// Sends a message, or keeps what finds no room until [`Channel::flush`].
    pub(super) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let start = self.unsent.len();
        self.unsent.extend([0; LENGTH]);
        self.unsent =
            postcard::to_extend(message, std::mem::take(&mut self.unsent)).map_err(io::Error::other)?;
        let length = (self.unsent.len() - start - LENGTH) as u32;
        self.unsent[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
        self.flush()
    }

    /// Sends what is left.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() || self.closed {
            return Ok(());
        }
        let sent = match &mut self.rings {
            Some(rings) => {
                self.bell_due = true;
                rings.write(&self.unsent)
            }
            None => match (&self.stream).write(&self.unsent) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            },
        };
        self.unsent.drain(..sent);
        Ok(())
    }

    /// Wakes the other end if it sleeps and has not read all. A thread that goes on looking may do so later than it
    /// writes: between two operations the other end counts as asleep, but soon looks by itself.
    pub(super) fn ring_if_due(&mut self) {
        if !std::mem::take(&mut self.bell_due) {
            return;
        }
        if self.rings.as_ref().is_some_and(RingEnd::must_ring)
            && let Err(error) = ring_bell(&self.stream)
        {
            // The stream is closed, which the watching thread sees.
            tracing::debug!(%error, "could not wake a rank");
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() && !self.closed
    }

    /// Takes what has come. `stream` says whether to look at the stream although rings carry the messages.
    pub(super) fn receive(&mut self, stream: bool) -> io::Result<()> {
        if let Some(rings) = &mut self.rings
            && rings.is_readable()
        {
            rings.read(&mut self.received)?;
        }
        if self.closed || (self.rings.is_some() && !stream) {
            return Ok(());
        }
        let mut bytes = [0; 16 << 10];
        loop {
            match (&self.stream).read(&mut bytes) {
                Ok(0) => break self.closed = true,
                Ok(length) if self.rings.is_none() => self.received.extend_from_slice(&bytes[..length]),
                // A doorbell.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break self.closed = true,
                Err(error) => return Err(error),
            }
        }
        // What was written before the other end closed.
        if self.closed
            && let Some(rings) = &mut self.rings
        {
            rings.read(&mut self.received)?;
        }
        Ok(())
    }

    /// The next message, if it is whole.
    pub(super) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let bytes = &self.received[self.start..];
        let Some(length) = bytes.first_chunk::<LENGTH>() else { return Ok(None) };
        if *length == END {
            return Ok(None);
        }
        let length = u32::from_le_bytes(*length) as usize;
        if length > MOST {
            return Err(ErrorKind::InvalidData.into());
        }
        let Some(body) = bytes.get(LENGTH..LENGTH + length) else { return Ok(None) };
        let message = postcard::from_bytes(body).map_err(io::Error::other)?;
        self.start += LENGTH + length;
        if self.start == self.received.len() {
            self.received.clear();
            self.start = 0;
        } else if self.start > MOST {
            self.received.drain(..self.start);
            self.start = 0;
        }
        Ok(Some(message))
    }

    /// Whether the other end has closed and all it said was received.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Says that this end may sleep. `false` if something has come meanwhile.
    pub(super) fn doze(&self) -> bool {
        let Some(rings) = &self.rings else { return true };
        rings.set_asleep(true);
        if rings.is_readable() {
            rings.set_asleep(false);
            return false;
        }
        true
    }

    /// Says that this end looks by itself.
    pub(super) fn rouse(&self) {
        if let Some(rings) = &self.rings {
            rings.set_asleep(false);
        }
    }

    /// Says nothing more. What was sent still arrives.
    pub(super) fn close(&mut self) {
        self.closed = true;
        // It may be closed already.
        let _closed = self.stream.shutdown(Shutdown::Write);
    }

    /// As [`Channel::close`], after this rank has said that it leaves. Without [`END`] it would look lost, which is so if
    /// what it said found no room.
    pub(super) fn close_in_order(&mut self) {
        if self.unsent.is_empty() && !self.closed {
            // It may be closed by the other end, or have no room; then it is not read.
            let _sent = (&self.stream).write(&END);
        }
        self.close();
    }

    pub(super) fn try_clone_stream(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Whether a stream that has closed ends with [`END`]. `None` if its last bytes were read already, also if the other end
/// has reset the stream since: unread bytes are still there after a reset.
pub(super) fn ended_in_order(stream: &TcpStream) -> Option<bool> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let got = match rustix::net::recv(stream, bytes.as_mut_slice(), RecvFlags::PEEK | RecvFlags::DONTWAIT)
        {
            Ok((0, _)) => return None,
            Ok((got, _)) => got,
            Err(Errno::INTR) => continue,
            Err(_all_was_read) => return None,
        };
        if got < bytes.len() {
            return Some(bytes[..got].ends_with(&END));
        }
        bytes.resize(2 * got, 0);
    }
}

/// A host that vanishes closes nothing: the kernel asks for it, and closes the stream when it does not answer.
fn notice_dead_hosts(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(4))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(2))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

fn ring_bell(mut stream: &TcpStream) -> io::Result<()> {
    match stream.write(&[0]) {
        Ok(_) => Ok(()),
        // So many bells are enough.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (here, listener.accept().unwrap().0)
    }

    #[test]
    fn what_a_stream_ends_with_is_seen_until_it_was_read() {
        for in_order in [true, false] {
            let (here, there) = pair();
            let mut there = Channel::new(there, None).unwrap();
            there.send(&7_u32).unwrap();
            if in_order {
                there.close_in_order()
            } else {
                there.close()
            }
            // The stream has ended when all of it can be seen.
            let mut all = vec![0; 64];
            let length = LENGTH + 1 + if in_order { LENGTH } else { 0 };
            while rustix::net::recv(&here, all.as_mut_slice(), RecvFlags::PEEK).unwrap().0 < length {}
            assert_eq!(ended_in_order(&here), Some(in_order));
            assert_eq!((&here).read_to_end(&mut all).unwrap(), length);
            assert_eq!(ended_in_order(&here), None);
        }
    }

    #[test]
    fn a_stream_that_was_read_and_then_reset_says_nothing() {
        let (here, there) = pair();
        sockopt::set_socket_linger(&there, Some(Duration::ZERO)).unwrap();
        drop(there);
        let mut nothing = [0; 1];
        assert_eq!((&here).read(&mut nothing).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(ended_in_order(&here), None);
    }
}
