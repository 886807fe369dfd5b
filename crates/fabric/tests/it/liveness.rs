use super::raw::{Raw, hello};
use super::*;
use phalanx_fabric::{FrameKind, LinkEvent, LostReason, RequestError, SendError};
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame;
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

/// Waits until a node has given up three silent peers, one after the other: a peer that it does not hear of is gone by
/// then. No other peer may be lost meanwhile.
async fn gives_up_silent_peers(node: &Fabric, runtime: &Path) {
    let mut watch = node.watch();
    for number in 0..3 {
        let id = format!("silent-000{number}");
        let mut raw = Raw::connect(node.address()).await;
        assert!(matches!(raw.join(runtime, hello(&id)).await, HelloReply::Welcome(_)));
        let gone = see(&mut watch, |e| matches!(e, NodeEvent::Gone(_))).await;
        assert_eq!(gone.status().id.to_string(), id);
    }
}

#[tokio::test]
async fn idle_nodes_keep_each_other_alive_and_goodbye_means_stopped() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_millis(400);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let b = start(config(dir.path(), "b")).await;
    let peer = meets(&a, b.id()).await;
    let mut watch = a.watch();
    gives_up_silent_peers(&a, dir.path()).await;
    assert_eq!(a.peer(b.id()).unwrap().key(), peer.key());
    within(b.shutdown()).await;
    assert_eq!(sees_gone(&mut watch, b.id()).await, NodeState::Stopped);
    assert_eq!(a.nodes().iter().find(|n| n.id == *b.id()).unwrap().state, NodeState::Stopped);
    within(a.shutdown()).await;
    within(async { while watch.next().await.is_some() {} }).await;
}

async fn joined(a: &Fabric, raw: &mut Raw<tokio::net::TcpStream>, runtime: &Path, id: &str) -> Peer {
    assert!(matches!(raw.join(runtime, hello(id)).await, HelloReply::Welcome(_)));
    let id = NodeId::new(id).unwrap();
    let mut watch = a.watch();
    see(&mut watch, |e| e.status().id == id).await;
    a.peer(&id).unwrap()
}

#[tokio::test]
async fn a_request_to_a_node_that_is_lost_fails_at_once() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut raw = Raw::connect(a.address()).await;
    let peer = joined(&a, &mut raw, dir.path(), "x-0001").await;
    let request = a.request(peer.id(), "any", "body".into(), Duration::from_secs(3600));
    let lose = async {
        use phalanx_wire::fabric::FabricMessage;
        while !matches!(raw.read::<FabricMessage>().await, FabricMessage::Request { .. }) {}
        drop(raw);
    };
    let (result, ()) = within(async { tokio::join!(request, lose) }).await;
    assert!(matches!(result, Err(RequestError::Lost { .. })), "{result:?}");
    within(a.shutdown()).await;
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_off() {
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_secs(60);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let mut raw = Raw::connect(a.address()).await;
    let peer = joined(&a, &mut raw, dir.path(), "x-0001").await;
    let mut watch = a.watch();
    let megabyte = vec![0u8; 1 << 20];
    let error = within(async {
        loop {
            if let Err(error) = peer.send(FrameKind::Jobs, &megabyte) {
                return error;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(error, SendError::TooSlow { .. }), "{error:?}");
    let state = sees_gone(&mut watch, peer.id()).await;
    assert!(matches!(state, NodeState::Lost(LostReason::TooSlow { .. })), "{state:?}");
    within(a.shutdown()).await;
}

#[tokio::test]
async fn a_slow_user_of_a_channel_does_not_lose_the_peer() {
    const FRAMES: usize = 3000;
    let dir = tempdir().unwrap();
    let heartbeat = Duration::from_millis(200);
    let a = start(FabricConfig { heartbeat, ..config(dir.path(), "a") }).await;
    let b = start(FabricConfig { heartbeat, ..config(dir.path(), "b") }).await;
    let to_b = meets(&a, b.id()).await;
    let mut channel = b.channel(FrameKind::Jobs);
    for i in 0..FRAMES {
        to_b.send(FrameKind::Jobs, &i).unwrap();
    }
    // A new link would wait for the user of the full channel, so a node that knows neither of them is the clock.
    let elsewhere = tempdir().unwrap();
    let clock = start(FabricConfig { heartbeat, ..config(elsewhere.path(), "c") }).await;
    gives_up_silent_peers(&clock, elsewhere.path()).await;
    assert!(b.peer(a.id()).is_some(), "the peer was lost");
    let mut frames = 0;
    while frames < FRAMES {
        match within(channel.recv()).await.unwrap() {
            LinkEvent::Up(_) => {}
            LinkEvent::Frame { .. } => frames += 1,
            LinkEvent::Down { reason, .. } => panic!("{reason}"),
        }
    }
    for node in [a, b, clock] {
        within(node.shutdown()).await;
    }
}

#[tokio::test]
async fn the_last_words_of_a_peer_are_heard_although_nothing_can_be_sent_to_it() {
    const FRAMES: u64 = 1100;
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut channel = a.channel(FrameKind::Jobs);
    let mut raw = Raw::connect(a.address()).await;
    assert!(matches!(raw.join(dir.path(), hello("last-0001")).await, HelloReply::Welcome(_)));
    let LinkEvent::Up(peer) = within(channel.recv()).await.unwrap() else { panic!("not up first") };
    // More than the channel holds, so that the reader is behind when the connection breaks.
    let mut words = bytes::BytesMut::new();
    for i in 0..FRAMES {
        frame::put(FrameKind::Jobs, &i, &mut words).unwrap();
    }
    frame::put(FrameKind::Fabric, &FabricMessage::Goodbye, &mut words).unwrap();
    raw.write(&words).await;
    // A reset takes back what is not sent yet.
    within(all_sent(raw.stream.local_addr().unwrap().port())).await;
    raw.stream.set_zero_linger().unwrap();
    drop(raw);
    within(async {
        while peer.send(FrameKind::Jobs, &0u64).is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for i in 0..FRAMES {
        let event = within(channel.recv()).await.unwrap();
        assert!(matches!(event, LinkEvent::Frame { .. }), "frame {i}: {event:?}");
    }
    let event = within(channel.recv()).await.unwrap();
    assert!(matches!(event, LinkEvent::Down { goodbye: true, .. }), "{event:?}");
    within(a.shutdown()).await;
}

/// Waits until the other end has received everything written at this local port.
async fn all_sent(port: u16) {
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        // The columns are: number, local address, remote address, state, send queue : receive queue.
        let mut lines = table.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        let local = format!(":{port:04X}");
        let line = lines.find(|l| l.get(1).is_some_and(|a| a.ends_with(&local))).expect("the connection");
        if line[4].starts_with("00000000:") {
            return;
        }
        tokio::task::yield_now().await;
    }
}
