//! Tensors there and back.

use super::{Numbers, connect};
use crate::commands::bench::stats::median;
use crate::commands::store::failure;
use crate::failure::Failure;
use phalanx_store_client::StoreError;
use phalanx_types::{DType, Tensor, TensorError};
use std::time::{Duration, Instant};

/// A measurement is repeated at least so often.
const LEAST: usize = 5;

/// Lengths that are measured, with the names of their numbers.
const LARGE: [(usize, [&str; 4]); 2] = [
    (16_000_000, ["copy_16mb_gb_s", "put_16mb_gb_s", "get_16mb_gb_s", "view_16mb_us"]),
    (193_000_000, ["copy_193mb_gb_s", "put_193mb_gb_s", "get_193mb_gb_s", "view_193mb_us"]),
];

fn tensor(len: usize) -> Result<Tensor, Failure> {
    let data: Vec<u8> = (0..len).map(|n| (n / 5) as u8).collect();
    Tensor::new(DType::U8, vec![len as u64], data.into())
        .map_err(|error: TensorError| Failure::infrastructure(error))
}

/// The middle of the times that an action takes, in seconds, after one time that is not measured.
fn seconds(time: Duration, mut act: impl FnMut() -> Result<(), StoreError>) -> Result<f64, Failure> {
    act().map_err(failure)?;
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while times.len() < LEAST || Instant::now() < end {
        let began = Instant::now();
        act().map_err(failure)?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(median(&mut times))
}

pub(super) fn small(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let store = connect(address)?;
    let tensor = tensor(1024)?;
    let put = seconds(time / 2, || store.put("bench:small", &tensor))?;
    let get = seconds(time / 2, || store.get("bench:small").map(drop))?;
    store.delete("bench:small").map_err(failure)?;
    Ok(Numbers::from([("put_1kb_us", put * 1e6), ("get_1kb_us", get * 1e6)]))
}

pub(super) fn large(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let store = connect(address)?;
    let mut numbers = Numbers::new();
    for (len, [copy_name, put_name, get_name, view_name]) in LARGE {
        let tensor = tensor(len)?;
        let mut room = vec![1u8; len];
        let rate = |seconds: f64| len as f64 / seconds / 1e9;
        let copy = seconds(time / 4, || {
            room.copy_from_slice(std::hint::black_box(tensor.data()));
            Ok(())
        })?;
        let put = seconds(time / 4, || store.put("bench:large", &tensor))?;
        let get = seconds(time / 4, || store.get_into("bench:large", &mut room))?;
        let view = seconds(time / 4, || store.get("bench:large").map(drop))?;
        store.delete("bench:large").map_err(failure)?;
        numbers.extend([(copy_name, rate(copy)), (put_name, rate(put)), (get_name, rate(get))]);
        numbers.insert(view_name, view * 1e6);
    }
    Ok(numbers)
}
