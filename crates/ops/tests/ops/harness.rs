//! Groups of ranks for tests.

use half::{bf16, f16};
use phalanx_ops::{
    DType, Meeting, OpHandle, OpKind, OpSignature, Operation, Ops, OpsError, OpsOptions, RawTensor,
    Reduction, RendezvousServer, Secret, TensorSpec,
};
use std::time::Duration;

/// Longer than any wait of a test that passes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) fn options() -> OpsOptions {
    OpsOptions { bucket_bytes: 1 << 20, timeout: DEADLINE, ..OpsOptions::default() }
}

/// Runs a thread for each rank and gives what they return, in the order of ranks.
pub(crate) fn run_with<T: Send>(ranks: u32, options: &OpsOptions, work: impl Fn(Ops) -> T + Sync) -> Vec<T> {
    let secret = Secret::random().unwrap();
    let server = RendezvousServer::start("127.0.0.1:0", secret.clone(), 0..ranks).unwrap();
    let address = server.address().to_string();
    let (work, address, secret) = (&work, &address, &secret);
    std::thread::scope(|scope| {
        let start = |worker| {
            scope.spawn(move || {
                let (address, secret) = (address.clone(), secret.clone());
                let meeting = Meeting::At { address, worker, serve: None, secret };
                let ops = Ops::init(meeting, options.clone()).unwrap();
                assert_eq!((ops.rank(), ops.size()), (worker, ranks));
                work(ops)
            })
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

pub(crate) fn run<T: Send>(ranks: u32, work: impl Fn(Ops) -> T + Sync) -> Vec<T> {
    run_with(ranks, &options(), work)
}

pub(crate) fn reduce(reduction: Reduction, dtype: DType, shape: &[u64]) -> OpSignature {
    OpSignature::new(OpKind::AllReduce { reduction }, TensorSpec::new(dtype, shape))
}

/// Memory of a test that outlives its operation: handles are waited for before it is dropped.
#[expect(unsafe_code, reason = "tests lend memory as bindings do")]
pub(crate) fn lend(bytes: &mut [u8]) -> RawTensor {
    // SAFETY: every test waits for its operations, or drops its `Ops`, while it holds the memory.
    unsafe { RawTensor::in_place(bytes.as_mut_ptr(), bytes.len()) }
}

pub(crate) fn submit(
    ops: &Ops,
    name: &str,
    signature: OpSignature,
    bytes: &mut [u8],
) -> Result<OpHandle, OpsError> {
    ops.submit(Operation::new(name, signature, vec![lend(bytes)]))
}

pub(crate) fn encode(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DType::F32 => bytes.extend((value as f32).to_ne_bytes()),
            DType::F64 => bytes.extend(value.to_ne_bytes()),
            DType::F16 => bytes.extend(f16::from_f64(value).to_ne_bytes()),
            DType::Bf16 => bytes.extend(bf16::from_f64(value).to_ne_bytes()),
            DType::I8 => bytes.push(value as i64 as u8),
            DType::I16 => bytes.extend((value as i64 as i16).to_ne_bytes()),
            DType::I32 => bytes.extend((value as i32).to_ne_bytes()),
            DType::I64 => bytes.extend((value as i64).to_ne_bytes()),
            DType::U8 => bytes.push(value as i64 as u8),
            DType::U16 => bytes.extend((value as i64 as u16).to_ne_bytes()),
            DType::U32 => bytes.extend((value as i64 as u32).to_ne_bytes()),
            DType::U64 => bytes.extend((value as i64 as u64).to_ne_bytes()),
            DType::Bool => bytes.push(u8::from(value != 0.0)),
        }
    }
    bytes
}

/// Small whole numbers, which every type holds, with their sums.
pub(crate) fn value(rank: u32, index: usize) -> f64 {
    ((index * 7 + rank as usize * 3) % 4) as f64
}

pub(crate) fn values(dtype: DType, rank: u32, count: usize) -> Vec<u8> {
    encode(dtype, (0..count).map(|index| value(rank, index)))
}

/// What ranks get of [`values`].
pub(crate) fn combined(dtype: DType, reduction: Reduction, ranks: &[u32], count: usize) -> Vec<u8> {
    let of = |index: usize| {
        let all = || ranks.iter().map(|rank| value(*rank, index));
        let truth = |of: f64| f64::from(u8::from(of != 0.0));
        match (reduction, dtype) {
            (Reduction::Sum | Reduction::Max, DType::Bool) => truth(all().sum()),
            (Reduction::Product | Reduction::Min, DType::Bool) => truth(all().product()),
            (Reduction::Sum, _) => all().sum(),
            (Reduction::Average, DType::F64) => all().sum::<f64>() / ranks.len() as f64,
            (Reduction::Average, DType::F32 | DType::F16 | DType::Bf16) => {
                f64::from(all().sum::<f64>() as f32 / ranks.len() as f32)
            }
            (Reduction::Average, _) => (all().sum::<f64>() / ranks.len() as f64).trunc(),
            (Reduction::Min, _) => all().fold(f64::MAX, f64::min),
            (Reduction::Max, _) => all().fold(f64::MIN, f64::max),
            (Reduction::Product, _) => all().product(),
            (Reduction::Adasum, _) => unreachable!("it is not computed element by element"),
        }
    };
    encode(dtype, (0..count).map(of))
}
