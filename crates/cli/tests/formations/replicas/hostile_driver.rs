//! Members that drive runs and want more of a node than a run may have: files of its host, threads, runs of others.

use super::cut_off::join;
use super::{CNN, ENDLESS, SGD, run_file, run_file_on, sandbox};
use crate::run::SAMPLES;
use phalanx_testkit::{DEADLINE, Raw, Sandbox, digits, eventually};
use phalanx_types::{ByteSize, Epoch, RunId};
use phalanx_wire::bulk::BlobId;
use phalanx_wire::frame::FrameKind;
use phalanx_wire::node::NodeKind;
use phalanx_wire::train::{DataRef, Enlist, FromReplica, ShareAsk, StateRef, ToReplica};
use phalanx_wire::train_reason::{FileRefusal, RunRefusal};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

/// The run file of the sandbox, without a list of files.
fn enlist(sandbox: &Sandbox) -> Enlist {
    let share = ShareAsk { cores: Some(1), memory: None, estimate: ByteSize(1) };
    let data = DataRef { samples: SAMPLES, validation: 719, classes: None, stream: None };
    let config = std::fs::read_to_string(sandbox.path().join("run.toml")).unwrap();
    Enlist { config, files: Vec::new(), trace: false, data, share }
}

fn refusal(raw: &mut Raw<TcpStream>, of: RunId) -> RunRefusal {
    let wanted = |said: &FromReplica| matches!(said, FromReplica::Refused { run, .. } if *run == of);
    match raw.read_where(FrameKind::Train, wanted) {
        FromReplica::Refused { refusal, .. } => refusal,
        other => panic!("{other:?}"),
    }
}

fn root() -> String {
    let path = digits();
    let path = Path::new(&path);
    path.parent().unwrap().to_str().unwrap().to_owned()
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn a_driver_reaches_no_file_that_it_has_not_listed() {
    let sandbox = sandbox();
    let node = sandbox.host("host", None).node(&["--name", "a", "--cores", "1"]);
    let pipe = sandbox.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let secret = sandbox.path().join("secret.csv");
    std::fs::write(&secret, "password,hunter2\n1,2\n").unwrap();
    let mut raw = join(&sandbox, node.address, "mad-0001", NodeKind::Main);
    let paths = [Path::new("/dev/zero"), Path::new("/etc/passwd"), &pipe, &secret, Path::new("/nowhere")];
    for (number, path) in paths.into_iter().enumerate() {
        let data = format!("train = {{ file = {path:?}, format = \"csv\", y = \"nothing\" }}");
        run_file_on(&sandbox, CNN, &data, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
        let run = RunId(number as u64);
        raw.send(FrameKind::Train, &ToReplica::Enlist { run, enlist: enlist(&sandbox) });
        // The same for each: whether there is such a file is not said.
        let file = "data.train.file".into();
        let refused = RunRefusal::File { file, refusal: FileRefusal::NotListed };
        assert_eq!(refusal(&mut raw, run), refused, "{}", path.display());
    }
}

#[test]
fn a_run_that_is_enlisted_again_and_again_has_one_thread() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
    let node = sandbox.host("host", None).node(&["--name", "a", "--cores", "1", "--data-root", &root()]);
    let mut raw = join(&sandbox, node.address, "mad-0001", NodeKind::Main);
    let (run, before) = (RunId(7), threads(node.process.id()));
    let enlist = enlist(&sandbox);
    let mut most = 0;
    for number in 0..3000 {
        raw.send(FrameKind::Train, &ToReplica::Enlist { run, enlist: enlist.clone() });
        if number % 100 == 0 {
            most = most.max(threads(node.process.id()));
        }
    }
    let until = Instant::now() + DEADLINE;
    let enlisted = |said: &FromReplica| matches!(said, FromReplica::Enlisted { .. });
    raw.read_where(FrameKind::Train, enlisted);
    most = most.max(threads(node.process.id()));
    assert!(most < 64 && Instant::now() < until, "{before} threads before, {most} at most");
}

#[test]
fn a_run_fetches_no_more_than_it_has_claimed_and_has_a_countable_group() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
    let node = sandbox.host("host", None).node(&["--name", "a", "--cores", "1", "--data-root", &root()]);
    let mut raw = join(&sandbox, node.address, "mad-0001", NodeKind::Main);
    let enlisted = |raw: &mut Raw<TcpStream>, run| {
        raw.send(FrameKind::Train, &ToReplica::Enlist { run, enlist: enlist(&sandbox) });
        raw.read_where(FrameKind::Train, |said: &FromReplica| matches!(said, FromReplica::Enlisted { .. }));
    };
    let run = RunId(7);
    enlisted(&mut raw, run);
    let state = Some(StateRef { step: 1, bytes: u64::MAX, blob: BlobId(1) });
    raw.send(FrameKind::Train, &ToReplica::Restore { run, state });
    let refused = refusal(&mut raw, run);
    assert!(matches!(refused, RunRefusal::TooMuch { bytes: u64::MAX, .. }), "{refused:?}");
    enlisted(&mut raw, run);
    let (epoch, ranks, layout) = (Epoch(1), u32::MAX, None);
    raw.send(FrameKind::Train, &ToReplica::Prepare { run, epoch, rank: 0, ranks, layout });
    let refused = refusal(&mut raw, run);
    assert!(refused.to_string().contains("ranks at most"), "{refused:?}");
    // The node is as before.
    enlisted(&mut raw, run);
}

#[test]
fn only_the_driver_of_a_run_changes_it() {
    let sandbox = sandbox();
    run_file(&sandbox, CNN, &format!("{SGD}\nbatch = 64\n{ENDLESS}"), "");
    let node = sandbox.host("host", None).node(&["--name", "a", "--cores", "1", "--data-root", &root()]);
    let [mut first, mut second, mut mad] =
        ["first-0001", "second-0002", "mad-0003"].map(|id| join(&sandbox, node.address, id, NodeKind::Main));
    let enlist = enlist(&sandbox);
    let ask = |raw: &mut Raw<TcpStream>, run| {
        raw.send(FrameKind::Train, &ToReplica::Enlist { run, enlist: enlist.clone() });
    };
    ask(&mut first, RunId(7));
    first.read_where(FrameKind::Train, |said: &FromReplica| matches!(said, FromReplica::Enlisted { .. }));
    // One that waits belongs to its driver, too.
    ask(&mut second, RunId(8));
    assert!(matches!(refusal(&mut second, RunId(8)), RunRefusal::Shortage(_)));
    for run in [RunId(7), RunId(8)] {
        mad.send(FrameKind::Train, &ToReplica::Dismiss { run });
        ask(&mut mad, run);
        assert_eq!(refusal(&mut mad, run), RunRefusal::OtherDriver);
    }
    first.send(FrameKind::Train, &ToReplica::Dismiss { run: RunId(7) });
    eventually("the node for the run that waited", || {
        ask(&mut second, RunId(8));
        let said = second.read_where(FrameKind::Train, |_: &FromReplica| true);
        matches!(said, FromReplica::Enlisted { .. }).then_some(())
    });
}
