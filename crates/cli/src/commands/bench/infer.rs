//! `phalanx bench infer`: a node that serves a model, and clients in this process.

use super::stats::percentile;
use crate::commands::infer::infer_failure;
use crate::failure::Failure;
use crate::output::{Output, Render, summary};
use crate::own_program::own_program;
use anyhow::Context;
use clap::Args;
use phalanx_fabric::{FabricConfig, NodeKind};
use phalanx_graph::zoo;
use phalanx_infer::{EdgeNode, InferError};
use phalanx_nodes::{LocalNodes, LocalSpec, private_domain};
use phalanx_train::TrainedModel;
use phalanx_types::{Parcel, Seed, Tensor};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many requests are under way at once, in turn.
const CONCURRENCY: [usize; 3] = [1, 8, 64];
const MODEL: &str = "digits-cnn";

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx bench infer --output json")]
pub(crate) struct InferArgs {
    /// Nodes that serve the model.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// How long each measurement takes.
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = crate::args::duration)]
    time: Duration,
}

#[derive(Debug, Serialize)]
struct Measured {
    model: &'static str,
    nodes: u32,
    /// By the number of requests under way at once.
    by_concurrency: BTreeMap<usize, Rate>,
}

#[derive(Debug, Serialize)]
struct Rate {
    requests_per_s: f64,
    latency_p50_us: f64,
    latency_p99_us: f64,
}

impl Render for Measured {
    fn table(&self) -> String {
        let rate = |rate: &Rate| {
            let Rate { requests_per_s, latency_p50_us, latency_p99_us } = rate;
            format!("{requests_per_s:.0} requests/s, p50 {latency_p50_us:.0} µs, p99 {latency_p99_us:.0} µs")
        };
        let names = ["1 at a time", "8 at a time", "64 at a time"];
        let rows = names.into_iter().zip(self.by_concurrency.values().map(rate));
        summary([("model", self.model.to_owned())].into_iter().chain(rows))
    }

    fn quiet(&self) -> String {
        self.by_concurrency
            .values()
            .map(|rate| format!("{:.0}", rate.requests_per_s))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// A model file that is removed at the end.
struct ModelFile(PathBuf);

impl ModelFile {
    fn write() -> Result<Self, Failure> {
        let graph = zoo::build(MODEL, &zoo::ZooOptions::default()).map_err(Failure::infrastructure)?;
        let weights = graph.initialise(Seed(1));
        let file = Self(std::env::temp_dir().join(format!("phalanx-bench-{}.onnx", std::process::id())));
        TrainedModel::new(graph, weights).save_onnx(&file.0).map_err(Failure::infrastructure)?;
        Ok(file)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        // Left behind in a temporary directory, at worst.
        let _removed = std::fs::remove_file(&self.0);
    }
}

pub(crate) async fn run(args: InferArgs, output: Output) -> Result<(), Failure> {
    let file = ModelFile::write()?;
    let domain = private_domain().map_err(Failure::infrastructure)?;
    let arguments = vec!["--serve".to_owned(), format!("{MODEL}={}", file.path().display())];
    let spec = LocalSpec { arguments, ..LocalSpec::new(own_program(), domain.clone(), args.nodes) };
    let nodes = LocalNodes::start(&spec).map_err(Failure::infrastructure)?;
    let edge =
        EdgeNode::start(FabricConfig::new(domain, "bench", NodeKind::Edge)).await.map_err(infer_failure)?;
    let mut by_concurrency = BTreeMap::new();
    for concurrency in CONCURRENCY {
        // Nodes learn how long requests take, and compile batch sizes, before anything is measured.
        measure(&edge, concurrency, args.time / 3).await?;
        by_concurrency.insert(concurrency, measure(&edge, concurrency, args.time).await?);
    }
    edge.shutdown().await;
    drop(nodes);
    output.print(&Measured { model: MODEL, nodes: args.nodes, by_concurrency })
}

async fn measure(edge: &EdgeNode, concurrency: usize, time: Duration) -> Result<Rate, Failure> {
    let started = Instant::now();
    let clients: Vec<_> =
        (0..concurrency).map(|_| tokio::spawn(ask_until(edge.clone(), started + time))).collect();
    let mut times = Vec::new();
    for client in clients {
        let asked = client.await.context("a client ended").map_err(Failure::infrastructure)?;
        times.extend(asked.map_err(infer_failure)?);
    }
    let requests_per_s = times.len() as f64 / started.elapsed().as_secs_f64();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(Rate {
        requests_per_s,
        latency_p50_us: micros(percentile(&mut times, 0.5)),
        latency_p99_us: micros(percentile(&mut times, 0.99)),
    })
}

/// Sends one request after the other, and takes the time of each.
async fn ask_until(edge: EdgeNode, end: Instant) -> Result<Vec<Duration>, InferError> {
    let mut times = Vec::new();
    while Instant::now() < end {
        let started = Instant::now();
        let sample = Tensor::from_f32(vec![1, 1, 8, 8], &[0.5; 64]);
        let inputs = sample.map(|sample| Parcel::default().with_tensor("x", sample)).unwrap_or_default();
        edge.request_inference(MODEL, inputs).await?;
        times.push(started.elapsed());
    }
    Ok(times)
}
