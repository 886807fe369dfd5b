//! Links between threads, over real sockets.

mod failures;
mod join;
mod kinds;

use super::{Call, Links};
use crate::core::schedule::{Arithmetic, Program, Seat};
use crate::core::words::{Kind, Reduction, Signature};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::net::{TcpListener, TcpStream};
use std::thread;

const EPOCH: u64 = 5;

/// Every rank's links to all others.
fn mesh(ranks: usize) -> Vec<Links> {
    let mut streams: Vec<Vec<Option<TcpStream>>> =
        (0..ranks).map(|_| (0..ranks).map(|_| None).collect()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (low, high) in (0..ranks).flat_map(|high| (0..high).map(move |low| (low, high))) {
        streams[high][low] = Some(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        streams[low][high] = Some(listener.accept().unwrap().0);
    }
    let links = streams.into_iter().enumerate();
    links.map(|(rank, streams)| Links::new(rank, EPOCH, streams).unwrap()).collect()
}

fn signature(kind: Kind, count: usize) -> Signature {
    Signature {
        sequence: 1,
        kind,
        reduction: None,
        dtype: DType::F32,
        count: count as u64,
        name: "weights".into(),
    }
}

/// The program and data of one rank.
struct Task {
    kind: Kind,
    program: Program,
    dtype: DType,
    reduction: Reduction,
}

impl Task {
    fn new(kind: Kind, program: Program) -> Self {
        Self { kind, program, dtype: DType::F32, reduction: Reduction::Sum }
    }

    fn run(&self, links: &mut Links, input: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        let signature = signature(self.kind, 0);
        let ranks = links.links.len();
        let arithmetic = Arithmetic { dtype: self.dtype, reduction: self.reduction, ranks };
        links.run(Call { signature: &signature, program: &self.program, arithmetic, input, output })
    }
}

/// Runs one thread for each rank and returns their results.
fn each<T: Send>(links: &mut [Links], work: impl Fn(Seat, &mut Links) -> T + Sync) -> Vec<T> {
    let ranks = links.len();
    thread::scope(|scope| {
        let work = &work;
        let start = |(rank, links)| scope.spawn(move || work(Seat { rank, ranks }, links));
        let threads: Vec<_> = links.iter_mut().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Whole numbers as floats: their sums are exact in every order.
fn whole(rank: usize, n: usize) -> Vec<f32> {
    repeated(n, |index| ((index * 7 + rank * 13) % PERIOD) as f32)
}

/// The sum of what [`whole`] gives to all ranks.
fn sum(ranks: usize, n: usize) -> Vec<f32> {
    repeated(n, |index| (0..ranks).map(|rank| ((index * 7 + rank * 13) % PERIOD) as f32).sum())
}

/// Values repeat after this many elements.
const PERIOD: usize = 101;

/// Computes one period: computing every element would take a debug build minutes.
fn repeated(n: usize, value: impl Fn(usize) -> f32) -> Vec<f32> {
    let period: Vec<f32> = (0..PERIOD).map(value).collect();
    let mut values = period.repeat(n.div_ceil(PERIOD));
    values.truncate(n);
    values
}
