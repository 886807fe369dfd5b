//! 1 MB values over plain sockets, by a client that does nothing but write and read them.

use super::Numbers;
use crate::failure::Failure;
use anyhow::{Context, ensure};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;
const CLIENTS: [(usize, [&str; 2]); 2] = [
    (1, ["socket_set_1mb_1_client_per_s", "socket_get_1mb_1_client_per_s"]),
    (4, ["socket_set_1mb_4_clients_per_s", "socket_get_1mb_4_clients_per_s"]),
];

/// One request and the length of its reply.
struct Exchange {
    request: Vec<u8>,
    reply: usize,
}

pub(super) fn measure(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let mut set = format!("*3\r\n$3\r\nSET\r\n$9\r\nbench:1mb\r\n${LEN}\r\n").into_bytes();
    set.resize(set.len() + LEN, b'x');
    set.extend_from_slice(b"\r\n");
    let set = Exchange { request: set, reply: b"+OK\r\n".len() };
    let reply = format!("${LEN}\r\n").len() + LEN + 2;
    let get = Exchange { request: b"*2\r\n$3\r\nGET\r\n$9\r\nbench:1mb\r\n".to_vec(), reply };
    let mut numbers = Numbers::new();
    for (clients, [set_name, get_name]) in CLIENTS {
        numbers.insert(set_name, rate(address, clients, &set, time / 4)?);
        numbers.insert(get_name, rate(address, clients, &get, time / 4)?);
    }
    Ok(numbers)
}

/// Exchanges per second of all clients together.
fn rate(address: &str, clients: usize, exchange: &Exchange, time: Duration) -> Result<f64, Failure> {
    let began = Instant::now();
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..clients).map(|_| scope.spawn(|| repeat(address, exchange, began + time))).collect();
        let gone = || Err(anyhow::anyhow!("a client ended"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect::<Vec<_>>()
    });
    let took = began.elapsed().as_secs_f64();
    let count: anyhow::Result<usize> = counts.into_iter().sum();
    Ok(count.map_err(Failure::infrastructure)? as f64 / took)
}

fn repeat(address: &str, exchange: &Exchange, end: Instant) -> anyhow::Result<usize> {
    let mut stream = TcpStream::connect(address).context("could not reach the server")?;
    stream.set_nodelay(true)?;
    let mut reply = vec![0; exchange.reply];
    let mut count = 0;
    while Instant::now() < end {
        stream.write_all(&exchange.request)?;
        stream.read_exact(&mut reply)?;
        ensure!(!reply.starts_with(b"-"), "the server refused: {}", String::from_utf8_lossy(&reply));
        count += 1;
    }
    Ok(count)
}
