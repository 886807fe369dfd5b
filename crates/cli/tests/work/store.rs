//! `phalanx store`: a store in a process of its own, files in and out, and what goes wrong.

use super::sandbox;
use phalanx_store_client::{Store, StoreOptions};
use phalanx_testkit::{Process, Sandbox};
use phalanx_types::{DType, Tensor};
use rustix::process::Signal;
use serde_json::json;

/// Starts a store at a free port; gives its address.
fn serve(sandbox: &Sandbox, args: &[&str]) -> (Process, String) {
    let all = [&["store", "serve", "--bind", "127.0.0.1:0", "--output", "quiet"], args].concat();
    let process = sandbox.start(&all);
    let address = process.line();
    (process, address)
}

fn tensor(len: u64, seed: u8) -> Tensor {
    let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect();
    Tensor::new(DType::U8, vec![len], data.into()).unwrap()
}

#[test]
fn arrays_go_from_files_to_the_store_and_back() {
    let sandbox = sandbox();
    let (_store, at) = serve(&sandbox, &[]);
    let arrays = vec![
        ("a".to_owned(), Tensor::from_f32(vec![2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()),
        ("big".to_owned(), tensor(3 << 20, 5)),
    ];
    let file = |name: &str| sandbox.path().join(name);
    phalanx_data::write_tensors(&file("in.npz"), &arrays).unwrap();
    sandbox.json(&["store", "put", "in.npz", "--prefix", "run/", "--at", &at, "--output", "json"]);
    let listed = sandbox.json(&["store", "list", "run/*", "--at", &at, "--output", "json"]);
    assert_eq!(listed[0]["name"], "run/a");
    assert_eq!(listed[0]["shape"], json!([2, 3]));
    assert_eq!((&listed[1]["dtype"], &listed[1]["bytes"]), (&json!("u8"), &json!(3 << 20)));
    for name in ["out.npz", "out.safetensors"] {
        sandbox.json(&["store", "export", "run/*", "-o", name, "--at", &at, "--output", "json"]);
        let named = |(name, tensor): &(String, Tensor)| (format!("run/{name}"), tensor.clone());
        let expected: Vec<_> = arrays.iter().map(named).collect();
        assert_eq!(phalanx_data::read_tensors(&file(name)).unwrap(), expected);
    }
    let shown = sandbox.json(&["store", "get", "run/a", "--at", &at, "--output", "json"]);
    assert_eq!(shown[0]["first"], json!([1.0, 2.0, 3.0, 4.0]));
    sandbox.json(&["store", "rm", "--matching", "run/*", "--at", &at, "--output", "json"]);
    let info = sandbox.json(&["store", "info", "--at", &at, "--output", "json"]);
    assert_eq!((&info["keys"], &info["used_bytes"]), (&json!(0), &json!(0)));
}

#[test]
fn what_is_missing_wrong_or_late_is_told_with_its_exit_code() {
    let sandbox = sandbox();
    let (_store, at) = serve(&sandbox, &[]);
    let fails = |args: &[&str], code: i32, text: &str| {
        let output = sandbox.run(&[&["store"], args, &["--at", &at]].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(text), "{errors}");
    };
    fails(&["get", "nothing"], 2, "there is no tensor \"nothing\" in the store");
    fails(&["get", "nothing", "--wait", "20ms"], 1, "was not there within");
    fails(&["put", "missing.npy"], 2, "missing.npy");
    fails(&["rm", "nothing"], 2, "there is no key \"nothing\"");
    fails(&["export", "-o", "x.npz"], 2, "no tensor in the store matches");
    let gone = sandbox.run(&["store", "info", "--at", "127.0.0.1:1"]);
    assert_eq!(gone.status.code(), Some(3));
    let exposed = sandbox.run(&["store", "serve", "--bind", "0.0.0.0:0"]);
    assert_eq!(exposed.status.code(), Some(2));
}

#[test]
fn views_of_another_process_outlive_it_and_a_killed_client_frees_what_it_took() {
    let sandbox = sandbox();
    let (mut process, at) = serve(&sandbox, &["--memory", "64MiB"]);
    let store = Store::connect(&at, StoreOptions::default()).unwrap();
    for seed in 0..40 {
        store.put("x", &tensor(20 << 20, seed)).unwrap();
    }
    let view = store.get("x").unwrap();
    assert!(phalanx_shared::locate(view.data()).is_some_and(|located| !located.segment.is_own()));
    // A client that took memory and left counts for nothing.
    let other = Store::connect(&at, StoreOptions::default()).unwrap();
    other.command(&[b"PHALANX.TAKE", b"30000000"]).unwrap();
    drop(other);
    let until = std::time::Instant::now() + phalanx_testkit::DEADLINE;
    while let Err(full) = store.put("y", &tensor(40 << 20, 1)) {
        assert!(std::time::Instant::now() < until, "{full}");
    }
    process.signal(Signal::KILL);
    process.finish();
    assert_eq!(view, tensor(20 << 20, 39));
    assert!(store.get("x").is_err());
}
