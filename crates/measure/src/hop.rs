//! The cost of handing data to another process of this host.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The cost of a message to a waiting process on this host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// Time to wake the waiting process.
    pub latency_s: f64,
    /// CPU time per byte for the sender, and the same for the receiver.
    pub byte_s: f64,
}

impl Hop {
    /// The default if nothing was measured.
    pub const USUAL: Hop = Hop { latency_s: 9e-5, byte_s: 5e-10 };
}

/// The number of round trips; the median counts.
const ROUND_TRIPS: usize = 41;
/// How long the other side computes between messages: a processor that is idle for longer wakes up later.
const PAUSE: Duration = Duration::from_micros(100);
/// Bytes copied at a time, as much as a socket takes at once, and how often.
const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 33;

/// Measures it, in about ten milliseconds.
///
/// # Errors
/// Sockets or threads cannot be created.
pub fn measure_hop() -> io::Result<Hop> {
    Ok(Hop { latency_s: latency()?, byte_s: per_byte()? })
}

fn latency() -> io::Result<f64> {
    let (mut near, mut far) = UnixStream::pair()?;
    let [here, there] = processors();
    let echo = move || -> io::Result<()> {
        stay_on(there);
        let mut byte = [0];
        for _ in 0..ROUND_TRIPS {
            far.read_exact(&mut byte)?;
            compute();
            far.write_all(&byte)?;
        }
        Ok(())
    };
    let ask = move || -> io::Result<Vec<Duration>> {
        stay_on(here);
        let mut times = Vec::with_capacity(ROUND_TRIPS);
        let mut byte = [0];
        for _ in 0..ROUND_TRIPS {
            compute();
            let began = Instant::now();
            near.write_all(&byte)?;
            near.read_exact(&mut byte)?;
            times.push(began.elapsed().saturating_sub(PAUSE));
        }
        Ok(times)
    };
    let start = || std::thread::Builder::new().name("hop".to_owned());
    let panicked = |_| io::Error::other("a measurement panicked");
    let (echo, ask) = (start().spawn(echo)?, start().spawn(ask)?);
    let times = ask.join().map_err(panicked)??;
    echo.join().map_err(panicked)??;
    Ok(middle(times) / 2.0)
}

/// Two processors that this process may use, or one twice: concurrent stages run on different ones.
fn processors() -> [Option<usize>; 2] {
    let Ok(usable) = sched_getaffinity(None) else { return [None, None] };
    let mut all = (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu));
    let first = all.next();
    [first, all.next().or(first)]
}

fn stay_on(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut only = CpuSet::new();
    only.set(cpu);
    // If that is not allowed the system decides.
    let _stays = sched_setaffinity(None, &only);
}

fn compute() {
    let began = Instant::now();
    while began.elapsed() < PAUSE {
        std::hint::spin_loop();
    }
}

/// From numbers into a frame, over a socket, and back into numbers: half of the time for either side.
fn per_byte() -> io::Result<f64> {
    let (mut near, mut far) = UnixStream::pair()?;
    let values: Vec<f32> = (0..CHUNK / 4).map(|i| i as f32).collect();
    let (mut sent, mut received) = (Vec::new(), vec![0; CHUNK]);
    let mut back = vec![0.0f32; CHUNK / 4];
    let mut times = Vec::with_capacity(CHUNKS);
    for _ in 0..CHUNKS {
        let began = Instant::now();
        sent.clear();
        sent.extend_from_slice(bytemuck::cast_slice(&values));
        near.write_all(&sent)?;
        far.read_exact(&mut received)?;
        back.copy_from_slice(bytemuck::cast_slice(&received));
        times.push(began.elapsed());
    }
    Ok(middle(times) / 2.0 / CHUNK as f64)
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64().max(1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_takes_longer_than_nothing_and_less_than_a_thread_may_be_kept_waiting() {
        let hop = measure_hop().unwrap();
        assert!((1e-9..0.1).contains(&hop.latency_s), "{hop:?}");
        // Slower than memory, but not by much.
        assert!((1e-12..1e-7).contains(&hop.byte_s), "{hop:?}");
    }
}
