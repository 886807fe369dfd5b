//! Streams between ranks.

use super::auth::{self, Secret};
use super::frame::{read_message, write_message};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long all ranks may take to connect.
const CONNECT: Duration = Duration::from_secs(60);
/// How long one connection may take to prove itself.
const PROOF: Duration = Duration::from_secs(10);

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Lane(pub(crate) u32);

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Greeting {
    epoch: u64,
    lane: Lane,
    from: u32,
}

/// Connects this rank to others: a rank connects to lower ranks and accepts higher ones.
#[derive(Debug)]
pub(crate) struct Mesh {
    listener: Option<TcpListener>,
    addresses: Vec<String>,
    rank: u32,
    epoch: u64,
    secret: Secret,
    /// Streams that came before they were asked for.
    early: BTreeMap<(Lane, u32), TcpStream>,
}

impl Mesh {
    pub(super) fn new(
        listener: TcpListener,
        addresses: Vec<String>,
        rank: u32,
        epoch: u64,
        secret: Secret,
    ) -> Self {
        Self { listener: Some(listener), addresses, rank, epoch, secret, early: BTreeMap::new() }
    }

    pub(super) fn alone() -> Self {
        let (addresses, secret) = (Vec::new(), Secret::default());
        Self { listener: None, addresses, rank: 0, epoch: 1, secret, early: BTreeMap::new() }
    }

    /// A stream to each of these ranks, which ask for one to this rank at the same time.
    pub(crate) fn streams(&mut self, lane: Lane, others: &[u32]) -> io::Result<BTreeMap<u32, TcpStream>> {
        let mut streams = BTreeMap::new();
        for other in others.iter().filter(|other| **other < self.rank) {
            streams.insert(*other, self.connect(lane, *other)?);
        }
        let deadline = Instant::now() + CONNECT;
        let own = self.rank;
        for other in others.iter().filter(|other| **other > own) {
            while !self.early.contains_key(&(lane, *other)) {
                self.accept(deadline)?;
            }
            if let Some(stream) = self.early.remove(&(lane, *other)) {
                streams.insert(*other, stream);
            }
        }
        Ok(streams)
    }

    fn connect(&self, lane: Lane, to: u32) -> io::Result<TcpStream> {
        let address = self.addresses.get(to as usize).ok_or(io::ErrorKind::NotFound)?;
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CONNECT))?;
        auth::connect(&stream, &self.secret)?;
        write_message(&stream, &Greeting { epoch: self.epoch, lane, from: self.rank })?;
        stream.set_read_timeout(None)?;
        Ok(stream)
    }

    fn accept(&mut self, deadline: Instant) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Err(io::ErrorKind::NotConnected.into()) };
        wait_readable(listener, deadline)?;
        let (stream, _) = listener.accept()?;
        match self.greet(&stream) {
            Ok(greeting) if greeting.epoch == self.epoch => {
                self.early.insert((greeting.lane, greeting.from), stream);
            }
            Ok(greeting) => {
                tracing::debug!(greeting.epoch, greeting.from, "a rank of another epoch connected");
            }
            Err(error) => tracing::debug!(%error, "a connection proved nothing"),
        }
        Ok(())
    }

    fn greet(&self, stream: &TcpStream) -> io::Result<Greeting> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PROOF))?;
        auth::accept(stream, &self.secret)?;
        let greeting = read_message(stream)?;
        stream.set_read_timeout(None)?;
        Ok(greeting)
    }
}

fn wait_readable(listener: &TcpListener, deadline: Instant) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
