//! The way to a neighbouring stage: frames both ways, while the model computes.
//!
//! ```text
//!   compute ── send ──► writer thread ──► socket ──► reader thread of the other ── recv ──► compute
//! ```
//! Both queues are bounded: a stage that is far ahead waits. Reading never waits for computing, as long as the order of
//! moves is kept, so two stages cannot block each other.

use super::super::lanes::broken;
use super::frame::{Frame, Head};
use crate::error::TrainError;
use phalanx_collective::Socket;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The way to one neighbour.
#[derive(Debug)]
pub(super) struct Pipe {
    socket: Socket,
    incoming: Option<Receiver<Frame>>,
    spare: Sender<Vec<u8>>,
    outgoing: Option<SyncSender<Vec<u8>>>,
    written: Receiver<Vec<u8>>,
    threads: Vec<JoinHandle<()>>,
    /// Bytes that were sent.
    pub(super) sent: u64,
    /// How long frames were waited for.
    pub(super) waited: Duration,
}

impl Pipe {
    /// `queue` frames may wait in each direction, of at most `most` bytes each.
    ///
    /// # Errors
    /// There are no threads to be had.
    pub(super) fn new(socket: Socket, queue: usize, most: usize) -> Result<Self, TrainError> {
        let failed = |error: std::io::Error| broken(format!("could not begin a pipe: {error}"));
        socket.set_nodelay().map_err(failed)?;
        let (frames, incoming) = sync_channel(queue);
        let (spare, empty) = channel();
        let (outgoing, to_write) = sync_channel::<Vec<u8>>(queue);
        let (back, written) = channel();
        let (reading, writing) = (socket.try_clone().map_err(failed)?, socket.try_clone().map_err(failed)?);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(failed)
        };
        let reader = spawn("pipe-in", Box::new(move || read(&reading, &frames, &empty, most)))?;
        let writer = spawn("pipe-out", Box::new(move || write(&writing, &to_write, &back)))?;
        Ok(Self {
            socket,
            incoming: Some(incoming),
            spare,
            outgoing: Some(outgoing),
            written,
            threads: vec![reader, writer],
            sent: 0,
            waited: Duration::ZERO,
        })
    }

    /// Sends a frame, whose values `fill` appends.
    ///
    /// # Errors
    /// The other stage is gone.
    pub(super) fn send(&mut self, head: Head, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), TrainError> {
        let mut bytes = self.written.try_recv().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&head.to_bytes());
        fill(&mut bytes);
        let values = (bytes.len() - Head::LEN) as u64;
        bytes[..Head::LEN].copy_from_slice(&Head { bytes: values, ..head }.to_bytes());
        self.sent += bytes.len() as u64;
        let sent = self.outgoing.as_ref().map(|outgoing| outgoing.send(bytes));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(broken("a neighbouring stage is gone".to_owned())),
        }
    }

    /// The next frame of the other stage.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn recv(&mut self) -> Result<Frame, TrainError> {
        let began = Instant::now();
        let frame = self.incoming.as_ref().and_then(|incoming| incoming.recv().ok());
        self.waited += began.elapsed();
        frame.ok_or_else(|| broken("a neighbouring stage is gone".to_owned()))
    }

    /// Gives the memory of a frame back.
    pub(super) fn recycle(&mut self, frame: Frame) {
        // At the end there is nobody to use it any more.
        drop(self.spare.send(frame.values));
    }

    /// Another handle of the connection, for whoever ends it.
    ///
    /// # Errors
    /// The process has too many files open.
    pub(super) fn socket(&self) -> Result<Socket, TrainError> {
        self.socket.try_clone().map_err(|error| broken(format!("could not keep a pipe: {error}")))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // What was sent before is still written.
        self.outgoing = None;
        if let Some(writer) = self.threads.pop() {
            drop(writer.join());
        }
        // A connection that has ended already cannot be ended again.
        let _ended = self.socket.shutdown(Shutdown::Both);
        self.incoming = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn read(mut socket: &Socket, frames: &SyncSender<Frame>, empty: &Receiver<Vec<u8>>, most: usize) {
    let mut head = [0; Head::LEN];
    while socket.read_exact(&mut head).is_ok() {
        let Some(head) = Head::from_bytes(&head) else { return };
        let Some(len) = usize::try_from(head.bytes).ok().filter(|len| *len <= most) else {
            tracing::debug!(bytes = head.bytes, most, "a frame that is too large");
            return;
        };
        let mut values = empty.try_recv().unwrap_or_default();
        values.resize(len, 0);
        if socket.read_exact(&mut values).is_err() || frames.send(Frame { head, values }).is_err() {
            return;
        }
    }
}

fn write(mut socket: &Socket, frames: &Receiver<Vec<u8>>, back: &Sender<Vec<u8>>) {
    for bytes in frames {
        if socket.write_all(&bytes).is_err() {
            return;
        }
        // A pipe that is being dropped needs none.
        drop(back.send(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::Carries;
    use super::*;
    use std::os::unix::net::UnixStream;

    fn head(part: u32) -> Head {
        Head { carries: Carries::Activations, part, len: 4, step: 1, seen: 0, bytes: 0 }
    }

    #[test]
    fn frames_arrive_in_order_and_an_end_wakes_who_waits() {
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
    fn a_frame_that_is_too_large_ends_the_pipe() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Pipe::new(a.into(), 4, 1024).unwrap(), Pipe::new(b.into(), 4, 64).unwrap());
        a.send(head(0), |bytes| bytes.extend_from_slice(&[0; 65])).unwrap();
        assert!(b.recv().is_err());
    }
}
