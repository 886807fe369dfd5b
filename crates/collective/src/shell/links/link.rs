//! One connection to another rank.

use super::frame::{self, Frame, HEAD, Malformed};
use super::socket::Socket;
use rustix::event::PollFlags;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use std::io::{self, ErrorKind, IoSlice, Read};

/// Bytes read at once when the length is unknown.
const BUFFER: usize = 4096;

/// The most bytes that are searched for a lost peer's last message.
const LAST_WORD: usize = 64 << 20;

/// The kernel's send buffer for connections within one host. Two runs of 64 MiB with 2 ranks on a busy machine took a
/// quarter less CPU time than with the kernel's default. Between hosts the kernel chooses.
const SEND_BUFFER: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: Socket,
    /// Heads and calls that go out before further data.
    pub(super) notes: Vec<u8>,
    /// Bytes of the outgoing data frame that are still to be sent.
    pub(super) data_out: usize,
    /// Whether the call of this collective was sent.
    pub(super) called: bool,
    /// Whether the peer's call of this collective was received.
    pub(super) heard: bool,
    /// Since which call the peer has joined, and the last rank to join among those it speaks for.
    pub(super) joined: Option<(u64, u64)>,
    /// Bytes of the incoming data frame that are still to be read.
    pub(super) data_in: usize,
    /// Whether the peer sends nothing more and everything it sent was taken.
    pub(super) closed: bool,
    /// Whether the peer sends nothing more and its last message was searched for.
    pub(super) ended: bool,
    buffer: Box<[u8; BUFFER]>,
    start: usize,
    end: usize,
}

impl Link {
    pub(super) fn new(stream: Socket) -> io::Result<Self> {
        stream.set_nodelay()?;
        stream.set_nonblocking(true)?;
        if stream.is_local()? {
            set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
        }
        Ok(Self {
            stream,
            notes: Vec::new(),
            data_out: 0,
            called: false,
            heard: false,
            joined: None,
            data_in: 0,
            closed: false,
            ended: false,
            buffer: Box::new([0; BUFFER]),
            start: 0,
            end: 0,
        })
    }

    /// Sends what it can of the notes and of the outgoing data frame. Returns the bytes of data, or `None` if nothing
    /// can be sent now.
    pub(super) fn send(&mut self, data: &[u8]) -> io::Result<Option<usize>> {
        let parts = [IoSlice::new(&self.notes), IoSlice::new(data)];
        let mut nothing = SendAncillaryBuffer::default();
        let Some(sent) = now(sendmsg(&self.stream, &parts, &mut nothing, SendFlags::NOSIGNAL))? else {
            return Ok(None);
        };
        let notes = sent.min(self.notes.len());
        self.notes.drain(..notes);
        self.data_out -= sent - notes;
        Ok(Some(sent - notes))
    }

    /// Starts a data frame.
    pub(super) fn start_data(&mut self, length: usize) {
        self.notes.extend(frame::data_head(length));
        self.data_out = length;
    }

    /// The next frame, if enough of it has arrived. Must not be called within a data frame.
    pub(super) fn next(&self) -> Result<Option<Frame<'_>>, Malformed> {
        frame::parse(&self.buffer[self.start..self.end])
    }

    /// Skips the frame that [`Link::next`] returned; `note` is the length of its body unless it is data.
    pub(super) fn skip(&mut self, note: usize) {
        self.start += HEAD + note;
    }

    /// Reads more frames. Returns the number of bytes, 0 at the end, or `None` if nothing is there now.
    pub(super) fn fill(&mut self) -> io::Result<Option<usize>> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let got = now((&self.stream).read(&mut self.buffer[self.end..]))?;
        self.end += got.unwrap_or(0);
        // Frames before an abort are not needed any more.
        if let Some((place, _)) = abort_among(&self.buffer[self.start..self.end], self.data_in) {
            self.start += place;
        }
        Ok(got)
    }

    /// Reads data of the incoming frame. Returns the number of bytes, 0 at the end, or `None` if nothing is there now.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let most = into.len().min(self.data_in);
        let into = &mut into[..most];
        let ready = (self.end - self.start).min(most);
        let got = if ready > 0 {
            into[..ready].copy_from_slice(&self.buffer[self.start..self.start + ready]);
            self.start += ready;
            Some(ready)
        } else {
            now((&self.stream).read(into))?
        };
        self.data_in -= got.unwrap_or(0);
        Ok(got)
    }

    /// The reason in the abort of a peer that sends nothing more, if there is one. Leaves what it sent unread.
    pub(super) fn peek_last_word(&self) -> Option<String> {
        let mut bytes = self.buffer[self.start..self.end].to_vec();
        peek(&self.stream, &mut bytes)?;
        abort_among(&bytes, self.data_in).map(|(_, reason)| reason)
    }

    /// Searches once for an abort behind frames that came early, when the state of the stream shows that the peer sends
    /// nothing more: a rank that aborts closes its side of the stream.
    pub(super) fn hear_end(&mut self, ready: PollFlags) -> Option<String> {
        if self.ended || !ready.intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return None;
        }
        self.ended = true;
        self.peek_last_word()
    }

    /// The reason in the abort that a lost peer sent before it was lost.
    pub(super) fn last_word(&mut self) -> Option<String> {
        let mut passed = 0;
        let mut rest = vec![0; 64 << 10];
        while passed < LAST_WORD {
            if self.data_in > 0 {
                passed += self.read(&mut rest).ok()?.filter(|got| *got > 0)?;
                continue;
            }
            match self.next().ok()? {
                Some(Frame::Abort(reason)) => return Some(String::from_utf8_lossy(reason).into_owned()),
                Some(Frame::Call(body)) => {
                    let note = body.len();
                    self.skip(note);
                }
                Some(Frame::Data(length)) => {
                    self.skip(0);
                    self.data_in = length;
                }
                None => passed += self.fill().ok()?.filter(|got| *got > 0)?,
            }
        }
        None
    }
}

/// The position and reason of an abort among frames; the first frame begins after `data` bytes.
fn abort_among(bytes: &[u8], data: usize) -> Option<(usize, String)> {
    let mut place = data;
    loop {
        let length = match frame::parse(bytes.get(place..)?).ok()?? {
            Frame::Abort(reason) => return Some((place, String::from_utf8_lossy(reason).into_owned())),
            Frame::Call(body) => body.len(),
            Frame::Data(length) => length,
        };
        place = place.checked_add(HEAD + length)?;
    }
}

/// Appends bytes that have arrived, without consuming them. Appends nothing if they are too many.
fn peek(stream: &Socket, bytes: &mut Vec<u8>) -> Option<()> {
    let waiting = rustix::io::ioctl_fionread(stream).ok()?;
    let waiting = usize::try_from(waiting).ok().filter(|waiting| *waiting < LAST_WORD)?;
    let here = bytes.len();
    bytes.resize(here + waiting, 0);
    if waiting > 0 {
        let (got, _) = recv(stream, &mut bytes[here..], RecvFlags::PEEK).ok()?;
        bytes.truncate(here + got);
    }
    Some(())
}

/// `None` if it would block.
fn now<E: Into<io::Error>>(result: Result<usize, E>) -> io::Result<Option<usize>> {
    match result.map_err(Into::into) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// Frames that come early, followed by an abort.
    fn frames() -> Vec<u8> {
        [frame::data_head(3).as_slice(), &[3, 0, 0], &frame::abort("enough")].concat()
    }

    #[test]
    fn an_abort_is_found_behind_other_frames() {
        let bytes = frames();
        assert_eq!(abort_among(&bytes, 0), Some((HEAD + 3, "enough".to_owned())));
        assert_eq!(abort_among(&bytes[HEAD..], 3), Some((3, "enough".to_owned())));
        assert_eq!(abort_among(&bytes[..bytes.len() - 1], 0), None);
    }

    #[test]
    fn an_abort_is_heard_before_what_came_early() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut link = Link::new(here.into()).unwrap();
        there.write_all(&frames()).unwrap();
        assert_eq!(link.peek_last_word(), Some("enough".to_owned()));
        assert!(link.fill().unwrap().is_some());
        assert_eq!(link.next(), Ok(Some(Frame::Abort(b"enough"))));
    }
}
