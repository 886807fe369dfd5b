//! One connection to another rank.

use super::frame::{self, Frame, HEAD, Malformed};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::TcpStream;

/// What is read at once when nobody knows how much comes.
const BUFFER: usize = 4096;

/// The most bytes that are looked through for a lost peer's last word.
const LAST_WORD: usize = 64 << 20;

/// What the kernel may hold of what is sent within one host. Two runs of 64 MiB with 2 ranks on a busy machine took a
/// quarter less CPU time than with the kernel's own choice. Between hosts the kernel chooses.
const SEND_BUFFER: usize = 256 << 10;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    /// Heads and calls that go out before any more data.
    pub(super) notes: Vec<u8>,
    /// Bytes of the data frame going out that are still to be sent.
    pub(super) data_out: usize,
    /// Whether the call of this collective was sent.
    pub(super) called: bool,
    /// Whether the peer's call of this collective was received.
    pub(super) heard: bool,
    /// Bytes of the data frame coming in that are still to be read.
    pub(super) data_in: usize,
    /// Whether the peer sends nothing more.
    pub(super) closed: bool,
    buffer: Box<[u8; BUFFER]>,
    start: usize,
    end: usize,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        if stream.peer_addr()?.ip() == stream.local_addr()?.ip() {
            set_socket_send_buffer_size(&stream, SEND_BUFFER)?;
        }
        Ok(Self {
            stream,
            notes: Vec::new(),
            data_out: 0,
            called: false,
            heard: false,
            data_in: 0,
            closed: false,
            buffer: Box::new([0; BUFFER]),
            start: 0,
            end: 0,
        })
    }

    /// Sends what it can of the notes and of the data frame's rest. Gives the bytes of data, or `None` if nothing
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

    /// The next frame, if enough of it has arrived. Not to be asked within a data frame.
    pub(super) fn next(&self) -> Result<Option<Frame<'_>>, Malformed> {
        frame::parse(&self.buffer[self.start..self.end])
    }

    /// Goes past the frame that [`Link::next`] gave; `note` is the length of its body unless it is data.
    pub(super) fn skip(&mut self, note: usize) {
        self.start += HEAD + note;
    }

    /// Reads more frames. Gives the number of bytes, 0 at the end, or `None` if nothing is there now.
    pub(super) fn fill(&mut self) -> io::Result<Option<usize>> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let got = now((&self.stream).read(&mut self.buffer[self.end..]))?;
        self.end += got.unwrap_or(0);
        Ok(got)
    }

    /// Reads data of the frame coming in. Gives the number of bytes, 0 at the end, or `None` if nothing is there now.
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

    /// Why a peer says that the group is over, in what it sent before it was lost.
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

/// `None` if it would block.
fn now<E: Into<io::Error>>(result: Result<usize, E>) -> io::Result<Option<usize>> {
    match result.map_err(Into::into) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
