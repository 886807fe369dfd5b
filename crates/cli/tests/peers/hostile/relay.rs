//! Against a relay, by strangers and by holders of only its token.

use super::{assert_flat, crowd, refused, undisturbed};
use phalanx_fabric::{DomainKey, subject_name};
use phalanx_testkit::{Node, Process, Raw, Sandbox, hello, prove, tls};
use phalanx_types::{DomainName, NodeId};
use phalanx_wire::frame::FrameKind;
use phalanx_wire::handshake::{Nonce, Proof, Purpose, preface};
use phalanx_wire::node::NodeKind;
use phalanx_wire::relay::{DomainTag, FromRelay, RelayChallenge, RelayRefusal, ToRelay};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime};

const LAB: [&str; 4] = ["--domain", "lab", "--bind", "127.0.0.1:0"];

fn id(node: &str) -> NodeId {
    NodeId::new(node).expect("a node id")
}

/// A relay and a node that is reachable only through it.
struct Target {
    sandbox: Sandbox,
    relay: Process,
    address: SocketAddr,
    node: Node,
    key: DomainKey,
    tag: DomainTag,
    secret: [u8; 32],
}

impl Target {
    fn new() -> Self {
        let sandbox = crate::sandbox();
        let made = sandbox.run(&["domain", "new", "lab"]);
        assert!(made.status.success(), "{made:?}");
        let shown = sandbox.json(&["domain", "show", "lab", "--relay-token", "--output", "json"]);
        let token = shown["relay_token"].as_str().expect("a token");
        let mut parts = token.split(':').skip(1).map(unhex);
        let (tag, secret) = (parts.next().expect("a tag"), parts.next().expect("a secret"));
        let relay = sandbox.start(&["relay", "--bind", "127.0.0.1:0", "--domain", "lab", "--output", "json"]);
        let address = relay.json()["address"].as_str().and_then(|a| a.parse().ok()).expect("an address");
        let through = format!("{address}");
        let args = [&["--name", "target", "--cores", "2", "--relay", &through][..], &LAB].concat();
        let node = sandbox.host("far", None).node(&args);
        let key = DomainKey::load(shown["file"].as_str().expect("a file").as_ref()).expect("the key");
        let target = Self { sandbox, relay, address, node, key, tag, secret };
        // A node announces that it runs before it is registered at the relay.
        let (mut raw, _) = target.register("ghost-0001");
        let reached = id(&target.node.id);
        let here = |words: &FromRelay| matches!(words, FromRelay::Present(nodes) if nodes.contains(&reached));
        raw.read_where(FrameKind::Relay, here);
        target
    }

    /// Connects to the relay as a member would, up to its challenge.
    fn approach(&self) -> (Raw<TcpStream>, String, Nonce) {
        let mut raw = Raw::connect(self.address);
        let from = raw.name();
        raw.meet(Purpose::Relay);
        let RelayChallenge { nonce } = raw.read();
        (raw, from, nonce)
    }

    fn prove(&self, ask: &str, nonce: &Nonce, node: &str, of: &[u8]) -> Proof {
        let parts: [&[u8]; 3] = [nonce, node.as_bytes(), of];
        let parts = if of.is_empty() { &parts[..2] } else { &parts };
        prove(&self.secret, &format!("phalanx relay {ask}"), parts)
    }

    fn register(&self, node: &str) -> (Raw<TcpStream>, String) {
        let (mut raw, from, nonce) = self.approach();
        let proof = self.prove("register", &nonce, node, &[]);
        raw.send(FrameKind::Relay, &ToRelay::Register { tag: self.tag, node: id(node), proof });
        (raw, from)
    }

    fn dial(&self, node: &str, to: &str) -> (Raw<TcpStream>, FromRelay) {
        let (mut raw, _, nonce) = self.approach();
        let proof = self.prove("dial", &nonce, node, to.as_bytes());
        raw.send(FrameKind::Relay, &ToRelay::Dial { tag: self.tag, node: id(node), to: id(to), proof });
        let answer = raw.read();
        (raw, answer)
    }
}

fn unhex(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex digits");
    }
    bytes
}

#[test]
fn a_relay_serves_on_among_strangers_and_its_token_opens_no_node() {
    let target = Target::new();
    let through = target.address.to_string();
    let domain = [&LAB[..], &["--relay", &through]].concat();
    undisturbed(target.sandbox.host("near", None), &domain, || {
        strangers(&target);
        token_holders(&target);
        ghosts(&target);
        let listed =
            target.sandbox.host("near", None).json(&[&["nodes", "--output", "json"], &domain[..]].concat());
        assert!(listed.to_string().contains(&target.node.id), "{listed}");
        assert!(!listed.to_string().contains("ghost"), "{listed}");

        let before = target.relay.resident_bytes();
        crowd::babbling(target.address, 3_000);
        let idle: Vec<_> = (0..600).map(|_| Raw::connect(target.address)).collect();
        let newcomer = ["job", "submit", "--wait", "--output", "json", "--kind", "upper", "--arg", "me"];
        let solved = target.sandbox.host("third", None).json(&[&newcomer[..], &domain].concat());
        assert_eq!(solved["solution"], "ME");
        assert!(!target.relay.stderr().contains(crowd::TOO_LONG), "the newcomer had to wait for the silent");
        target.relay.says("too many connections");
        target.relay.says(crowd::TOO_LONG);
        drop(idle);
        assert_flat(&target.relay, before);
    });
}

/// Peers without the token.
fn strangers(target: &Target) {
    let after_preface = |tail: &[u8]| [&preface(Purpose::Relay)[..], tail].concat();
    let mut version = preface(Purpose::Relay);
    version[5] = 1;
    for (words, bytes) in [
        ("the other side does not speak Phalanx", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("protocol version 257, this side speaks 1", version.to_vec()),
        ("a node was dialed as a relay, or a relay as a node", preface(Purpose::Node).to_vec()),
        ("connection ended 3 bytes into a frame", b"PHL".to_vec()),
        (
            "Relay frame of 4294967295 bytes, at most 65536 are allowed",
            after_preface(&[255, 255, 255, 255, 6]),
        ),
        ("unknown frame kind 99", after_preface(&[1, 0, 0, 0, 99, 0])),
        ("malformed ToRelay", after_preface(&[3, 0, 0, 0, 6, 9, 9, 9])),
    ] {
        let mut raw = Raw::connect(target.address);
        let from = raw.name();
        raw.say_last(&bytes);
        refused(&target.relay, &from, words);
    }
    let why = "the relay does not serve this domain, or the relay token is wrong";
    let (node, to, proof) = (id("ghost-0001"), id(&target.node.id), [0; 32]);
    for (tag, known) in [(target.tag, true), ([0; 32], false)] {
        let asks = [
            ToRelay::Register { tag, node: node.clone(), proof },
            ToRelay::Dial { tag, node: node.clone(), to: to.clone(), proof },
            ToRelay::Accept { tag, node: node.clone(), ticket: 7, proof },
            ToRelay::Heartbeat,
        ];
        for ask in asks {
            let (mut raw, from, _) = target.approach();
            raw.send(FrameKind::Relay, &ask);
            assert_eq!(
                raw.read::<FromRelay>(),
                FromRelay::Refused(RelayRefusal::BadProof),
                "{ask:?}, {known}"
            );
            refused(&target.relay, &from, why);
        }
    }
}

/// Peers with the token that ask for missing nodes, or send garbage once they are registered.
fn token_holders(target: &Target) {
    let (mut raw, _, nonce) = target.approach();
    let proof = target.prove("accept", &nonce, "ghost-0002", &7u64.to_le_bytes());
    raw.send(
        FrameKind::Relay,
        &ToRelay::Accept { tag: target.tag, node: id("ghost-0002"), ticket: 7, proof },
    );
    assert_eq!(raw.read::<FromRelay>(), FromRelay::Refused(RelayRefusal::UnknownTicket));
    let (_, answer) = target.dial("ghost-0002", "nobody-0001");
    assert_eq!(answer, FromRelay::Refused(RelayRefusal::NotPresent { node: id("nobody-0001") }));

    for (words, bytes) in [
        ("unexpected Jobs frame, expected Relay", vec![1, 0, 0, 0, 3, 0]),
        ("unknown frame kind 99", vec![1, 0, 0, 0, 99, 0]),
        ("malformed ToRelay", vec![1, 0, 0, 0, 6, 99]),
        ("Relay frame of 4294967295 bytes", vec![255, 255, 255, 255, 6]),
        ("Relay frame of", [&[0, 0, 1, 0, 6][..], &[0; 2_000]].concat()),
    ] {
        let (mut raw, from) = target.register("ghost-0002");
        raw.say_last(&bytes);
        refused(&target.relay, &from, words);
    }
}

/// Peers with the token that pretend to be members.
fn ghosts(target: &Target) {
    let process = &target.node.process;
    let from = |ghost: &str| format!("{ghost} through relay {}", target.address);

    let (mut raw, answer) = target.dial("ghost-0003", &target.node.id);
    assert_eq!(answer, FromRelay::Spliced);
    raw.write(&preface(Purpose::Node));
    raw.closed();
    refused(process, &from("ghost-0003"), "not a TLS handshake of this domain");

    let foreign = DomainKey::generate(&DomainName::new("lab").expect("a name")).expect("a key");
    let year = Duration::from_secs(365 * 24 * 3600);
    let (begin, end) = (SystemTime::now() - year, SystemTime::now() + year);
    let mine = foreign.issue(&id("ghost-0004"), begin, end).expect("a certificate");
    let (raw, answer) = target.dial("ghost-0004", &target.node.id);
    assert_eq!(answer, FromRelay::Spliced);
    let name = subject_name(&id(&target.node.id));
    let mut raw = tls(raw.stream, target.key.authority(), name, Some((mine.certificate, mine.key)));
    raw.say_last(b"PHLX");
    refused(process, &from("ghost-0004"), "certificate refused: issued by another domain");

    // The node dials the registered id, and detects the impostor.
    let (mut raw, _) = target.register("ghost-0005");
    let caller = id(&target.node.id);
    let calls = |words: &FromRelay| matches!(words, FromRelay::Incoming { from, .. } if *from == caller);
    let call = raw.read_where(FrameKind::Relay, calls);
    let FromRelay::Incoming { ticket, .. } = call else { panic!("{call:?}") };
    let (mut taken, _, nonce) = target.approach();
    let proof = target.prove("accept", &nonce, "ghost-0005", &ticket.to_le_bytes());
    taken.send(FrameKind::Relay, &ToRelay::Accept { tag: target.tag, node: id("ghost-0005"), ticket, proof });
    assert_eq!(taken.read::<FromRelay>(), FromRelay::Spliced);
    taken.write(&preface(Purpose::Node));
    let mut welcome = bytes::BytesMut::new();
    let lie = hello("lab", "ghost-0005", NodeKind::Computing);
    phalanx_wire::frame::put(FrameKind::Handshake, &lie, &mut welcome).expect("a frame");
    taken.say_last(&welcome);
    process.says_where("ghost-0005 is no member", |said| {
        let caller = |line: &str| line.contains("target=ghost-0005") && line.contains("not a TLS handshake");
        said.lines().any(caller)
    });
}
