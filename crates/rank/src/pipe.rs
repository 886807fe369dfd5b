//! A connection to a neighbouring stage: frames in both directions, while the model computes.
//!
//! ```text
//!   compute ── send ──► socket, as much as it takes at once ──────────────────────► recv ──► compute
//!                  └──► writer thread: the rest, while the model goes on   └ large frames: a reader thread
//! ```
//! Sending does not wait for the network, so two stages cannot block each other. A stage that is far ahead waits for
//! room in its queue. Waking a thread takes longer than computing a small stage, so small frames are read by the thread
//! that needs them.

use super::connector::broken;
use super::frame::{Frame, Head};
use crate::error::RankError;
use phalanx_collective::Socket;
use rustix::net::{SendFlags, send};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Frames up to this size are read without a thread; until then they wait in the socket's buffer.
const SMALL: usize = 64 << 10;

/// The connection to one neighbour.
#[derive(Debug)]
pub(super) struct Pipe {
    socket: Socket,
    incoming: Incoming,
    outgoing: Option<SyncSender<(Vec<u8>, usize)>>,
    /// How many frames the writer has not written yet.
    unwritten: Arc<AtomicUsize>,
    written: Receiver<Vec<u8>>,
    own: Vec<Vec<u8>>,
    writer: Option<JoinHandle<()>>,
    /// Bytes that were sent.
    pub(super) sent: u64,
    /// Time spent waiting for frames.
    pub(super) waited: Duration,
}

/// Where frames come from.
#[derive(Debug)]
enum Incoming {
    /// Read from the socket when needed.
    Here { most: usize, spare: Vec<Vec<u8>> },
    /// Read ahead by a thread.
    Ahead { frames: Option<Receiver<Frame>>, spare: Sender<Vec<u8>>, thread: Option<JoinHandle<()>> },
}

fn failed(error: std::io::Error) -> RankError {
    broken(format!("could not begin a pipe: {error}"))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, RankError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
}

impl Pipe {
    /// Up to `queue` frames of at most `most` bytes wait in each direction.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn new(socket: Socket, queue: usize, most: usize) -> Result<Self, RankError> {
        socket.set_nodelay().map_err(failed)?;
        let incoming = if most <= SMALL {
            Incoming::Here { most, spare: Vec::new() }
        } else {
            let (frames_in, frames) = sync_channel(queue);
            let (spare, empty) = channel();
            let reading = socket.try_clone().map_err(failed)?;
            let thread = spawn("pipe-in", move || read_ahead(&reading, &frames_in, &empty, most))?;
            Incoming::Ahead { frames: Some(frames), spare, thread: Some(thread) }
        };
        let (outgoing, to_write) = sync_channel(queue);
        let (back, written) = channel();
        let writing = socket.try_clone().map_err(failed)?;
        let unwritten = Arc::new(AtomicUsize::new(0));
        let count = unwritten.clone();
        let writer = spawn("pipe-out", move || write(&writing, &to_write, &back, &count))?;
        Ok(Self {
            socket,
            incoming,
            outgoing: Some(outgoing),
            unwritten,
            written,
            own: Vec::new(),
            writer: Some(writer),
            sent: 0,
            waited: Duration::ZERO,
        })
    }

    /// Sends a frame, whose values `fill` appends.
    ///
    /// # Errors
    /// The other stage is gone.
    pub(super) fn send(&mut self, head: Head, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), RankError> {
        let mut bytes = self.own.pop().or_else(|| self.written.try_recv().ok()).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&head.to_bytes());
        fill(&mut bytes);
        let values = (bytes.len() - Head::LEN) as u64;
        bytes[..Head::LEN].copy_from_slice(&Head { bytes: values, ..head }.to_bytes());
        self.sent += bytes.len() as u64;
        let mut taken = 0;
        // While the writer has frames, this one must queue behind them.
        if self.unwritten.load(Ordering::Acquire) == 0 {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            while taken < bytes.len() {
                match send(&self.socket, &bytes[taken..], flags) {
                    Ok(0) => break,
                    Ok(count) => taken += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(rustix::io::Errno::AGAIN) => break,
                    Err(error) => return Err(gone(&error)),
                }
            }
        }
        if taken == bytes.len() {
            self.own.push(bytes);
            return Ok(());
        }
        self.unwritten.fetch_add(1, Ordering::AcqRel);
        let sent = self.outgoing.as_ref().map(|outgoing| outgoing.send((bytes, taken)));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(gone(&"its pipe is closed")),
        }
    }

    /// Waits for the next frame of the other stage.
    ///
    /// # Errors
    /// The other stage is gone.
    pub(super) fn recv(&mut self) -> Result<Frame, RankError> {
        let began = Instant::now();
        let frame = match &mut self.incoming {
            Incoming::Here { most, spare } => {
                let spare = spare.pop().unwrap_or_default();
                read(&self.socket, spare, *most).map_err(|error| gone(&error))
            }
            Incoming::Ahead { frames, .. } => {
                let frame = frames.as_ref().and_then(|frames| frames.recv().ok());
                frame.ok_or_else(|| gone(&"its pipe is closed"))
            }
        };
        self.waited += began.elapsed();
        frame
    }

    /// Takes a frame back, to use its memory again.
    pub(super) fn recycle(&mut self, frame: Frame) {
        match &mut self.incoming {
            Incoming::Here { spare, .. } => spare.push(frame.values),
            // The reader may have ended.
            Incoming::Ahead { spare, .. } => drop(spare.send(frame.values)),
        }
    }

    /// Another handle of the connection, with which it can be closed from another thread.
    ///
    /// # Errors
    /// The process has too many files open.
    pub(super) fn socket(&self) -> Result<Socket, RankError> {
        self.socket.try_clone().map_err(|error| broken(format!("could not keep a pipe: {error}")))
    }
}

fn gone(error: &dyn std::fmt::Display) -> RankError {
    broken(format!("a neighbouring stage is gone: {error}"))
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The writer first writes what is queued.
        self.outgoing = None;
        if let Some(writer) = self.writer.take() {
            drop(writer.join());
        }
        // A socket that is closed already returns an error.
        let _ended = self.socket.shutdown(Shutdown::Both);
        if let Incoming::Ahead { frames, thread, .. } = &mut self.incoming {
            *frames = None;
            if let Some(thread) = thread.take() {
                drop(thread.join());
            }
        }
    }
}

/// Reads one frame, whose values go into `values`.
fn read(mut socket: &Socket, mut values: Vec<u8>, most: usize) -> std::io::Result<Frame> {
    let mut head = [0; Head::LEN];
    socket.read_exact(&mut head)?;
    let wrong = |what: String| std::io::Error::new(std::io::ErrorKind::InvalidData, what);
    let head = Head::from_bytes(&head).ok_or_else(|| wrong("a frame of no known kind".to_owned()))?;
    let len = usize::try_from(head.bytes).ok().filter(|len| *len <= most);
    let len = len.ok_or_else(|| wrong(format!("a frame of {} bytes, of {most} at most", head.bytes)))?;
    values.resize(len, 0);
    socket.read_exact(&mut values)?;
    Ok(Frame { head, values })
}

fn read_ahead(socket: &Socket, frames: &SyncSender<Frame>, empty: &Receiver<Vec<u8>>, most: usize) {
    loop {
        match read(socket, empty.try_recv().unwrap_or_default(), most) {
            Ok(frame) => {
                if frames.send(frame).is_err() {
                    return;
                }
            }
            Err(error) => return tracing::debug!(%error, "a pipe has ended"),
        }
    }
}

fn write(
    mut socket: &Socket,
    frames: &Receiver<(Vec<u8>, usize)>,
    back: &Sender<Vec<u8>>,
    unwritten: &AtomicUsize,
) {
    for (bytes, taken) in frames {
        if socket.write_all(&bytes[taken..]).is_err() {
            return;
        }
        unwritten.fetch_sub(1, Ordering::AcqRel);
        // A pipe that is being dropped does not take buffers back.
        drop(back.send(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Carries;
    use std::os::unix::net::UnixStream;

    fn head(part: u32) -> Head {
        Head { carries: Carries::Activations, part, len: 4, step: 1, seen: 0, bytes: 0 }
    }

    #[test]
    fn frames_arrive_in_order_and_closing_wakes_the_receiver() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Pipe::new(a.into(), 4, 1024).unwrap(), Pipe::new(b.into(), 4, 1024).unwrap());
        for part in 0..3 {
            a.send(head(part), |bytes| bytes.extend_from_slice(&[part as u8; 100])).unwrap();
        }
        for part in 0..3u32 {
            let frame = b.recv().unwrap();
            assert_eq!((frame.head.part, frame.head.bytes), (part, 100));
            assert_eq!(frame.values, [part as u8; 100]);
            b.recycle(frame);
        }
        let ender = b.socket().unwrap();
        let waiting = std::thread::spawn(move || b.recv().is_err());
        ender.shutdown(Shutdown::Both).unwrap();
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn more_than_a_socket_buffers_arrives_in_order_although_both_send_first() {
        let (a, b) = UnixStream::pair().unwrap();
        let most = 1 << 20;
        let (mut a, mut b) = (Pipe::new(a.into(), 8, most).unwrap(), Pipe::new(b.into(), 8, most).unwrap());
        for part in 0..6 {
            a.send(head(part), |bytes| bytes.resize(bytes.len() + most, part as u8)).unwrap();
            b.send(head(part), |bytes| bytes.resize(bytes.len() + most, part as u8)).unwrap();
        }
        for part in 0..6u32 {
            for pipe in [&mut a, &mut b] {
                let frame = pipe.recv().unwrap();
                assert_eq!(frame.head.part, part);
                assert!(frame.values.len() == most && frame.values.iter().all(|byte| *byte == part as u8));
                pipe.recycle(frame);
            }
        }
    }

    #[test]
    fn a_frame_that_is_too_large_ends_the_pipe() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Pipe::new(a.into(), 4, 1024).unwrap(), Pipe::new(b.into(), 4, 64).unwrap());
        a.send(head(0), |bytes| bytes.extend_from_slice(&[0; 65])).unwrap();
        assert!(b.recv().is_err());
    }
}
