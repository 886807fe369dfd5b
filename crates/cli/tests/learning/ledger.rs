//! The ledger by its commands: runs are found, tagged and deleted, whatever becomes of the index.

use crate::sandbox;
use phalanx_testkit::{Sandbox, digits_data};
use serde_json::Value;

/// Trains some runs, each a moment.
fn runs(names: &[(&str, u32)]) -> Sandbox {
    let sandbox = sandbox();
    let data = format!("{}\nscale = 0.0625", digits_data());
    let train = "loss = \"cross_entropy\"\nseed = 42\nsteps = 6\nbatch = 64";
    sandbox.run_file("zoo = \"mlp\"\ninput = [1, 8, 8]", &data, train, "");
    for (name, batch) in names {
        let (dir, batch) = (format!("runs/{name}"), batch.to_string());
        sandbox.stdout(&["train", "run.toml", "--run-dir", &dir, "--batch", &batch, "--output", "quiet"]);
    }
    sandbox
}

fn names(sandbox: &Sandbox, args: &[&str]) -> Vec<String> {
    let listed = sandbox.json(&[&["run", "list", "--output", "json"], args].concat());
    let name = |run: &Value| run["id"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn runs_are_found_tagged_noted_and_deleted() {
    let sandbox = runs(&[("first", 64), ("second", 32)]);
    assert!(sandbox.path().join("runs/ledger.sqlite").is_file(), "training feeds it");
    assert_eq!(names(&sandbox, &[]), ["first", "second"]);
    assert_eq!(names(&sandbox, &["--where", "train.batch = 32 and state = finished"]), ["second"]);
    assert_eq!(
        names(&sandbox, &["--where", "loss > 0", "--sort", "-train.batch", "--limit", "1"]),
        ["first"]
    );

    sandbox.stdout(&["run", "tag", "first", "owner=ada", "purpose=a first try"]);
    sandbox.stdout(&["run", "note", "first", "looks good"]);
    let tagged = sandbox.json(&["run", "tag", "first", "--remove", "purpose", "--output", "json"]);
    assert_eq!((&tagged["tags"]["owner"], &tagged["tags"]["purpose"]), (&"ada".into(), &Value::Null));
    assert_eq!(tagged["notes"][0]["text"], "looks good");
    assert_eq!(names(&sandbox, &["--where", "tag.owner ~ AD"]), ["first"]);
    let columns =
        ["--columns", "run,tag.owner,train.batch,best.loss,steps", "--sort", "run", "--output", "json"];
    let shown = sandbox.json(&[&["run", "list"], &columns[..]].concat());
    assert_eq!((&shown[0]["tag.owner"], &shown[1]["tag.owner"]), (&"ada".into(), &Value::Null));
    assert_eq!((&shown[1]["train.batch"], &shown[1]["steps"]), (&"32".into(), &6.into()));
    assert!(shown[0]["best.loss"].as_f64().unwrap() > 0.0);
    let table = sandbox.stdout(&["run", "list", "--columns", "run,tag.owner"]);
    assert_eq!(table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["RUN", "TAG.OWNER"]);

    let said = sandbox.fails(2, &["run", "rm", "first"]);
    assert!(said.contains("this deletes") && said.contains("hint: add --yes"), "{said}");
    let said = sandbox.fails(2, &["run", "rm", "first", "none", "--yes"]);
    assert!(said.contains("there is no run in none") && sandbox.path().join("runs/first").exists(), "{said}");
    let removed = sandbox.json(&["run", "rm", "first", "--yes", "--output", "json"]);
    assert!(removed[0]["bytes"].as_u64().unwrap() > 1000, "{removed}");
    assert_eq!(
        (names(&sandbox, &[]), sandbox.path().join("runs/first").exists()),
        (vec!["second".into()], false)
    );
}

#[test]
fn wrong_filters_say_where_and_what_was_meant() {
    let sandbox = runs(&[("first", 64)]);
    let said = |filter: &str| sandbox.fails(2, &["run", "list", "--where", filter]);
    let typo = said("state = finished and train.btach = 64");
    assert!(
        typo.contains("at character 22 of") && typo.contains("hint: did you mean `train.batch`?"),
        "{typo}"
    );
    assert!(said("loss >").contains("expected a number or a text, but the text ends"));
    assert!(said("loss > high").contains("`loss` is a number"));
    assert!(said("started > soon").contains("hint: write it like"));
    let said = sandbox.fails(2, &["run", "tag", "first", "owner"]);
    assert!(said.contains("`owner` is no tag") && said.contains("hint: give tags like"), "{said}");
    let said = sandbox.fails(2, &["run", "tag", "first", "--remove", "owner"]);
    assert!(said.contains("the run first has no tag `owner`"), "{said}");
}

#[test]
fn files_answer_when_the_ledger_cannot_and_it_can_be_made_anew() {
    let sandbox = runs(&[("first", 64)]);
    let before = sandbox.stdout(&["run", "list", "--output", "json"]);
    let ledger = sandbox.path().join("runs/ledger.sqlite");
    for end in ["-wal", "-shm"] {
        let _often_none = std::fs::remove_file(sandbox.path().join(format!("runs/ledger.sqlite{end}")));
    }
    std::fs::write(&ledger, "not a database ".repeat(1000)).unwrap();
    let ran = sandbox.run(&["run", "list", "--output", "json"]);
    let (files, said) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success() && said.contains("the files of the runs are read instead"), "{said}");
    assert_eq!(files, before, "with and without the ledger");
    assert_eq!(names(&sandbox, &["--where", "train.batch = 64"]), ["first"], "also with a filter");
    let said = sandbox.fails(3, &["ledger", "info"]);
    assert!(said.contains("hint: `phalanx ledger rebuild`"), "{said}");
    let rebuilt = sandbox.json(&["ledger", "rebuild", "--output", "json"]);
    assert_eq!(rebuilt["runs"], 1);
    assert!(std::path::Path::new(rebuilt["damaged"].as_str().unwrap()).is_relative());
    let info = sandbox.json(&["ledger", "info", "--output", "json"]);
    assert_eq!((&info["runs"], &info["running"]), (&1.into(), &0.into()));
    assert!(info["points"].as_u64().unwrap() >= 24, "{info}");
    assert!(sandbox.stdout(&["ledger", "migrate"]).contains("newest schema"));
    assert!(sandbox.stdout(&["ledger", "prune"]).contains("0 runs forgotten"));
}

#[test]
fn a_run_goes_on_without_its_ledger_and_says_so_once() {
    let sandbox = runs(&[]);
    // No server listens here.
    let train = |ledger: &str, name: &str| {
        let mut command = sandbox.command(&["train", "run.toml", "--run-dir", &format!("runs/{name}")]);
        let ran = command.env("PHALANX_LEDGER", ledger).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.success(), "{said}");
        said.matches("the ledger does not take records now").count()
    };
    assert_eq!(train("postgres://nobody@127.0.0.1:1/none", "first"), 1);
    assert_eq!(train("none", "second"), 0);
    assert!(!sandbox.path().join("runs/ledger.sqlite").exists());
    assert_eq!(names(&sandbox, &["--where", "steps = 6"]), ["first", "second"], "they arrive later");
}
