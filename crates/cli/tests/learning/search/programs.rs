//! Trials that are programs of the user's.

use super::{events, reached};
use crate::sandbox;
use phalanx_testkit::Sandbox;
use serde_json::Value;

fn program(sandbox: &Sandbox, script: &str) {
    let text = r#"
[space]
x = { from = 0, to = 9 }
y = { from = 0, to = 9 }

[trial]
command = ["sh", "PROGRAM", "$x", "$y"]
epochs = 4

[search]
trials = 20
algorithm = "nsga2"
rungs = { first = "1 epochs", factor = 4 }

[objective.near]
goal = "min"
[objective.far]
goal = "max"
"#;
    let file = sandbox.path().join("program.sh");
    std::fs::write(&file, script).unwrap();
    let text = text.replace("PROGRAM", &file.display().to_string());
    std::fs::write(sandbox.path().join("search.toml"), text).unwrap();
}

const RUN: [&str; 9] =
    ["search", "run", "search.toml", "--local", "2", "--allow-exec", "--dir", "searches/first", "--output"];

#[test]
fn any_program_can_be_a_trial() {
    let sandbox = sandbox();
    let script = r#"
echo "$PHALANX_BUDGET" >> "$PHALANX_CHECKPOINT_DIR/budgets"
echo "from $PHALANX_FROM with x=$PHALANX_GENE_X"
echo "{\"near\": $(( $1 * $1 + $2 )), \"far\": $(( $1 + $2 ))}"
"#;
    program(&sandbox, script);
    let searched = sandbox.json(&[&RUN[..], &["json"]].concat());
    assert_eq!(searched["end"]["state"], "finished", "{searched}");
    for member in searched["front"].as_array().unwrap() {
        let archid = member["archid"].as_str().unwrap();
        let mut numbers =
            archid.trim_matches(['(', ')']).split(", ").map(|number| number.parse::<f64>().unwrap());
        let (x, y) = (numbers.next().unwrap(), numbers.next().unwrap());
        assert_eq!(member["objectives"]["near"].as_f64(), Some(x * x + y), "{member}");
        assert_eq!(member["objectives"]["far"].as_f64(), Some(x + y), "{member}");
    }
    let search = sandbox.path().join("searches/first");
    assert!(reached(&search).values().all(|count| *count == 1));
}

#[test]
fn programs_need_leave_to_run() {
    let sandbox = sandbox();
    program(&sandbox, "true");
    let output = sandbox.run(&["search", "run", "search.toml", "--local", "1"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--allow-exec"), "{said}");
}

#[test]
fn a_program_that_prints_nothing_ends_the_search_after_few_trials_with_the_reason() {
    let sandbox = sandbox();
    program(&sandbox, "true");
    let output = sandbox.run(&[&RUN[..], &["table"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the search has failed"), "{said}");
    let search = sandbox.path().join("searches/first");
    let tried = std::fs::read_to_string(search.join("events.jsonl")).unwrap();
    assert!(tried.matches("trial_proposed").count() <= 8, "{tried}");
    assert!(reached(&search).is_empty());
}

#[test]
fn a_program_that_fails_is_told_with_what_it_said() {
    let sandbox = sandbox();
    program(&sandbox, "echo no such knob >&2; exit 7");
    let output = sandbox.run(&[&RUN[..], &["table"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no such knob"), "{said}");
}

#[test]
fn a_program_that_prints_nan_ends_the_search_after_few_trials_with_the_reason() {
    let sandbox = sandbox();
    // As Python's json module writes it.
    program(&sandbox, "echo '{\"near\": NaN, \"far\": 1.5}'");
    let output = sandbox.run(&[&RUN[..], &["table"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the search has failed"), "{said}");
    assert!(said.contains("the objective `near` is missing or not a finite number"), "{said}");
    let search = sandbox.path().join("searches/first");
    let ended: Vec<Value> =
        events(&search).into_iter().filter(|event| event["event"] == "trial_ended").collect();
    assert!((5..=8).contains(&ended.len()), "{ended:?}");
    assert!(ended.iter().all(|event| event["value"]["end"]["state"] == "failed"), "{ended:?}");
    assert!(
        sandbox.json(&["search", "show", "first", "--output", "json"])["front"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn trials_that_are_nan_fail_and_the_others_make_the_front() {
    let sandbox = sandbox();
    let script = r#"
if [ $(( $1 % 2 )) = 1 ]; then echo "{\"near\": NaN, \"far\": -Infinity}"; else
echo "{\"near\": $(( $1 * $1 + $2 )), \"far\": $(( $1 + $2 ))}"; fi
"#;
    program(&sandbox, script);
    let searched = sandbox.json(&[&RUN[..], &["json"]].concat());
    assert_eq!(searched["end"]["state"], "finished", "{searched}");
    let is_odd = |archid: &Value| {
        let first = archid.as_str().unwrap().trim_matches(['(', ')']).split(", ").next().unwrap();
        first.parse::<u32>().unwrap() % 2 == 1
    };
    let front = searched["front"].as_array().unwrap();
    assert!(!front.is_empty() && front.iter().all(|member| !is_odd(&member["archid"])), "{front:?}");
    let trials = sandbox.json(&["search", "status", "--output", "json"]);
    let (mut failed, mut others) = (0, 0);
    for trial in trials.as_array().unwrap() {
        let is_failed = trial["status"] == "failed";
        assert_eq!(is_failed, is_odd(&trial["archid"]), "{trial}");
        *if is_failed { &mut failed } else { &mut others } += 1;
    }
    assert!(failed > 0 && others > 0, "{failed} failed, {others} did not");
}

/// Searches with a program that fails where the first gene is below 5, and with these settings in `[search]`. The search
/// must finish, and every trial that fails must say this.
fn some_trials_fail(settings: &str, script: &str, trials: u64, why: &str) {
    let sandbox = sandbox();
    program(&sandbox, &format!("{script}\necho \"{{\\\"near\\\": $1, \\\"far\\\": $2}}\""));
    let path = sandbox.path().join("search.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("trials = 20"), "{text}");
    let settings = format!("trials = {trials}\nearly_failures = 0\n{settings}");
    std::fs::write(path, text.replace("trials = 20", &settings)).unwrap();
    let searched = sandbox.json(&[&RUN[..], &["json"]].concat());
    assert_eq!(
        (&searched["end"]["state"], &searched["trials"]),
        (&"finished".into(), &trials.into()),
        "{searched}"
    );
    let failed = sandbox.json(&["search", "status", "--where", "state = failed", "--output", "json"]);
    let failed = failed.as_array().unwrap();
    assert!(!failed.is_empty(), "{searched}");
    assert!(failed.iter().all(|trial| trial.to_string().contains(why)), "{failed:?}");
}

#[test]
fn a_program_that_never_ends_fails_its_trial_and_the_search_goes_on() {
    let script = r#"if [ "$1" -lt 5 ]; then exec sleep 100000; fi"#;
    some_trials_fail("deadline = \"2s\"", script, 8, "deadline of 2s");
}

#[test]
fn a_solution_that_cannot_be_taken_in_fails_its_trial_and_the_search_goes_on() {
    // A run file in the trial's directory that is none.
    let script = r#"if [ "$1" -lt 5 ]; then echo "no run file" > "$(dirname "$PHALANX_TRIAL")/run.toml"; fi"#;
    some_trials_fail("", script, 8, "could not be taken in");
}

#[test]
fn a_trial_whose_nodes_are_lost_is_begun_again_as_often_as_the_search_file_says() {
    let script = r#"if [ "$1" -lt 5 ]; then kill -KILL $PPID; exec sleep 100000; fi"#;
    some_trials_fail("retries = 1", script, 6, "after 2 attempts");
}
