//! Searches in a ledger that several places share: each place lists and filters those of the others.

use phalanx_testkit::Sandbox;
use serde_json::{Value, json};
use std::path::Path;

/// A search as `phalanx search run` leaves it: one trial with a result, one that failed.
fn search(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let about = json!({
        "id": dir.file_name().unwrap().to_str(), "name": "digits", "algorithm": "guided", "seed": 1,
        "objectives": [{ "name": "accuracy", "goal": "max", "cheap": false }],
        "rungs": [1, 9], "trials": 20, "space": { "genes": [] }, "started": 1_763_302_500_000_u64,
    });
    std::fs::write(dir.join("search.json"), about.to_string()).unwrap();
    std::fs::write(dir.join("search.toml"), "").unwrap();
    let proposed = |trial: u64| {
        let known = json!({ "params": trial * 100 });
        json!({ "trial": trial, "genes": [], "archid": format!("({trial})"), "model": "m", "parents": [], "known": known })
    };
    let events = [
        ("trial_proposed", proposed(1)),
        ("trial_queued", json!({ "trial": 1, "rung": 0, "from": 0, "to": 1 })),
        ("trial_started", json!({ "trial": 1, "node": "n1-00ff" })),
        ("trial_reached", json!({ "trial": 1, "budget": 1, "values": { "accuracy": 0.75 }, "seconds": 2 })),
        ("trial_proposed", proposed(2)),
        (
            "trial_ended",
            json!({ "trial": 2, "end": { "state": "failed", "why": "out of \u{1b}[2J memory" } }),
        ),
    ];
    let line = |(event, value): &(&str, Value)| {
        format!("{}\n", json!({ "at": 1_763_302_502_000_u64, "event": event, "value": value }))
    };
    std::fs::write(dir.join("events.jsonl"), events.iter().map(line).collect::<String>()).unwrap();
}

/// What a command prints there, with this ledger.
fn shown(sandbox: &Sandbox, ledger: &Path, words: &[&str]) -> String {
    let output =
        sandbox.command(words).env("PHALANX_LEDGER", format!("sqlite:{}", ledger.display())).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_search_of_another_place_is_listed_filtered_and_made_anew() {
    let (here, there) = (crate::sandbox(), crate::sandbox());
    let ledger = there.path().join("shared.sqlite");
    search(&there.path().join("searches/nightly"));
    let json = |sandbox: &Sandbox, words: &[&str]| -> Value {
        serde_json::from_str(&shown(sandbox, &ledger, &[words, &["--output", "json"]].concat())).unwrap()
    };
    let rebuilt = json(&there, &["ledger", "rebuild"]);
    assert_eq!((&rebuilt["searches"]["searches"], &rebuilt["searches"]["entries"]), (&json!(1), &json!(6)));
    let info = json(&here, &["ledger", "info"]);
    assert_eq!((&info["searches"], &info["trials"]), (&json!(1), &json!(2)), "{info}");

    let at_home = json(&there, &["search", "list"]);
    assert!(at_home[0]["elsewhere"].is_null() && at_home.as_array().unwrap().len() == 1, "{at_home}");
    let listed = json(&here, &["search", "list"]);
    let place = listed[0]["elsewhere"].as_str().unwrap();
    assert!(place.ends_with("searches/nightly") && listed[0]["trials"] == 2, "{listed}");

    let failed = json(&here, &["search", "status", "nightly", "--where", "state = failed"]);
    assert_eq!((failed.as_array().unwrap().len(), &failed[0]["trial"]), (1, &json!(2)), "{failed}");
    let sorted = json(&here, &["search", "status", "--sort", "-params"]);
    assert_eq!(sorted, {
        let mut same = json(&there, &["search", "status", "searches/nightly"]);
        same.as_array_mut().unwrap().reverse();
        same
    });
    let table = shown(&here, &ledger, &["search", "status", "nightly"]);
    assert!(table.contains("n1-00ff") && table.contains("0.75") && !table.contains('\u{1b}'), "{table}");
    assert!(table.contains("from the ledger: its files are at"), "{table}");
    let missing = here.run(&["search", "status", "other"]);
    assert_eq!(missing.status.code(), Some(2), "{}", String::from_utf8_lossy(&missing.stderr));
}
