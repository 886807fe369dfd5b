use super::raw::{Raw, hello};
use super::*;
use phalanx_fabric::LostReason;
use phalanx_wire::handshake::HelloReply;
use std::time::Instant;
use tempfile::tempdir;

#[tokio::test]
async fn a_frozen_peer_is_lost_within_the_heartbeat() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_millis(400);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let mut watch = a.watch();
    let mut raw = Raw::connect(a.address()).await;
    assert!(matches!(raw.join(dir.path(), hello("frozen-0001")).await, HelloReply::Welcome(_)));
    let since = Instant::now();
    let state = sees_gone(&mut watch, &NodeId::new("frozen-0001").unwrap()).await;
    assert_eq!(state, NodeState::Lost(LostReason::Silent { heartbeat_ms: 400 }));
    let took = since.elapsed();
    assert!(took > heartbeat / 2 && took < heartbeat * 3, "{took:?}");
    raw.closed().await;
    within(a.shutdown()).await;
}

#[tokio::test]
async fn a_broken_connection_is_noticed_at_once() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_secs(3600);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let mut watch = a.watch();
    let mut raw = Raw::connect(a.address()).await;
    assert!(matches!(raw.join(dir.path(), hello("killed-0001")).await, HelloReply::Welcome(_)));
    let id = NodeId::new("killed-0001").unwrap();
    see(&mut watch, |e| e.status().id == id).await;
    drop(raw);
    let state = sees_gone(&mut watch, &id).await;
    assert!(matches!(state, NodeState::Lost(LostReason::LinkBroken { .. })), "{state:?}");
    within(a.shutdown()).await;
}

#[tokio::test]
async fn idle_nodes_keep_each_other_alive_and_goodbye_means_stopped() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_millis(200);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let b = start(config(dir.path(), "b")).await;
    let peer = meets(&a, b.id()).await;
    let mut watch = a.watch();
    let idle = tokio::time::timeout(heartbeat * 5, async {
        see(&mut watch, |e| matches!(e, NodeEvent::Gone(_))).await
    });
    assert!(idle.await.is_err());
    assert_eq!(a.peer(b.id()).unwrap().key(), peer.key());
    within(b.shutdown()).await;
    assert_eq!(sees_gone(&mut watch, b.id()).await, NodeState::Stopped);
    assert_eq!(a.nodes().iter().find(|n| n.id == *b.id()).unwrap().state, NodeState::Stopped);
    within(a.shutdown()).await;
    within(async { while watch.next().await.is_some() {} }).await;
}
