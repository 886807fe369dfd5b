//! Hostile peers that lie, send garbage, stall and impersonate, against real nodes and a real relay on loopback.
//!
//! Each is refused with a typed reason in the log of its target, which keeps its memory and goes on solving jobs
//! undisturbed.

mod crowd;
mod keyed;
mod member;
mod relay;
mod stranger;
mod stream;

use phalanx_testkit::{Node, Process, Raw, Sandbox, Wire};
use phalanx_wire::handshake::{HelloReply, Welcome};
use phalanx_wire::node::NodeKind;
use stream::undisturbed;

/// A connection to the node under attack, and the name the node knows it by.
type Opened = (Raw<Box<dyn Wire>>, String);

/// How to reach the node under attack, under which id.
type Open<'a> = &'a dyn Fn(&str) -> Opened;

/// Waits until the log says that the connection from there was refused for this.
fn refused(process: &Process, from: &str, words: &str) {
    let from = format!("from={from} ");
    process.says_where(&format!("{from}… {words}"), |said| {
        said.lines().any(|line| line.contains(&from) && line.contains("refused") && line.contains(words))
    });
}

/// Memory use may fluctuate, but not grow.
#[expect(clippy::print_stdout, reason = "a measurement to read in the output of the test")]
fn assert_flat(process: &Process, before: u64) {
    let after = process.resident_bytes();
    println!("memory: {} KiB before, {} KiB after", before >> 10, after >> 10);
    assert!(after < before + (20 << 20), "grew from {before} to {after} bytes");
}

/// A node without a key, and everything needed to join it.
struct Target {
    sandbox: Sandbox,
    node: Node,
    token: Vec<u8>,
}

impl Target {
    fn new() -> Self {
        let sandbox = crate::sandbox();
        let node = sandbox.host("host", None).node(&["--name", "target", "--cores", "2"]);
        let token = std::fs::read(sandbox.path().join("run/host/default/token")).expect("the token");
        Self { sandbox, node, token }
    }

    fn open(&self) -> Opened {
        let raw = Raw::connect(self.node.address);
        let name = raw.name();
        (raw.boxed(), name)
    }

    /// Joins as a member.
    fn join(&self, id: &str, kind: NodeKind) -> (Raw<Box<dyn Wire>>, Welcome) {
        let mut raw = self.open().0;
        let reply = raw.join(Some(&self.token), phalanx_testkit::hello("default", id, kind));
        let HelloReply::Welcome(welcome) = reply else { panic!("{id} was not let in: {reply:?}") };
        (raw, welcome)
    }
}

#[test]
fn a_node_shrugs_off_strangers_members_gone_mad_and_crowds() {
    let target = Target::new();
    let process = &target.node.process;
    undisturbed(target.sandbox.host("host", None), &[], || {
        stranger::all(process, &|_| target.open());
        stranger::pretenders(&target);
        member::all(process, &|id| {
            let (raw, welcome) = target.join(id, NodeKind::Main);
            (raw, welcome)
        });
        let before = process.resident_bytes();
        crowd::babbling(target.node.address, 3_000);
        member::rude(&target);
        crowd::silent(&target.sandbox, process, target.node.address);
        assert_flat(process, before);
    });
}
