//! What is known of a candidate before it is trained: its name, its cost, and whether it can be built at all.

use crate::candidate::Candidate;
use crate::cost_program::CostPrograms;
use crate::latency::LatencyMeter;
use phalanx_engine::Optimizer;
use phalanx_graph::Graph;
use phalanx_records::with_causes;
use phalanx_search::core::control::{Candidates, Described};
use phalanx_search::core::space::Genes;
use phalanx_search::core::template::SearchFile;
use phalanx_train::config::RunConfig;
use phalanx_train::find_model;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Builds candidates of a search file without training them.
#[derive(Debug)]
pub(crate) struct Describer {
    file: Arc<SearchFile>,
    /// Where the search file was: paths in it begin there.
    base: PathBuf,
    /// Measures what is wanted beforehand.
    meter: LatencyMeter,
    /// Asks the programs of objectives.
    programs: CostPrograms,
}

impl Describer {
    pub(crate) fn new(file: Arc<SearchFile>, base: PathBuf) -> Self {
        let meter = LatencyMeter::new(&file);
        let programs = CostPrograms::new(&file, &base);
        Self { file, base, meter, programs }
    }

    /// What follows from a candidate, also under the names of the objectives.
    fn named(&self, mut known: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        for spec in self.file.objectives() {
            if let Some(value) = known.get(&spec.from).copied() {
                known.insert(spec.objective.name.clone(), value);
            }
        }
        known
    }

    /// Whether a candidate will be refused for what is known already: then nothing is measured of it, which may be far
    /// too large.
    fn breaks_a_constraint(&self, known: &BTreeMap<String, f64>) -> bool {
        self.file.constraints().iter().any(|(name, bound)| {
            let value = known.get(name);
            let is_below = |least: f64| value.is_some_and(|value| *value < least);
            let is_above = |most: f64| value.is_some_and(|value| *value > most);
            bound.at_least.is_some_and(is_below) || bound.at_most.is_some_and(is_above)
        })
    }
}

impl Candidates for Describer {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        let archid = self.file.space().archid(genes);
        let expanded = self.file.expand(genes).map_err(|error| error.to_string())?;
        let model = format!("{}-{}", short(&expanded.model_id), short(&expanded.training_id));
        let candidate = Candidate::of(&expanded, &self.base).map_err(|error| with_causes(&error))?;
        let (config, graph) = match candidate {
            Candidate::Program => return Ok(Described { archid, model, known: BTreeMap::new() }),
            Candidate::Train { config, graph: Some(graph) } => (config, *graph),
            Candidate::Train { config, graph: None } => {
                let found = find_model(&config.model).map_err(|error| with_causes(&error))?;
                (config, found.graph)
            }
        };
        let mut known = self.named(costs(&graph, &config));
        if !self.breaks_a_constraint(&known) {
            known.extend(self.programs.ask(&model, &expanded, &graph)?);
            known.extend(self.meter.measure(&expanded.model_id, graph)?);
            known = self.named(known);
        }
        Ok(Described { archid, model, known })
    }
}

fn short(hash: &str) -> &str {
    hash.get(..16).unwrap_or(hash)
}

/// What a model costs, by the names that objectives and constraints use.
fn costs(graph: &Graph, config: &RunConfig) -> BTreeMap<String, f64> {
    let cost = graph.cost();
    let batch = config.train.batch as u64;
    let per_parameter = optimizer_bytes(config);
    let training = cost.training_bytes(batch, per_parameter);
    let values = [
        ("params", cost.parameters),
        ("flops", cost.flops),
        ("activation_memory", cost.activation_bytes),
        ("training_memory", training),
        ("memory", training),
        ("size", cost.parameter_bytes),
    ];
    values.into_iter().map(|(name, value)| (name.to_owned(), value as f64)).collect()
}

/// What the run's optimizer keeps of every parameter.
fn optimizer_bytes(config: &RunConfig) -> u64 {
    Optimizer::bytes_per_parameter(&config.train.optimizer) as u64
}
