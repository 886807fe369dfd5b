use super::raw::Raw;
use super::*;
use phalanx_fabric::{Relay, RelayConfig};
use phalanx_types::Parcel;
use phalanx_wire::handshake::{Purpose, preface};
use phalanx_wire::node::PeerAddr;
use std::net::SocketAddr;
use tempfile::{TempDir, tempdir};

pub(crate) async fn relay(bind: SocketAddr, key: &DomainKey) -> Relay {
    within(Relay::start(RelayConfig { bind, tokens: vec![key.relay_token()] })).await.unwrap()
}

pub(crate) async fn far_apart(key: &DomainKey, relay: &Relay) -> ([TempDir; 2], Fabric, Fabric) {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    let relays = vec![relay.address().to_string()];
    let a = start(FabricConfig { relays: relays.clone(), ..keyed(dirs[0].path(), "a", key) }).await;
    let b = start(FabricConfig { relays, ..keyed(dirs[1].path(), "b", key) }).await;
    (dirs, a, b)
}

#[tokio::test]
async fn nodes_meet_through_a_relay_and_again_after_it_restarts() {
    let key = DomainKey::generate(&domain()).unwrap();
    let first = relay("127.0.0.1:0".parse().unwrap(), &key).await;
    let (_dirs, a, b) = far_apart(&key, &first).await;
    let peer = meets(&b, a.id()).await;
    meets(&a, b.id()).await;
    let only_relay =
        |s: &phalanx_fabric::NodeStatus| s.addresses.iter().all(|a| matches!(a, PeerAddr::Relay(_)));
    assert!(b.nodes().iter().all(only_relay));
    let blob = a.hold(Parcel::from_bytes(vec![9; 3 << 20]));
    assert_eq!(within(b.fetch(&peer, blob, 3 << 20)).await.unwrap(), vec![9; 3 << 20]);

    let address = first.address();
    let mut watch = b.watch();
    within(first.shutdown()).await;
    assert!(matches!(sees_gone(&mut watch, a.id()).await, NodeState::Lost(_)));
    let second = relay(address, &key).await;
    see(&mut watch, |e| matches!(e, NodeEvent::Appeared(s) if s.id == *a.id())).await;
    a.serve("echo", |_, body| async { Ok(body) });
    meets(&b, a.id()).await;
    let answer = within(b.request(a.id(), "echo", "x".into(), Duration::from_secs(10))).await;
    assert_eq!(answer.unwrap(), "x");
    within(a.shutdown()).await;
    within(b.shutdown()).await;
    within(second.shutdown()).await;
}

#[tokio::test]
async fn a_relay_shrugs_off_garbage_and_strangers() {
    let key = DomainKey::generate(&domain()).unwrap();
    let relay = relay("127.0.0.1:0".parse().unwrap(), &key).await;
    let long = [&preface(Purpose::Relay)[..], &[0xff, 0xff, 0xff, 0xff, 6]].concat();
    let wrong = [&preface(Purpose::Relay)[..], &[3, 0, 0, 0, 6, 9, 9, 9]].concat();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &preface(Purpose::Node), &long, &wrong] {
        let mut raw = Raw::connect(relay.address()).await;
        raw.write(bytes).await;
        raw.closed().await;
    }
    let stranger = DomainKey::generate(&domain()).unwrap();
    let dir = tempdir().unwrap();
    let relays = vec![relay.address().to_string()];
    let outsider = start(FabricConfig { relays, ..keyed(dir.path(), "x", &stranger) }).await;
    within(outsider.settled(Duration::from_secs(20))).await;
    counts(&outsider, "relay", 0).await;
    let (_dirs, a, b) = far_apart(&key, &relay).await;
    meets(&a, b.id()).await;
    let names: Vec<String> = relay.refused().into_iter().map(|(name, _)| name).collect();
    for expected in ["not-phalanx", "purpose", "too-long", "malformed", "relay"] {
        assert!(names.iter().any(|n| n == expected), "{expected} not in {names:?}");
    }
    for node in [&a, &b, &outsider] {
        within(node.shutdown()).await;
    }
    within(relay.shutdown()).await;
}
