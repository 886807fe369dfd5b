//! From a meeting to an engine: groups, messages and memory of one rank.

use super::api::OpsOptions;
use super::channel::Channel;
use super::engine::{Engine, LeaderSide};
use super::execute::{Aborters, Executor, FIRST_GROUP_LANE, SetGroup, join_group};
use super::numeric::Scratch;
use super::ring::{RingAddress, RingEnd};
use super::tuning_log::TuningLog;
use crate::core::leader::{Leader, LeaderLimits};
use crate::core::signature::SetId;
use crate::core::tuner::BucketTuner;
use crate::error::OpsError;
use crate::rendezvous::{Arrivals, Formed, Lane, Meeting, RendezvousError, RendezvousServer, meet};
use phalanx_collective::{Group, GroupEnd, GroupOptions, HostId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MESSAGES: Lane = Lane(0);
/// How long a rank may take to say whether rings are used.
const ANSWER: Duration = Duration::from_secs(60);
/// Operations with numbers.
const KNOWN: usize = 16 << 10;

/// Which rank this process is, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) local_rank: u32,
    pub(super) local_size: u32,
    pub(super) cross_rank: u32,
    pub(super) cross_size: u32,
    pub(super) epoch: u64,
}

impl Place {
    fn of(formed: &Formed) -> Self {
        let own = formed.rank as usize;
        let hosts: Vec<HostId> = formed.members.iter().map(|member| member.host).collect();
        let same = |host: &&HostId| Some(*host) == hosts.get(own).as_ref().copied();
        let mut distinct: Vec<HostId> = Vec::new();
        for host in &hosts {
            if !distinct.contains(host) {
                distinct.push(*host);
            }
        }
        let cross = distinct.iter().position(|host| Some(host) == hosts.get(own)).unwrap_or(0);
        Self {
            rank: formed.rank,
            size: hosts.len() as u32,
            local_rank: hosts[..own].iter().filter(same).count() as u32,
            local_size: hosts.iter().filter(same).count() as u32,
            cross_rank: cross as u32,
            cross_size: distinct.len() as u32,
            epoch: formed.epoch,
        }
    }
}

/// What a rank tells the others through the rendezvous.
#[derive(Debug, Serialize, Deserialize)]
struct RankEnds {
    group: GroupEnd,
    rings: Option<RingAddress>,
}

/// A rank that is connected to all it needs.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) place: Place,
    pub(super) engine: Engine,
    pub(super) aborters: Aborters,
    pub(super) server: Option<RendezvousServer>,
    /// Of rank 0: who has come meanwhile.
    pub(super) arrivals: Option<Arrivals>,
}

/// Meets the other ranks and connects to them. A rank that goes away meanwhile lets all try again.
pub(super) fn connect(
    meeting: &Meeting,
    options: &OpsOptions,
    last_epoch: u64,
) -> Result<Connected, OpsError> {
    let server = serve(meeting)?;
    loop {
        let formed = meet(meeting, last_epoch, options.timeout)?;
        match connect_ranks(formed, options) {
            Ok(Ends { place, engine, aborters, arrivals }) => {
                return Ok(Connected { place, engine, aborters, server, arrivals });
            }
            Err(OpsError::Rendezvous(error)) if error.class() == phalanx_types::Class::Retry => {
                tracing::debug!(%error, "the group of ranks broke while it was formed");
            }
            Err(error) => return Err(error),
        }
    }
}

fn serve(meeting: &Meeting) -> Result<Option<RendezvousServer>, OpsError> {
    let Meeting::At { address, serve: Some(ranks), secret, .. } = meeting else { return Ok(None) };
    let listen = |source| RendezvousError::Listen { address: address.clone(), source };
    let mut found = address.to_socket_addrs().map_err(listen)?;
    let resolved = found.next().ok_or_else(|| listen(std::io::ErrorKind::NotFound.into()))?;
    let bind = if resolved.ip().is_loopback() {
        resolved
    } else {
        // The name of this host may mean another interface here than elsewhere.
        (std::net::Ipv6Addr::UNSPECIFIED, resolved.port()).into()
    };
    let server = RendezvousServer::start(bind, secret.clone(), 0..*ranks).or_else(|error| {
        let any = std::net::SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, resolved.port()));
        if bind.is_ipv6() { RendezvousServer::start(any, secret.clone(), 0..*ranks) } else { Err(error) }
    });
    Ok(Some(server.map_err(listen)?))
}

/// What a rank is connected by.
struct Ends {
    place: Place,
    engine: Engine,
    aborters: Aborters,
    arrivals: Option<Arrivals>,
}

fn connect_ranks(mut formed: Formed, options: &OpsOptions) -> Result<Ends, OpsError> {
    let place = Place::of(&formed);
    let (rank, ranks) = (place.rank as usize, place.size as usize);
    let room = if ranks > 1 { options.bucket_bytes } else { 0 };
    let (epoch, cores) = (formed.epoch, options.cores);
    let wanted = GroupOptions { rank, ranks, epoch, room, share: options.share, cores, host: None };
    let (prepared, group) = Group::prepare(wanted)?;
    let own_rings = (rank > 0 && options.share).then(RingEnd::create).transpose();
    let own_rings = own_rings.map_err(|error| OpsError::system("make shared memory for messages", error))?;
    let (own_rings, rings) = own_rings.unzip();
    let told = postcard::to_allocvec(&RankEnds { group, rings }).map_err(|_too_large| protocol(rank))?;
    let mut ends: Vec<GroupEnd> = Vec::with_capacity(ranks);
    let mut rings = Vec::with_capacity(ranks);
    for (rank, blob) in formed.exchange(told)?.iter().enumerate() {
        let end: RankEnds = postcard::from_bytes(blob).map_err(|_not_ends| protocol(rank))?;
        ends.push(end.group);
        rings.push(end.rings);
    }
    let broken = |source| OpsError::from(RendezvousError::Connection { source });
    let others: Vec<u32> = if rank == 0 { (1..place.size).collect() } else { vec![0] };
    let streams = formed.mesh.streams(MESSAGES, &others).map_err(broken)?;
    let channels = if rank == 0 {
        lead_channels(streams, &rings, &formed).map_err(broken)?
    } else {
        follow_channel(streams, own_rings).map_err(broken)?
    };
    let needs: Vec<u32> = prepared.needs(&ends).into_iter().map(|place| place as u32).collect();
    let streams = formed.mesh.streams(Lane(FIRST_GROUP_LANE), &needs).map_err(broken)?;
    let members: Vec<u32> = (0..place.size).collect();
    let mut group = join_group(prepared, &ends, streams, &members)?;
    let aborters = Aborters::default();
    aborters.lock().unwrap_or_else(PoisonError::into_inner).push(group.aborter());
    let bucket = (room > 0).then(|| group.buffer(room)).transpose()?;
    let arrivals = formed.arrivals();
    let executor = Executor {
        rank: place.rank,
        epoch,
        cores,
        mesh: formed.mesh,
        sets: BTreeMap::from([(SetId::WORLD, SetGroup { group, members })]),
        next_set: 1,
        bucket,
        packed: Scratch::default(),
        received: Scratch::default(),
        aborters: aborters.clone(),
    };
    let leader = (rank == 0).then(|| leader(&place, options)).transpose()?;
    let engine = Engine::new(place.rank, place.size, leader, channels, executor);
    Ok(Ends { place, engine, aborters, arrivals })
}

fn leader(place: &Place, options: &OpsOptions) -> Result<LeaderSide, OpsError> {
    let limits = LeaderLimits {
        bucket_bytes: options.bucket_bytes,
        hold: options.hold,
        stall_report: options.stall_report,
        stall_limit: options.stall_limit,
        known: KNOWN,
    };
    let log = options.tuning_log.as_deref().map(TuningLog::create).transpose();
    let log = log.map_err(|error| OpsError::system("write the log of the tuning", error))?;
    let tuner = options.autotune.then(|| BucketTuner::new(options.bucket_bytes));
    Ok(LeaderSide::new(Leader::new(place.size, limits), tuner, log))
}

/// The leader opens the rings of ranks of its host and tells each whether it could.
fn lead_channels(
    streams: BTreeMap<u32, TcpStream>,
    rings: &[Option<RingAddress>],
    formed: &Formed,
) -> std::io::Result<BTreeMap<u32, Channel>> {
    let own = formed.members.first().map(|member| member.host);
    let mut channels = BTreeMap::new();
    for (rank, mut stream) in streams {
        let same_host = formed.members.get(rank as usize).map(|member| member.host) == own;
        let address = rings.get(rank as usize).copied().flatten().filter(|_| same_host);
        let opened = address.and_then(|address| {
            let opened = RingEnd::open(address);
            opened.map_err(|error| tracing::debug!(rank, %error, "messages go over a stream")).ok()
        });
        stream.write_all(&[u8::from(opened.is_some())])?;
        channels.insert(rank, Channel::new(stream, opened)?);
    }
    Ok(channels)
}

fn follow_channel(
    mut streams: BTreeMap<u32, TcpStream>,
    rings: Option<RingEnd>,
) -> std::io::Result<BTreeMap<u32, Channel>> {
    let mut stream = streams.remove(&0).ok_or(std::io::ErrorKind::NotConnected)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let mut used = [0];
    stream.read_exact(&mut used)?;
    stream.set_read_timeout(None)?;
    let rings = rings.filter(|_| used == [1]);
    Ok(BTreeMap::from([(0, Channel::new(stream, rings)?)]))
}

fn protocol(rank: usize) -> OpsError {
    OpsError::Protocol { rank: rank as u32 }
}

/// Shares a value between the threads of a rank.
pub(super) fn locked<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
