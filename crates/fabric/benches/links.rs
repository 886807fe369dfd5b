//! The throughput and latency of a link over loopback, compared with a bare TCP connection on the same runtime.
//!
//! `cargo bench -p phalanx-fabric --bench links`
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use phalanx_fabric::{DomainKey, Fabric, FabricConfig, FrameKind, LinkEvent, NodeKind, Peer};
use phalanx_types::{DomainName, Parcel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const ROUND_TRIPS: u32 = 20_000;
const FRAMES: u32 = 1_000_000;
const BLOB: usize = 256 << 20;

struct Pair {
    a: Fabric,
    b: Fabric,
    at_a: mpsc::Receiver<LinkEvent>,
    at_b: mpsc::Receiver<LinkEvent>,
    to_a: Peer,
    to_b: Peer,
}

async fn up(channel: &mut mpsc::Receiver<LinkEvent>) -> Peer {
    loop {
        if let LinkEvent::Up(peer) = channel.recv().await.unwrap() {
            return peer;
        }
    }
}

async fn frame(channel: &mut mpsc::Receiver<LinkEvent>) {
    while !matches!(channel.recv().await.unwrap(), LinkEvent::Frame { .. }) {}
}

async fn pair(dir: &std::path::Path, key: Option<DomainKey>) -> Pair {
    let start = |name| {
        let domain = DomainName::new("bench").unwrap();
        let bind = Some("127.0.0.1:0".parse().unwrap());
        let config = FabricConfig::new(domain, name, NodeKind::Computing);
        let runtime_dir = dir.to_owned();
        Fabric::start(FabricConfig { bind, key: key.clone(), runtime_dir, mdns: false, ..config })
    };
    let (a, b) = (start("a").await.unwrap(), start("b").await.unwrap());
    let (mut at_a, mut at_b) = (a.channel(FrameKind::Jobs), b.channel(FrameKind::Jobs));
    let (to_b, to_a) = (up(&mut at_a).await, up(&mut at_b).await);
    Pair { a, b, at_a, at_b, to_a, to_b }
}

async fn measure(name: &str, key: Option<DomainKey>) {
    let dir = tempfile::tempdir().unwrap();
    let mut p = pair(dir.path(), key).await;
    let body = [7u8; 64];

    let since = Instant::now();
    let echo = async {
        for _ in 0..ROUND_TRIPS {
            frame(&mut p.at_b).await;
            p.to_a.send(FrameKind::Jobs, &&body[..]).unwrap();
        }
    };
    let ask = async {
        for _ in 0..ROUND_TRIPS {
            p.to_b.send(FrameKind::Jobs, &&body[..]).unwrap();
            frame(&mut p.at_a).await;
        }
    };
    tokio::join!(echo, ask);
    let round_trip = since.elapsed() / ROUND_TRIPS;

    let since = Instant::now();
    let flood = async {
        for i in 0..FRAMES {
            p.to_b.send(FrameKind::Jobs, &&body[..]).unwrap();
            if i % 1000 == 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    let drain = async {
        for _ in 0..FRAMES {
            frame(&mut p.at_b).await;
        }
    };
    tokio::join!(flood, drain);
    let per_second = f64::from(FRAMES) / since.elapsed().as_secs_f64();

    let blob = p.a.hold(Parcel::from_bytes(vec![1; BLOB]));
    let mut best = Duration::MAX;
    for _ in 0..4 {
        let since = Instant::now();
        p.b.fetch(&p.to_a, blob, BLOB as u64).await.unwrap();
        best = best.min(since.elapsed());
    }
    let rate = BLOB as f64 / best.as_secs_f64() / 1e9;
    let small = p.a.hold(Parcel::from_bytes(vec![1; 16 << 20]));
    let since = Instant::now();
    for _ in 0..32 {
        p.b.fetch(&p.to_a, small, 16 << 20).await.unwrap();
    }
    let pooled = (32 << 24) as f64 / since.elapsed().as_secs_f64() / 1e9;
    println!(
        "{name:8} round trip {round_trip:>9.1?}   {:>6.0} k frames/s   blob {rate:.2} GB/s   16 MiB blobs {pooled:.2} GB/s",
        per_second / 1e3
    );
    p.a.shutdown().await;
    p.b.shutdown().await;
}

async fn bare() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut dialed = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    dialed.set_nodelay(true).unwrap();
    accepted.set_nodelay(true).unwrap();
    let since = Instant::now();
    let echo = async {
        let mut body = [0; 64];
        for _ in 0..ROUND_TRIPS {
            accepted.read_exact(&mut body).await.unwrap();
            accepted.write_all(&body).await.unwrap();
        }
    };
    let ask = async {
        let mut body = [0; 64];
        for _ in 0..ROUND_TRIPS {
            dialed.write_all(&body).await.unwrap();
            dialed.read_exact(&mut body).await.unwrap();
        }
    };
    tokio::join!(echo, ask);
    println!("bare tcp round trip {:>9.1?}", since.elapsed() / ROUND_TRIPS);
}

fn main() {
    for threads in [1, 2] {
        let runtime = if threads == 1 {
            tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
        } else {
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
        };
        println!("{threads} thread(s)");
        runtime.block_on(async {
            bare().await;
            measure("plain", None).await;
            let key = DomainKey::generate(&DomainName::new("bench").unwrap()).unwrap();
            measure("tls", Some(key)).await;
        });
    }
}
