//! Two servers that share a store.

use crate::common::{TestServer, request};
use phalanx_resp::slot;
use phalanx_store::{Durability, PeerAccess, ServerConfig, ShardConfig, ShardMember, ShardPlace};
use std::path::Path;

fn place(index: u16) -> ShardPlace {
    ShardPlace::new(index, 2).expect("a place")
}

fn start(index: u16, directory: &Path) -> TestServer {
    let shard = ShardConfig { place: place(index), node: format!("n{index}"), access: PeerAccess::default() };
    TestServer::start(ServerConfig {
        persist: Some(directory.join(index.to_string())),
        durability: Durability::EveryWrite,
        shard: Some(shard),
        ..ServerConfig::default()
    })
}

fn member(index: u16, server: &TestServer) -> ShardMember {
    ShardMember {
        since: 0,
        node: format!("n{index}"),
        host: "127.0.0.1".to_owned(),
        port: server.address().port(),
        is_same_host: true,
        place: place(index),
    }
}

fn key_of(index: u16) -> String {
    let is_there = |key: &String| place(index).slots().contains(&slot(key.as_bytes()));
    (0..).map(|number| format!("k{number}")).find(is_there).expect("a key")
}

#[test]
fn replies_of_another_node_keep_their_order_while_records_are_written() {
    let parent = tempfile::tempdir().expect("a directory");
    let servers = [start(1, parent.path()), start(2, parent.path())];
    let members = vec![member(1, &servers[0]), member(2, &servers[1])];
    servers.iter().for_each(|server| server.set_members(members.clone()));
    let (own, other) = (key_of(1), key_of(2));

    let mut client = servers[0].connect();
    let mut requests = Vec::new();
    let mut expected = String::new();
    for number in 1..=200 {
        let echo = format!("e{number}");
        requests.extend(request(&["INCR", &own]));
        requests.extend(request(&["INCRBY", &other, "1000"]));
        requests.extend(request(&["ECHO", &echo]));
        requests.extend(request(&["EXISTS", &own, &other]));
        expected += &format!(":{number}\r\n:{}\r\n${}\r\n{echo}\r\n:2\r\n", number * 1000, echo.len());
    }
    // Nothing is sent after this, and everything is answered all the same.
    client.send(&requests);
    client.stream.shutdown(std::net::Shutdown::Write).expect("the sockets of a test work");
    client.expect(expected.as_bytes());
    client.expect_end();

    let mut second = servers[1].connect();
    second.send(&request(&["MGET", &own, &other]));
    second.expect(b"*2\r\n$3\r\n200\r\n$6\r\n200000\r\n");
}
