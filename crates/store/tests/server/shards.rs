//! Two servers that share a store.

use crate::common::{RawClient, TestServer, request};
use phalanx_resp::slot;
use phalanx_store::{Durability, PeerAccess, ServerConfig, ShardConfig, ShardMember, ShardPlace};
use phalanx_types::ByteSize;
use std::path::Path;

fn place(index: u16) -> ShardPlace {
    ShardPlace::new(index, 2).expect("a place")
}

fn shard(index: u16) -> Option<ShardConfig> {
    let access = PeerAccess::default();
    Some(ShardConfig { place: place(index), node: format!("n{index}"), access })
}

fn start(index: u16, directory: &Path) -> TestServer {
    TestServer::start(ServerConfig {
        persist: Some(directory.join(index.to_string())),
        durability: Durability::EveryWrite,
        shard: shard(index),
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

fn introduce(servers: &[TestServer; 2]) {
    let members = vec![member(1, &servers[0]), member(2, &servers[1])];
    servers.iter().for_each(|server| server.set_members(members.clone()));
}

fn key_of(index: u16) -> String {
    let is_there = |key: &String| place(index).slots().contains(&slot(key.as_bytes()));
    (0..).map(|number| format!("k{number}")).find(is_there).expect("a key")
}

#[test]
fn replies_of_another_node_keep_their_order_while_records_are_written() {
    let parent = tempfile::tempdir().expect("a directory");
    let servers = [start(1, parent.path()), start(2, parent.path())];
    introduce(&servers);
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

/// The first has only this much memory.
fn small_beside_large(memory: u64) -> [TestServer; 2] {
    let memory = |index| ByteSize(if index == 1 { memory } else { 1 << 30 });
    let servers = [1, 2].map(|index| {
        TestServer::start(ServerConfig {
            memory: memory(index),
            shard: shard(index),
            ..ServerConfig::default()
        })
    });
    introduce(&servers);
    servers
}

#[test]
fn a_full_node_passes_values_on_and_refuses_what_it_cannot_hold_meanwhile() {
    let servers = small_beside_large(1 << 20);
    let (own, other) = (key_of(1), key_of(2));
    let mut client = servers[0].connect();
    let value = "v".repeat(8 << 20);
    client.send(&request(&["SET", &own, &value]));
    client.expect(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n");
    for _ in 0..3 {
        client.send(&request(&["SET", &other, &value]));
        client.expect(b"+OK\r\n");
        client.send(&request(&["GET", &other]));
        client.expect(format!("${}\r\n{value}\r\n", value.len()).as_bytes());
    }
    // More than may be on its way at one time.
    client.send(&request(&["SETRANGE", &other, &(300u64 << 20).to_string(), "x"]));
    client.expect(format!(":{}\r\n", (300u64 << 20) + 1).as_bytes());
    client.send(&request(&["GET", &other]));
    client.expect(
        b"-OOM this node has no memory to pass this on; the node that has the key can be asked itself (CLUSTER SLOTS)\r\n",
    );
    // What was on its way is counted no more, and the next command has a connection.
    client.send(&request(&["SET", &other, &value]));
    client.expect(b"+OK\r\n");
    client.send(&request(&["STRLEN", &other]));
    client.expect(format!(":{}\r\n", value.len()).as_bytes());
    client.send(&request(&["EXISTS", &own]));
    client.expect(b":0\r\n");
}

/// A reply of this many lines.
fn lines(client: &mut RawClient, count: usize) -> Vec<String> {
    (0..count).map(|_| client.line()).collect()
}

#[test]
fn a_stream_is_used_through_a_node_that_does_not_have_it() {
    let servers = small_beside_large(1 << 30);
    let stream = key_of(2);
    let say = |client: &mut RawClient, words: &[&str], reply: &str| {
        client.send(&request(words));
        client.expect(reply.as_bytes());
    };
    let mut producer = servers[0].connect();
    let opened = "*5\r\n+OPENED\r\n$1\r\n1\r\n$1\r\n0\r\n$1\r\n0\r\n$5\r\n30000\r\n";
    say(&mut producer, &["PHALANX.STREAM", "PRODUCER", &stream, "sim", "-", "-"], opened);
    producer.send(&request(&["PHALANX.STREAM", "BEGIN", &stream, "sim", "1", "0", "2", "8", "-", "0", "x"]));
    let admitted = lines(&mut producer, 4);
    assert_eq!(&admitted[..2], ["*2", "+ADMITTED"], "{admitted:?}");
    let base = &admitted[3];
    assert!(place(2).slots().contains(&slot(base.as_bytes())), "{base} is at the other node");
    let key = format!("{base}.x");
    say(&mut producer, &["AI.TENSORSET", &key, "FLOAT", "2", "VALUES", "1", "2"], "+OK\r\n");
    let complete = ["PHALANX.STREAM", "COMPLETE", &stream, "sim", "1", "0"];
    say(&mut producer, &complete, "*1\r\n+ACKNOWLEDGED\r\n");
    say(&mut producer, &["EXISTS", &key], ":1\r\n");
    say(&mut producer, &["PHALANX.STREAM", "LIST", ""], "*1\r\n+LIST\r\n");

    // A wait through this node is answered when the other node has something to say.
    let mut watcher = servers[0].connect();
    watcher.send(&request(&["PHALANX.STREAM", "INFO", &stream]));
    let info = lines(&mut watcher, 4);
    assert_eq!(info[1], "+INFO");
    assert!(info[3].contains("\"samples\":2"), "{info:?}");
    watcher.send(&request(&["PHALANX.STREAM", "FIELDS", &stream, "60000"]));
    assert_eq!(lines(&mut watcher, 4)[1], "+FIELDS");

    // With the client's connection its producer is lost, at the other node.
    watcher.send(&request(&["PHALANX.STREAM", "WATCH", &stream, "0", "60000"]));
    let mut seen = lines(&mut watcher, 6);
    assert!(seen[5].contains("Open"), "{seen:?}");
    drop(producer);
    while !seen[5].contains("Lost") {
        watcher.send(&request(&["PHALANX.STREAM", "WATCH", &stream, &seen[3], "60000"]));
        seen = lines(&mut watcher, 6);
    }
}
