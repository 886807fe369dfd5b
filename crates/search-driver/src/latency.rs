//! How long candidates take for one sample, measured before they are trained: on the machine of the driver, with the
//! weights that a training begins with.

use phalanx_graph::Graph;
use phalanx_records::with_causes;
use phalanx_search::core::template::SearchFile;
use phalanx_train::{Compute, TrainedModel};
use phalanx_trial::latency;
use phalanx_types::Seed;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

/// Measures each network once.
#[derive(Debug)]
pub(crate) struct LatencyMeter {
    wanted: Vec<&'static str>,
    runs: u32,
    /// As many as a trial has.
    cores: u32,
    compute: OnceCell<Compute>,
    /// By the id of the network.
    measured: RefCell<BTreeMap<String, BTreeMap<String, f64>>>,
}

impl LatencyMeter {
    pub(crate) fn new(file: &SearchFile) -> Self {
        let wanted = file.measured_before();
        let runs = file.objectives().iter().filter(|spec| wanted.contains(&spec.from.as_str()));
        Self {
            runs: runs.map(|spec| spec.trials).max().unwrap_or(1),
            wanted,
            cores: file.settings().cores,
            compute: OnceCell::new(),
            measured: RefCell::default(),
        }
    }

    /// The latencies that the search wants beforehand, by name.
    pub(crate) fn measure(&self, model: &str, graph: Graph) -> Result<BTreeMap<String, f64>, String> {
        if self.wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        if let Some(measured) = self.measured.borrow().get(model) {
            return Ok(measured.clone());
        }
        let compute = self.compute.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
            Compute::cpu(Some(cores.min(self.cores as usize)))
        });
        let weights = graph.initialise(Seed(0));
        let network = TrainedModel::new(graph, weights);
        let mut measured = BTreeMap::new();
        for name in &self.wanted {
            let milliseconds = match *name {
                "onnx_latency" => {
                    let latency = latency::onnx_median(&network, compute, self.cores, self.runs);
                    latency.map_err(|error| with_causes(&error))?.milliseconds
                }
                _ => latency::median_ms(&network, compute, self.runs).map_err(|error| with_causes(&error))?,
            };
            measured.insert((*name).to_owned(), milliseconds);
        }
        self.measured.borrow_mut().insert(model.to_owned(), measured.clone());
        Ok(measured)
    }
}
