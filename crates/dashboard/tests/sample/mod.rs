//! Run directories as `phalanx train` writes them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A finished run on two nodes, one of which was lost.
pub(crate) fn make_run(runs: &Path, name: &str, steps: u64) -> PathBuf {
    let run = runs.join(name);
    fs::create_dir_all(run.join("checkpoints/step-000002")).unwrap();
    fs::write(run.join("lock"), "1\n").unwrap();
    fs::write(run.join("live.json"), "{\"token\":\"s3cret\"}").unwrap();
    let manifest = r#"{"version":1,"step":2,"pass":0,"loss":0.5,"val_loss":null,"val_acc":null,
        "files":[{"name":"replica0-stage0.safetensors","bytes":100,"sha256":""}]}"#;
    fs::write(run.join("checkpoints/step-000002/manifest.json"), manifest).unwrap();
    fs::write(run.join("formation.json"), FORMATION).unwrap();
    fs::write(run.join("events.jsonl"), EVENTS).unwrap();
    fs::write(run.join("run.toml"), "[train]\nbatch = 64   # from run.toml:3\nseed = 1 # default\n").unwrap();
    (1..=steps).for_each(|step| add_step(&run, step));
    let state = format!(
        r#"{{"state":"finished","started":"2026-11-16T14:15:02Z","ended":"2026-11-16T14:16:02Z","model":"digits-cnn",
            "total_steps":{steps},"steps":{steps},"loss":0.25,"val_acc":0.97,"samples_per_s":1000.0,"wall_s":60.0}}"#
    );
    fs::write(run.join("state.json"), state).unwrap();
    run
}

/// A search of three trials beside the runs, of which the second has its run here and the third failed.
pub(crate) fn make_search(runs: &Path, name: &str) -> PathBuf {
    let search = runs.parent().unwrap().join("searches").join(name);
    fs::create_dir_all(search.join("trials")).unwrap();
    fs::write(search.join("search.json"), SEARCH).unwrap();
    fs::write(search.join("events.jsonl"), TRIALS).unwrap();
    make_run(&search.join("trials"), "t2", 5);
    search
}

/// A record of a search.
pub(crate) fn add_record(search: &Path, record: &str) {
    let mut file = fs::OpenOptions::new().append(true).open(search.join("events.jsonl")).unwrap();
    writeln!(file, "{record}").unwrap();
}

const SEARCH: &str = r#"{"id":"first","name":"digits","algorithm":"guided","seed":1,"objectives":[
    {"name":"accuracy","goal":"max","cheap":false},{"name":"params","goal":"min","cheap":true}],"rungs":[1.0,9.0],
    "trials":10,"space":{"genes":[]},"started":1763302502000}"#;

const TRIALS: &str = r#"{"at":1763302502000,"event":"trial_proposed","value":{"trial":1,"genes":[],"archid":"(1)","model":"a","parents":[],"known":{"params":10.0}}}
{"at":1763302502001,"event":"trial_proposed","value":{"trial":2,"genes":[],"archid":"(2)","model":"b","parents":[1],"known":{"params":20.0}}}
{"at":1763302502002,"event":"trial_proposed","value":{"trial":3,"genes":[],"archid":"(3)","model":"c","parents":[1,2],"known":{"params":5.0}}}
{"at":1763302503000,"event":"trial_reached","value":{"trial":1,"budget":1.0,"values":{"accuracy":0.5},"seconds":2.0}}
{"at":1763302504000,"event":"trial_reached","value":{"trial":2,"budget":1.0,"values":{"accuracy":0.75},"seconds":2.0}}
{"at":1763302505000,"event":"trial_ended","value":{"trial":3,"end":{"state":"failed","why":"out of memory"}}}
"#;

/// A step that was recorded.
pub(crate) fn add_step(run: &Path, step: u64) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(run.join("metrics.jsonl")).unwrap();
    let (ms, loss) = (1_763_302_502_000 + step * 100, 1.0 / step as f64);
    writeln!(
        file,
        r#"{{"step":{step},"unix_ms":{ms},"pass":1,"loss":{loss},"lr":0.1,"samples_per_s":100.0,"epoch":1,"replicas":[{{"node":"a-1","samples":32,"compute_ms":4.0,"exchange_ms":1.0,"wait_ms":0.5}}]}}"#
    )
    .unwrap();
}

const FORMATION: &str = r#"{"epochs":[{"epoch":1,"from_step":0,"ended":"b-2 is lost: the link broke","micro_batches":null,
    "measured_step_ms":5.0,"predicted_step_ms":null,"replicas":[{"replica":0,"stages":[{"stage":0,"node":"a-1","operators":5,
    "first":"conv1","last":"fc2","parameters":8352,"predicted_memory_bytes":null,"measured_memory_bytes":1000,
    "predicted_busy_ms":null,"measured_busy_ms":4.0}]}]}]}"#;

const EVENTS: &str = r#"{"seq":0,"unix_ms":1763302502000,"event":"opened","value":{"uid":"00","step":0,"metrics_bytes":0}}
{"seq":1,"unix_ms":1763302502010,"event":"formed","value":{"epoch":1,"nodes":["a-1"],"step":0,"stages":[],"predicted_ms":null}}
{"seq":2,"unix_ms":1763302502100,"event":"lost","value":{"node":"b-2","reason":"the link broke"}}
"#;
