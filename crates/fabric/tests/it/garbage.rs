use super::raw::{Raw, hello};
use super::*;
use phalanx_fabric::FrameKind;
use phalanx_types::DomainName;
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::handshake::{Channel, HelloReply, Purpose, Refusal, preface};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::tempdir;

/// Sends requests until told to stop; every answer must be right.
fn chatter(from: &Fabric, to: &Fabric) -> (Arc<AtomicBool>, tokio::task::JoinHandle<u64>) {
    to.serve("echo", |_, body| async { Ok(body) });
    let stop = Arc::new(AtomicBool::new(false));
    let (from, to, stopped) = (from.clone(), to.id().clone(), stop.clone());
    let task = tokio::spawn(async move {
        let mut asked = 0u64;
        while !stopped.load(Ordering::Relaxed) {
            asked += 1;
            let body = asked.to_string();
            let answer = from.request(&to, "echo", body.clone().into(), Duration::from_secs(10)).await;
            assert_eq!(answer.unwrap(), body);
        }
        asked
    });
    (stop, task)
}

async fn refuses(node: &Fabric, reason: &str, bytes: &[u8]) {
    let before = refusals(node, reason);
    let mut raw = Raw::connect(node.address()).await;
    raw.write(bytes).await;
    within(tokio::io::AsyncWriteExt::shutdown(&mut raw.stream)).await.unwrap();
    counts(node, reason, before).await;
    raw.closed().await;
}

#[tokio::test]
async fn garbage_closes_its_own_connection_only() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    meets(&a, b.id()).await;
    let (stop, chatter) = chatter(&a, &b);

    refuses(&b, "not-phalanx", b"GET / HTTP/1.1\r\n\r\n").await;
    refuses(&b, "not-phalanx", &[0xff; 4096]).await;
    refuses(&b, "truncated", b"PHL").await;
    let mut other_version = preface(Purpose::Node);
    other_version[4] ^= 0x55;
    refuses(&b, "version", &other_version).await;
    refuses(&b, "purpose", &preface(Purpose::Relay)).await;
    let after_preface = |tail: &[u8]| [&preface(Purpose::Node)[..], tail].concat();
    refuses(&b, "too-long", &after_preface(&[0xff, 0xff, 0xff, 0xff, 1])).await;
    refuses(&b, "unknown-kind", &after_preface(&[1, 0, 0, 0, 99, 0])).await;
    refuses(&b, "unexpected-frame", &after_preface(&[1, 0, 0, 0, 3, 0])).await;
    refuses(&b, "malformed", &after_preface(&[2, 0, 0, 0, 1, 0xff, 0xff])).await;
    refuses(&b, "truncated", &after_preface(&[9, 0, 0, 0, 1, 0])).await;

    stop.store(true, Ordering::Relaxed);
    assert!(within(chatter).await.unwrap() > 0);
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn strangers_are_refused_with_a_reason() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;

    let mut raw = Raw::connect(a.address()).await;
    raw.challenged().await;
    raw.send(FrameKind::Handshake, &hello("x-0001")).await;
    assert_eq!(raw.read::<HelloReply>().await, HelloReply::Refused(Refusal::BadProof));
    counts(&a, "bad-proof", 0).await;

    // A proof made for an impostor that listens elsewhere and passes it on.
    let mut raw = Raw::connect(a.address()).await;
    raw.listener = Some(([127, 0, 0, 1], a.address().port() ^ 1).into());
    assert_eq!(raw.join(dir.path(), hello("x-0001")).await, HelloReply::Refused(Refusal::BadProof));
    counts(&a, "bad-proof", 1).await;

    let mut raw = Raw::connect(a.address()).await;
    let mut stray = hello("x-0001");
    stray.domain = DomainName::new("elsewhere").unwrap();
    let refusal = Refusal::WrongDomain { ours: domain(), theirs: stray.domain.clone() };
    assert_eq!(raw.join(dir.path(), stray).await, HelloReply::Refused(refusal));
    counts(&a, "wrong-domain", 0).await;

    let mut raw = Raw::connect(a.address()).await;
    let mut lost = hello("x-0001");
    lost.channel = Channel::Bulk { link: 99 };
    let refusal = Refusal::UnknownLink { link: 99 };
    assert_eq!(raw.join(dir.path(), lost).await, HelloReply::Refused(refusal));
    counts(&a, "unknown-link", 0).await;

    let mut raw = Raw::connect(a.address()).await;
    let refusal = Refusal::IdTaken { id: a.id().clone() };
    assert_eq!(raw.join(dir.path(), hello(a.id().as_str())).await, HelloReply::Refused(refusal));
    within(a.shutdown()).await;
}

#[tokio::test]
async fn an_id_in_use_is_taken_and_a_misbehaving_member_is_cut_off() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let mut watch = a.watch();
    let mut raw = Raw::connect(a.address()).await;
    assert!(matches!(raw.join(dir.path(), hello("x-0001")).await, HelloReply::Welcome(_)));
    see(&mut watch, |e| e.status().id.as_str() == "x-0001").await;

    let mut twin = Raw::connect(a.address()).await;
    let mut other_life = hello("x-0001");
    other_life.incarnation = phalanx_types::Incarnation(8);
    let id = NodeId::new("x-0001").unwrap();
    raw.send(FrameKind::Fabric, &FabricMessage::Heartbeat).await;
    assert_eq!(
        twin.join(dir.path(), other_life).await,
        HelloReply::Refused(Refusal::IdTaken { id: id.clone() })
    );

    raw.write(&[0xff, 0xff, 0xff, 0xff, FrameKind::Jobs as u8]).await;
    let state = sees_gone(&mut watch, &id).await;
    assert!(matches!(state, NodeState::Lost(phalanx_fabric::LostReason::Misbehaved { .. })), "{state:?}");
    counts(&a, "too-long", 0).await;
    within(a.shutdown()).await;
}
