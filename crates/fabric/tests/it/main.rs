//! Whole nodes on real sockets, on loopback only.
#![expect(clippy::unwrap_used, reason = "tests")]

mod bulk;
mod discovery;
mod frames;
mod garbage;
mod liveness;
mod messages;
mod raw;
mod relay;
mod secure;
mod streams;

use phalanx_fabric::{DomainKey, Fabric, FabricConfig, NodeEvent, NodeKind, NodeState, NodeWatch, Peer};
use phalanx_types::{DomainName, NodeId};
use std::future::Future;
use std::path::Path;
use std::time::Duration;

/// Fails a test that would otherwise hang.
fn within<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let work = Box::pin(work);
    async move { tokio::time::timeout(Duration::from_secs(30), work).await.expect("took too long") }
}

fn domain() -> DomainName {
    DomainName::new("lab").unwrap()
}

fn config(runtime: &Path, name: &str) -> FabricConfig {
    let mut config = FabricConfig::new(domain(), name, NodeKind::Computing);
    config.mdns = false;
    config.runtime_dir = runtime.to_owned();
    config.bind = Some("127.0.0.1:0".parse().unwrap());
    config
}

fn keyed(runtime: &Path, name: &str, key: &DomainKey) -> FabricConfig {
    FabricConfig { key: Some(key.clone()), ..config(runtime, name) }
}

async fn start(config: FabricConfig) -> Fabric {
    within(Fabric::start(config)).await.unwrap()
}

/// Waits for an event that fits.
async fn see(watch: &mut NodeWatch, mut fits: impl FnMut(&NodeEvent) -> bool) -> NodeEvent {
    within(async {
        loop {
            let event = watch.next().await.expect("the node has shut down");
            if fits(&event) {
                return event;
            }
        }
    })
    .await
}

/// Waits until a node is linked to another and has its whole status.
async fn meets(node: &Fabric, other: &NodeId) -> Peer {
    let whole = |n: &Fabric| n.nodes().iter().any(|s| s.id == *other && s.version > 0 && s.state.is_live());
    within(async {
        let mut pause = tokio::time::interval(Duration::from_millis(2));
        loop {
            pause.tick().await;
            if let Some(peer) = node.peer(other).filter(|_| whole(node)) {
                return peer;
            }
        }
    })
    .await
}

async fn sees_gone(watch: &mut NodeWatch, other: &NodeId) -> NodeState {
    see(watch, |e| matches!(e, NodeEvent::Gone(_)) && e.status().id == *other).await.status().state.clone()
}

fn refusals(node: &Fabric, reason: &str) -> u64 {
    node.refused().into_iter().find(|(name, _)| name == reason).map_or(0, |(_, n)| n)
}

/// Waits until a node has counted a refusal of this name more than `before` times.
async fn counts(node: &Fabric, reason: &str, before: u64) {
    within(async {
        let mut pause = tokio::time::interval(Duration::from_millis(5));
        while refusals(node, reason) <= before {
            pause.tick().await;
        }
    })
    .await;
}
