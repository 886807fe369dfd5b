//! Stores of a domain: inside nodes, found by the domain's name, used with its key.

use super::sandbox;
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
    fails(&sandbox, &second, 2, &format!("node {id} serves the store of this domain already"));
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
