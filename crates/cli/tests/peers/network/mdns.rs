use super::{assert_all_solved, keyed, row, submit, tells, with};
use phalanx_testkit::{Bridge, Namespace, eventually};
use std::time::{Duration, Instant};

const LAB: [&str; 2] = ["--domain", "lab"];

#[test]
fn nodes_of_one_network_find_each_other_without_an_address() {
    let sandbox = keyed();
    let bridge = Bridge::new();
    let spaces = [Namespace::new(), Namespace::new(), Namespace::new()];
    for (space, address) in spaces.iter().zip(["10.72.0.1/24", "10.72.0.2/24", "10.72.0.3/24"]) {
        bridge.attach(space, address);
    }
    let [a, b, c] = [0, 1, 2].map(|i| sandbox.host(["a", "b", "c"][i], Some(&spaces[i])));
    let started = Instant::now();
    let first = a.node(&with(&["--name", "first", "--cores", "2"], &LAB));
    let watch = c.start(&with(&["nodes", "--watch", "--output", "json"], &LAB));
    watch.json_where("the first node", |line| tells(line, "appeared", &first.id));
    println!("multicast DNS: two that started at once met {:?} after that", started.elapsed());

    // Long enough that no record was multicast within the last second: records are not repeated sooner.
    let summary = submit(c, &LAB, &["--kind", "sleep", "--arg", "10ms", "--count", "300", "--cores", "2"]);
    assert_all_solved(&summary, 300);

    // Existing nodes see a new node.
    let started = Instant::now();
    let second = b.node(&with(&["--name", "second", "--cores", "2"], &LAB));
    let joined = started.elapsed();
    watch.json_where("the second node", |line| tells(line, "appeared", &second.id));
    let seen = started.elapsed();
    println!(
        "multicast DNS: a new node was seen {seen:?} after its process started, which took {joined:?} to join"
    );
    assert!(seen < Duration::from_secs(2), "{seen:?}");

    // A new node sees existing nodes the first time it looks.
    let newcomer = sandbox.host("d", Some(&spaces[2]));
    let started = Instant::now();
    let listed = newcomer.json(&with(&["nodes", "--output", "json"], &LAB));
    println!("multicast DNS: a newcomer listed its domain after {:?}", started.elapsed());
    for (node, address) in [(&first, "10.72.0.1"), (&second, "10.72.0.2")] {
        let row = row(&listed, &node.id).unwrap_or_else(|| panic!("{} is not in {listed}", node.id));
        assert_eq!(row["state"], "running");
        assert!(row["address"].as_str().is_some_and(|a| a.starts_with(address)), "{row}");
    }

    let summary = submit(c, &LAB, &["--kind", "sleep", "--arg", "10ms", "--count", "200"]);
    assert_all_solved(&summary, 200);
    assert_eq!(summary["reruns"], 0);
    let done = |id: &str| {
        let listed = c.json(&with(&["nodes", "--output", "json"], &LAB));
        row(&listed, id).and_then(|row| row["jobs_done"].as_u64())
    };
    eventually("jobs solved by both", || {
        let (first, second) = (done(&first.id)?, done(&second.id)?);
        (first > 0 && second > 0 && first + second == 500).then_some(())
    });
}
