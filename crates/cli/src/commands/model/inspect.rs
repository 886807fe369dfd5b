//! `phalanx model inspect`.

use crate::commands::train::train_failure;
use crate::commands::trained::model_from;
use crate::failure::Failure;
use crate::output::{Output, Render, listing, summary};
use anyhow::Context;
use clap::Args;
use phalanx_engine::{Optimizer, OptimizerSpec};
use phalanx_graph::{Graph, weights};
use phalanx_records::params_hash;
use phalanx_train::config::ModelConfig;
use phalanx_train::find_model;
use phalanx_types::ByteSize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx model inspect cnn.onnx
  phalanx model inspect zoo:mobilenet-v2 --input 3,112,112 --batch 16
  phalanx model inspect model.safetensors --output json")]
pub(crate) struct InspectArgs {
    /// An .onnx file, a .toml file, a .safetensors file or zoo:NAME.
    model: String,
    /// The shape of one sample, for models that leave it open.
    #[arg(long, value_delimiter = ',')]
    input: Option<Vec<usize>>,
    /// The number of classes, for models that leave it open.
    #[arg(long)]
    classes: Option<usize>,
    /// The size of a dimension that an ONNX file names; may be given more than once.
    #[arg(long = "dim", value_name = "NAME=SIZE", value_parser = dim)]
    dims: Vec<(String, usize)>,
    /// The batch for which memory is told.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    batch: u64,
}

fn dim(text: &str) -> Result<(String, usize), String> {
    let wrong = || "expected a name and a size, like seq=128".to_owned();
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    let size = size.parse().ok().filter(|size| *size > 0).ok_or_else(wrong)?;
    Ok((name.to_owned(), size))
}

#[derive(Debug, Serialize)]
struct Inspected {
    name: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    layers: Vec<Layer>,
    parameters: u64,
    buffers: u64,
    parameter_bytes: u64,
    /// Forward, per sample.
    flops: u64,
    /// Per sample.
    activation_bytes: u64,
    batch: u64,
    /// Weights, gradients, Adam's state and activations of a batch.
    training_bytes: u64,
    /// What each optimizer keeps.
    optimizer_bytes: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Port {
    name: String,
    shape: String,
}

#[derive(Debug, Serialize)]
struct Layer {
    name: String,
    operator: &'static str,
    output: String,
    parameters: u64,
    flops: u64,
    activations: u64,
}

/// A number as people say it: `3.5 M`.
pub(super) fn short(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1} k", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} G", n as f64 / 1e9),
    }
}

impl Render for Inspected {
    fn table(&self) -> String {
        let dash = |n: u64| if n == 0 { "-".to_owned() } else { short(n) };
        let layers = self.layers.iter().map(|l| {
            [l.name.clone(), l.operator.to_owned(), l.output.clone(), dash(l.parameters), dash(l.flops)]
        });
        let layers = listing(["layer", "operator", "output", "parameters", "flops"], layers);
        let ports = |ports: &[Port]| {
            ports.iter().map(|p| format!("{} {}", p.name, p.shape)).collect::<Vec<_>>().join(", ")
        };
        let optimizers =
            self.optimizer_bytes.iter().map(|(name, bytes)| format!("{name} {}", ByteSize(*bytes)));
        let mut rows = vec![
            ("model", self.name.clone()),
            ("inputs", ports(&self.inputs)),
            ("outputs", ports(&self.outputs)),
            ("parameters", format!("{} ({})", self.parameters, ByteSize(self.parameter_bytes))),
            ("forward", format!("{} flops per sample", short(self.flops))),
            ("activations", format!("{} per sample", ByteSize(self.activation_bytes))),
            ("optimizer", optimizers.collect::<Vec<_>>().join(", ")),
            (
                "to train",
                format!("{} with Adam and a batch of {}", ByteSize(self.training_bytes), self.batch),
            ),
        ];
        rows.extend(self.notes.iter().map(|note| ("note", note.clone())));
        format!("{layers}\n\n{}", summary(rows))
    }

    fn quiet(&self) -> String {
        self.parameters.to_string()
    }
}

fn inspect(graph: &Graph, batch: u64, notes: Vec<String>) -> Inspected {
    let cost = graph.cost();
    let port = |v: &phalanx_graph::ValueId| Port {
        name: graph.value(*v).name.clone(),
        shape: graph.shape(*v).to_string(),
    };
    let kept = |name: &'static str| {
        let spec: OptimizerSpec = serde_json::from_value(name.into()).ok()?;
        Some((name, cost.optimizer_bytes(Optimizer::bytes_per_parameter(&spec) as u64)))
    };
    let optimizer_bytes: BTreeMap<_, _> =
        ["sgd", "adam", "rmsprop", "adagrad"].into_iter().filter_map(kept).collect();
    let adam = Optimizer::bytes_per_parameter(&OptimizerSpec::Adam(phalanx_engine::Adam::default()));
    Inspected {
        name: graph.name.clone(),
        inputs: graph.inputs.iter().map(port).collect(),
        outputs: graph.outputs.iter().map(port).collect(),
        parameters: cost.parameters,
        buffers: cost.buffers,
        parameter_bytes: cost.parameter_bytes,
        flops: cost.flops,
        activation_bytes: cost.activation_bytes,
        batch,
        training_bytes: cost.training_bytes(batch, adam as u64),
        optimizer_bytes,
        notes,
        layers: cost
            .nodes
            .into_iter()
            .map(|n| Layer {
                name: n.name,
                operator: n.operator,
                output: n.output,
                parameters: n.parameters,
                flops: n.flops,
                activations: n.activations,
            })
            .collect(),
    }
}

#[derive(Debug, Serialize)]
struct Stored {
    tensors: Vec<StoredTensor>,
    elements: u64,
    bytes: u64,
    params_hash: String,
}

#[derive(Debug, Serialize)]
struct StoredTensor {
    name: String,
    dtype: String,
    shape: Vec<u64>,
}

impl Render for Stored {
    fn table(&self) -> String {
        let rows = self.tensors.iter().map(|t| [t.name.clone(), t.dtype.clone(), format!("{:?}", t.shape)]);
        let tensors = listing(["tensor", "type", "shape"], rows);
        let all = summary([
            ("tensors", self.tensors.len().to_string()),
            ("elements", self.elements.to_string()),
            ("bytes", ByteSize(self.bytes).to_string()),
            ("parameters", self.params_hash.clone()),
        ]);
        format!("{tensors}\n\n{all}")
    }

    fn quiet(&self) -> String {
        self.elements.to_string()
    }
}

fn stored(path: &Path) -> Result<Stored, Failure> {
    let told = || format!("could not read {}", path.display());
    let bytes = std::fs::read(path).with_context(told).map_err(Failure::usage)?;
    let weights = weights::from_bytes(bytes.into()).with_context(told).map_err(Failure::usage)?;
    let tensors = weights.iter().map(|(name, tensor)| StoredTensor {
        name: name.clone(),
        dtype: format!("{:?}", tensor.dtype()).to_lowercase(),
        shape: tensor.shape().to_vec(),
    });
    Ok(Stored {
        tensors: tensors.collect(),
        elements: weights.values().map(|t| t.shape().iter().product::<u64>()).sum(),
        bytes: weights.values().map(|t| t.data().len() as u64).sum(),
        params_hash: params_hash(&weights),
    })
}

pub(crate) fn run(args: InspectArgs, output: Output) -> Result<(), Failure> {
    let path = Path::new(&args.model);
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        return output.print(&stored(path)?);
    }
    let config = ModelConfig {
        input: args.input,
        classes: args.classes,
        dims: args.dims.into_iter().collect(),
        ..ModelConfig::new(model_from(&args.model)?)
    };
    let found = find_model(&config).map_err(train_failure)?;
    output.print(&inspect(&found.graph, args.batch, found.notes))
}
