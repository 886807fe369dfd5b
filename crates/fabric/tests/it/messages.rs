use super::*;
use bytes::Bytes;
use phalanx_fabric::{Published, RequestError};
use phalanx_wire::fabric::ReplyError;
use tempfile::tempdir;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_request_is_answered_or_says_why_not() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    meets(&a, b.id()).await;
    meets(&b, a.id()).await;
    b.serve("double", |_, body| async move { Ok([&body[..], &body[..]].concat().into()) });
    b.serve("grumpy", |from, _| async move { Err(format!("no, {from}")) });
    b.serve("slow", |_, _| std::future::pending());
    b.serve("chatty", |_, _| async { Ok(Bytes::from(vec![0; 2 << 20])) });

    let ask = |service: &'static str, deadline| a.request(b.id(), service, "ab".into(), deadline);
    assert_eq!(within(ask("double", SOON)).await.unwrap(), "abab");
    let node = b.id().clone();
    let refused = ReplyError::Refused { message: format!("no, {}", a.id()) };
    assert_eq!(
        within(ask("grumpy", SOON)).await,
        Err(RequestError::Reply { node: node.clone(), source: refused })
    );
    let source = ReplyError::NoService { service: "nothing".into() };
    assert_eq!(within(ask("nothing", SOON)).await, Err(RequestError::Reply { node: node.clone(), source }));
    let deadline = Duration::from_millis(50);
    assert_eq!(
        within(ask("slow", deadline)).await,
        Err(RequestError::Deadline { node: node.clone(), deadline })
    );
    let source = ReplyError::TooLong { len: 2 << 20 };
    assert_eq!(within(ask("chatty", SOON)).await, Err(RequestError::Reply { node, source }));

    let nobody = NodeId::new("nobody").unwrap();
    let lost = within(a.request(&nobody, "x", Bytes::new(), SOON)).await;
    assert_eq!(lost, Err(RequestError::NotConnected { node: nobody }));
    b.serve("self", |from, _| async move { Ok(from.as_str().to_owned().into()) });
    let own = within(b.request(b.id(), "self", Bytes::new(), SOON)).await.unwrap();
    assert_eq!(own, b.id().as_str());
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn a_request_fails_at_once_when_its_node_stops() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    meets(&a, b.id()).await;
    let (asked, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    b.serve("slow", move |_, _| {
        asked.send(()).unwrap();
        std::future::pending()
    });
    let asker = a.clone();
    let to = b.id().clone();
    let waiting =
        tokio::spawn(async move { asker.request(&to, "slow", Bytes::new(), Duration::from_secs(600)).await });
    within(arrived.recv()).await.unwrap();
    within(b.shutdown()).await;
    let result = within(waiting).await.unwrap();
    assert_eq!(result, Err(RequestError::Stopped { node: b.id().clone() }));
    within(a.shutdown()).await;
}

#[tokio::test]
async fn published_messages_reach_every_subscriber() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    let mut at_b = b.subscribe("news");
    let mut at_a = a.subscribe("news");
    let mut watch = a.watch();
    see(&mut watch, |e| e.status().id == *b.id() && e.status().topics.iter().any(|t| t == "news")).await;
    assert_eq!(a.publish("news", "hello".into()).unwrap(), 2);
    assert_eq!(a.publish("other", "hello".into()).unwrap(), 0);
    let expected = Published::Message { from: a.id().clone(), body: "hello".into() };
    assert_eq!(within(at_b.next()).await.unwrap(), expected);
    assert_eq!(within(at_a.next()).await.unwrap(), expected);
    assert!(a.publish("news", vec![0; (64 << 10) + 1].into()).is_err());
    for i in 0..1500u32 {
        a.publish("news", Bytes::from(i.to_string())).unwrap();
    }
    assert_eq!(within(at_a.next()).await.unwrap(), Published::Lost(1500 - 1024));
    within(a.shutdown()).await;
    within(b.shutdown()).await;
    drop(a);
    assert!(matches!(within(at_a.next()).await, Some(Published::Message { .. })));
}

#[tokio::test]
async fn a_changed_status_reaches_the_others() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    meets(&a, b.id()).await;
    let mut watch = a.watch();
    for done in 1..=100 {
        b.update_status(|own| own.jobs_done = done);
    }
    see(&mut watch, |e| e.status().id == *b.id() && e.status().jobs_done == 100).await;
    b.update_status(|own| own.state = NodeState::Draining);
    see(&mut watch, |e| e.status().id == *b.id() && e.status().state == NodeState::Draining).await;
    assert_eq!(b.nodes().iter().find(|n| n.id == *b.id()).unwrap().version, 102);
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}
