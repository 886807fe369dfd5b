//! Which node held which stage, when, and its measurements: `formation.json`.

use crate::run_dir::StepRecord;
use phalanx_graph::Graph;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};

/// How many of a group's last steps are used for times.
const STEPS: usize = 512;

/// The epoch of a group, a replica, and a stage of it.
type StageKey = (u64, usize, usize);

/// Measured times and memory of stages.
#[derive(Debug, Default)]
pub(super) struct StageMeasurements {
    stages: BTreeMap<StageKey, StageUsage>,
}

#[derive(Debug, Default)]
struct StageUsage {
    /// Milliseconds of computing in each of the last steps; for a group that is over only the median.
    busy_ms: VecDeque<f64>,
    memory: Option<u64>,
}

impl StageUsage {
    fn median_ms(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.busy_ms.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

impl StageMeasurements {
    /// Records a step.
    pub(super) fn on_step(&mut self, record: &StepRecord) {
        let Some(of) = &record.replicas else { return };
        if self.stages.last_key_value().is_some_and(|((epoch, ..), _)| *epoch < of.epoch) {
            for needs in self.stages.values_mut() {
                needs.busy_ms = needs.median_ms().into_iter().collect();
            }
        }
        for (rank, replica) in of.replicas.iter().enumerate() {
            let stage = replica.stage.as_ref();
            let (number, at) = stage.map_or((rank, 0), |of| (of.replica as usize, of.stage as usize));
            let needs = self.stages.entry((of.epoch, number, at)).or_default();
            if needs.busy_ms.len() == STEPS {
                needs.busy_ms.pop_front();
            }
            needs.busy_ms.push_back(replica.compute_ms);
            needs.memory = needs.memory.max(stage.map(|stage| stage.memory_bytes));
        }
    }

    /// The median milliseconds that a stage computed in a step.
    fn busy_ms(&self, place: StageKey) -> Option<f64> {
        self.stages.get(&place)?.median_ms()
    }

    /// The peak memory of a stage.
    fn memory(&self, place: StageKey) -> Option<u64> {
        self.stages.get(&place)?.memory
    }
}

/// A stage of a replica.
#[derive(Debug, Clone, PartialEq)]
pub struct StageEntry {
    pub node: String,
    pub operators: usize,
    pub first: String,
    pub last: String,
    pub parameters: usize,
    /// As predicted.
    pub memory: Option<u64>,
    pub busy_ms: Option<f64>,
}

impl StageEntry {
    /// A stage that is the whole model on one node.
    pub fn whole(node: String, graph: &Graph) -> Self {
        let name =
            |node: Option<&phalanx_graph::Node>| node.map(|node| node.name.clone()).unwrap_or_default();
        Self {
            node,
            operators: graph.nodes.len(),
            first: name(graph.nodes.first()),
            last: name(graph.nodes.last()),
            parameters: graph.cost().parameters as usize,
            memory: None,
            busy_ms: None,
        }
    }
}

/// Which nodes held what for some steps.
#[derive(Debug, Clone, PartialEq)]
pub struct FormationEpoch {
    pub epoch: u64,
    /// The stages of every replica.
    pub replicas: Vec<Vec<StageEntry>>,
    /// Steps before it.
    pub from_step: u64,
    pub predicted_ms: Option<f64>,
    pub micro_batches: Option<usize>,
    pub step_ms: Option<f64>,
    /// Why it ended, unless the run ended with it.
    pub ended: Option<String>,
}

impl FormationEpoch {
    /// As JSON, with the measurements of its stages.
    pub(super) fn to_json(&self, measured: &StageMeasurements) -> serde_json::Value {
        let stage = |replica: usize, (number, entry): (usize, &StageEntry)| {
            let place = (self.epoch, replica, number);
            json!({
                "stage": number,
                "node": entry.node,
                "operators": entry.operators,
                "first": entry.first,
                "last": entry.last,
                "parameters": entry.parameters,
                "predicted_memory_bytes": entry.memory,
                "measured_memory_bytes": measured.memory(place),
                "predicted_busy_ms": entry.busy_ms,
                "measured_busy_ms": measured.busy_ms(place),
            })
        };
        let replica = |(number, stages): (usize, &Vec<StageEntry>)| {
            let stages: Vec<_> = stages.iter().enumerate().map(|entry| stage(number, entry)).collect();
            json!({ "replica": number, "stages": stages })
        };
        let replicas: Vec<_> = self.replicas.iter().enumerate().map(replica).collect();
        json!({
            "epoch": self.epoch,
            "from_step": self.from_step,
            "replicas": replicas,
            "micro_batches": self.micro_batches,
            "predicted_step_ms": self.predicted_ms,
            "measured_step_ms": self.step_ms,
            "ended": self.ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_dir::{ReplicaRecord, ReplicasRecord, StageRecord};

    fn step(epoch: u64, stages: &[(f64, u64)]) -> StepRecord {
        let stage = |(number, (compute_ms, memory_bytes)): (usize, &(f64, u64))| ReplicaRecord {
            node: format!("n{number}"),
            samples: 0,
            compute_ms: *compute_ms,
            exchange_ms: 0.0,
            wait_ms: 0.0,
            stage: Some(StageRecord {
                replica: 0,
                stage: number as u32,
                memory_bytes: *memory_bytes,
                link_bytes: 0,
                idle_ms: 0.0,
                staleness: 0,
            }),
        };
        let replicas = stages.iter().enumerate().map(stage).collect();
        let replicas = ReplicasRecord { epoch, seen: String::new(), hash: None, sent_bytes: 0, replicas };
        let (lr, loss, grad_norm, samples_per_s) = (0.0, 0.0, 0.0, 0.0);
        StepRecord { step: 1, pass: 1, loss, lr, grad_norm, samples_per_s, replicas: Some(replicas) }
    }

    #[test]
    fn what_stages_needed_stands_beside_what_was_predicted() {
        let mut measured = StageMeasurements::default();
        for compute in [9.0, 1.0, 2.0, 2.0, 3.0] {
            measured.on_step(&step(1, &[(compute, 100), (2.0 * compute, 200)]));
        }
        measured.on_step(&step(1, &[(2.0, 150), (4.0, 100)]));
        measured.on_step(&step(2, &[(7.0, 50), (8.0, 60)]));
        let entry = |node: &str| StageEntry {
            node: node.to_owned(),
            operators: 2,
            first: String::new(),
            last: String::new(),
            parameters: 3,
            memory: Some(77),
            busy_ms: Some(1.5),
        };
        let epoch = FormationEpoch {
            epoch: 1,
            replicas: vec![vec![entry("n0"), entry("n1"), entry("n2")]],
            from_step: 0,
            predicted_ms: None,
            micro_batches: None,
            step_ms: None,
            ended: None,
        };
        let keys =
            ["predicted_busy_ms", "measured_busy_ms", "predicted_memory_bytes", "measured_memory_bytes"];
        let json = epoch.to_json(&measured);
        let of = |stage: usize| keys.map(|key| json["replicas"][0]["stages"][stage][key].as_f64());
        assert_eq!(of(0), [Some(1.5), Some(2.0), Some(77.0), Some(150.0)]);
        assert_eq!(of(1), [Some(1.5), Some(4.0), Some(77.0), Some(200.0)]);
        assert_eq!(of(2), [Some(1.5), None, Some(77.0), None]);
    }
}
