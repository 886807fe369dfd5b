//! Values of metrics, bit by bit.

use super::on_both;
use crate::Window;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::json;

/// Values at which readers of decimal numbers have gone wrong, and others of all sizes.
fn values() -> Vec<f64> {
    let known = [0.1, 1.0 / 3.0, 5e-324, f64::MIN_POSITIVE.next_down(), f64::MAX, 1e15 + 0.3, 1e23, 0.0];
    let mut rng = Pcg64Mcg::seed_from_u64(14);
    let bits = std::iter::repeat_with(|| f64::from_bits(rng.random())).filter(|value| value.is_finite());
    let any: Vec<f64> = bits.take(5000).collect();
    let usual = (0..5000).map(|_| rng.random::<f64>());
    known.into_iter().chain(any).chain(usual).collect()
}

#[test]
fn a_value_comes_back_to_the_bit_from_the_files_and_from_the_ledger() {
    let values = values();
    on_both(|place| {
        let run = place.run("run");
        let line =
            |(at, value): (usize, &f64)| format!("{}\n", json!({ "step": at + 1, "pass": 1, "x": value }));
        run.line(&values.iter().enumerate().map(line).collect::<String>());
        let ledger = place.ledger();
        ledger.feed(&run.path).unwrap();
        let read: Vec<u64> = ledger
            .curve(&run.uid, "x", Window::default())
            .unwrap()
            .buckets
            .iter()
            .map(|bucket| bucket.first.to_bits())
            .collect();
        let written: Vec<u64> = values.iter().map(|value| value.to_bits()).collect();
        assert_eq!(read.len(), written.len());
        let wrong = read.iter().zip(&written).filter(|(read, written)| read != written).count();
        assert_eq!(wrong, 0, "of {} values", written.len());
    });
}
