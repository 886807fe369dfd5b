//! Against a node of a domain with a key: only members get past TLS.

use super::{Opened, assert_flat, crowd, member, refused, stranger, undisturbed};
use phalanx_fabric::{DomainKey, subject_name};
use phalanx_testkit::{Credentials, Node, Raw, Sandbox, Wire, hello, tls};
use phalanx_types::{DomainName, NodeId};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{HelloReply, Refusal};
use phalanx_wire::node::NodeKind;
use std::time::{Duration, SystemTime};

const LAB: [&str; 4] = ["--domain", "lab", "--bind", "127.0.0.1:0"];
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A node of a domain with a key, and the key.
struct Target {
    sandbox: Sandbox,
    node: Node,
    key: DomainKey,
}

fn id(node: &str) -> NodeId {
    NodeId::new(node).expect("a node id")
}

/// A certificate for a node, valid from and until this many years from now.
fn issue(key: &DomainKey, node: &str, from: i32, until: i32) -> Credentials {
    let at = |years: i32| {
        let span = YEAR * years.unsigned_abs();
        if years < 0 { SystemTime::now() - span } else { SystemTime::now() + span }
    };
    let issued = key.issue(&id(node), at(from), at(until)).expect("a certificate");
    (issued.certificate, issued.key)
}

impl Target {
    fn new() -> Self {
        let sandbox = crate::sandbox();
        let made = sandbox.json(&["domain", "new", "lab", "--output", "json"]);
        let file = made["file"].as_str().expect("a file");
        let key = DomainKey::load(file.as_ref()).expect("the key that was just made");
        let node =
            sandbox.host("host", None).node(&[&["--name", "target", "--cores", "2"], &LAB[..]].concat());
        Self { sandbox, node, key }
    }

    fn open(&self, mine: Option<Credentials>) -> Opened {
        let raw = Raw::connect(self.node.address);
        let from = raw.name();
        let name = subject_name(&id(&self.node.id));
        (tls(raw.stream, self.key.authority(), name, mine).boxed(), from)
    }

    /// Opens a connection with a valid certificate for this node.
    fn open_as(&self, node: &str) -> Opened {
        self.open(Some(issue(&self.key, node, -1, 1)))
    }

    fn refuses(&self, mine: Option<Credentials>, words: &str) {
        let (mut raw, from) = self.open(mine);
        raw.say_last(b"PHLX");
        refused(&self.node.process, &from, words);
    }
}

#[test]
fn a_node_with_a_key_admits_only_nodes_certified_by_the_key() {
    let target = Target::new();
    let process = &target.node.process;
    let foreign = DomainKey::generate(&DomainName::new("lab").expect("a name")).expect("a key");
    undisturbed(target.sandbox.host("host", None), &LAB, || {
        for plain in [&b"PHLX\x01\x00\x00\x00"[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 5_000]] {
            let mut raw = Raw::connect(target.node.address);
            let from = raw.name();
            raw.say_last(plain);
            refused(process, &from, "not a TLS handshake of this domain");
        }
        target.refuses(None, "certificate refused: missing");
        target.refuses(
            Some(issue(&target.key, "late-0001", -2, -1)),
            "certificate refused: expired or not valid yet",
        );
        target.refuses(
            Some(issue(&target.key, "early-0001", 1, 2)),
            "certificate refused: expired or not valid yet",
        );
        target.refuses(
            Some(issue(&foreign, "spy-0001", -1, 1)),
            "certificate refused: issued by another domain",
        );
        another_process_with_another_key(&target);
        borrowed_names(&target);
        stranger::all(process, &|id| target.open_as(id));
        member::all(process, &|id| {
            let mut raw = target.open_as(id).0;
            let reply = raw.join(None, hello("lab", id, NodeKind::Main));
            let HelloReply::Welcome(welcome) = reply else { panic!("{id} was not let in: {reply:?}") };
            (raw, welcome)
        });
        let before = process.resident_bytes();
        crowd::babbling(target.node.address, 1_500);
        for _ in 0..200 {
            let mut raw = target.open(Some(issue(&foreign, "spy-0001", -1, 1))).0;
            raw.say_last(b"PHLX");
        }
        assert_flat(process, before);
    });
}

/// A real node of another domain with the same name.
fn another_process_with_another_key(target: &Target) {
    let other = target.sandbox.path().join("other.key");
    let other = other.to_str().expect("a path");
    let made = target.sandbox.run(&["domain", "new", "lab", "--file", other, "--output", "quiet"]);
    assert!(made.status.success(), "{made:?}");
    let address = target.node.address.to_string();
    let args = [&["--key", other, "--connect", &address][..], &LAB].concat();
    let spy = target.sandbox.host("elsewhere", None).node(&args);
    spy.process.says("certificate refused: issued by another domain");
    let listed = target.sandbox.json(&[&["nodes", "--output", "json"], &LAB[..]].concat());
    assert!(listed.to_string().contains(&target.node.id), "{listed}");
    assert!(!listed.to_string().contains(&spy.id), "{listed}");
    // A command that is refused says so, to its user and to the node.
    let elsewhere = target.sandbox.host("refused", None);
    let look = |more: &[&str]| {
        let args = [&["nodes", "--patience", "20s", "--connect", &address, "--no-mdns"], more];
        let mut process = elsewhere.start(&args.concat());
        let (status, printed) = process.finish();
        assert_eq!(printed, Vec::<String>::new());
        (status.code(), process.stderr())
    };
    let (code, told) = look(&["--key", other, "--domain", "lab"]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains(&format!("{address}: certificate refused: issued by another domain")), "{told}");
    let (code, told) = look(&[]);
    assert_eq!(code, Some(3), "{told}");
    assert!(told.contains("no node was reached") && told.contains("--key"), "{told}");
}

/// Members that claim to be another member.
fn borrowed_names(target: &Target) {
    for claimed in [&target.node.id[..], "main-0001"] {
        let (mut raw, from): (Raw<Box<dyn Wire>>, _) = target.open_as("thief-0001");
        raw.challenged();
        raw.send(FrameKind::Handshake, &hello("lab", claimed, NodeKind::Main));
        let refusal = Refusal::IdentityMismatch { claimed: id(claimed) };
        assert_eq!(raw.read::<HelloReply>(), HelloReply::Refused(refusal));
        refused(&target.node.process, &from, &format!("the certificate was not issued to {claimed}"));
    }
}
