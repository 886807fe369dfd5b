//! Ranks as threads; compares with results that only the crate itself can compute.

mod join;

use super::SharedGroup;

/// More cores than ranks, and fewer: both ways of waiting.
const CORES: [usize; 2] = [64, 1];

/// Runs one thread per rank and returns their results in rank order.
fn run<T: Send>(ranks: usize, cores: usize, rank: impl Fn(&mut SharedGroup) -> T + Sync) -> Vec<T> {
    let prepare = |rank| SharedGroup::prepare_for_cores(rank, ranks, 7, 3 << 20, cores).unwrap();
    let (prepared, addresses): (Vec<_>, Vec<_>) = (0..ranks).map(prepare).unzip();
    let groups: Vec<_> = prepared.into_iter().map(|one| one.connect(&addresses).unwrap()).collect();
    let rank = &rank;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            groups.into_iter().map(|mut group| scope.spawn(move || rank(&mut group))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
