//! The files of a synthetic search, read back.

use crate::synthetic::{about, events, table};
use phalanx_search::core::record::TrialId;
use phalanx_search_results::{ResultsWriter, SearchTable, TrialStatus};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Rows = Vec<BTreeMap<String, String>>;

fn csv(path: &Path) -> (Vec<String>, Rows) {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let header: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let row =
        |record: csv::StringRecord| header.iter().cloned().zip(record.iter().map(str::to_owned)).collect();
    let rows = reader.records().map(|record| row(record.unwrap())).collect();
    assert_eq!(header.iter().collect::<BTreeSet<_>>().len(), header.len(), "columns have different names");
    (header, rows)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn written(table: &SearchTable) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    ResultsWriter::new(dir.path()).write_tables(table).unwrap();
    dir
}

#[test]
fn search_states_have_the_columns_of_the_peer_and_all_trials_so_far() {
    let table = table(&events());
    let dir = written(&table);
    let mut known = 0;
    for iteration in table.iterations() {
        let (header, rows) = csv(&dir.path().join(format!("search_state_{}.csv", iteration.number + 1)));
        assert_eq!(
            header.join("|"),
            "archid|accuracy|latency (ms)|params|parent|parents|budget|iteration_num|\
             search_walltime_hours|is_pareto"
        );
        known += iteration.trials.len();
        assert_eq!(rows.len(), known);
        assert!(rows.is_sorted_by_key(|row| row["iteration_num"].parse::<usize>().unwrap()));
        assert_eq!(rows.last().unwrap()["iteration_num"], iteration.number.to_string());
        let on_front: Vec<&str> =
            rows.iter().filter(|row| row["is_pareto"] == "True").map(|row| row["archid"].as_str()).collect();
        let front = table.front_at(iteration.last_event).trials;
        let expected: BTreeSet<&str> =
            front.iter().map(|trial| table.row(*trial).unwrap().archid.as_str()).collect();
        assert_eq!((on_front.len(), on_front.into_iter().collect::<BTreeSet<_>>()), (front.len(), expected));
        let models = json(&dir.path().join(format!("pareto_models_iter_{}.json", iteration.number + 1)));
        assert_eq!(models["iteration"], iteration.number + 1);
        for (model, trial) in models["trials"].as_array().unwrap().iter().zip(&front) {
            let row = rows.iter().find(|row| row["archid"] == model["archid"].as_str().unwrap()).unwrap();
            assert_eq!(model["trial"], trial.to_string());
            assert_eq!(model["objectives"]["accuracy"].as_f64(), row["accuracy"].parse().ok());
            assert_eq!(model["budget"].as_f64(), row["budget"].parse().ok());
        }
    }
    let (_, rows) = csv(&dir.path().join("search_state_6.csv"));
    let (trial, row) = (table.row(TrialId(15)).unwrap(), &rows[13]);
    assert_eq!(row["archid"], trial.archid);
    assert_eq!(row["accuracy"].parse().ok(), trial.value("accuracy"));
    assert_eq!((row["budget"].as_str(), row["is_pareto"].as_str()), ("9", "True"));
    let archid = |trial| table.row(TrialId(trial)).unwrap().archid.clone();
    assert_eq!((row["parent"].clone(), row["parents"].as_str()), (archid(2), ""));
    assert_eq!(rows[12]["parents"], format!("{}, {}", archid(5), archid(7)));
}

#[test]
fn tables_of_past_iterations_stay_as_they_are() {
    let events = events();
    let dir = tempfile::tempdir().unwrap();
    let mut writer = ResultsWriter::new(dir.path());
    for cut in [20, 60, 61, 90, events.len()] {
        writer.write_tables(&table(&events[..cut])).unwrap();
    }
    let at_once = written(&table(&events));
    let names = |number| [format!("search_state_{number}.csv"), format!("pareto_models_iter_{number}.json")];
    for name in (1..=6).flat_map(names) {
        let text = |dir: &Path| std::fs::read_to_string(dir.join(&name)).unwrap();
        // A trial that failed after the iteration does not change what stood in it.
        assert_eq!(text(dir.path()), text(at_once.path()), "{name}");
    }
    assert!(
        std::fs::read_dir(dir.path())
            .unwrap()
            .all(|file| { !file.unwrap().file_name().to_string_lossy().ends_with(".tmp") })
    );
}

#[test]
fn json_has_the_form_of_the_sample() {
    let table = table(&events());
    let dir = written(&table);
    let front = table.front().trials;
    let pareto = json(&dir.path().join("pareto.json"));
    assert_eq!(pareto.as_array().unwrap().len(), front.len());
    for (candidate, trial) in pareto.as_array().unwrap().iter().zip(&front) {
        let row = table.row(*trial).unwrap();
        assert_eq!(candidate["archid"], row.archid);
        assert_eq!(candidate["nb_layers"], row.genes.0[0] + 1);
        assert_eq!(candidate["width"].is_null(), candidate["head"] == "pool");
    }
    let text = std::fs::read_to_string(dir.path().join("pareto.json")).unwrap();
    assert!(text.find("nb_layers") < text.find("kernel_size") && text.find("width") < text.find("archid"));

    let models = json(&dir.path().join("models.json"));
    let trained: Vec<_> =
        models.as_object().unwrap().iter().filter(|(key, _)| key.starts_with("id_")).collect();
    assert_eq!(trained.len(), 5);
    assert_eq!(models.as_object().unwrap().len(), 3 + 5);
    let shape =
        ["init_num_models", "partial_training_epochs", "full_training_epochs"].map(|key| &models[key]);
    assert_eq!(shape, [8, 1, 9]);
    let row = table.row(TrialId(15)).unwrap();
    let model = &models[row.unique_name("s7f3")];
    assert_eq!(
        (model["archid"].as_str(), model["val_acc"].as_f64()),
        (Some(&*row.archid), row.value("accuracy"))
    );

    let detailed = json(&dir.path().join("front.json"));
    assert_eq!(detailed["compared"], serde_json::json!({ "basis": "full", "budget": 9.0, "trials": 5 }));
    assert_eq!(detailed["trials"][0]["run"], format!("trials/{}", front[0]));
    assert_eq!(detailed["trials"][0]["objectives"].as_object().unwrap().len(), 3);
}

#[test]
fn models_are_those_of_the_front_before_a_full_training() {
    let events = events();
    let table = table(&events[..40]);
    let dir = written(&table);
    let models = json(&dir.path().join("models.json"));
    assert_eq!(models.as_object().unwrap().len(), 3 + table.front().trials.len());
}

#[test]
fn the_status_has_a_row_for_each_trial() {
    let table = table(&events());
    let (header, rows) = csv(&written(&table).path().join("status.csv"));
    assert_eq!(header[..6], ["PartitionKey", "RowKey", "name", "status", "node", "priority"]);
    for column in
        ["nb_layers", "width", "experiment", "epochs", "val_acc", "error", "trial", "state", "valid.loss"]
    {
        assert!(header.iter().any(|name| name == column), "{column}");
    }
    assert_eq!(rows.len(), 30);
    for (row, trial) in rows.iter().zip(table.rows()) {
        assert_eq!((row["PartitionKey"].as_str(), &row["RowKey"]), ("main", &row["name"]));
        assert_eq!(
            (row["trial"].clone(), row["archid"].clone()),
            (trial.trial.to_string(), trial.archid.clone())
        );
        assert_eq!((row["state"].as_str(), row["experiment"].clone()), (trial.status.name(), about().name));
        assert_eq!(row["val_acc"].parse().ok(), trial.value("accuracy"));
        assert_eq!(row["started_unix_ms"].parse().ok(), trial.started);
        assert_eq!(row["width"].is_empty(), row["head"] == "pool");
    }
    assert_eq!(rows[4]["error"], "'=out of memory, \"n1\" had\n2 GiB");
    assert_eq!((rows[4]["status"].as_str(), rows[14]["status"].as_str()), ("failed", "completed"));
    let on_front = rows.iter().filter(|row| row["is_pareto"] == "True").count();
    assert_eq!(on_front, table.front().trials.len());
}

#[test]
fn a_search_without_records_has_files_too() {
    let table = table(&[]);
    let dir = tempfile::tempdir().unwrap();
    ResultsWriter::new(dir.path()).write(&table).unwrap();
    assert_eq!(json(&dir.path().join("pareto.json")), serde_json::json!([]));
    assert_eq!(csv(&dir.path().join("status.csv")).1.len(), 0);
    assert_eq!(table.front().basis.to_string(), "no trial has a result yet");
    assert!(!dir.path().join("search_state_1.csv").exists());
}

#[test]
fn the_curve_of_the_hypervolume_is_written() {
    let table = table(&events());
    let (_, rows) = csv(&written(&table).path().join("hypervolume.csv"));
    let curve = table.hypervolume();
    assert_eq!(rows.len(), curve.len());
    for (row, point) in rows.iter().zip(&curve) {
        assert_eq!(row["hypervolume"].parse(), Ok(point.hypervolume));
        assert_eq!(
            (row["results"].parse(), row["trial"].clone()),
            (Ok(point.results), point.trial.to_string())
        );
    }
}

#[test]
fn every_pair_of_objectives_has_its_plot() {
    let table = table(&events());
    assert_eq!(table.row(TrialId(5)).unwrap().status, TrialStatus::Failed);
    let dir = tempfile::tempdir().unwrap();
    let written = ResultsWriter::new(dir.path()).write_plots(&table).unwrap();
    let names: BTreeSet<_> =
        written.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let expected = [
        "pareto_accuracy_vs_latency_ms",
        "pareto_accuracy_vs_params",
        "pareto_latency_ms_vs_params",
        "hypervolume",
    ];
    assert_eq!(
        names,
        expected.iter().flat_map(|name| [format!("{name}.svg"), format!("{name}.png")]).collect()
    );
    for name in expected {
        let svg = std::fs::read_to_string(dir.path().join(format!("{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("digits, &quot;small&quot;"), "{svg}");
        let png = std::fs::File::open(dir.path().join(format!("{name}.png"))).unwrap();
        let mut reader = png::Decoder::new(std::io::BufReader::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        assert_eq!(reader.next_frame(&mut pixels).unwrap().width, 960);
        assert!(pixels.iter().any(|value| *value < 100));
    }
    let objectives = &table.about().objectives;
    let front = phalanx_search_results::files::front_plot(&table, &objectives[0], &objectives[1]);
    assert_eq!(front.dots.len(), 27, "all trials with results that did not fail and are feasible");
    assert_eq!(front.dots.iter().filter(|dot| !dot.hollow).count(), 5);
    let shades: Vec<f64> = front.steps.iter().map(|line| line.shade).collect();
    assert!(shades.len() > 2 && shades.is_sorted_by(|a, b| a < b), "{shades:?}");
    // More accuracy costs latency along the front; the line goes from the best accuracy down.
    for line in &front.steps {
        assert!(line.points.is_sorted_by(|a, b| a.0 >= b.0 && a.1 >= b.1), "{line:?}");
    }
}
