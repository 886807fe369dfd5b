use super::*;
use phalanx_records::RunTable;
use phalanx_records::run_dir::{read_run, run_uid};

fn batch(id: &str, json: serde_json::Value) -> LogBatch {
    let mut json = json;
    json["run_id"] = id.into();
    serde_json::from_value(json).unwrap()
}

fn new_run(tracking: &Tracking, name: &str) -> String {
    let asked = serde_json::json!({ "experiment_id": "0", "run_name": name, "start_time": "1700000000000" });
    tracking.create_run(serde_json::from_value(asked).unwrap()).unwrap().about.run_id
}

#[test]
fn a_logged_run_is_a_run_directory_that_others_read() {
    let runs = tempfile::tempdir().unwrap();
    let tracking = Tracking::new(runs.path().to_owned());
    let id = new_run(&tracking, "../first try");
    let path = tracking.dir(&id).unwrap();
    assert!(is_mlflow(&path) && path.parent() == Some(runs.path()), "{path:?}");
    assert_eq!(run_uid(&path).unwrap(), id);
    assert_eq!(read_run(&path).unwrap().state.state, Status::Running, "it is locked while it is logged");
    let metrics = serde_json::json!({ "metrics": [
        { "key": "loss", "value": 0.5, "timestamp": 1_700_000_000_001_u64, "step": "3" },
        { "key": "epoch", "value": "NaN", "timestamp": 5, "step": 3 },
    ], "params": [{ "key": "lr \"x\"", "value": "0.1 # not a comment" }], "tags": [{ "key": "a", "value": "b" }] });
    tracking.log(&batch(&id, metrics)).unwrap();
    let table = RunTable::read(&path).unwrap();
    assert_eq!(table.column("loss").map(|(row, value)| (row.step, value)).collect::<Vec<_>>(), [(3, 0.5)]);

    // Another server finds the same.
    let other = Tracking::new(runs.path().to_owned());
    let seen = other.get_run(&id).unwrap();
    assert_eq!(seen.params["lr \"x\""], "0.1 # not a comment");
    assert_eq!((seen.tags["a"].as_str(), seen.tags[NAME_TAG].as_str()), ("b", "../first try"));
    assert!(seen.last["epoch"].value.is_nan() && seen.last["loss"].step == 3);
    assert!(
        matches!(other.log(&batch(&id, serde_json::json!({}))), Err(MlflowError::Run(_))),
        "it is locked"
    );

    let ended = serde_json::json!({ "run_id": id, "status": "FINISHED", "end_time": 1_700_000_001_000_u64 });
    tracking.update_run(&serde_json::from_value(ended).unwrap()).unwrap();
    let state = read_run(&path).unwrap().state;
    assert_eq!((state.state, state.wall_s), (Status::Finished, 1.0));
    other.log(&batch(&id, serde_json::json!({ "tags": [{ "key": "late", "value": "1" }] }))).unwrap();
}

#[test]
fn wrong_requests_change_nothing() {
    let runs = tempfile::tempdir().unwrap();
    let tracking = Tracking::new(runs.path().to_owned());
    let id = new_run(&tracking, "first");
    let log = |json| tracking.log(&batch(&id, json));
    log(serde_json::json!({ "params": [{ "key": "lr", "value": "1" }] })).unwrap();
    log(serde_json::json!({ "params": [{ "key": "lr", "value": "1" }] })).unwrap();
    let changed = log(serde_json::json!({ "params": [{ "key": "lr", "value": "2" }] }));
    assert!(matches!(changed, Err(MlflowError::ParamChanged { .. })));
    for wrong in [
        serde_json::json!({ "params": [{ "key": "a\nb", "value": "2" }] }),
        serde_json::json!({ "metrics": [{ "key": "", "value": 1 }] }),
        serde_json::json!({ "metrics": [{ "key": "a", "value": 1, "step": -1 }] }),
        serde_json::json!({ "tags": [{ "key": "a", "value": "x".repeat(9000) }] }),
    ] {
        assert!(matches!(log(wrong), Err(MlflowError::Invalid(_))));
    }
    let run = tracking.get_run(&id).unwrap();
    assert_eq!((run.params.len(), run.last.len(), run.tags.len()), (1, 0, 1));
    for unknown in ["", "..", "ffff"] {
        assert!(matches!(tracking.get_run(unknown), Err(MlflowError::NotFound { .. })));
    }
    assert!(matches!(
        tracking.create_experiment("Default", Vec::new()),
        Err(MlflowError::ExperimentExists { .. })
    ));
}

#[test]
fn searches_filter_sort_and_page() {
    let runs = tempfile::tempdir().unwrap();
    let tracking = Tracking::new(runs.path().to_owned());
    for (name, accuracy) in [("a", 0.5), ("b", 0.9), ("c", 0.7)] {
        let id = new_run(&tracking, name);
        let values = serde_json::json!({
            "metrics": [{ "key": "acc", "value": accuracy }], "params": [{ "key": "model", "value": name }],
        });
        tracking.log(&batch(&id, values)).unwrap();
    }
    let search = |asked: serde_json::Value| {
        let (found, next) = tracking.search(&serde_json::from_value(asked).unwrap()).unwrap();
        (found.into_iter().map(|run| run.about.run_name).collect::<Vec<_>>(), next)
    };
    let by_accuracy = serde_json::json!(["metrics.acc DESC"]);
    let found = search(serde_json::json!({ "filter": "metrics.acc > 0.6", "order_by": by_accuracy }));
    assert_eq!(found, (vec!["b".to_owned(), "c".to_owned()], None));
    let found =
        search(serde_json::json!({ "filter": "params.model != 'b' and attributes.status = 'RUNNING'",
        "order_by": by_accuracy, "max_results": 1 }));
    assert_eq!(found, (vec!["c".to_owned()], Some("1".to_owned())));
    let next = serde_json::json!({ "order_by": by_accuracy, "max_results": 2, "page_token": "2" });
    assert_eq!(search(next), (vec!["a".to_owned()], None));
    for wrong in ["metrics.acc >", "nonsense", "params.model = b", "metrics.acc like 'x'", "a'b"] {
        let asked = serde_json::json!({ "filter": wrong });
        assert!(tracking.search(&serde_json::from_value(asked).unwrap()).is_err(), "{wrong}");
    }
}
