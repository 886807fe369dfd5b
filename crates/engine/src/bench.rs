//! The speed of a matrix product on this machine, as a reference for other measurements.

use crate::kernels::gemm::{Mat, Size, parallel};
use crate::threads::Threads;
use std::time::{Duration, Instant};

/// Multiplies two square matrices `repeats` times and returns the time of each product.
pub fn time_gemm(threads: &Threads, side: usize, repeats: usize) -> Vec<Duration> {
    let values =
        |seed: usize| (0..side * side).map(|i| ((i * 7 + seed) % 13) as f32 - 6.0).collect::<Vec<_>>();
    let (a, b, mut c) = (values(1), values(5), vec![0.0; side * side]);
    let size = Size { m: side, n: side, k: side };
    let once = |_| {
        let begun = Instant::now();
        parallel(threads, size, Mat::rows(&a, side), Mat::rows(&b, side), &mut c);
        std::hint::black_box(&mut c);
        begun.elapsed()
    };
    (0..repeats).map(once).collect()
}
