//! Small values beside large ones: how long the slowest wait.

use super::{Numbers, connect};
use crate::commands::bench::stats::percentile;
use crate::commands::store::failure;
use crate::failure::Failure;
use phalanx_store_client::{Store, StoreError};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time between two GETs of the large value.
const PAUSE: Duration = Duration::from_millis(100);
const LARGE: usize = 10_000_000;
const SMALL: usize = 1024;

pub(super) fn measure(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let (small, large) = (connect(address)?, connect(address)?);
    let set = |key: &[u8], len| small.command(&[b"SET", key, &vec![7; len]]).map_err(failure);
    set(b"bench:1kb", SMALL)?;
    set(b"bench:10mb", LARGE)?;
    let (stop, stopped) = channel();
    let mut times = std::thread::scope(|scope| {
        let beside = scope.spawn(move || read_large(&large, &stopped));
        let times = read_small(&small, time);
        // It listens until this is gone.
        drop(stop);
        beside.join().unwrap_or(Ok(())).and(times)
    })
    .map_err(failure)?;
    small.command(&[b"DEL", b"bench:1kb", b"bench:10mb"]).map_err(failure)?;
    let mut share = |share| percentile(&mut times, share).as_secs_f64() * 1e6;
    Ok(Numbers::from([
        ("tail_p50_us", share(0.5)),
        ("tail_p99_us", share(0.99)),
        ("tail_p999_us", share(0.999)),
    ]))
}

fn read_small(store: &Store, time: Duration) -> Result<Vec<Duration>, StoreError> {
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while Instant::now() < end {
        let began = Instant::now();
        store.command(&[b"GET", b"bench:1kb"])?;
        times.push(began.elapsed());
    }
    Ok(times)
}

fn read_large(store: &Store, stopped: &Receiver<()>) -> Result<(), StoreError> {
    let mut next = Instant::now();
    loop {
        store.command(&[b"GET", b"bench:10mb"])?;
        next += PAUSE;
        match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(()),
        }
    }
}
