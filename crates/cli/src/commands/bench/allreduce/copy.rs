//! How fast this machine copies memory.

use crate::commands::bench::stats::median;
use crate::failure::Failure;
use phalanx_collective::SharedGroup;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Copies that are measured, after one that is not.
const ROUNDS: usize = 15;
/// Less takes no longer than starting together does.
const LEAST: u64 = 1 << 20;

/// The bytes that all cores together read and write in a second when one half of `memory` bytes is copied to the
/// other, every core its part of it. The memory is of the kind that ranks share.
pub(super) fn rate(memory: u64) -> Result<f64, Failure> {
    let memory = usize::try_from(memory.max(LEAST)).map_err(Failure::infrastructure)?;
    let (prepared, address) = SharedGroup::prepare(0, 1, 0, memory).map_err(Failure::infrastructure)?;
    let mut group = prepared.connect(&[address]).map_err(Failure::infrastructure)?;
    let mut buffer = group.buffer(memory).map_err(Failure::infrastructure)?;
    let bytes = buffer.slice_mut::<u8>().map_err(Failure::infrastructure)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let part = memory / 2 / cores;
    let (from, to) = bytes.split_at_mut(part * cores);
    copy(from, to, part, cores);
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| copy(from, to, part, cores).as_secs_f64()).collect();
    Ok((2 * part * cores) as f64 / median(&mut times))
}

/// Copies on all cores at once; gives the time of the slowest.
fn copy(from: &[u8], to: &mut [u8], part: usize, cores: usize) -> Duration {
    let start = Barrier::new(cores);
    std::thread::scope(|scope| {
        let parts = from.chunks_exact(part).zip(to.chunks_exact_mut(part)).take(cores);
        let copies: Vec<_> = parts
            .map(|(from, to)| {
                scope.spawn(|| {
                    start.wait();
                    let started = Instant::now();
                    to.copy_from_slice(from);
                    started.elapsed()
                })
            })
            .collect();
        copies.into_iter().filter_map(|copy| copy.join().ok()).max().unwrap_or_default()
    })
}
