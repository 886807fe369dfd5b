//! The model of a run that is being trained, as a client in its domain uses it.

use super::ask::{self, Samples};
use super::{LiveError, LiveRun, MAX_LIVE_BYTES};
use phalanx_data::{DataError, Dataset, Loader, LoaderOptions, Transform};
use phalanx_fabric::{Fabric, NodeKind, NodeState, NodeStatus};
use phalanx_train::TrainedModel;
use phalanx_types::NodeId;
use std::time::Duration;

/// Nodes that train a model, and how to ask them.
#[derive(Debug)]
pub struct LiveModel {
    /// A member of the domain.
    pub fabric: Fabric,
    /// The node that drives the run.
    pub driver: NodeId,
    /// How long the run may take to answer.
    pub wait: Duration,
}

/// What the model makes of all samples.
#[derive(Debug, Default)]
pub struct LiveOutputs {
    /// One sample after the other.
    pub values: Vec<f32>,
    /// The shape of all outputs together.
    pub shape: Vec<usize>,
    /// Steps that the model had done, for the first samples and for the last.
    pub steps: [u64; 2],
}

/// Every run that is being trained in a domain, with the node that drives it.
pub async fn runs(fabric: &Fabric) -> Vec<(NodeId, LiveRun)> {
    let drives = |s: &NodeStatus| s.kind == NodeKind::Main && s.state == NodeState::Running;
    let mut found = Vec::new();
    for status in fabric.nodes().into_iter().filter(drives) {
        match ask::about(fabric, &status.id).await {
            Ok(run) => found.push((status.id, run)),
            // A main node of jobs, most likely.
            Err(error) => tracing::debug!(node = %status.id, %error, "drives no run"),
        }
    }
    found
}

impl LiveModel {
    /// What the model makes of all samples, in the order of the dataset.
    ///
    /// # Errors
    /// The samples cannot be read or are not what the model takes, or no answer comes in time.
    pub async fn outputs(
        &self,
        model: &TrainedModel,
        data: &Dataset,
        transform: &Transform,
        batch: usize,
    ) -> Result<LiveOutputs, LiveError> {
        let graph = &model.graph;
        let values = |of: &[phalanx_graph::ValueId]| {
            of.first().map_or(1, |value| graph.shape(*value).at(1).iter().product::<usize>())
        };
        let largest = 4 * values(&graph.inputs).max(values(&graph.outputs)).max(1);
        let most = (MAX_LIVE_BYTES as usize / largest).max(1);
        // As many batches as fit go into one query, so that all of them are answered after the same step.
        let batch = batch.min(model.batch().unwrap_or(batch)).min(most);
        let options = LoaderOptions { batch: most / batch * batch, ..LoaderOptions::default() };
        let mut loader = Loader::new(data.clone(), transform, options)?;
        let mut all = LiveOutputs::default();
        loop {
            // Reading on the runtime's thread would delay heartbeats.
            let loading = tokio::task::spawn_blocking(move || (next_samples(&mut loader, batch), loader));
            let samples;
            (samples, loader) = loading.await?;
            let Some(samples) = samples? else { return Ok(all) };
            let answer = ask::predict(&self.fabric, &self.driver, &samples, self.wait).await?;
            all = tokio::task::spawn_blocking(move || all.and(&answer)).await?;
        }
    }

    /// Leaves the domain.
    pub async fn leave(self) {
        self.fabric.shutdown().await;
    }
}

fn next_samples(loader: &mut Loader, batch: usize) -> Result<Option<Samples>, DataError> {
    let Some(loaded) = loader.next() else { return Ok(None) };
    let loaded = loaded?.batch;
    let samples = Samples::new(&loaded.x, loaded.len, batch);
    loader.recycle(loaded);
    Ok(Some(samples))
}

impl LiveOutputs {
    /// Appends the outputs of the next samples.
    fn and(mut self, next: &ask::Outputs) -> Self {
        let before = self.shape.first().copied().unwrap_or(0);
        if self.values.is_empty() {
            self.steps[0] = next.step;
        }
        self.steps[1] = next.step;
        self.shape.clone_from(&next.shape);
        if let Some(first) = self.shape.first_mut() {
            *first += before;
        }
        self.values.extend(next.values());
        self
    }
}
