//! `phalanx launch`: ranks of any program.

use super::sandbox;
use phalanx_testkit::{eventually, is_alive};
use rustix::process::Signal;

#[test]
fn ranks_have_their_numbers_and_lines_theirs() {
    let script = "echo $PHALANX_RANK of $PHALANX_SIZE; echo oops >&2";
    let output = sandbox().run(&["launch", "-n", "2", "--", "sh", "-c", script]);
    let said = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 0 of 2", "[1] 1 of 2"]);
    let mut oops: Vec<String> = String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect();
    oops.sort_unstable();
    assert_eq!(oops, ["[0] oops", "[1] oops"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_first_failure_is_the_exit_code() {
    let script = "test $PHALANX_RANK = 1 && exit 7; exec sleep 600";
    let output = sandbox().run(&["launch", "-n", "3", "--output", "json", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("rank 1 ended with exit code 7"), "{said}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["exit_code"], 7);
    assert_eq!(summary["failure"]["process"]["worker"], 1);
}

#[test]
fn ranks_end_with_the_launcher_however_it_ends() {
    for (signal, code) in [(Signal::KILL, None), (Signal::INT, Some(130))] {
        let script = "echo $$; exec sleep 600";
        let sandbox = sandbox();
        let mut launcher = sandbox.start(&["launch", "-n", "1", "--", "sh", "-c", script]);
        let pid: u32 = launcher.line().trim_start_matches("[0] ").parse().unwrap();
        assert!(is_alive(pid));
        launcher.signal(signal);
        assert_eq!(launcher.finish().0.code(), code);
        eventually("the rank ends", || (!is_alive(pid)).then_some(()));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let said = sandbox().fails(2, &["launch", "-n", "1", "--min", "2", "--max", "3", "--", "true"]);
    assert!(said.contains("--min 2"), "{said}");
    assert!(sandbox().fails(2, &["launch", "-n", "2"]).contains("PROGRAM"));
}

#[test]
fn packages_of_other_tools_come_with_the_python_package() {
    let said = sandbox().fails(2, &["launch", "--compat", "--", "true"]);
    assert!(said.contains("Python package") && said.contains("python -m phalanx launch --compat"), "{said}");
}
