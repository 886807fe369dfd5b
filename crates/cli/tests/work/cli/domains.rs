//! Keys of domains, and what a node without one may not do.

use super::{keys, sandbox};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

#[test]
fn a_new_key_is_for_its_owner_alone_and_never_overwritten() {
    let sandbox = sandbox();
    let made = sandbox.json(&["domain", "new", "lab", "--output", "json"]);
    assert_eq!(keys(&made), BTreeSet::from(["domain", "file", "fingerprint"]));
    let file = Path::new(made["file"].as_str().unwrap());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read(file).unwrap();

    let said = sandbox.fails(2, &["domain", "new", "lab"]);
    assert!(said.starts_with("error: ") && said.contains("hint: a key is never overwritten"), "{said}");
    assert!(std::fs::read(file).unwrap() == secret, "the key is as it was");
}

#[test]
fn showing_a_key_keeps_its_secret() {
    let sandbox = sandbox();
    let said = sandbox.fails(2, &["domain", "show", "lab"]);
    assert!(said.contains("hint: `phalanx domain new lab` makes it"), "{said}");
    let made = sandbox.json(&["domain", "new", "lab", "--file", "lab.key", "--output", "json"]);
    let show = ["domain", "show", "lab", "--file", "lab.key"];
    assert_eq!(sandbox.json(&[&show[..], &["--output", "json"]].concat()), made);
    let table = sandbox.stdout(&show);
    assert!(table.contains(made["fingerprint"].as_str().unwrap()), "{table}");
    let said = sandbox.fails(2, &["domain", "show", "home", "--file", "lab.key"]);
    assert!(said.contains("the key of domain lab, not of home"), "{said}");
    let file = std::fs::read_to_string(sandbox.path().join("lab.key")).unwrap();
    let told = |line: &&str| line.len() > 30 && table.contains(*line);
    assert_eq!(file.lines().find(told), None, "no line of the key is shown");
}

#[test]
fn a_key_of_another_domain_is_refused() {
    let sandbox = sandbox();
    sandbox.stdout(&["domain", "new", "lab", "--file", "lab.key"]);
    let said = sandbox.fails(2, &["node", "--domain", "home", "--key", "lab.key"]);
    assert!(said.contains("is of domain lab, not home") && said.contains("hint: use --domain lab"), "{said}");
}

#[test]
fn without_a_key_a_node_stays_on_loopback() {
    let sandbox = sandbox();
    for command in [&["node"][..], &["job", "submit", "--kind", "echo", "--wait"], &["nodes"]] {
        let said = sandbox.fails(2, &[command, &["--bind", "192.0.2.1:0"]].concat());
        assert!(said.contains("192.0.2.1") && said.contains("key"), "{said}");
        assert!(said.contains("hint: make a key with `phalanx domain new`"), "{said}");
    }
    let said = sandbox.fails(2, &["node", "--relay", "127.0.0.1:9"]);
    assert!(said.contains("a relay needs a domain with a key") && said.contains("hint: "), "{said}");
}
