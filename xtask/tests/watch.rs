//! `xtask watch` as cargo uses it: test binaries that end, fail, hang and leave processes behind.

use phalanx_testkit::{Process, eventually, is_alive};
use std::process::Command;

fn watch(limit_s: u64, script: &str) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["watch", "--limit", &limit_s.to_string(), "--", "sh", "-c", script]);
    Process::start(command)
}

/// The process ids that a script printed as `pid N`.
fn pids(lines: &[String]) -> Vec<u32> {
    lines.iter().filter_map(|line| line.strip_prefix("pid ")?.parse().ok()).collect()
}

#[test]
fn output_and_exit_code_are_those_of_the_binary() {
    let mut done = watch(60, "echo 'test a ... ok'; printf 'test result: ok.'");
    let (status, printed) = done.finish();
    assert_eq!(
        (status.code(), printed),
        (Some(0), ["test a ... ok", "test result: ok."].map(str::to_owned).into())
    );
    let mut failed = watch(60, "echo 'test a ... FAILED'; exit 101");
    assert_eq!(failed.finish().0.code(), Some(101));
    let mut killed = watch(60, "kill -SEGV $$");
    assert_eq!(killed.finish().0.code(), Some(1));
    assert!(killed.stderr().contains("ended by signal 11"), "{}", killed.stderr());
}

#[test]
fn a_test_that_hangs_is_named_and_killed_with_all_its_processes() {
    // One child in the same process group, one in a group of its own whose parent has ended.
    let script = "sleep 1000 & echo pid $!
        sh -c 'setsid sleep 1000 & echo pid $!'
        echo 'test work::hangs has been running for over 60 seconds'
        wait";
    let mut hung = watch(1, script);
    let (status, printed) = hung.finish();
    assert_eq!(status.code(), Some(124), "{}", hung.stderr());
    let said = hung.stderr();
    assert!(said.contains("not done after 1 s") && said.contains(": work::hangs"), "{said}");
    let pids = pids(&printed);
    assert_eq!(pids.len(), 2, "{printed:?}");
    for pid in pids {
        eventually("a child is gone", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn a_binary_that_hangs_in_silence_is_killed() {
    let mut hung = watch(1, "echo 'test a ... ok'; sleep 1000");
    let (status, printed) = hung.finish();
    assert_eq!((status.code(), printed), (Some(124), vec!["test a ... ok".to_owned()]));
    assert!(hung.stderr().contains("no test ended for 1 s"), "{}", hung.stderr());
}

#[test]
fn processes_that_outlive_the_tests_are_killed_and_told() {
    let mut done = watch(60, "setsid sleep 1000 & echo pid $!; echo 'test a ... ok'");
    let (status, printed) = done.finish();
    assert_eq!(status.code(), Some(0));
    assert!(done.stderr().contains("a process that outlived the tests: sleep 1000"), "{}", done.stderr());
    let pids = pids(&printed);
    assert_eq!(pids.len(), 1, "{printed:?}");
    eventually("the child is gone", || (!is_alive(pids[0])).then_some(()));
}
