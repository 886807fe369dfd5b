//! Run directories as a trainer writes them, and what they say, read without the ledger.

use crate::{Ledger, Window};
use phalanx_records::run_dir::RunLock;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The writer of one run directory.
#[derive(Debug)]
pub(super) struct RunFiles {
    /// Held while its process lives.
    lock: Option<RunLock>,
    pub(super) path: PathBuf,
    pub(super) uid: String,
    seq: u64,
    pub(super) step: u64,
    /// The step and the length of the metrics at the newest checkpoint.
    saved: (u64, u64),
}

impl RunFiles {
    pub(super) fn create(runs: &Path, name: &str) -> Self {
        let path = runs.join(name);
        std::fs::create_dir_all(path.join("checkpoints")).unwrap();
        let uid = phalanx_records::sha256(path.to_str().unwrap().as_bytes())[..32].to_owned();
        let mut this = Self { lock: None, path, uid, seq: 0, step: 0, saved: (0, 0) };
        this.write(
            "run.toml",
            "name = \"x\"\n[train]\nbatch = 64\nseed = 7\noptimizer = { name = \"adam\" }\n",
        );
        this.state("interrupted");
        this.opened();
        this
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join(name), text).unwrap();
    }

    /// A process takes the run up.
    pub(super) fn lock(&mut self) {
        self.lock = Some(RunLock::take(&self.path).unwrap());
    }

    /// The process ends, or is killed.
    pub(super) fn die(&mut self) {
        self.lock = None;
    }

    fn append(&self, name: &str, text: &str) {
        let file = File::options().append(true).create(true).open(self.path.join(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(super) fn state(&self, state: &str) {
        let text = json!({ "state": state, "started": "2026-11-18T10:00:00Z", "model": "digits-cnn",
            "total_steps": 1000, "steps": self.step, "loss": 0.5, "wall_s": 1.5, "ended": "2026-11-18T11:00:00Z" });
        self.write("state.json", &text.to_string());
    }

    pub(super) fn event(&mut self, event: &str, value: Value) {
        let line = json!({ "seq": self.seq, "unix_ms": 1000 + self.seq, "event": event, "value": value });
        self.append("events.jsonl", &format!("{line}\n"));
        self.seq += 1;
    }

    pub(super) fn opened(&mut self) {
        let (step, metrics_bytes) = self.saved;
        self.event("opened", json!({ "uid": self.uid, "step": step, "metrics_bytes": metrics_bytes }));
    }

    pub(super) fn steps(&mut self, count: u64) {
        let mut text = String::new();
        for _ in 0..count {
            self.step += 1;
            let line = json!({ "step": self.step, "pass": 1, "loss": 1.0 / self.step as f64, "lr": 0.25,
                "unix_ms": 5000 + self.step });
            text += &format!("{line}\n");
        }
        self.append("metrics.jsonl", &text);
    }

    pub(super) fn line(&self, line: &str) {
        self.append("metrics.jsonl", line);
    }

    pub(super) fn valid(&self, val_acc: f64) {
        let line = json!({ "step": self.step, "pass": 1, "val_loss": 1.0 - val_acc, "val_acc": val_acc });
        self.line(&format!("{line}\n"));
    }

    pub(super) fn save(&mut self) {
        self.saved =
            (self.step, std::fs::metadata(self.path.join("metrics.jsonl")).map_or(0, |file| file.len()));
        self.event("saved", json!({ "step": self.step }));
    }

    /// The first half of going back to the checkpoint: metrics are cut.
    pub(super) fn cut(&mut self) {
        let file =
            File::options().write(true).create(true).truncate(false).open(self.path.join("metrics.jsonl"));
        file.unwrap().set_len(self.saved.1).unwrap();
        self.step = self.saved.0;
    }

    pub(super) fn annotate(&self, line: &Value) {
        self.append("annotations.jsonl", &format!("{line}\n"));
    }
}

/// Everything that the ledger must know about a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Truth {
    pub(super) state: String,
    pub(super) steps: u64,
    /// Sequence number, kind and value of events.
    pub(super) events: Vec<(u64, String, Value)>,
    /// Steps and values of each series.
    pub(super) points: BTreeMap<String, Vec<(u64, String)>>,
    /// Last, least and most of each series.
    pub(super) extremes: BTreeMap<String, (f64, f64, f64)>,
    pub(super) params: BTreeMap<String, String>,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) notes: Vec<String>,
}

fn lines(run: &Path, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join(name)).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Truth {
    /// What the files say.
    pub(super) fn of_files(run: &Path) -> Self {
        let state: Value = serde_json::from_slice(&std::fs::read(run.join("state.json")).unwrap()).unwrap();
        let mut truth = Self {
            // No process lives when this is asked.
            state: state["state"].as_str().unwrap().replace("running", "interrupted"),
            steps: state["steps"].as_u64().unwrap(),
            ..Self::default()
        };
        for line in lines(run, "events.jsonl") {
            let kind = line["event"].as_str().unwrap().to_owned();
            truth.events.push((line["seq"].as_u64().unwrap(), kind, line["value"].clone()));
        }
        for line in lines(run, "metrics.jsonl") {
            for (name, value) in line.as_object().unwrap() {
                let Some(value) = value.as_f64() else { continue };
                if !["step", "pass", "unix_ms"].contains(&name.as_str()) {
                    let step = line["step"].as_u64().unwrap();
                    truth.points.entry(name.clone()).or_default().push((step, value.to_string()));
                    let known = truth.extremes.get(name).copied();
                    let (_, least, most) = known.unwrap_or((value, value, value));
                    truth.extremes.insert(name.clone(), (value, least.min(value), most.max(value)));
                }
            }
        }
        for line in lines(run, "annotations.jsonl") {
            for (key, value) in line["set"].as_object().into_iter().flatten() {
                truth.tags.insert(key.clone(), value.as_str().unwrap().to_owned());
            }
            line["remove"].as_str().into_iter().for_each(|key| drop(truth.tags.remove(key)));
            truth.notes.extend(line["note"].as_str().map(str::to_owned));
        }
        let toml = std::fs::read_to_string(run.join("run.toml")).unwrap();
        let params = crate::core::flatten::flatten(&toml);
        truth.params = params.into_iter().map(|param| (param.name, param.value)).collect();
        truth
    }

    /// What a ledger says.
    pub(super) fn of_ledger(ledger: &Ledger, uid: &str) -> Self {
        let row = ledger.run(uid).unwrap();
        let events = ledger.events(uid, None, usize::MAX >> 1).unwrap();
        let mut truth = Self {
            state: row.state,
            steps: row.steps,
            events: events.into_iter().map(|event| (event.seq, event.event, event.value)).collect(),
            params: row.params,
            tags: row.tags,
            notes: ledger.notes(uid).unwrap().into_iter().map(|note| note.text).collect(),
            ..Self::default()
        };
        for series in ledger.series(uid).unwrap() {
            let curve = ledger.curve(uid, &series.name, Window::default()).unwrap();
            assert_eq!(series.points, curve.points, "the count of {}", series.name);
            let points = curve.buckets.iter().map(|bucket| (bucket.from, bucket.first.to_string())).collect();
            truth.points.insert(series.name.clone(), points);
            let extremes = (series.last.unwrap(), series.min.unwrap(), series.max.unwrap());
            truth.extremes.insert(series.name, extremes);
        }
        truth
    }
}
