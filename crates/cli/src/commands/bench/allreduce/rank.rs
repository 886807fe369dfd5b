//! One rank of the benchmark, in a process of its own.

use super::meet::meet;
use super::{AllreduceArgs, Buffers};
use crate::exec_shim::die_with_parent;
use crate::failure::Failure;
use crate::output::print_line;
use anyhow::anyhow;
use phalanx_collective::{CollectiveError, Group, GroupBuffer, Kind, Reduction};
use phalanx_types::DType;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Calls before it is known how many are measured, after a first one whose result is checked.
const WARM_UP: u32 = 3;
/// Bounds of how many calls are measured.
const CALLS: (u64, u64) = (5, 20_000);

/// What a rank measured of one size.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) bytes: u64,
    pub(super) algorithm: String,
    /// Every call.
    pub(super) nanos: Vec<u64>,
    /// All calls together.
    pub(super) cpu_nanos: u64,
}

/// A tensor to sum.
enum Tensor {
    Shared(GroupBuffer),
    Private(Vec<f32>),
}

/// A rank that has met the others.
struct Rank {
    group: Group,
    tensor: Tensor,
}

/// Says where it is, hears where the others are, measures and says what it found.
pub(super) fn run(args: &AllreduceArgs, rank: usize, parent: u32) -> Result<(), Failure> {
    if !die_with_parent(parent, rustix::process::Signal::KILL)? {
        return Ok(());
    }
    let mut rank = Rank::new(args, rank)?;
    let sizes = args.sizes.iter().map(|size| rank.measure(size.0 as usize, args.time));
    let times: Vec<Times> = sizes.collect::<Result<_, _>>()?;
    print_line(&serde_json::to_string(&times).map_err(Failure::infrastructure)?)
}

impl Rank {
    fn new(args: &AllreduceArgs, rank: usize) -> Result<Self, Failure> {
        let largest = args.sizes.iter().map(|size| size.0 as usize).max().unwrap_or_default();
        let mut group = meet(args, rank, largest)?;
        let tensor = match args.buffers() {
            Buffers::Shared => Tensor::Shared(group.buffer(largest).map_err(Failure::infrastructure)?),
            Buffers::Private => Tensor::Private(vec![0.0; largest / 4]),
        };
        Ok(Self { group, tensor })
    }

    fn measure(&mut self, bytes: usize, time: Duration) -> Result<Times, Failure> {
        self.call(bytes).map_err(Failure::infrastructure)?;
        self.check(bytes)?;
        let started = Instant::now();
        for _ in 0..WARM_UP {
            self.call(bytes).map_err(Failure::infrastructure)?;
        }
        let calls = time.as_secs_f64() / (started.elapsed().as_secs_f64() / f64::from(WARM_UP));
        let calls =
            self.first_says((calls as u64).clamp(CALLS.0, CALLS.1)).map_err(Failure::infrastructure)?;
        let mut times = Times {
            bytes: bytes as u64,
            algorithm: self.group.algorithm(Kind::AllReduce, bytes as u64).word().to_owned(),
            nanos: Vec::new(),
            cpu_nanos: 0,
        };
        for _ in 0..calls {
            let (wall, cpu) = self.call(bytes).map_err(Failure::infrastructure)?;
            times.nanos.push(nanos(wall));
            times.cpu_nanos += nanos(cpu);
        }
        Ok(times)
    }

    /// Fills the tensor, waits for the others and then sums: how long that took, on the clock and of the CPU.
    fn call(&mut self, bytes: usize) -> Result<(Duration, Duration), CollectiveError> {
        let value = (self.group.rank() + 1) as f32;
        self.values(bytes)?.fill(value);
        self.group.barrier("filled")?;
        let (cpu, started) = (cpu_time(), Instant::now());
        match &mut self.tensor {
            Tensor::Shared(buffer) => {
                self.group.all_reduce_buffer(buffer, 0..bytes, DType::F32, Reduction::Sum, "tensor")
            }
            Tensor::Private(values) => {
                let data = bytemuck::cast_slice_mut(&mut values[..bytes / 4]);
                self.group.all_reduce(data, DType::F32, Reduction::Sum, "tensor")
            }
        }?;
        let wall = started.elapsed();
        Ok((wall, cpu_time().saturating_sub(cpu)))
    }

    /// Whether the tensor is the sum.
    fn check(&mut self, bytes: usize) -> Result<(), Failure> {
        let ranks = self.group.ranks();
        let sum = (ranks * (ranks + 1) / 2) as f32;
        let values = self.values(bytes).map_err(Failure::infrastructure)?;
        match values.iter().find(|value| **value != sum) {
            None => Ok(()),
            Some(value) => Err(Failure::work(anyhow!("the sum is {value} where it should be {sum}"))),
        }
    }

    fn values(&mut self, bytes: usize) -> Result<&mut [f32], CollectiveError> {
        match &mut self.tensor {
            Tensor::Shared(buffer) => Ok(&mut buffer.slice_mut()?[..bytes / 4]),
            Tensor::Private(values) => Ok(&mut values[..bytes / 4]),
        }
    }

    /// What rank 0 says.
    fn first_says(&mut self, mine: u64) -> Result<u64, CollectiveError> {
        let mut bytes = mine.to_le_bytes();
        self.group.broadcast(0, &mut bytes, DType::U8, "calls")?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The CPU time of this process so far.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
