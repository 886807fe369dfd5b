//! Times all-reduce through named operations against the group below them, between processes of one host, which are
//! this program started again.
//!
//! `cargo run --release -p phalanx-ops --example ops -- [RANKS]`

use phalanx_collective::{Group, GroupEnd, GroupOptions};
use phalanx_ops::{
    DType, OpKind, OpSignature, Operation, Ops, OpsError, RawTensor, Reduction, RendezvousServer, Secret,
    SetId, TensorSpec,
};
use std::error::Error;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

const SIZES: [usize; 5] = [1 << 10, 16 << 10, 256 << 10, 4 << 20, 64 << 20];
/// How long one size is measured.
const TIME: Duration = Duration::from_millis(500);
/// Tensors of one step, and their bytes.
const GRADIENTS: (usize, usize) = (160, 64 << 10);

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os("PHALANX_WORKER").is_some() {
        return measure();
    }
    let ranks: u32 = std::env::args().nth(1).map_or(Ok(2), |ranks| ranks.parse())?;
    let secret = Secret::random()?;
    let server = RendezvousServer::start("127.0.0.1:0", secret.clone(), 0..ranks)?;
    let start = |worker: u32| {
        Command::new(std::env::current_exe()?)
            .env("PHALANX_RENDEZVOUS", server.address().to_string())
            .env("PHALANX_SECRET", secret.to_hex())
            .env("PHALANX_WORKER", worker.to_string())
            .spawn()
    };
    let children: Vec<_> = (0..ranks).map(start).collect::<Result<_, _>>()?;
    for mut child in children {
        child.wait()?;
    }
    Ok(())
}

fn measure() -> Result<(), Box<dyn Error>> {
    let ops = Ops::init_from_env()?;
    let mut group = group_beside(&ops)?;
    let mut out = std::io::stdout();
    let mut values = vec![0.0_f32; SIZES[SIZES.len() - 1] / 4];
    for size in SIZES {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values[..size / 4]);
        let kind = OpKind::AllReduce { reduction: Reduction::Sum };
        let signature = OpSignature::new(kind, TensorSpec::new(DType::F32, [size as u64 / 4]));
        // Measured in turns: other programs disturb both alike.
        let (mut named, mut plain, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..4 {
            plain.extend(times(&ops, TIME / 4, || {
                Ok(group.all_reduce(bytes, DType::F32, Reduction::Sum, "plain")?)
            })?);
            // As named operations do, no rank begins before all are there.
            apart.extend(times(&ops, TIME / 4, || {
                group.barrier("apart")?;
                Ok(group.all_reduce(bytes, DType::F32, Reduction::Sum, "apart")?)
            })?);
            named.extend(times(&ops, TIME / 4, || {
                ops.run_on("gradient", signature.clone(), bytes).map(|_| ())
            })?);
        }
        let (named, plain, apart) = (median(named), median(plain), median(apart));
        if ops.rank() == 0 {
            writeln!(
                out,
                "{} ranks {:>6} KiB: named {:>9.1} us, group {:>9.1} us, group after a barrier {:>9.1} us",
                ops.size(),
                size >> 10,
                named.as_secs_f64() * 1e6,
                plain.as_secs_f64() * 1e6,
                apart.as_secs_f64() * 1e6,
            )?;
        }
    }
    fused(&ops)
}

/// Many small tensors at a time, as the gradients of a step.
fn fused(ops: &Ops) -> Result<(), Box<dyn Error>> {
    let (count, bytes) = GRADIENTS;
    let mut tensors = vec![vec![0.0_f32; bytes / 4]; count];
    let names: Vec<String> = (0..count).map(|index| format!("layer{index}.weight")).collect();
    let kind = OpKind::AllReduce { reduction: Reduction::Sum };
    let signature = OpSignature::new(kind, TensorSpec::new(DType::F32, [bytes as u64 / 4]));
    let all = times(ops, TIME, || {
        let submit = |(name, tensor): (&String, &mut Vec<f32>)| {
            let raw = lend(tensor);
            ops.submit(Operation::new(name.clone(), signature.clone(), vec![raw]))
        };
        let handles: Vec<_> = names.iter().zip(&mut tensors).map(submit).collect::<Result<_, _>>()?;
        handles.iter().try_for_each(|handle| handle.wait(None).map(drop))
    })?;
    let time = median(all);
    if ops.rank() == 0 {
        let rate = (count * bytes) as f64 / time.as_secs_f64() / 1e9;
        let micros = time.as_secs_f64() * 1e6;
        writeln!(
            std::io::stdout(),
            "{count} tensors of {} KiB: {micros:.0} us a step, {rate:.2} GB/s",
            bytes >> 10
        )?;
    }
    Ok(())
}

#[expect(unsafe_code, reason = "lends memory as bindings do")]
fn lend(tensor: &mut [f32]) -> RawTensor {
    // SAFETY: all handles are waited for before the tensors are used again.
    unsafe { RawTensor::in_place(tensor.as_mut_ptr().cast(), size_of_val(tensor)) }
}

/// A group of the same ranks, without names.
fn group_beside(ops: &Ops) -> Result<Group, Box<dyn Error>> {
    let (rank, ranks) = (ops.rank() as usize, ops.size() as usize);
    let options = GroupOptions { rank, ranks, epoch: 1, room: 0, share: true, cores: None, host: None };
    let (prepared, end) = Group::prepare(options)?;
    let mut told = serde_json::to_vec(&end)?;
    let signature = OpSignature::new(OpKind::AllGather, TensorSpec::new(DType::U8, [told.len() as u64]));
    let outcome = ops.run_on("ends", signature, &mut told)?;
    let output = outcome.outputs.first().ok_or("no ends")?;
    let mut rest = output.bytes.as_slice();
    let mut ends: Vec<GroupEnd> = Vec::new();
    for rows in &output.rows {
        let (own, more) = rest.split_at(usize::try_from(*rows)?);
        ends.push(serde_json::from_slice(own)?);
        rest = more;
    }
    Ok(prepared.connect(&ends, Vec::new())?)
}

/// The times of a call. All ranks make as many calls, as rank 0 says.
fn times(
    ops: &Ops,
    time: Duration,
    mut call: impl FnMut() -> Result<(), OpsError>,
) -> Result<Vec<Duration>, OpsError> {
    let began = Instant::now();
    for _ in 0..3 {
        call()?;
    }
    let mut calls = [(time.as_secs_f64() / began.elapsed().as_secs_f64() * 3.0).clamp(3.0, 50_000.0) as u64];
    let kind = OpKind::Broadcast { root: 0 };
    let signature = OpSignature::new(kind, TensorSpec::new(DType::I64, [1]));
    ops.run_on("calls", signature, bytemuck::cast_slice_mut(&mut calls))?;
    ops.barrier("start", SetId::WORLD)?;
    let mut times = Vec::new();
    for _ in 0..calls[0] {
        let began = Instant::now();
        call()?;
        times.push(began.elapsed());
    }
    Ok(times)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
