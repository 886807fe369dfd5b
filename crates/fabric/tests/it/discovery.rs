use super::*;
use phalanx_fabric::StartError;
use tempfile::tempdir;

#[tokio::test]
async fn nodes_of_one_user_find_each_other_by_access_files() {
    let dir = tempdir().unwrap();
    let a = start(config(dir.path(), "a")).await;
    let b = start(config(dir.path(), "b")).await;
    within(b.settled(Duration::from_secs(20))).await;
    let ids: Vec<NodeId> = b.nodes().into_iter().map(|n| n.id).collect();
    assert_eq!(ids, [a.id().clone(), b.id().clone()]);
    meets(&a, b.id()).await;
    assert!(dir.path().join(format!("lab/{}.json", a.id())).exists());
    within(a.shutdown()).await;
    assert!(!dir.path().join(format!("lab/{}.json", a.id())).exists());
    within(b.shutdown()).await;
}

#[tokio::test]
async fn eight_nodes_that_start_at_once_all_meet() {
    let dir = tempdir().unwrap();
    let starting: Vec<_> =
        (0..8).map(|i| tokio::spawn(start(config(dir.path(), &format!("n{i}"))))).collect();
    let mut nodes = Vec::new();
    for node in starting {
        nodes.push(within(node).await.unwrap());
    }
    for node in &nodes {
        for other in nodes.iter().filter(|o| o.id() != node.id()) {
            meets(node, other.id()).await;
        }
    }
    for node in &nodes {
        within(node.shutdown()).await;
    }
}

#[tokio::test]
async fn a_node_connects_to_an_address_it_is_given() {
    let (one, two) = (tempdir().unwrap(), tempdir().unwrap());
    let key = DomainKey::generate(&domain()).unwrap();
    let a = start(keyed(one.path(), "a", &key)).await;
    let mut second = keyed(two.path(), "b", &key);
    second.connect = vec![a.address().to_string()];
    let b = start(second).await;
    within(b.settled(Duration::from_secs(20))).await;
    assert_eq!(b.nodes().len(), 2);
    meets(&a, b.id()).await;
    within(a.shutdown()).await;
    within(b.shutdown()).await;
}

#[tokio::test]
async fn knowing_one_member_is_enough_and_survives_that_member() {
    let dirs: Vec<_> = (0..3).map(|_| tempdir().unwrap()).collect();
    let key = DomainKey::generate(&domain()).unwrap();
    let a = start(keyed(dirs[0].path(), "a", &key)).await;
    let to = |node: &Fabric| vec![node.address().to_string()];
    let b = start(FabricConfig { connect: to(&a), ..keyed(dirs[1].path(), "b", &key) }).await;
    let c = start(FabricConfig { connect: to(&b), ..keyed(dirs[2].path(), "c", &key) }).await;
    meets(&c, a.id()).await;
    meets(&a, c.id()).await;
    let mut watch = c.watch();
    within(b.shutdown()).await;
    assert_eq!(sees_gone(&mut watch, b.id()).await, NodeState::Stopped);
    a.serve("ping", |_, body| async { Ok(body) });
    let pong = within(c.request(a.id(), "ping", "x".into(), Duration::from_secs(10))).await;
    assert_eq!(pong.unwrap(), "x");
    within(a.shutdown()).await;
    within(c.shutdown()).await;
}

#[tokio::test]
async fn a_lone_node_settles_at_once_and_a_dead_address_settles_when_it_failed() {
    let dir = tempdir().unwrap();
    let lone = start(config(dir.path(), "lone")).await;
    within(lone.settled(Duration::from_secs(60))).await;
    within(lone.shutdown()).await;
    let other = tempdir().unwrap();
    let dead = FabricConfig { connect: vec!["127.0.0.1:1".into()], ..config(other.path(), "x") };
    let node = start(dead).await;
    within(node.settled(Duration::from_secs(60))).await;
    assert_eq!(node.nodes().len(), 1);
    within(node.shutdown()).await;
}

#[tokio::test]
async fn a_node_without_a_key_stays_on_loopback() {
    let dir = tempdir().unwrap();
    let bind = "0.0.0.0:0".parse().unwrap();
    let result = Fabric::start(FabricConfig { bind: Some(bind), ..config(dir.path(), "a") }).await;
    assert!(matches!(result, Err(StartError::KeyRequired { .. })));
    let relays = vec!["127.0.0.1:1".into()];
    let result = Fabric::start(FabricConfig { relays, ..config(dir.path(), "a") }).await;
    assert!(matches!(result, Err(StartError::RelayNeedsKey)));
}
