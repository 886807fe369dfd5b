//! Questions to a ledger, and runs that move, are copied and vanish.

use super::files::Truth;
use super::{Workplace, on_both};
use crate::{Axis, Detail, Feeder, LedgerError, LedgerUrl, RunQuery, Window};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn names(place: &Workplace, filter: &str, sort: Option<&str>) -> Vec<String> {
    let ledger = place.ledger();
    ledger.catch_up(&place.runs).unwrap();
    let rows = ledger.runs(&RunQuery::parse(Some(filter), sort).unwrap()).unwrap();
    rows.into_iter().map(|row| row.name).collect()
}

fn error(place: &Workplace, filter: &str) -> LedgerError {
    place.ledger().runs(&RunQuery::parse(Some(filter), None).unwrap()).unwrap_err()
}

#[test]
fn runs_are_found_by_metrics_parameters_tags_and_fields() {
    on_both(|place| {
        for (name, accuracy, batch) in [("a", 0.9, 32), ("b", 0.98, 64), ("c", 0.99, 64)] {
            let mut run = place.run(name);
            run.write("run.toml", &format!("[train]\nbatch = {batch}\nname = \"net-{name}\"\n"));
            run.steps(4);
            run.valid(accuracy);
            run.step += 1;
            run.valid(accuracy - 0.1);
            run.state(if name == "a" { "failed" } else { "finished" });
        }
        std::fs::write(
            place.runs.join("b/annotations.jsonl"),
            "{\"unix_ms\":1,\"set\":{\"owner\":\"Ada L.\",\"rank\":\"7\"}}\n",
        )
        .unwrap();
        let found = |filter: &str| names(&place, filter, None).join(" ");
        assert_eq!(found("max.val_acc > 0.97"), "b c");
        assert_eq!(found("val_acc > 0.97"), "", "the last value counts");
        assert_eq!(found("best.val_acc >= 0.98 and train.batch = 64 and not name = c"), "b");
        assert_eq!(found("min.val_loss < 0.015 or state = failed"), "a c");
        assert_eq!(found("tag.owner ~ \"ada\""), "b");
        assert_eq!(found("tag.rank > 6"), "b");
        assert_eq!(found("tag.rank > 7"), "");
        assert_eq!(found("tag.nobody = 1"), "", "a tag that no run has is no mistake");
        assert_eq!(found("train.name = net-a"), "a");
        assert_eq!(found("train.batch != 64"), "a");
        assert_eq!(found("steps >= 5 and model ~ DIGITS and started > 2026-11-01 and ended < 2027"), "a b c");
        assert_eq!(found("name !~ b and steps < 5.5"), "a c");
        assert_eq!(names(&place, "steps > 0", Some("-max.val_acc")), ["c", "b", "a"]);
        assert_eq!(names(&place, "steps > 0", Some("train.batch,-name")), ["a", "c", "b"]);
        assert_eq!(names(&place, "steps > 0", Some("-tag.rank,-started")), ["b", "a", "c"]);
        let ledger = place.ledger();
        let page = RunQuery { limit: Some(1), offset: 1, with: Detail::FULL, ..RunQuery::default() };
        let rows = ledger.runs(&page).unwrap();
        assert_eq!((rows.len(), rows[0].name.as_str(), rows[0].last["val_acc"]), (1, "b", 0.98 - 0.1));
        assert_eq!((rows[0].best["val_acc"], rows[0].params["train.batch"].as_str()), (0.98, "64"));
    });
}

#[test]
fn columns_that_no_run_has_are_named_with_the_nearest() {
    on_both(|place| {
        assert!(names(&place, "anything > 1", None).is_empty(), "without runs every column may come");
        place.run("a").valid(0.5);
        place.ledger().catch_up(&place.runs).unwrap();
        let text = |filter: &str| {
            let error = error(&place, filter);
            format!("{error}; {}", error.hint().unwrap_or_default())
        };
        assert_eq!(
            text("state = done and val_ac > 0.97"),
            "no run has `val_ac` at character 18 of `state = done and val_ac > 0.97`; did you mean `val_acc`?"
        );
        assert!(text("batch = 64").ends_with("did you mean `train.batch`?"));
        assert!(text("train.btach = 64").ends_with("did you mean `train.batch`?"));
        assert!(text("max.val_los > 1").ends_with("did you mean `max.val_loss`?"));
        let hostile = "\"'; drop table run; --\" = 1";
        assert!(text(hostile).starts_with("no run has `'; drop table run; --`"));
        assert_eq!(place.ledger().info().unwrap().runs, 1);
    });
}

#[test]
fn a_run_is_found_by_uid_name_or_beginning() {
    on_both(|place| {
        let (first, second) = (place.run("2026-11-18-aa"), place.run("2026-11-18-bb"));
        let ledger = place.ledger();
        ledger.catch_up(&place.runs).unwrap();
        assert_eq!(ledger.run(&first.uid).unwrap().name, "2026-11-18-aa");
        assert_eq!(ledger.run("2026-11-18-bb").unwrap().uid, second.uid);
        assert_eq!(ledger.run(&second.uid[..12]).unwrap().uid, second.uid);
        assert!(matches!(ledger.run("2026").unwrap_err(), LedgerError::Ambiguous { count: 2, .. }));
        let error = ledger.run("2026-11-18-ab").unwrap_err();
        assert!(error.hint().unwrap().contains("2026-11-18-"), "{error}");
        assert!(matches!(ledger.run("").unwrap_err(), LedgerError::NoRun { .. }));
        assert!(matches!(ledger.run("%").unwrap_err(), LedgerError::NoRun { .. }));
    });
}

#[test]
fn values_that_are_not_numbers_stay_what_they_are() {
    on_both(|place| {
        let run = place.run("run");
        run.line(
            "{\"step\":1,\"x\":\"NaN\",\"y\":\"Infinity\"}\n{\"step\":1,\"x\":2.5,\"y\":\"-Infinity\"}\n",
        );
        run.line("{\"step\":2,\"x\":null,\"y\":1e308,\"text\":\"a\\u0000b\"}\n");
        let ledger = place.ledger();
        ledger.feed(&run.path).unwrap();
        let values = |name: &str| -> Vec<String> {
            let curve = ledger.curve(&run.uid, name, Window::default()).unwrap();
            curve.buckets.iter().map(|bucket| bucket.first.to_string()).collect()
        };
        assert_eq!(values("x"), ["NaN", "2.5", "NaN"]);
        assert_eq!(values("y")[..2], ["inf".to_owned(), "-inf".to_owned()]);
        let series = ledger.series(&run.uid).unwrap();
        assert_eq!((series[0].last, series[0].min, series[0].points), (None, Some(2.5), 3));
        assert_eq!((series[1].last, series[1].min, series[1].max), (Some(1e308), Some(1e308), Some(1e308)));
        let row = ledger.run(&run.uid).unwrap();
        assert!(row.last["x"].is_nan() && row.best["y"] == 1e308);
        assert!(matches!(
            ledger.curve(&run.uid, "z", Window::default()).unwrap_err(),
            LedgerError::NoSeries { .. }
        ));
    });
}

#[test]
fn a_curve_is_reduced_and_windows_are_kept() {
    on_both(|place| {
        let mut run = place.run("run");
        run.steps(10_000);
        let ledger = place.ledger();
        ledger.feed(&run.path).unwrap();
        let whole = Window { buckets: Some(100), ..Window::default() };
        let curve = ledger.curve(&run.uid, "loss", whole).unwrap();
        assert_eq!((curve.points, curve.buckets.len(), curve.buckets[0].max), (10_000, 100, Some(1.0)));
        let part = Window { from: Some(11), to: Some(20), buckets: Some(5), axis: Axis::Step };
        let curve = ledger.curve(&run.uid, "loss", part).unwrap();
        assert_eq!((curve.points, curve.buckets.len(), curve.buckets[0].from), (10, 5, 11));
        let time = Window { from: Some(5011), to: Some(5020), buckets: None, axis: Axis::Time };
        let curve = ledger.curve(&run.uid, "loss", time).unwrap();
        assert!(curve.points == 10 && (curve.buckets[0].first - 1.0 / 11.0).abs() < 1e-9);
        let none = Window { from: Some(20_000), to: Some(3), ..whole };
        assert_eq!(ledger.curve(&run.uid, "loss", none).unwrap().points, 0);
    });
}

#[test]
fn runs_that_vanish_move_or_are_copied_are_followed() {
    on_both(|place| {
        let mut run = place.run("first");
        run.steps(3);
        let ledger = place.ledger();
        let listed = || -> Vec<String> {
            ledger.catch_up(&place.runs).unwrap();
            ledger.runs(&RunQuery::default()).unwrap().into_iter().map(|row| row.name).collect()
        };
        assert_eq!(listed(), ["first"]);
        let (first, second) = (place.runs.join("first"), place.runs.join("second"));
        std::fs::rename(&first, &second).unwrap();
        assert_eq!(listed(), ["second"]);
        assert_eq!(ledger.run(&run.uid).unwrap().dir.canonicalize().unwrap(), second.canonicalize().unwrap());
        // A copy has another uid, and is a run of its own.
        let copied = std::process::Command::new("cp").arg("-r").args([&second, &first]).status().unwrap();
        assert!(copied.success());
        assert_eq!(listed(), ["first", "second"]);
        let copy = ledger.run("first").unwrap();
        assert_ne!(copy.uid, run.uid);
        assert_eq!(Truth::of_ledger(&ledger, &copy.uid), Truth::of_files(&second));
        std::fs::remove_dir_all(&second).unwrap();
        assert_eq!(listed(), ["first"]);
        assert_eq!(ledger.info().unwrap().series, 2, "nothing is left of the other");
        // Another run in the same directory.
        std::fs::remove_dir_all(&first).unwrap();
        let mut other = place.run("first");
        other.uid = "0123456789abcdef0123456789abcdef".to_owned();
        std::fs::remove_file(first.join("events.jsonl")).unwrap();
        other.opened();
        assert_eq!(listed(), ["first"]);
        assert_eq!(ledger.run("first").unwrap().uid, other.uid);
        // An older copy of the same run takes its place.
        other.steps(5);
        other.event("note", json!("later"));
        listed();
        let text = std::fs::read_to_string(first.join("events.jsonl")).unwrap();
        let opened = text.split_inclusive('\n').next().unwrap();
        std::fs::write(first.join("events.jsonl"), opened).unwrap();
        std::fs::write(first.join("metrics.jsonl"), "").unwrap();
        listed();
        assert_eq!(Truth::of_ledger(&ledger, &other.uid), Truth::of_files(&first));
    });
}

#[test]
fn files_nodes_and_formations_of_a_run_are_listed() {
    on_both(|place| {
        let mut run = place.run("run");
        run.write("model.safetensors", "weights");
        run.event("formed", json!({ "epoch": 1, "nodes": ["a", "b"], "step": 0 }));
        run.event("lost", json!({ "node": "b", "why": "b is silent" }));
        run.event(
            "artifact",
            json!({ "path": "plots/loss.png", "url": "s3://x/y", "bytes": 9, "sha256": "ab" }),
        );
        run.event("formed", json!({ "epoch": 2, "nodes": ["a"], "step": 7 }));
        run.state("finished");
        let ledger = place.ledger();
        ledger.feed(&run.path).unwrap();
        let files = ledger.artifacts(&run.uid).unwrap();
        let model = files.iter().find(|file| file.path == "model.safetensors").unwrap();
        assert_eq!(model.size, Some(7));
        assert!(
            files.iter().any(|file| file.path == "plots/loss.png" && file.sha256.as_deref() == Some("ab"))
        );
        let nodes = ledger.nodes(&run.uid).unwrap();
        assert_eq!((nodes[0].lost_ms, nodes[1].reason.as_deref()), (None, Some("b is silent")));
        let steps: Vec<u64> = ledger.formations(&run.uid).unwrap().iter().map(|f| f.step).collect();
        assert_eq!(steps, [0, 7]);
        assert_eq!(ledger.events(&run.uid, Some(2), 1).unwrap()[0].event, "artifact");
        assert_eq!(ledger.last_events(&run.uid, 1).unwrap()[0].value["epoch"], 2);
    });
}

#[test]
fn a_run_that_cannot_be_read_does_not_hide_the_others() {
    let place = Workplace::sqlite();
    place.run("good");
    place.run("bad").write("state.json", "{");
    let caught = place.ledger().catch_up(&place.runs).unwrap();
    assert_eq!((caught.runs, caught.changed, caught.failed.len()), (2, 1, 1));
    assert!(caught.failed[0].0.ends_with("bad"));
}

#[test]
fn a_feeder_follows_a_run_and_warns_once_when_it_cannot() {
    on_both(|place| {
        let mut run = place.run("run");
        let feeder = Feeder::start(place.url.clone(), run.path.clone(), |warning| panic!("{warning}"));
        for _ in 0..50 {
            run.steps(2);
            feeder.wake();
        }
        assert!(feeder.finish_within(Duration::from_secs(30)));
        assert_eq!(Truth::of_ledger(&place.ledger(), &run.uid), Truth::of_files(&run.path));
    });
    let place = Workplace::sqlite();
    let mut run = place.run("run");
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let told = warnings.clone();
    let nowhere = LedgerUrl::Sqlite(place.runs.join("missing/ledger.sqlite"));
    let feeder = Feeder::start(nowhere, run.path.clone(), move |warning| told.lock().unwrap().push(warning));
    for _ in 0..5 {
        run.steps(1);
        feeder.wake();
    }
    assert!(feeder.finish_within(Duration::from_secs(30)));
    let warnings = warnings.lock().unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("they stay in the run's files"), "{warnings:?}");
}
