//! The side of a process that wants to become a rank.

use super::arrivals::Arrivals;
use super::auth;
use super::environment::{Meeting, RendezvousError};
use super::frame::{read_message, write_message};
use super::mesh::Mesh;
use crate::core::gathering::{FromGuest, JoinRequest, Member, Refusal, ToGuest};
use phalanx_collective::HostId;
use std::io;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Before a connection is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// A group of which this process is a rank, before ranks are connected.
#[derive(Debug)]
pub(crate) struct Formed {
    pub(crate) epoch: u64,
    pub(crate) rank: u32,
    pub(crate) members: Vec<Member>,
    pub(crate) mesh: Mesh,
    stream: Option<TcpStream>,
    /// Processes came while the group was being connected.
    newcomers: bool,
}

impl Formed {
    /// A group of this process alone.
    pub(crate) fn alone() -> Result<Self, RendezvousError> {
        let host = HostId::here().unwrap_or(HostId::from_bytes([0; 16]));
        let members = vec![Member { worker: 0, host, address: String::new() }];
        Ok(Self { epoch: 1, rank: 0, members, mesh: Mesh::alone(), stream: None, newcomers: false })
    }

    /// Gives bytes to all ranks and gets those of all ranks, in their order.
    pub(crate) fn exchange(&mut self, blob: Vec<u8>) -> Result<Vec<Vec<u8>>, RendezvousError> {
        let Some(stream) = &self.stream else { return Ok(vec![blob]) };
        let broken = |source| RendezvousError::Connection { source };
        write_message(stream, &FromGuest::Exchange { blob }).map_err(broken)?;
        loop {
            return match read_message(stream).map_err(broken)? {
                ToGuest::Exchanged { blobs } if blobs.len() == self.members.len() => Ok(blobs),
                ToGuest::Refused { refusal } => Err(RendezvousError::Refused { refusal }),
                ToGuest::Newcomers => {
                    self.newcomers = true;
                    continue;
                }
                _ => Err(broken(unexpected())),
            };
        }
    }

    /// Where rank 0 hears of newcomers. The other ranks need the server no more.
    pub(crate) fn arrivals(&mut self) -> Option<Arrivals> {
        let stream = self.stream.take().filter(|_| self.rank == 0)?;
        Some(Arrivals::new(stream, self.newcomers))
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "another message was expected")
}

/// Waits until all processes have come. A connection that breaks before is tried again, until the deadline: the server
/// may not have started yet, or may still be that of a group that is over.
pub(crate) fn meet(meeting: &Meeting, last_epoch: u64, timeout: Duration) -> Result<Formed, RendezvousError> {
    let Meeting::At { address, worker, secret, .. } = meeting else { return Formed::alone() };
    let deadline = Instant::now() + timeout;
    loop {
        let error = match attempt(address, *worker, secret, last_epoch, deadline) {
            Ok(formed) => return Ok(formed),
            Err(error) => error,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let again = match &error {
            RendezvousError::Connection { source } => source.kind() != io::ErrorKind::PermissionDenied,
            // The process that had the number before may not be known to be dead yet.
            RendezvousError::Refused { refusal } => *refusal != Refusal::NoSuchRank,
            _ => false,
        };
        if !again {
            return Err(error);
        }
        if left.is_zero() {
            return Err(RendezvousError::Timeout { address: address.clone(), waited: timeout });
        }
        std::thread::park_timeout(PAUSE.min(left));
    }
}

fn attempt(
    address: &str,
    worker: u32,
    secret: &auth::Secret,
    last_epoch: u64,
    deadline: Instant,
) -> Result<Formed, RendezvousError> {
    let broken = |source| RendezvousError::Connection { source };
    let stream = connect(address, deadline).map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left)).map_err(broken)?;
    auth::connect(&stream, secret).map_err(broken)?;
    // Other ranks reach this one by the interface that reaches the server.
    let local = stream.local_addr().map_err(broken)?.ip();
    let listener = TcpListener::bind((local, 0)).map_err(broken)?;
    let address = listener.local_addr().map_err(broken)?.to_string();
    let host = HostId::here().unwrap_or_else(|_| HostId::from_bytes(unique(worker)));
    let join = JoinRequest { worker, last_epoch, host, address };
    write_message(&stream, &FromGuest::Join(join)).map_err(broken)?;
    let mut told = read_message(&stream).map_err(broken)?;
    if told == ToGuest::Queued {
        // The group may go on for hours before its ranks meet again. The connection ends with the launcher.
        stream.set_read_timeout(None).map_err(broken)?;
        told = read_message(&stream).map_err(broken)?;
        stream.set_read_timeout(Some(left)).map_err(broken)?;
    }
    match told {
        ToGuest::Formed { epoch, rank, members } if (rank as usize) < members.len() => {
            let addresses = members.iter().map(|member| member.address.clone()).collect();
            let mesh = Mesh::new(listener, addresses, rank, epoch, secret.clone());
            Ok(Formed { epoch, rank, members, mesh, stream: Some(stream), newcomers: false })
        }
        ToGuest::Refused { refusal } => Err(RendezvousError::Refused { refusal }),
        _ => Err(broken(unexpected())),
    }
}

/// A host that no other rank is on.
fn unique(worker: u32) -> [u8; 16] {
    let mut bytes = [0xff; 16];
    bytes[..4].copy_from_slice(&worker.to_le_bytes());
    bytes
}

fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
