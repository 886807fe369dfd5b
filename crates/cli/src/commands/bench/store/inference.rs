//! A model in the store: many clients with batching, and without it.

use super::{Numbers, connect};
use crate::commands::store::failure;
use crate::failure::Failure;
use bytes::Bytes;
use phalanx_graph::{Builder, Graph, onnx, zoo};
use phalanx_store_client::{Store, StoreError};
use phalanx_types::{Seed, Tensor};
use std::time::{Duration, Instant};

const KEY: &str = "bench:model";
const CLIENTS: usize = 16;

/// How a model is stored: with the words of `AI.MODELSTORE`.
const ALONE: &[&[u8]] = &[];
const JOINED: &[&[u8]] = &[b"BATCHSIZE", b"16"];

/// What is measured: a name, how many clients, and how the model is stored.
type Way = (&'static str, usize, &'static [&'static [u8]]);

/// Dense layers of 235,000 parameters: most of a request is its way through the sockets.
const SMALL: [Way; 3] = [
    ("inference_1_client_per_s", 1, ALONE),
    ("inference_16_clients_per_s", CLIENTS, ALONE),
    ("inference_16_clients_batched_per_s", CLIENTS, JOINED),
];

/// Dense layers of 6.3 million parameters: most of a request is its computation.
const WIDE: [Way; 3] = [
    ("inference_wide_1_client_per_s", 1, ALONE),
    ("inference_wide_16_clients_per_s", CLIENTS, ALONE),
    ("inference_wide_16_clients_batched_per_s", CLIENTS, JOINED),
];

pub(super) fn measure(address: &str, time: Duration) -> Result<Numbers, Failure> {
    let small = zoo::build("mlp", &zoo::ZooOptions::default()).map_err(Failure::infrastructure)?;
    let mut numbers = measure_model(address, &small, &SMALL, time)?;
    numbers.extend(measure_model(address, &wide()?, &WIDE, time)?);
    Ok(numbers)
}

fn wide() -> Result<Graph, Failure> {
    let mut builder = Builder::new("wide");
    let mut x = builder.input("x", &[1024]);
    for layer in ["fc1", "fc2"] {
        x = builder.linear(layer, x, 2048);
        x = builder.relu(x);
    }
    x = builder.linear("fc3", x, 10);
    builder.output(x);
    builder.finish().map_err(Failure::infrastructure)
}

fn measure_model(address: &str, graph: &Graph, ways: &[Way], time: Duration) -> Result<Numbers, Failure> {
    let store = connect(address)?;
    let shape = graph.inputs.first().map(|input| graph.shape(*input).at(1)).unwrap_or_default();
    let weights = graph.initialise(Seed(1));
    let blob: Bytes = onnx::export_bytes(graph, &weights).map_err(Failure::infrastructure)?.into();
    let size = shape.iter().product();
    let dims = shape.iter().map(|dim| *dim as u64).collect();
    let sample = Tensor::from_f32(dims, &vec![0.5; size]).map_err(Failure::infrastructure)?;
    let mut numbers = Numbers::new();
    for (name, clients, options) in ways {
        let words = [&[&b"AI.MODELSTORE"[..], KEY.as_bytes(), b"ONNX", b"CPU"], *options, &[b"BLOB", &blob]];
        store.command(&words.concat()).map_err(failure)?;
        numbers.insert(name, rate(address, KEY, *clients, &sample, time)?);
    }
    store.command(&[b"AI.MODELDEL", KEY.as_bytes()]).map_err(failure)?;
    Ok(numbers)
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
