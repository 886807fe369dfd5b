use super::*;
use crate::kernels::math::testing::{bits, close, noise};

/// A product to test: sizes, both factors, the result.
type Product<'a> = &'a dyn Fn(Size, Mat<'_>, Mat<'_>, &mut [f32]);

/// The product with `b` in both layouts, by whatever runs it.
fn both_layouts(size: Size, run: Product<'_>) -> [Vec<f32>; 2] {
    let Size { m, n, k } = size;
    let (a, b) = (noise(m * k, 1), noise(n * k, 2));
    let turned: Vec<f32> = (0..n * k).map(|at| b[at % k * n + at / k]).collect();
    [Mat::rows(&b, n), Mat::transposed(&turned, k)].map(|b| {
        // What is not computed stays.
        let mut c = vec![f32::NAN; m * n];
        run(size, Mat::rows(&a, k), b, &mut c);
        c
    })
}

fn check(size: Size, run: Product<'_>) {
    let Size { m, n, k } = size;
    let (a, b) = (noise(m * k, 1), noise(n * k, 2));
    let sum = |i, j| (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum::<f64>();
    let wanted: Vec<f64> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
    for got in both_layouts(size, run) {
        close(&got, &wanted, 2e-6, &format!("{m} x {n} x {k}"));
    }
}

fn dispatched(size: Size, a: Mat<'_>, b: Mat<'_>, c: &mut [f32]) {
    arch().dispatch(FewRows { size, a, b, c });
}

#[test]
fn all_small_shapes_are_right() {
    for m in 1..=17 {
        for n in (1..=9).chain([15, 16, 17, 31, 33, 64, 65, 70]) {
            for k in (1..=5).chain([15, 16, 17, 32, 47, 100]) {
                check(Size { m, n, k }, &dispatched);
            }
        }
    }
}

#[test]
fn every_kind_of_vector_is_right() {
    for (m, n, k) in [(1, 16, 1), (7, 83, 5), (9, 65, 300), (16, 64, 33), (64, 10, 784)] {
        let size = Size { m, n, k };
        check(size, &|size, a, b, c| Simd::vectorize(pulp::Scalar::new(), FewRows { size, a, b, c }));
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = pulp::x86::V3::try_new() {
            check(size, &|size, a, b, c| Simd::vectorize(v3, FewRows { size, a, b, c }));
        }
    }
}

#[test]
fn a_row_has_the_same_bits_beside_any_others_and_on_any_number_of_threads() {
    let (n, k) = (300, 1000);
    let all = both_layouts(Size { m: MOST_ROWS, n, k }, &dispatched);
    for count in [1, 2, 5] {
        let threads = Threads::new(count);
        for m in [1, 2, 3, 4, 7, 16, 63, 64] {
            let some = both_layouts(Size { m, n, k }, &|size, a, b, c| product(&threads, size, a, b, c));
            for (some, all) in some.iter().zip(&all) {
                assert_eq!(bits(some), bits(&all[..m * n]), "{m} rows, {count} threads");
            }
        }
    }
}

#[test]
fn nothing_times_nothing_is_zero() {
    let threads = Threads::new(1);
    let mut c = [1.0; 6];
    let empty = Mat::rows(&[], 0);
    product(&threads, Size { m: 2, n: 3, k: 0 }, empty, Mat::rows(&[], 3), &mut c);
    assert_eq!(c, [0.0; 6]);
    product(&threads, Size { m: 0, n: 3, k: 0 }, empty, Mat::rows(&[], 3), &mut []);
}
