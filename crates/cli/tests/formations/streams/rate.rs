//! How fast a trainer is that is fed by a stream, next to one that reads the same samples from a file.
//!
//! `cargo test --release -p phalanx-cli --test formations streams::rate -- --ignored --nocapture`

use super::producers::store;
use crate::sandbox;
use phalanx_data::{Batch, Dataset, SourceSpec};
use phalanx_store_client::{ProducerOptions, Store, StoreOptions};
use phalanx_streams::StreamSettings;
use phalanx_testkit::{digits, digits_data};
use phalanx_types::{DType, ProducerId, Tensor};
use serde_json::Value;
use std::path::Path;

const PAIRS: usize = 5;
/// At least this much of the rate from a file.
const LEAST: f64 = 0.95;

/// Uploads the digits in pieces, as a simulation does.
fn upload(at: &str) {
    let spec =
        SourceSpec { x: Some("x_train".into()), y: Some("y_train".into()), ..SourceSpec::file(digits()) };
    let data = Dataset::open(&spec, Path::new("")).unwrap();
    let store = Store::connect(at, StoreOptions::default()).unwrap();
    let settings = StreamSettings { expected_producers: Some(1), ..StreamSettings::default() };
    let id = ProducerId::new("digits").unwrap();
    let options = ProducerOptions { settings: Some(settings), ..ProducerOptions::new(id) };
    let mut producer = store.produce("digits", options).unwrap();
    let all: Vec<usize> = (0..data.fixed_len().unwrap()).collect();
    for piece in all.chunks(50) {
        let mut batch = Batch::new();
        data.read(piece, &mut batch).unwrap();
        let shape: Vec<u64> =
            [piece.len()].iter().chain(data.x_shape()).map(|length| *length as u64).collect();
        let x = Tensor::from_f32(shape, &batch.x).unwrap();
        let y: Vec<u8> = batch.y.iter().flat_map(|class| (*class as i64).to_le_bytes()).collect();
        let y = Tensor::new(DType::I64, vec![piece.len() as u64], y.into()).unwrap();
        producer.put(&[("x", &x), ("y", &y)]).unwrap();
    }
    producer.close().unwrap();
}

#[test]
#[ignore = "measures; needs a machine that does nothing else, and a release build"]
fn a_stream_feeds_a_trainer_as_fast_as_a_file() {
    let sandbox = sandbox();
    let (_store, at) = store(&sandbox, &[]);
    upload(&at);
    let stream =
        format!("train = {{ stream = \"digits\", store = \"{at}\", x = \"x\", y = \"y\" }}\nscale = 0.0625");
    let file = digits_data().lines().next().unwrap().to_owned() + "\nscale = 0.0625";
    let models =
        [("digits-cnn", "zoo = \"digits-cnn\"", 40), ("mlp", "zoo = \"mlp\"\ninput = [1, 8, 8]", 400)];
    let mut ratios = Vec::new();
    for (name, model, epochs) in models {
        let keys = format!(
            "loss = \"cross_entropy\"\noptimizer = \"sgd\"\nbatch = 64\nseed = 1\nepochs = {epochs}\ncheckpoint_every = \"never\""
        );
        let rate = |data: &str, run: String| {
            sandbox.run_file(model, data, &keys, "");
            let summary: Value = sandbox.json(&["train", "run.toml", "--run-dir", &run, "--output", "json"]);
            summary["samples_per_s"].as_f64().unwrap()
        };
        let pairs: Vec<[f64; 2]> = (0..PAIRS)
            .map(|pair| {
                [rate(&file, format!("{name}-file-{pair}")), rate(&stream, format!("{name}-stream-{pair}"))]
            })
            .collect();
        let median = |side: usize| {
            let mut rates: Vec<f64> = pairs.iter().map(|pair| pair[side]).collect();
            rates.sort_by(f64::total_cmp);
            rates[PAIRS / 2]
        };
        let (from_file, from_stream) = (median(0), median(1));
        println!(
            "{name}: {from_file:.0} samples/s from a file, {from_stream:.0} from a stream: {:.3}",
            from_stream / from_file
        );
        ratios.push((name, from_stream / from_file));
    }
    assert!(ratios.iter().all(|(_, ratio)| *ratio >= LEAST), "{ratios:?}");
}
