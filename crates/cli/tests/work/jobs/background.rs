use super::{list, sandbox};
use phalanx_testkit::{Sandbox, eventually};
use serde_json::json;
use std::io::Write;
use std::process::Stdio;

/// Cancels the jobs of background main nodes at the end of the test.
struct CancelAll<'a>(&'a Sandbox);

impl Drop for CancelAll<'_> {
    fn drop(&mut self) {
        self.0.run(&["job", "cancel", "--all"]);
    }
}

#[test]
fn jobs_without_wait_run_in_the_background() {
    let sandbox = sandbox();
    let _cancel = CancelAll(&sandbox);
    let submitted = sandbox
        .json(&["job", "submit", "--kind", "upper", "--arg", "hello", "--name", "mine", "--output", "json"]);
    let main = submitted["main"].as_str().unwrap();
    assert!(main.starts_with("mine-") && submitted["submitted"] == 1, "{submitted}");

    let jobs = list(&sandbox);
    let job = jobs[0]["job"].as_str().unwrap().to_owned();
    assert_eq!((jobs.len(), &job), (1, &format!("1@{main}")));
    assert_eq!([&jobs[0]["kind"], &jobs[0]["state"]], ["upper", "waiting"]);
    let shown = sandbox.json(&["job", "show", &job, "--output", "json"]);
    assert_eq!((&shown["state"], shown.get("solution")), (&json!("waiting"), None), "{shown}");

    let _node = sandbox.node(&[]);
    let shown = eventually("the job is solved", || {
        let shown = sandbox.json(&["job", "show", &job, "--output", "json"]);
        shown.get("solution").is_some().then_some(shown)
    });
    assert_eq!((&shown["state"], &shown["solution"]), (&json!("solved"), &json!("HELLO")), "{shown}");
    assert_eq!(list(&sandbox), Vec::<serde_json::Value>::new());
    let all = sandbox.json(&["job", "list", "--all", "--output", "json"]);
    assert_eq!((all.as_array().unwrap().len(), &all[0]["state"]), (1, &json!("solved")), "{all}");
    assert_eq!(sandbox.stdout(&["job", "show", "1", "--output", "quiet"]), "HELLO\n");
}

#[test]
fn standard_input_goes_to_the_background() {
    let sandbox = sandbox();
    let _cancel = CancelAll(&sandbox);
    let _node = sandbox.node(&[]);
    let mut command = sandbox.command(&["job", "submit", "--kind", "upper", "--payload", "-"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut submit = piped.spawn().unwrap();
    submit.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    let output = submit.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let solution = eventually("the job is solved", || {
        sandbox.json(&["job", "show", "1", "--output", "json"]).get("solution").cloned()
    });
    assert_eq!(solution, "FROM A PIPE");
}

#[test]
fn a_solution_is_shown_while_other_jobs_of_its_main_node_run() {
    let sandbox = sandbox();
    let _cancel = CancelAll(&sandbox);
    let _node = sandbox.node(&["--allow-exec", "--cores", "2"]);
    let line = "test $PHALANX_JOB = 1 && echo one || exec sleep 300";
    sandbox.stdout(&["job", "submit", "--kind", "exec", "--arg", line, "--count", "2"]);
    let solution = eventually("the first job is solved", || {
        sandbox.json(&["job", "show", "1", "--output", "json"]).get("solution").cloned()
    });
    assert_eq!((solution, list(&sandbox).len()), (json!("one\n"), 1));
}

#[test]
fn background_jobs_can_be_cancelled() {
    let sandbox = sandbox();
    let _cancel = CancelAll(&sandbox);
    let args = ["job", "submit", "--kind", "sleep", "--arg", "60s", "--count", "3", "--output", "quiet"];
    let main = sandbox.stdout(&args).trim().to_owned();
    let job = format!("2@{main}");
    assert_eq!(sandbox.stdout(&["job", "cancel", &job, "--output", "quiet"]), "1\n");
    assert_eq!(list(&sandbox).len(), 2);
    let shown = sandbox.json(&["job", "show", &job, "--output", "json"]);
    assert_eq!(shown["state"], "cancelled", "{shown}");
    assert_eq!(sandbox.stdout(&["job", "cancel", "--all", "--output", "quiet"]), "2\n");
    eventually("the main node has left", || sandbox.nodes().is_empty().then_some(()));
    let all = sandbox.json(&["job", "list", "--all", "--output", "json"]);
    assert!(all.as_array().unwrap().iter().all(|job| job["state"] == "cancelled"), "{all}");
}

#[test]
fn a_background_main_node_that_cannot_start_says_why() {
    let sandbox = sandbox();
    std::fs::write(sandbox.path().join("notes"), "these are my notes, not a journal").unwrap();
    let said = sandbox.fails(2, &["job", "submit", "--kind", "echo", "--journal", "notes"]);
    assert!(said.contains("is not a journal") && said.contains("hint: "), "{said}");
}
