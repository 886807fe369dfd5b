//! Stores of a domain: inside nodes, found by the domain's name, used with its key.

use super::sandbox;
use phalanx_resp::{Reply, slot};
use phalanx_store_client::{Dataset, Store, StoreError, StoreOptions};
use phalanx_testkit::{Process, Sandbox, eventually};
use phalanx_types::{DType, Tensor};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::process::Command;

/// A node that serves a store; also gives what it said when it started.
fn node(sandbox: &Sandbox, args: &[&str]) -> (Process, Value) {
    let all = [&["node", "--output", "json", "--no-mdns", "--store"], args].concat();
    let process = sandbox.start(&all);
    let started = process.json();
    (process, started)
}

fn fails(sandbox: &Sandbox, args: &[&str], code: i32, text: &str) {
    let output = sandbox.run(args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(errors.contains(text), "{errors}");
}

/// Writes `x.npy`.
fn write_array(sandbox: &Sandbox) -> Tensor {
    let tensor = Tensor::new(DType::U8, vec![300_000], vec![7; 300_000].into()).unwrap();
    let named = [("x".to_owned(), tensor.clone())];
    phalanx_data::write_tensors(&sandbox.path().join("x.npz"), &named).unwrap();
    tensor
}

#[test]
fn the_store_of_a_domain_is_found_by_its_name() {
    let sandbox = sandbox();
    let array = write_array(&sandbox);
    fails(&sandbox, &["store", "info", "--domain", "alone"], 3, "no node of domain alone serves a store");
    let (mut first, started) =
        node(&sandbox, &["--domain", "alone", "--memory", "4GiB", "--store-memory", "1GiB"]);
    let address = started["store"].as_str().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "without a key it listens on loopback only: {address}");

    let nodes = sandbox.json(&["nodes", "--domain", "alone", "--output", "json"]);
    assert_eq!(nodes[0]["store"], json!({ "address": address, "shard": 1, "shards": 1 }));
    let charged = nodes[0]["uses"].as_array().unwrap().iter().find(|part| part["kind"] == "store").unwrap();
    assert_eq!((&charged["cores"], &charged["memory_bytes"]), (&json!(0), &json!(1_u64 << 30)));

    sandbox.json(&["store", "put", "x.npz", "--domain", "alone", "--output", "json"]);
    sandbox.json(&["store", "get", "x", "-o", "y.npz", "--at", "phalanx://alone", "--output", "json"]);
    let back = phalanx_data::read_tensors(&sandbox.path().join("y.npz")).unwrap();
    assert_eq!(back, [("x".to_owned(), array)]);
    // The plain address works, too, for Redis tools.
    let info = sandbox.json(&["store", "info", "--at", &address, "--output", "json"]);
    assert_eq!((&info["keys"], &info["memory_bytes"]), (&json!(1), &json!(1_u64 << 30)));

    let id = started["id"].as_str().unwrap();
    let second = ["node", "--domain", "alone", "--store", "--output", "quiet"];
    fails(&sandbox, &second, 2, &format!("node {id} serves part 1/1 of the store of this domain already"));
    let large = ["node", "--domain", "other", "--memory", "1GiB", "--store", "--store-memory", "2GiB"];
    fails(&sandbox, &large, 2, "needs 2 GiB of memory, the node has 1 GiB");

    first.signal(Signal::KILL);
    first.finish();
    fails(&sandbox, &["store", "info", "--domain", "alone"], 3, "no node of domain alone serves a store");
    let (_again, _) = node(&sandbox, &["--domain", "alone"]);
    eventually("the new store is found", || {
        sandbox.run(&["store", "info", "--domain", "alone"]).status.success().then_some(())
    });
}

#[test]
fn a_domain_key_opens_the_store_and_others_need_the_password() {
    let sandbox = sandbox();
    write_array(&sandbox);
    assert!(sandbox.run(&["domain", "new", "lab"]).status.success());
    std::fs::write(sandbox.path().join("secret"), "open sesame\n").unwrap();
    let (_node, started) = node(&sandbox, &["--domain", "lab", "--store-password-file", "secret"]);
    let address = started["store"].as_str().unwrap();
    assert!(address.starts_with("0.0.0.0:"), "with a key it listens on every interface: {address}");
    let port = address.rsplit_once(':').unwrap().1;

    sandbox.json(&["store", "put", "x.npz", "--domain", "lab", "--output", "json"]);
    let member = format!("phalanx://lab@127.0.0.1:{port}");
    let keys = sandbox.json(&["store", "list", "--at", &member, "--output", "json"]);
    assert_eq!(keys[0]["name"], "x");

    let ca = sandbox.run(&["domain", "show", "lab", "--ca"]);
    std::fs::write(sandbox.path().join("ca.pem"), &ca.stdout).unwrap();
    let tls = format!("rediss://localhost:{port}?ca=ca.pem");
    fails(&sandbox, &["store", "list", "--at", &tls], 2, "give the store's password");
    sandbox.json(&["store", "list", "--at", &tls, "--password-file", "secret", "--output", "json"]);
    let mut cli = Command::new("redis-cli");
    cli.args([
        "-p",
        port,
        "--tls",
        "--cacert",
        "ca.pem",
        "--no-auth-warning",
        "-a",
        "open sesame",
        "exists",
        "x",
    ]);
    match cli.current_dir(sandbox.path()).output() {
        Ok(output) => assert_eq!(output.stdout, b"1\n", "{output:?}"),
        Err(_) => assert!(std::env::var_os("PHALANX_REQUIRE_REDIS").is_none(), "redis-cli is not installed"),
    }
    // Another key of the same name is none.
    assert!(sandbox.run(&["domain", "new", "lab", "--file", "forged.key"]).status.success());
    let forged = format!("phalanx://lab@127.0.0.1:{port}?key=forged.key");
    fails(&sandbox, &["store", "list", "--at", &forged], 2, "no encrypted connection");
}

#[test]
fn a_store_of_its_own_speaks_tls() {
    let sandbox = sandbox();
    assert!(sandbox.run(&["domain", "new", "lab"]).status.success());
    let exposed = ["store", "serve", "--bind", "0.0.0.0:0"];
    fails(&sandbox, &exposed, 2, "without a password or a domain key");
    let served = sandbox.start(&[&exposed[..], &["--domain", "lab", "--output", "json"]].concat());
    let address = served.json()["address"].as_str().unwrap().to_owned();
    let port = address.rsplit_once(':').unwrap().1;
    sandbox.json(&["store", "info", "--at", &format!("phalanx://lab@127.0.0.1:{port}"), "--output", "json"]);
    fails(&sandbox, &["store", "serve", "--tls-cert", "no.pem", "--tls-key", "no.key"], 2, "no.pem");
    fails(&sandbox, &["store", "serve", "--domain", "nowhere"], 2, "phalanx domain new nowhere");
}

/// The number of the part of three that a key belongs to, from 0.
fn part_of(key: &str) -> usize {
    (usize::from(slot(key.as_bytes())) + 1).saturating_mul(3).div_ceil(16384) - 1
}

/// What redis-cli says to one node, which it takes for the only one.
fn ask(port: &str, words: &[&str]) -> Option<String> {
    let output = Command::new("redis-cli").args(["-p", port]).args(words).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn three_nodes_share_a_store_and_every_one_answers_for_every_key() {
    let sandbox = sandbox();
    let start =
        |part: &str| node(&sandbox, &["--domain", "three", "--store-shard", part, "--memory", "1GiB"]);
    let mut nodes: Vec<_> = ["1/3", "2/3", "3/3"].into_iter().map(start).collect();
    let ports: Vec<String> = nodes
        .iter()
        .map(|(_, started)| started["store"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned())
        .collect();
    let first = format!("127.0.0.1:{}", ports[0]);
    let store = eventually("all parts are known", || {
        let store = Store::connect(&first, StoreOptions::default()).ok()?;
        (store.command_everywhere(&[b"PING"]).ok()?.len() == 3).then_some(store)
    });

    // Our client goes straight to the node of a key, with shared memory.
    let tensor = |seed: u8| Tensor::new(DType::U8, vec![300_000], vec![seed; 300_000].into()).unwrap();
    for number in 0..30 {
        store.put(&format!("t{number}"), &tensor(number)).unwrap();
    }
    for number in 0..30 {
        let found = store.get(&format!("t{number}")).unwrap();
        assert_eq!(found, tensor(number));
        assert!(phalanx_shared::locate(found.data()).is_some(), "it was sent");
    }
    let sizes: Vec<Reply> =
        store.command_everywhere(&[b"DBSIZE"]).unwrap().into_iter().map(|(_, size)| size).collect();
    assert!(sizes.iter().all(|size| matches!(size, Reply::Integer(4..))), "{sizes:?}");
    assert_eq!(store.keys_like("t*").unwrap().len(), 30);
    let mut dataset = Dataset::new("d");
    dataset.add_tensor("x", tensor(3));
    store.put_dataset(&dataset).unwrap();
    store.append("list", "d").unwrap();
    assert_eq!(store.list_datasets("list", 0, -1).unwrap(), [dataset]);
    store.rename("t0", "u0").unwrap();
    assert_eq!(store.get("u0").unwrap(), tensor(0));
    let listed = sandbox.json(&["store", "list", "t1*", "--domain", "three", "--output", "json"]);
    assert_eq!(listed.as_array().unwrap().len(), 11);
    let shown = sandbox.json(&["nodes", "--domain", "three", "--output", "json"]);
    let parts: Vec<_> = shown.as_array().unwrap().iter().map(|node| node["store"]["shard"].clone()).collect();
    assert!((1..=3).all(|part| parts.contains(&json!(part))), "{parts:?}");

    // A client that knows one node only gets everything from it.
    let key_of = |part: usize| (0..).map(|n| format!("k{n}")).find(|key| part_of(key) == part).unwrap();
    let keys = [key_of(0), key_of(1), key_of(2)];
    if ask(&ports[0], &["ping"]).is_some() {
        through_one_node(&ports, [&keys[0], &keys[1], &keys[2]]);
    } else {
        assert!(std::env::var_os("PHALANX_REQUIRE_REDIS").is_none(), "redis-cli is not installed");
    }

    // A part that is lost is told, the others go on.
    let doubled = ["node", "--domain", "three", "--store", "--store-shard", "2/3", "--output", "quiet"];
    fails(&sandbox, &doubled, 2, "serves part 2/3 of the store of this domain already");
    fails(&sandbox, &["node", "--domain", "three", "--store", "--output", "quiet"], 2, "has 3 parts");
    nodes[2].0.signal(Signal::KILL);
    nodes[2].0.finish();
    let of_part = |part: usize| (1..30).map(|n| format!("t{n}")).find(|key| part_of(key) == part).unwrap();
    let (lost, kept) = (of_part(2), of_part(1));
    eventually("the loss is told", || match store.get(&lost) {
        Err(StoreError::Down { text }) => text.contains("part 3/3").then_some(()),
        Err(StoreError::Lost { .. } | StoreError::Connect { .. }) => None,
        other => panic!("{other:?}"),
    });
    assert!(store.get(&kept).is_ok());
    // Another node takes the part over, empty, and clients find it.
    let _again = start("3/3");
    eventually("the part is back", || match store.get(&lost) {
        Err(StoreError::Missing { .. }) => Some(()),
        Err(_) => None,
        Ok(_) => panic!("its memory was lost"),
    });
    store.put(&lost, &tensor(9)).unwrap();
    assert_eq!(store.get(&lost).unwrap(), tensor(9));
}

fn through_one_node(ports: &[String], [a, b, c]: [&str; 3]) {
    let one = |words: &[&str]| ask(&ports[0], words).unwrap();
    for port in ports {
        assert_eq!(ask(port, &["mset", a, "1", b, "2", c, "3"]).unwrap(), "OK");
        assert_eq!(ask(port, &["mget", c, a, "none", b]).unwrap(), "3\n1\n\n2");
        assert_eq!(ask(port, &["get", b]).unwrap(), "2");
    }
    assert_eq!((one(&["exists", a, b, c]), one(&["del", a, b, c, a])), ("3".into(), "3".into()));
    one(&["rpush", a, "x", "y"]);
    assert_eq!(one(&["rename", a, b]), "OK");
    assert_eq!((one(&["lrange", b, "0", "-1"]), one(&["exists", a])), ("x\ny".into(), "0".into()));
    one(&["hset", c, "f", "v"]);
    assert_eq!((one(&["copy", c, a]), one(&["hgetall", a])), ("1".into(), "f\nv".into()));
    assert!(one(&["msetnx", a, "1", b, "2"]).contains("CROSSSLOT"));
    // A command that waits at another node waits for its own client only.
    one(&["del", a, b, c]);
    let waiting = {
        let (port, key) = (ports[0].clone(), c.to_owned());
        std::thread::spawn(move || ask(&port, &["blpop", &key, "30"]).unwrap())
    };
    eventually("the client waits", || {
        let blocked = |port: &String| ask(port, &["info", "clients"]).unwrap().contains("blocked_clients:1");
        ports.iter().any(blocked).then_some(())
    });
    assert_eq!(ask(&ports[1], &["rpush", c, "z"]).unwrap(), "1");
    assert_eq!(waiting.join().unwrap(), format!("{c}\nz"));
    let slots = one(&["cluster", "slots"]);
    assert!(ports.iter().all(|port| slots.lines().any(|line| line == port)), "{slots}");
}
