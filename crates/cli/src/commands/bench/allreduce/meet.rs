//! How a rank meets the others.

use super::{AllreduceArgs, Buffers, Transport};
use crate::failure::Failure;
use crate::output::print_line;
use anyhow::{Context, anyhow};
use phalanx_collective::{Group, GroupEnd, GroupOptions, Socket};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// What a rank tells the others.
#[derive(Debug, Serialize, Deserialize)]
struct Address {
    end: GroupEnd,
    /// Where it takes connections, if it needs any.
    listens: Option<SocketAddr>,
}

/// Says where this rank is, hears where the others are, and connects. There is room for a buffer of `largest`, if
/// buffers are shared.
pub(super) fn meet(args: &AllreduceArgs, rank: usize, largest: usize) -> Result<Group, Failure> {
    let options = GroupOptions {
        rank,
        ranks: args.ranks as usize,
        epoch: 1,
        room: if args.buffers() == Buffers::Shared { largest } else { 0 },
        share: args.transport == Transport::Shared,
        cores: None,
        host: None,
    };
    let (prepared, end) = Group::prepare(options).map_err(Failure::infrastructure)?;
    let listener = match args.transport {
        Transport::Shared => None,
        Transport::Tcp => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::infrastructure)?),
    };
    let listens = listener.as_ref().map(TcpListener::local_addr).transpose();
    let own = Address { end, listens: listens.map_err(Failure::infrastructure)? };
    print_line(&serde_json::to_string(&own).map_err(Failure::infrastructure)?)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(Failure::infrastructure)?;
    let addresses: Vec<Address> = serde_json::from_str(&line)
        .context("could not read where the other ranks are")
        .map_err(Failure::infrastructure)?;
    let (ends, places): (Vec<_>, Vec<_>) = addresses.into_iter().map(|a| (a.end, a.listens)).unzip();
    let needs = prepared.needs(&ends);
    let streams = connect(rank, &needs, listener.as_ref(), &places)
        .context("could not connect to the other ranks")
        .map_err(Failure::infrastructure)?;
    prepared.connect(&ends, streams).map_err(Failure::infrastructure)
}

/// Connects to the lower ranks, each of which it tells its own number, and lets the higher ones connect.
fn connect(
    rank: usize,
    needs: &[usize],
    listener: Option<&TcpListener>,
    places: &[Option<SocketAddr>],
) -> anyhow::Result<Vec<Option<Socket>>> {
    let mut streams: Vec<Option<Socket>> = places.iter().map(|_| None).collect();
    for lower in needs.iter().copied().filter(|other| *other < rank) {
        let place = places[lower].ok_or_else(|| anyhow!("rank {lower} takes no connections"))?;
        let mut stream = TcpStream::connect(place)?;
        stream.write_all(&(rank as u32).to_le_bytes())?;
        streams[lower] = Some(Socket::from(stream));
    }
    for _ in needs.iter().filter(|other| **other > rank) {
        let listener = listener.ok_or_else(|| anyhow!("this rank takes no connections"))?;
        let (mut stream, _) = listener.accept()?;
        let mut number = [0; 4];
        stream.read_exact(&mut number)?;
        let number = u32::from_le_bytes(number) as usize;
        let slot = streams.get_mut(number).filter(|slot| number > rank && slot.is_none());
        *slot.ok_or_else(|| anyhow!("there came a rank {number} that is not awaited"))? =
            Some(Socket::from(stream));
    }
    Ok(streams)
}
