//! `phalanx model list`.

use crate::failure::Failure;
use crate::output::{Output, Render, listing};
use clap::Args;
use phalanx_graph::zoo;
use serde::Serialize;

#[derive(Debug, Args)]
#[command(after_help = "Example: phalanx model list --output json")]
pub(crate) struct ListArgs {}

#[derive(Debug, Serialize)]
struct ModelRow {
    name: &'static str,
    /// With `N` for the batch.
    input: String,
    output: String,
    parameters: u64,
    flops: u64,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct Models(Vec<ModelRow>);

impl Render for Models {
    fn table(&self) -> String {
        let rows = self.0.iter().map(|m| {
            let numbers = [m.parameters, m.flops].map(super::inspect::short);
            let [parameters, flops] = numbers;
            [format!("zoo:{}", m.name), m.input.clone(), m.output.clone(), parameters, flops]
        });
        listing(["model", "input", "output", "parameters", "flops/sample"], rows)
    }

    fn quiet(&self) -> String {
        self.0.iter().map(|m| m.name).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(_args: ListArgs, output: Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for name in zoo::NAMES {
        let graph = zoo::build(name, &zoo::ZooOptions::default()).map_err(Failure::infrastructure)?;
        let cost = graph.cost();
        let shape = |ids: &[phalanx_graph::ValueId]| {
            ids.first().map(|v| graph.shape(*v).to_string()).unwrap_or_default()
        };
        let (input, out) = (shape(&graph.inputs), shape(&graph.outputs));
        rows.push(ModelRow { name, input, output: out, parameters: cost.parameters, flops: cost.flops });
    }
    output.print(&Models(rows))
}
