//! Groups for tests.

use half::{bf16, f16};
use phalanx_collective::{Group, GroupEnd, GroupOptions, HostId, PreparedGroup, Reduction, Socket};
use phalanx_types::DType;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

pub(crate) const EPOCH: u64 = 7;
pub(crate) const ROOM: usize = 1 << 20;

/// The host of each rank, as a letter. Alone; one host; every rank on its own; mixed in every way.
pub(crate) const TOPOLOGIES: [&str; 12] =
    ["a", "aa", "aaaaa", "ab", "abc", "abcdefg", "aab", "abb", "ababac", "abbcb", "aabbccd", "abcabcabc"];

/// One of each sort, for tests that need many groups.
pub(crate) const SORTS: [&str; 5] = ["aa", "ab", "abc", "abb", "ababac"];

pub(crate) const NUMBERS: [DType; 7] =
    [DType::F32, DType::F64, DType::F16, DType::Bf16, DType::I32, DType::I64, DType::U8];
pub(crate) const REDUCTIONS: [Reduction; 5] =
    [Reduction::Sum, Reduction::Average, Reduction::Min, Reduction::Max, Reduction::Product];

pub(crate) fn options(rank: usize, ranks: usize, host: u8) -> GroupOptions {
    let host = Some(HostId::from_bytes([host; 16]));
    GroupOptions { rank, ranks, epoch: EPOCH, room: ROOM, share: true, cores: None, host }
}

/// The ranks of a group, connected.
pub(crate) fn groups(topology: &str) -> Vec<Group> {
    let ranks = topology.len();
    connect(topology.bytes().enumerate().map(|(rank, host)| options(rank, ranks, host)).collect())
}

pub(crate) fn connect(options: Vec<GroupOptions>) -> Vec<Group> {
    let (prepared, ends): (Vec<_>, Vec<_>) =
        options.into_iter().map(|options| Group::prepare(options).unwrap()).unzip();
    let streams = streams(&prepared, &ends);
    // One after the other: connecting does not wait for other ranks.
    prepared.into_iter().zip(streams).map(|(one, streams)| one.connect(&ends, streams).unwrap()).collect()
}

/// The streams that ranks need, alternately of both kinds.
pub(crate) fn streams(prepared: &[PreparedGroup], ends: &[GroupEnd]) -> Vec<Vec<Option<Socket>>> {
    let ranks = prepared.len();
    let mut streams: Vec<Vec<Option<Socket>>> =
        (0..ranks).map(|_| (0..ranks).map(|_| None).collect()).collect();
    for (rank, prepared) in prepared.iter().enumerate() {
        for other in prepared.needs(ends).into_iter().filter(|other| *other > rank) {
            let (here, there) = pair((rank + other) % 2 == 0);
            (streams[rank][other], streams[other][rank]) = (Some(here), Some(there));
        }
    }
    streams
}

fn pair(unix: bool) -> (Socket, Socket) {
    if unix {
        let (here, there) = UnixStream::pair().unwrap();
        return (here.into(), there.into());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here.into(), listener.accept().unwrap().0.into())
}

/// Runs a thread for each group and returns their results. Each drops its group as soon as it is done.
pub(crate) fn run_groups<T: Send>(groups: Vec<Group>, work: impl Fn(&mut Group) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |mut group: Group| scope.spawn(move || work(&mut group));
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn run<T: Send>(topology: &str, work: impl Fn(&mut Group) -> T + Sync) -> Vec<T> {
    run_groups(groups(topology), work)
}

/// Ones and twos: every type holds them, their sums and their products, in every order.
pub(crate) fn small(rank: usize, index: usize) -> f64 {
    (1 + (index * 7 + rank * 5 + index / 11) % 2) as f64
}

pub(crate) fn encode(dtype: DType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DType::F32 => bytes.extend((value as f32).to_ne_bytes()),
            DType::F64 => bytes.extend(value.to_ne_bytes()),
            DType::F16 => bytes.extend(f16::from_f64(value).to_ne_bytes()),
            DType::Bf16 => bytes.extend(bf16::from_f64(value).to_ne_bytes()),
            DType::I32 => bytes.extend((value as i32).to_ne_bytes()),
            DType::I64 => bytes.extend((value as i64).to_ne_bytes()),
            // Bytes wrap.
            DType::U8 => bytes.push(value as u64 as u8),
            _ => unreachable!("no test gives {dtype:?}"),
        }
    }
    bytes
}

pub(crate) fn given(dtype: DType, rank: usize, count: usize) -> Vec<u8> {
    encode(dtype, (0..count).map(|index| small(rank, index)))
}

/// The combination of the values of all ranks.
pub(crate) fn combined(
    dtype: DType,
    reduction: Reduction,
    ranks: usize,
    range: std::ops::Range<usize>,
) -> Vec<u8> {
    let of = |index: usize| {
        let values = (0..ranks).map(|rank| small(rank, index));
        match reduction {
            Reduction::Sum => values.sum(),
            Reduction::Average if dtype == DType::F64 => values.sum::<f64>() / ranks as f64,
            Reduction::Average => f64::from(values.sum::<f64>() as f32 / ranks as f32),
            Reduction::Min => values.fold(f64::MAX, f64::min),
            Reduction::Max => values.fold(0.0, f64::max),
            Reduction::Product => values.product(),
            Reduction::Adasum => unreachable!("it is not computed element by element"),
        }
    };
    encode(dtype, range.map(of))
}

/// Bytes that depend on their source and target rank.
pub(crate) fn pattern(from: usize, to: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (from * 31 + to * 17 + index + index / 251) as u8).collect()
}

/// Values whose sum depends on the order.
pub(crate) fn rough(rank: usize, index: usize) -> f32 {
    1.0 / (1 + rank * 31 + index % 1009) as f32 - 0.01 * (index % 7) as f32
}
