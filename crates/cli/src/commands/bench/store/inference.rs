//! A model in the store: many clients with batching, and without it.

use super::{Numbers, connect};
use crate::commands::store::failure;
use crate::failure::Failure;
use bytes::Bytes;
use phalanx_graph::{onnx, zoo};
use phalanx_store_client::{Store, StoreError};
use phalanx_types::{Seed, Tensor};
use std::time::{Duration, Instant};

/// Dense layers of 235,000 parameters.
const MODEL: &str = "mlp";
const CLIENTS: usize = 16;

pub(super) fn measure(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let store = connect(address)?;
    let graph = zoo::build(MODEL, &zoo::ZooOptions::default()).map_err(Failure::infrastructure)?;
    let shape = graph.inputs.first().map(|input| graph.shape(*input).at(1)).unwrap_or_default();
    let weights = graph.initialise(Seed(1));
    let blob: Bytes = onnx::export_bytes(&graph, &weights).map_err(Failure::infrastructure)?.into();
    let set = |key: &[u8], options: &[&[u8]]| {
        let words = [&[&b"AI.MODELSTORE"[..], key, b"ONNX", b"CPU"], options, &[b"BLOB", &blob]].concat();
        store.command(&words).map(drop).map_err(failure)
    };
    set(b"bench:alone", &[])?;
    set(b"bench:joined", &[b"BATCHSIZE", b"16"])?;
    let size = shape.iter().product();
    let dims = shape.iter().map(|dim| *dim as u64).collect();
    let sample = Tensor::from_f32(dims, &vec![0.5; size]).map_err(Failure::infrastructure)?;
    let sequential = rate(address, "bench:alone", 1, &sample, time)?;
    let alone = rate(address, "bench:alone", CLIENTS, &sample, time)?;
    let joined = rate(address, "bench:joined", CLIENTS, &sample, time)?;
    for key in ["bench:alone", "bench:joined"] {
        store.command(&[b"AI.MODELDEL", key.as_bytes()]).map_err(failure)?;
    }
    Ok(Numbers::from([
        ("inference_1_client_per_s", sequential),
        ("inference_16_clients_per_s", alone),
        ("inference_16_clients_batched_per_s", joined),
    ]))
}

/// Requests per second of this many clients, each with a connection and tensors of its own.
fn rate(address: &str, model: &str, clients: usize, sample: &Tensor, time: Duration) -> Result<f64, Failure> {
    let stores = (0..clients).map(|_| connect(address)).collect::<Result<Vec<_>, _>>()?;
    // The model is read and compiled, also for batches, before anything is measured.
    ask_all(&stores, model, sample, time / 4).map_err(failure)?;
    let began = Instant::now();
    let answered = ask_all(&stores, model, sample, time).map_err(failure)?;
    Ok(answered as f64 / began.elapsed().as_secs_f64())
}

fn ask_all(stores: &[Store], model: &str, sample: &Tensor, time: Duration) -> Result<usize, StoreError> {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let clients = stores.iter().enumerate();
        let clients: Vec<_> = clients
            .map(|(n, store)| {
                scope.spawn(move || {
                    let (input, output) = (format!("bench:in{n}"), format!("bench:out{n}"));
                    store.put(&input, sample)?;
                    let mut answered = 0;
                    while Instant::now() < end {
                        let (input, output) = (input.as_bytes(), output.as_bytes());
                        let words: [&[u8]; 8] = [
                            b"AI.MODELEXECUTE",
                            model.as_bytes(),
                            b"INPUTS",
                            b"1",
                            input,
                            b"OUTPUTS",
                            b"1",
                            output,
                        ];
                        store.command(&words)?;
                        answered += 1;
                    }
                    store.command(&[b"DEL", input.as_bytes(), output.as_bytes()])?;
                    Ok(answered)
                })
            })
            .collect();
        let lost = || Err(StoreError::Unexpected { what: "a client that ended" });
        clients.into_iter().map(|client| client.join().unwrap_or_else(|_| lost())).sum()
    })
}
