//! Spoilt requests on real sockets: the server goes on, and its memory stays.
//!
//! An input depends on its seed alone. `PHALANX_FUZZ_ITERATIONS` asks for a longer run.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use phalanx_store::{Server, ServerConfig};
use phalanx_types::ByteSize;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

const ITERATIONS: u64 = 4_000;
const PATIENCE: Duration = Duration::from_secs(60);

const SOUND: &[&[u8]] = &[
    b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\n12345\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*4\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\nf\r\n$1\r\nv\r\n",
    b"*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$3\r\nabc\r\n*2\r\n$3\r\nDEL\r\n$1\r\nl\r\n",
    b"*7\r\n$12\r\nAI.TENSORSET\r\n$1\r\nt\r\n$5\r\nUINT8\r\n$1\r\n2\r\n$1\r\n2\r\n$4\r\nBLOB\r\n$4\r\nabcd\r\n",
    b"*4\r\n$12\r\nAI.TENSORGET\r\n$1\r\nt\r\n$4\r\nMETA\r\n$4\r\nBLOB\r\n",
    b"*2\r\n$12\r\nPHALANX.TAKE\r\n$6\r\n200000\r\n",
    b"*3\r\n$12\r\nPHALANX.LEND\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*1\r\n$16\r\nPHALANX.VERSIONS\r\n",
    b"SUBSCRIBE c\r\nPUBLISH c m\r\n",
    b"SCAN 0 COUNT 10\r\nKEYS *\r\nINFO\r\n",
];

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"$-1\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"$549755813888\r\n",
    b"$9223372036854775807\r\n",
    b"*1048576\r\n",
    b"$200000\r\n",
    b"-5",
    b"\0\xff",
    b"'\"",
];

/// Numbers that follow from a seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 = phalanx_types::Seed(self.0).derive("next").0;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn input(seed: u64) -> Vec<u8> {
    let mut draws = Draws(seed);
    let mut bytes = Vec::new();
    for _ in 0..1 + draws.below(4) {
        bytes.extend_from_slice(SOUND[draws.below(SOUND.len())]);
    }
    for _ in 0..draws.below(4) {
        let at = draws.below(bytes.len());
        match draws.below(4) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes.truncate(at.max(1)),
            2 => drop(bytes.splice(at..at, PIECES[draws.below(PIECES.len())].iter().copied())),
            _ => drop(bytes.splice(at..at, std::iter::repeat_n(b'a', draws.below(3000)))),
        }
    }
    bytes
}

/// Sends the bytes and reads until the server has said all.
fn offend(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may have closed already.
    let _sent = stream.write_all(bytes);
    let _closed = stream.shutdown(Shutdown::Write);
    let mut replies = Vec::new();
    match stream.read_to_end(&mut replies) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("no end of {bytes:?}"),
        _ => {}
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn spoilt_requests_end_no_server_and_leave_no_memory_behind() {
    let iterations = std::env::var("PHALANX_FUZZ_ITERATIONS").map_or(ITERATIONS, |n| n.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bind = Some(([127, 0, 0, 1], 0).into());
    let config = ServerConfig { bind, memory: ByteSize::mib(64), ..ServerConfig::default() };
    let server = runtime.block_on(Server::start(config)).unwrap();
    let address = server.address().unwrap();
    // What is made once is made.
    (0..iterations / 10).for_each(|seed| offend(address, &input(seed)));
    let before = resident_bytes();
    (iterations / 10..iterations).for_each(|seed| offend(address, &input(seed)));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 48 << 20, "memory grew by {grown} bytes");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+PONG\r\n");
    runtime.block_on(server.shutdown());
}
