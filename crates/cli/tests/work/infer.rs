//! Served models: requests of several clients, nodes that are killed, and what goes wrong.

use super::sandbox;
use phalanx::infer::EdgeNode;
use phalanx::jobs::Parcel;
use phalanx::model::{Seed, Tensor, TrainedModel, zoo};
use phalanx::nodes::{FabricConfig, NodeKind};
use phalanx_testkit::{DEADLINE, Sandbox};
use rustix::process::Signal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

const CLIENTS: usize = 4;
const REQUESTS: usize = 50;

/// Writes a model with weights of a seed, and samples for it; gives the samples.
fn write_files(dir: &Path, samples: usize) -> Vec<f32> {
    let graph = zoo::build("digits-cnn", &zoo::ZooOptions::default()).unwrap();
    let weights = graph.initialise(Seed(7));
    TrainedModel::new(graph, weights).save_onnx(&dir.join("digits.onnx")).unwrap();
    let x: Vec<f32> = (0..samples * 64).map(|i| ((i * 37 + i / 64 * 11) % 17) as f32 / 16.0).collect();
    std::fs::write(dir.join("x.npy"), npy(&x, &format!("({samples}, 1, 8, 8)"))).unwrap();
    x
}

/// A file of NumPy's format, version 1.0.
fn npy(values: &[f32], shape: &str) -> Vec<u8> {
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    let header = format!("{dict:<117}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    file.extend(header.as_bytes());
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

/// Requests of few samples are computed another way than by `predict`, so sums may be rounded otherwise.
fn is_close((a, b): (&f32, &f32)) -> bool {
    (a - b).abs() <= 1e-5 * a.abs().max(1.0)
}

/// The numbers of a file that this program wrote.
fn read_npy(path: &Path) -> Vec<f32> {
    let file = std::fs::read(path).unwrap();
    let from = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[from..].as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn predicted(sandbox: &Sandbox) -> Vec<f32> {
    sandbox.json(&["predict", "digits.onnx", "x.npy", "-o", "predicted.npy", "--output", "json"]);
    read_npy(&sandbox.path().join("predicted.npy"))
}

fn edge_config(sandbox: &Sandbox, name: &str) -> FabricConfig {
    let domain = phalanx::nodes::DomainName::new("default").unwrap();
    let mut config = FabricConfig::new(domain, name, NodeKind::Edge);
    config.runtime_dir = sandbox.path().join("run/host");
    config.mdns = false;
    config
}

/// Sends all requests of a client at once; gives the outputs in their order.
async fn ask(edge: EdgeNode, x: Vec<f32>, answered: Arc<(AtomicUsize, Notify)>) -> Vec<f32> {
    let mut handles = Vec::new();
    for sample in x.chunks_exact(64) {
        let tensor = Tensor::from_f32(vec![1, 1, 8, 8], sample).unwrap();
        handles.push(edge.submit("digits", Parcel::default().with_tensor("x", tensor)).await.unwrap());
    }
    let mut outputs = Vec::new();
    for handle in handles {
        let answer = handle.answer().await.unwrap();
        outputs.extend(answer.tensors[0].1.to_f32().unwrap());
        answered.0.fetch_add(1, Ordering::SeqCst);
        answered.1.notify_one();
    }
    edge.shutdown().await;
    outputs
}

#[tokio::test(flavor = "current_thread")]
async fn every_request_is_answered_once_although_a_node_is_killed() {
    let sandbox = sandbox();
    let x = write_files(sandbox.path(), CLIENTS * REQUESTS);
    let expected = predicted(&sandbox);
    let serve = ["--serve", "digits=digits.onnx", "--cores", "1"];
    let (victim, _) = sandbox.node(&serve);
    let _other = sandbox.node(&serve);
    let answered = Arc::new((AtomicUsize::new(0), Notify::new()));
    let mut clients = Vec::new();
    for (n, samples) in x.chunks_exact(REQUESTS * 64).enumerate() {
        let edge = EdgeNode::start(edge_config(&sandbox, &format!("edge{n}"))).await.unwrap();
        clients.push(tokio::spawn(ask(edge, samples.to_vec(), answered.clone())));
    }
    while answered.0.load(Ordering::SeqCst) < CLIENTS * REQUESTS / 10 {
        answered.1.notified().await;
    }
    victim.signal(Signal::KILL);
    let mut outputs = Vec::new();
    for client in clients {
        outputs.extend(tokio::time::timeout(DEADLINE, client).await.unwrap().unwrap());
    }
    assert_eq!(answered.0.load(Ordering::SeqCst), CLIENTS * REQUESTS);
    assert_eq!(outputs.len(), expected.len());
    assert!(outputs.iter().zip(&expected).all(is_close), "other outputs than `phalanx predict` has");
}

#[test]
fn the_command_writes_what_predict_writes_and_nodes_show_what_is_served() {
    let sandbox = sandbox();
    write_files(sandbox.path(), 128);
    let expected = predicted(&sandbox);
    let _node = sandbox.node(&["--serve", "digits=digits.onnx", "--serve", "again=digits.onnx"]);
    let args = ["infer", "--model", "digits", "x.npy", "--batch", "64", "-o", "out.npy", "--output", "json"];
    let told = sandbox.json(&args);
    assert_eq!((&told["samples"], &told["shape"]), (&128.into(), &serde_json::json!([128, 10])), "{told}");
    let outputs = read_npy(&sandbox.path().join("out.npy"));
    assert_eq!(outputs.len(), expected.len());
    assert!(outputs.iter().zip(&expected).all(is_close), "other outputs than `phalanx predict` has");
    let printed = sandbox.json(&["infer", "--model", "again", "x.npy", "--output", "json"]);
    assert_eq!(printed["outputs"].as_array().unwrap().len(), 128);
    assert_eq!(printed["argmax"], told["argmax"]);
    let nodes = sandbox.json(&["nodes", "--output", "json"]);
    let node = nodes.as_array().unwrap().iter().find(|n| n["kind"] == "inference").unwrap();
    assert_eq!(node["serves"], serde_json::json!(["again", "digits"]), "{nodes}");
}

fn fails(sandbox: &Sandbox, args: &[&str]) -> (Option<i32>, String) {
    let output = sandbox.run(args);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn unknown_models_and_wrong_shapes_are_explained() {
    let sandbox = sandbox();
    write_files(sandbox.path(), 2);
    std::fs::write(sandbox.path().join("wide.npy"), npy(&[0.0; 2 * 81], "(2, 1, 9, 9)")).unwrap();
    let (code, said) = fails(&sandbox, &["infer", "--model", "digits", "x.npy", "--patience", "10ms"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no model is served") && said.contains("--serve digits=FILE"), "{said}");
    let _node = sandbox.node(&["--serve", "digits=digits.onnx"]);
    let (code, said) = fails(&sandbox, &["infer", "--model", "digts", "x.npy"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("served: digits") && said.contains("did you mean \"digits\"?"), "{said}");
    let (code, said) = fails(&sandbox, &["infer", "--model", "digits", "wide.npy"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("expected shape [N, 1, 8, 8], got [2, 1, 9, 9]"), "{said}");
    let (code, said) = fails(&sandbox, &["node", "--serve", "a b=digits.onnx"]);
    assert_eq!((code, said.contains("a model cannot be called \"a b\"")), (Some(2), true), "{said}");
    let (code, said) = fails(&sandbox, &["node", "--serve", "digits=missing.onnx"]);
    assert_eq!((code, said.contains("could not load the model \"digits\"")), (Some(2), true), "{said}");
}
