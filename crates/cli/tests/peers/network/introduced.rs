use super::{assert_all_solved, keyed, row, submit, tells, with};
use phalanx_testkit::{Bridge, Namespace, Node, eventually};
use rustix::process::Signal;
use serde_json::Value;

const LAB: [&str; 5] = ["--domain", "lab", "--no-mdns", "--heartbeat", "1s"];
const SEED: &str = "10.73.0.1:7000";

/// How often a node was linked to another, by its log.
fn links(node: &Node, to: &str) -> usize {
    let to = format!("node={to}");
    node.process.stderr().lines().filter(|line| line.contains("link up") && line.contains(&to)).count()
}

#[test]
fn nodes_introduced_by_a_third_stay_together_without_it() {
    let sandbox = keyed();
    let bridge = Bridge::new();
    let spaces = [Namespace::new(), Namespace::new(), Namespace::new()];
    let cables = [0, 1, 2].map(|i| bridge.attach(&spaces[i], &format!("10.73.0.{}/24", i + 1)));
    let [a, b, c] = [0, 1, 2].map(|i| sandbox.host(["a", "b", "c"][i], Some(&spaces[i])));
    let first = a.node(&with(&["--name", "a", "--bind", SEED], &LAB));
    let second = b.node(&with(&["--name", "b", "--cores", "1", "--connect", SEED, "--verbose"], &LAB));
    let third = c.node(&with(&["--name", "c", "--cores", "1", "--connect", SEED], &LAB));
    // The second node's host knows only that node, which reports the nodes it is linked to.
    let listed = || b.json(&with(&["nodes", "--output", "json"], &LAB));
    eventually("all three listed", || {
        let listed = listed();
        [&first, &second, &third].iter().all(|node| row(&listed, &node.id).is_some()).then_some(())
    });
    eventually("the two linked", || (links(&second, &third.id) > 0).then_some(()));

    let watch = b.start(&with(&["nodes", "--watch", "--output", "json"], &LAB));
    watch.json_where("the first node", |line| tells(line, "appeared", &first.id));
    first.process.signal(Signal::KILL);
    watch.json_where("the first node gone", |line| tells(line, "gone", &first.id));
    drop(watch);

    let done = |listed: &Value, id: &str| row(listed, id).and_then(|row| row["jobs_done"].as_u64());
    let jobs = ["--kind", "sleep", "--arg", "10ms", "--count", "100"];
    assert_all_solved(&submit(b, &LAB, &jobs), 100);
    eventually("jobs solved by both", || {
        let listed = listed();
        let (second, third) = (done(&listed, &second.id)?, done(&listed, &third.id)?);
        (second > 0 && third > 0 && second + third == 100).then_some(())
    });

    let before = links(&second, &third.id);
    cables[2].cut();
    eventually("the third node lost", || (row(&listed(), &third.id)?["state"] == "lost").then_some(()));
    cables[2].mend();
    eventually("the two linked again", || (links(&second, &third.id) > before).then_some(()));
    let before = done(&listed(), &third.id).expect("the third node is listed");
    assert_all_solved(&submit(b, &LAB, &jobs), 100);
    eventually("jobs solved by the third node", || (done(&listed(), &third.id)? > before).then_some(()));
}
