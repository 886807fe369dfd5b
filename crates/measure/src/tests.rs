use super::*;
use phalanx_engine::CpuEngine;
use phalanx_fabric::{Fabric, FabricConfig, NodeEvent, NodeKind};
use phalanx_train::{Compute, MakeCompute};
use phalanx_types::{ByteSize, DomainName, NodeId, RunId};
use phalanx_wire::usage::{Holder, NodeUse};
use std::path::Path;
use std::sync::Arc;

async fn start(dir: &Path, name: &str, kind: NodeKind) -> Fabric {
    let mut config = FabricConfig::new(DomainName::new("test").unwrap(), name, kind);
    config.runtime_dir = dir.to_owned();
    config.mdns = false;
    Fabric::start(config).await.unwrap()
}

/// A node that can be measured.
async fn node(dir: &Path, name: &str) -> Fabric {
    let fabric = start(dir, name, NodeKind::Computing).await;
    let compute: MakeCompute = Arc::new(|threads| {
        let engine = CpuEngine::new(threads.unwrap_or(1));
        let threads = engine.threads().clone();
        Compute { engine: Arc::new(engine), threads }
    });
    serve(&fabric, compute);
    fabric
}

/// Waits until one node has a link to another.
async fn meet(one: &Fabric, other: &Fabric) {
    let mut events = one.watch();
    while one.peer(other.id()).is_none() {
        events.next().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_measured_is_announced_and_remembered() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (node(dir.path(), "a").await, node(dir.path(), "b").await);
    let asker = start(dir.path(), "asker", NodeKind::Observer).await;
    meet(&asker, &a).await;
    meet(&a, &b).await;
    assert_eq!(ask_known(&asker, a.id()).await.unwrap(), Known::default());
    let speed = ask_speed(&asker, a.id()).await.unwrap();
    let link = ask_link(&asker, a.id(), b.id()).await.unwrap();
    assert_eq!((speed.threads, &link.to), (1, b.id()));
    let known = Known { speed: Some(speed), links: vec![link] };
    assert_eq!(ask_known(&asker, a.id()).await.unwrap(), known);
    let mut events = b.watch();
    loop {
        let event = events.next().await.unwrap();
        let (NodeEvent::Appeared(status) | NodeEvent::Changed(status)) = event else { continue };
        if status.id == *a.id() && status.resources.speed_gflops == Some(speed.gflops) {
            break;
        }
    }
}

#[tokio::test]
async fn a_node_measures_one_thing_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (node(dir.path(), "a").await, node(dir.path(), "b").await);
    meet(&b, &a).await;
    let (one, other) = tokio::join!(ask_speed(&b, a.id()), ask_speed(&b, a.id()));
    assert!(one.is_ok(), "{one:?}");
    let refused = MeasureError::Refused { node: a.id().clone(), reason: MeasureRefusal::Measures };
    assert_eq!(other, Err(refused));
    assert!(ask_speed(&b, a.id()).await.is_ok(), "it measures again when it is done");
}

#[tokio::test]
async fn a_node_that_trains_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (node(dir.path(), "a").await, node(dir.path(), "b").await);
    meet(&a, &b).await;
    meet(&b, &a).await;
    let driver: NodeId = "driver-0000".parse().unwrap();
    let trains_for = |driver: &NodeId| {
        let holder = Holder::Run { run: RunId(1), driver: driver.clone() };
        vec![NodeUse { holder, cores: 1, memory: ByteSize(0) }]
    };
    b.update_status(|status| status.uses = trains_for(&driver));
    let reason = MeasureRefusal::Trains { driver };
    let refused = MeasureError::Refused { node: b.id().clone(), reason: reason.clone() };
    assert_eq!(ask_speed(&a, b.id()).await, Err(refused.clone()));
    assert_eq!(ask_link(&a, b.id(), a.id()).await, Err(refused));
    // Nor is it the other end of a link that is measured.
    let reason = MeasureRefusal::OtherEnd { node: b.id().clone(), detail: reason.to_string() };
    let refused = MeasureError::Refused { node: a.id().clone(), reason };
    assert_eq!(ask_link(&b, a.id(), b.id()).await, Err(refused));
    // Its own driver knows when it is idle.
    b.update_status(|status| status.uses = trains_for(a.id()));
    assert!(ask_speed(&a, b.id()).await.is_ok());
}

#[tokio::test]
async fn a_link_that_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (node(dir.path(), "a").await, node(dir.path(), "b").await);
    meet(&b, &a).await;
    let nobody = "nobody-0000".parse().unwrap();
    let detail = "there is no link to it".to_owned();
    let reason = MeasureRefusal::OtherEnd { node: nobody, detail };
    let refused = MeasureError::Refused { node: a.id().clone(), reason };
    assert_eq!(ask_link(&b, a.id(), &"nobody-0000".parse().unwrap()).await, Err(refused));
}
