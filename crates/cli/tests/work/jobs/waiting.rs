use super::{counts, list, sandbox, submit};
use phalanx_testkit::{Process, Sandbox, eventually};

/// Waits until the listing, the explanation and the log of a main node all say the same.
fn assert_explained(sandbox: &Sandbox, main: &Process, why: &str) {
    eventually("the listing says why", || list(sandbox).iter().any(|job| job["why"] == why).then_some(()));
    assert_eq!(sandbox.stdout(&["job", "explain", "1"]).trim(), format!("waiting: {why}"));
    let table = sandbox.stdout(&["job", "list"]);
    assert!(table.contains(why), "{table}");
    main.says(&format!("waiting: {why}"));
}

#[test]
fn jobs_without_a_node_say_so_until_one_comes() {
    let sandbox = sandbox();
    let mut main = submit(&sandbox, &["--kind", "echo", "--arg", "hello"]);
    assert_explained(&sandbox, &main, "no computing node in this domain yet");
    let _node = sandbox.node(&[]);
    let (code, summary) = main.summary();
    assert_eq!((code, summary["solution"].as_str()), (Some(0), Some("hello")), "{summary}");
}

#[test]
fn commands_run_only_on_nodes_that_allow_them() {
    let sandbox = sandbox();
    let _careful = sandbox.node(&[]);
    let mut main = submit(&sandbox, &["--kind", "exec", "--arg", "echo ran here"]);
    assert_explained(&sandbox, &main, "no node of this domain handles \"exec\"");
    let _open = sandbox.node(&["--allow-exec"]);
    let (code, summary) = main.summary();
    assert_eq!((code, summary["solution"].as_str()), (Some(0), Some("ran here\n")), "{summary}");
}

#[test]
fn jobs_wait_for_a_node_with_enough_memory() {
    let sandbox = sandbox();
    let _small = sandbox.node(&["--memory", "4GiB"]);
    let (_larger, id) = sandbox.node(&["--memory", "8GiB"]);
    let mut main = submit(&sandbox, &["--kind", "echo", "--memory", "12GiB", "--count", "2"]);
    assert_explained(&sandbox, &main, &format!("needs 12 GiB, largest free node has 8 GiB ({id})"));
    let _enough = sandbox.node(&["--memory", "12GiB"]);
    let (code, summary) = main.summary();
    assert_eq!((code, counts(&summary)), (Some(0), [2, 2, 0, 0, 0]), "{summary}");
}

#[test]
fn jobs_wait_for_a_node_with_enough_cores() {
    let sandbox = sandbox();
    let (_node, id) = sandbox.node(&["--cores", "2"]);
    let mut main = submit(&sandbox, &["--kind", "echo", "--cores", "3"]);
    assert_explained(&sandbox, &main, &format!("needs 3 cores, largest node has 2 ({id})"));
    let _enough = sandbox.node(&["--cores", "4"]);
    assert_eq!(main.summary().0, Some(0));
}
