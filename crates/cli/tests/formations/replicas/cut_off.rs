//! Peers that say something that is no message of training are cut off, with the reason on both sides.

use super::{CNN, ENDLESS, SGD, run_file};
use crate::run::{Run, SAMPLES};
use crate::sandbox;
use phalanx_testkit::{Raw, Sandbox, digits, eventually, hello, read_json};
use phalanx_types::{ByteSize, RunId};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::HelloReply;
use phalanx_wire::node::NodeKind;
use phalanx_wire::train::{DataRef, Enlist, FromReplica, ShareAsk, ToReplica};
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// No message begins with this byte.
const GARBAGE: &[u8] = &[0xff; 40];

pub(super) fn join(sandbox: &Sandbox, address: SocketAddr, id: &str, kind: NodeKind) -> Raw<TcpStream> {
    let token = std::fs::read(sandbox.path().join("run/host/default/token")).unwrap();
    let mut raw = Raw::connect(address);
    let reply = raw.join(Some(&token), hello("default", id, kind));
    assert!(matches!(reply, HelloReply::Welcome(_)), "{id} was not let in: {reply:?}");
    raw
}

/// Where the driver of a run listens.
fn driver_of(sandbox: &Sandbox) -> SocketAddr {
    let dir = sandbox.path().join("run/host/default");
    eventually("the access file of the driver", || {
        let files = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path());
        let access = files.filter(|path| path.extension().is_some_and(|end| end == "json")).map(read_json);
        let mut drivers =
            access.filter(|access| access["id"].as_str().is_some_and(|id| id.starts_with("driver-")));
        drivers.next()?["address"].as_str()?.parse().ok()
    })
}

/// What a domain knows of a node.
fn known(sandbox: &Sandbox, id: &str) -> Option<Value> {
    let nodes = sandbox.json(&["nodes", "--output", "json"]);
    nodes.as_array().unwrap().iter().find(|node| node["id"] == id).cloned()
}

/// Waits until `phalanx nodes` says why the raw peer is lost.
fn shown_as_cut_off(sandbox: &Sandbox, words: &str) {
    eventually("the reason among the nodes", || {
        let lost = known(sandbox, "mad-0001").filter(|node| node["state"] == "lost")?;
        let why = lost["why"].as_str()?;
        (why.contains("cut off for misbehaving") && why.contains(words)).then_some(())
    });
}

#[test]
fn a_node_that_says_what_cannot_be_decoded_is_lost_with_that_reason() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
    let (_first, a) = sandbox.node(&["--name", "a", "--cores", "1"]);
    let mut run = Run::start(&sandbox, &["--replicas", "1"]);
    run.until_replicas("one replica", |replicas| replicas == [a.as_str()]);
    let mut raw = join(&sandbox, driver_of(&sandbox), "mad-0001", NodeKind::Computing);
    let enlist = raw.read_where(FrameKind::Train, |order| matches!(order, ToReplica::Enlist { .. }));
    raw.send(FrameKind::Train, &FromReplica::Enlisted { run: enlist.run(), step: None });
    // It is in the group that forms when it goes mad.
    raw.read_where(FrameKind::Train, |order| matches!(order, ToReplica::Prepare { ranks: 2, .. }));
    raw.send_raw(FrameKind::Train as u8, GARBAGE);
    raw.closed();
    run.process.says("warning: mad-0001 is lost: cut off for misbehaving (malformed FromReplica");
    shown_as_cut_off(&sandbox, "malformed FromReplica");
    run.until_replicas("one replica again", |replicas| replicas == [a.as_str()]);
    run.goes_on(10);
    assert_eq!(run.members(), [a.as_str()]);
    run.interrupt();
}

#[test]
fn a_driver_that_says_what_cannot_be_decoded_ends_its_run_on_the_node() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
    let data = digits();
    let root = Path::new(&data).parent().unwrap().to_str().unwrap();
    let node = sandbox.host("host", None).node(&["--name", "a", "--cores", "1", "--data-root", root]);
    let mut raw = join(&sandbox, node.address, "mad-0001", NodeKind::Main);
    let share = ShareAsk { cores: Some(1), memory: None, estimate: ByteSize(1) };
    let data = DataRef { samples: SAMPLES, validation: 719, classes: None, stream: None };
    let config = std::fs::read_to_string(sandbox.path().join("run.toml")).unwrap();
    let enlist = Enlist { config, files: Vec::new(), trace: false, data, share };
    raw.send(FrameKind::Train, &ToReplica::Enlist { run: RunId(7), enlist });
    let said = raw.read_where(FrameKind::Train, |_: &FromReplica| true);
    assert_eq!(said, FromReplica::Enlisted { run: RunId(7), step: None });
    let is_used =
        || known(&sandbox, &node.id).is_some_and(|node| node["uses"].to_string().contains("mad-0001"));
    eventually("the node that the run uses", || is_used().then_some(()));
    raw.send_raw(FrameKind::Train as u8, GARBAGE);
    raw.closed();
    node.process.says_where("why the driver is cut off", |said| {
        let cut_off = |line: &&str| line.contains("driver cut off") && line.contains("driver=mad-0001");
        said.lines().find(cut_off).is_some_and(|line| line.contains("malformed ToReplica"))
    });
    node.process.says_where("why the run is left", |said| {
        let mut lines = said.lines().filter(|line| line.contains("leaves the run"));
        lines.any(|line| line.contains("mad-0001") && line.contains("cut off for misbehaving"))
    });
    eventually("the node free again", || (!is_used()).then_some(()));
    shown_as_cut_off(&sandbox, "malformed ToReplica");
}
