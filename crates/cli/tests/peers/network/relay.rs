use super::{assert_all_solved, keyed, row, submit, tells, with};
use phalanx_testkit::{Cable, Namespace, Process, Sandbox, eventually};
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// The relay's address on each side.
const LEFT: &str = "10.71.1.2:7700";
const RIGHT: &str = "10.71.2.2:7700";

/// Two networks without a connection, and a machine that is in both.
struct Networks {
    sandbox: Sandbox,
    left: Namespace,
    middle: Namespace,
    right: Namespace,
    right_cable: Cable,
}

impl Networks {
    fn new() -> Self {
        let (left, middle, right) = (Namespace::new(), Namespace::new(), Namespace::new());
        left.cable(&middle, ("10.71.1.1/24", "10.71.1.2/24"));
        let right_cable = middle.cable(&right, ("10.71.2.2/24", "10.71.2.1/24"));
        let mut route = left.command("ip");
        let route = route.args(["route", "get", "10.71.2.1"]).output().expect("ip runs");
        assert!(!route.status.success(), "the left network must have no way to the right one");
        Self { sandbox: keyed(), left, middle, right, right_cable }
    }

    /// The relay token for the domain of a key.
    fn token(&self, key: &str) -> String {
        let args = ["domain", "show", "lab", "--file", key, "--relay-token", "--output", "quiet"];
        let shown = self.sandbox.run(&args);
        assert!(shown.status.success(), "{shown:?}");
        String::from_utf8(shown.stdout).expect("a token is text")
    }

    /// A relay in the middle, with a token and nothing else.
    fn relay(&self, bind: &str, token: &str) -> Process {
        let file = self.sandbox.path().join(format!("token-{}", bind.replace(':', "-")));
        write_private(&file, token);
        let args = ["relay", "--output", "json", "--bind", bind, "--token-file"];
        let mut command: Command = self.sandbox.host("middle", Some(&self.middle)).command(&args);
        command.arg(file).env("PHALANX_CONFIG_DIR", self.sandbox.path().join("empty"));
        let relay = Process::start(command);
        assert_eq!(relay.json()["address"], bind);
        relay
    }

    fn lab_key(&self) -> String {
        let shown = self.sandbox.json(&["domain", "show", "lab", "--output", "json"]);
        shown["file"].as_str().expect("a file").to_owned()
    }
}

/// How to join through the relay as one side sees it.
fn through(relay: &str) -> [&str; 7] {
    ["--domain", "lab", "--no-mdns", "--heartbeat", "1s", "--relay", relay]
}

#[test]
fn a_main_node_uses_nodes_it_can_reach_through_a_relay_only() {
    let nets = Networks::new();
    let relay = nets.relay("0.0.0.0:7700", &nets.token(&nets.lab_key()));
    let (left, right) =
        (nets.sandbox.host("left", Some(&nets.left)), nets.sandbox.host("right", Some(&nets.right)));
    let far = right.node(&with(&["--name", "far", "--cores", "2"], &through(RIGHT)));

    let summary = submit(left, &through(LEFT), &["--kind", "upper", "--arg", "hello", "--count", "50"]);
    assert_all_solved(&summary, 50);
    assert_eq!(summary["reruns"], 0);
    let done = |id: &str| {
        let listed = left.json(&with(&["nodes", "--output", "json"], &through(LEFT)));
        row(&listed, id).and_then(|row| row["jobs_done"].as_u64())
    };
    eventually("what the far node solved", || done(&far.id).filter(|done| *done == 50));

    // Bulk goes the same way.
    let payload: Vec<u8> = (0..5u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (file, solutions) = (nets.sandbox.path().join("payload"), nets.sandbox.path().join("solutions"));
    std::fs::write(&file, &payload).expect("a file");
    let (file, dir) = (file.to_str().expect("a path"), solutions.to_str().expect("a path"));
    let bulky = ["--kind", "echo", "--payload", file, "--solutions", dir, "--count", "3"];
    assert_all_solved(&submit(left, &through(LEFT), &bulky), 3);
    let written: Vec<_> = std::fs::read_dir(&solutions).expect("solutions").collect();
    assert_eq!(written.len(), 3);
    for solution in written {
        assert!(std::fs::read(solution.expect("a file").path()).expect("a solution") == payload);
    }

    // With a node on each side, both get work.
    let near = left.node(&with(&["--name", "near", "--cores", "2"], &through(LEFT)));
    let watch = left.start(&with(&["nodes", "--watch", "--output", "json"], &through(LEFT)));
    // They appear in any order.
    let mut unseen = vec![&near.id, &far.id];
    watch.json_where("both nodes", |line| {
        unseen.retain(|id| !tells(line, "appeared", id));
        unseen.is_empty()
    });
    let summary = submit(left, &through(LEFT), &["--kind", "sleep", "--arg", "10ms", "--count", "200"]);
    assert_all_solved(&summary, 200);
    let (near, far) = eventually("the counts of both nodes", || {
        let (near, far) = (done(&near.id)?, done(&far.id)?);
        (near + far == 253).then_some((near, far - 53))
    });
    assert!(near > 20 && far > 20, "near solved {near}, far {far}");
    // Members that leave cause no warnings.
    assert!(!relay.stderr().contains("connection failed"), "{}", relay.stderr());
}

#[test]
fn jobs_flow_again_after_a_cut_cable_and_after_a_killed_relay() {
    let nets = Networks::new();
    let token = nets.token(&nets.lab_key());
    let relay = nets.relay("0.0.0.0:7700", &token);
    let (left, right) =
        (nets.sandbox.host("left", Some(&nets.left)), nets.sandbox.host("right", Some(&nets.right)));
    let far = right.node(&with(&["--name", "far", "--cores", "2"], &through(RIGHT)));
    let watch = left.start(&with(&["nodes", "--watch", "--output", "json"], &through(LEFT)));
    watch.json_where("the far node", |line| tells(line, "appeared", &far.id));
    let jobs = ["--kind", "sleep", "--arg", "20ms", "--count", "300"];
    let command = with(&["job", "submit", "--wait", "--output", "json"], &jobs);
    let mut submission = left.start(&with(&command, &through(LEFT)));
    let solved = |count: u64| {
        watch.json_where("progress", |line| {
            tells(line, "changed", &far.id) && line["jobs_done"].as_u64() >= Some(count)
        });
    };

    solved(30);
    nets.right_cable.cut();
    let gone = watch.json_where("the far node lost", |line| tells(line, "gone", &far.id));
    assert_eq!(gone["why"], "silent for longer than the heartbeat of 1000 ms");
    nets.right_cable.mend();
    watch.json_where("the far node again", |line| tells(line, "appeared", &far.id));
    solved(100);

    relay.signal(Signal::KILL);
    watch.json_where("the far node lost", |line| tells(line, "gone", &far.id));
    drop(relay);
    let relay = nets.relay("0.0.0.0:7700", &token);
    watch.json_where("the far node again", |line| tells(line, "appeared", &far.id));

    let (status, printed) = submission.finish();
    assert!(status.success(), "{status}: {printed:?}\n{}", submission.stderr());
    let summary = serde_json::from_str(printed.last().expect("a summary")).expect("JSON");
    assert_all_solved(&summary, 300);
    drop(relay);
}

#[test]
fn a_relay_lets_go_of_streams_whose_far_end_vanished() {
    let nets = Networks::new();
    let relay = nets.relay("0.0.0.0:7700", &nets.token(&nets.lab_key()));
    let (left, right) =
        (nets.sandbox.host("left", Some(&nets.left)), nets.sandbox.host("right", Some(&nets.right)));
    let alone = relay.open_files() + 1;
    let _near = left.node(&through(LEFT));
    eventually("the near node registered", || (relay.open_files() == alone).then_some(()));
    let far = right.node(&through(RIGHT));
    let watch = left.start(&with(&["nodes", "--watch", "--output", "json"], &through(LEFT)));
    watch.json_where("the far node", |line| tells(line, "appeared", &far.id));
    drop(watch);
    // A registration and both ends of a stream.
    eventually("the two linked", || (relay.open_files() == alone + 3).then_some(()));
    nets.right_cable.cut();
    eventually("the relay to let go", || (relay.open_files() == alone).then_some(()));
}

#[test]
fn a_relay_with_the_token_of_another_domain_is_refused_with_its_reason() {
    let nets = Networks::new();
    let other = nets.sandbox.path().join("other.key");
    let other = other.to_str().expect("a path");
    let made = nets.sandbox.run(&["domain", "new", "lab", "--file", other, "--output", "quiet"]);
    assert!(made.status.success(), "{made:?}");
    let relay = nets.relay("0.0.0.0:7700", &nets.token(other));
    let node = nets.sandbox.host("left", Some(&nets.left)).node(&through(LEFT));
    let why = "the relay does not serve this domain, or the relay token is wrong";
    node.process.says(why);
    relay.says(why);
    // An invalid token prevents the relay from starting.
    let bad = nets.sandbox.path().join("bad");
    write_private(&bad, "phalanx-relay:00:11\n");
    let file = bad.to_str().expect("a path");
    let refused = nets.sandbox.run(&["relay", "--bind", "127.0.0.1:0", "--token-file", file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a relay token looks like"), "{refused:?}");
    // So does one that others may read, and the command that mends it is named.
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&bad, open).expect("a file of ours");
    let refused = nets.sandbox.run(&["relay", "--bind", "127.0.0.1:0", "--token-file", file]);
    assert_eq!(refused.status.code(), Some(2));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains(&format!("hint: chmod 600 {file}")), "{told}");
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) {
    let mut options = std::fs::File::options();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("room for a file");
}

#[test]
fn one_node_of_a_network_that_knows_the_relay_is_enough_for_all() {
    let nets = Networks::new();
    let _relay = nets.relay("0.0.0.0:7700", &nets.token(&nets.lab_key()));
    let (left, right) =
        (nets.sandbox.host("left", Some(&nets.left)), nets.sandbox.host("right", Some(&nets.right)));
    let told_nothing = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
    let _gate = right.node(&with(&["--name", "gate", "--cores", "1"], &through(RIGHT)));
    let far = right.node(&with(&["--name", "far", "--cores", "2"], &told_nothing));
    let _near = left.node(&with(&["--name", "near", "--cores", "1"], &through(LEFT)));
    let watch = left.start(&with(&["nodes", "--watch", "--output", "json"], &told_nothing));
    watch.json_where("the far node", |line| tells(line, "appeared", &far.id));

    // A main node that was told of no relay, and a node that was told of none either.
    let jobs = ["--kind", "sleep", "--arg", "10ms", "--count", "200"];
    assert_all_solved(&submit(left, &told_nothing, &jobs), 200);
    watch.json_where("jobs that the far node solved", |line| {
        tells(line, "changed", &far.id) && line["jobs_done"].as_u64() > Some(0)
    });
}
