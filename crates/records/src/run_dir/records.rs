//! The records of a run, line by line: `metrics.jsonl`, `losses.csv`, `val_accuracies.csv`.

use super::error::{RunDirError, io};
use super::state::Best;
use super::unix_ms;
use crate::book::samples_per_second;
use crate::evaluation::Evaluation;
use phalanx_wire::train::{RankReport, StepReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Steps and validations, a line each.
pub const METRICS: &str = "metrics.jsonl";
const LOSSES: &str = "losses.csv";
pub(super) const ACCURACIES: &str = "val_accuracies.csv";

/// A training step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepRecord {
    pub step: u64,
    /// Counted from 1, like epochs.
    pub pass: u64,
    pub loss: f32,
    pub lr: f32,
    pub grad_norm: f32,
    pub samples_per_s: f64,
    /// The replicas, if there are several.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicasRecord>,
}

impl StepRecord {
    /// A step as the group reported it. `nodes` names the node of each rank; without it what the ranks did is left out.
    pub fn new(report: &StepReport, nodes: Option<&[String]>) -> Self {
        Self {
            step: report.step,
            pass: report.pass,
            loss: report.loss,
            lr: report.lr,
            grad_norm: report.grad_norm,
            samples_per_s: samples_per_second(report.samples(), report.took()),
            replicas: nodes.map(|nodes| ReplicasRecord::new(report, nodes)),
        }
    }
}

/// What replicas did in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicasRecord {
    /// The version of the formation.
    pub epoch: u64,
    /// A checksum of the computed samples: the sum of a number for each, in hexadecimal digits.
    pub seen: String,
    /// A short hash of the parameters before the step, if they were verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Bytes that a replica sent to others.
    pub sent_bytes: u64,
    pub replicas: Vec<ReplicaRecord>,
}

impl ReplicasRecord {
    fn new(report: &StepReport, nodes: &[String]) -> Self {
        let node = |rank: usize| nodes.get(rank).cloned().unwrap_or_else(|| format!("rank {rank}"));
        let ranks = report.ranks.iter().enumerate();
        Self {
            epoch: report.epoch.0,
            seen: format!("{:016x}", report.seen),
            hash: (report.hash != 0).then(|| format!("{:016x}", report.hash)),
            sent_bytes: report.sent,
            replicas: ranks.map(|(rank, of)| ReplicaRecord::new(node(rank), of)).collect(),
        }
    }
}

/// What one replica did in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplicaRecord {
    pub node: String,
    pub samples: u32,
    pub compute_ms: f64,
    /// The part of the exchange in which it did not compute.
    pub exchange_ms: f64,
    /// Waiting for the others, in the step before.
    pub wait_ms: f64,
    /// Additional values of a pipeline stage.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageRecord>,
}

impl ReplicaRecord {
    fn new(node: String, report: &RankReport) -> Self {
        let ms = |us: u32| f64::from(us) / 1e3;
        Self {
            node,
            samples: report.samples,
            compute_ms: ms(report.compute_us),
            exchange_ms: ms(report.exchange_us),
            wait_ms: ms(report.wait_us),
            stage: report.stage.map(|stage| StageRecord {
                replica: stage.replica,
                stage: stage.stage,
                memory_bytes: stage.memory,
                link_bytes: stage.sent,
                idle_ms: ms(stage.idle_us),
                staleness: stage.staleness,
            }),
        }
    }
}

/// What a stage of a pipeline did in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageRecord {
    pub replica: u32,
    pub stage: u32,
    /// Memory for parameters, gradients and their sums, activations and optimizer state. With intervals of several
    /// steps also for the anchor and for parameters of batches in flight. Predictions add 24 MiB for the process.
    pub memory_bytes: u64,
    /// Bytes of activations and their gradients.
    pub link_bytes: u64,
    /// Waiting for activations and their gradients.
    pub idle_ms: f64,
    /// The most updates between the forward and the backward of a batch.
    pub staleness: u32,
}

/// A validation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValidRecord {
    pub step: u64,
    pub pass: u64,
    pub val_loss: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_acc: Option<f64>,
    /// Other requested metrics, by name.
    #[serde(flatten)]
    pub metrics: BTreeMap<String, f64>,
}

impl ValidRecord {
    pub(crate) fn new(step: u64, pass: u64, evaluation: Evaluation) -> Self {
        let shown = evaluation.accuracy_name;
        let others = evaluation.metrics.into_iter().filter(|(name, _)| Some(name) != shown.as_ref());
        let metrics = others.map(|(name, value)| (format!("val_{name}"), value)).collect();
        Self { step, pass, val_loss: evaluation.loss, val_acc: evaluation.accuracy, metrics }
    }
}

/// The sizes of the records, for cutting them back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSizes {
    pub metrics: u64,
    pub losses: u64,
    pub accuracies: u64,
}

/// The records of a run, open for writing.
#[derive(Debug)]
pub struct Records {
    metrics: Log,
    losses: Log,
    accuracies: Log,
    /// Reused for every line.
    line: Vec<u8>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    len: u64,
}

impl Log {
    /// Opens the file, cut back to `len`, or creates it with a header.
    fn open(path: PathBuf, len: Option<u64>, header: &str) -> Result<Self, RunDirError> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(io("open", &path))?;
        let have = file.metadata().map_err(io("read", &path))?.len();
        let len = len.unwrap_or(0).min(have);
        let cut = file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len)));
        cut.map_err(io("write", &path))?;
        let mut log = Self { path, file, len };
        if len == 0 && !header.is_empty() {
            log.append(header.as_bytes())?;
        }
        Ok(log)
    }

    /// The number of bytes before the first line of a later step.
    fn size_after(&self, step: u64, of: impl Fn(&str) -> Option<u64>) -> Result<u64, RunDirError> {
        let text = std::fs::read_to_string(&self.path).map_err(io("read", &self.path))?;
        let lines = text.split_inclusive('\n').take_while(|line| of(line).is_none_or(|of| of <= step));
        Ok(lines.map(|line| line.len() as u64).sum())
    }

    fn append(&mut self, line: &[u8]) -> Result<(), RunDirError> {
        self.file.write_all(line).map_err(io("write", &self.path))?;
        self.len += line.len() as u64;
        Ok(())
    }
}

/// The records that have fewer bytes than a checkpoint counts: their names, what they have and what they should.
pub(crate) fn shorter_records(dir: &Path, sizes: RecordSizes) -> Vec<(&'static str, u64, u64)> {
    let counted = [(METRICS, sizes.metrics), (LOSSES, sizes.losses), (ACCURACIES, sizes.accuracies)];
    let have = |name: &str| std::fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
    let all = counted.into_iter().map(|(name, counted)| (name, have(name), counted));
    all.filter(|(_, have, counted)| have < counted).collect()
}

impl Records {
    /// Opens the records of a run: new ones, or cut back to their sizes at a checkpoint.
    pub(crate) fn open(dir: &Path, sizes: Option<RecordSizes>) -> Result<Self, RunDirError> {
        Ok(Self {
            metrics: Log::open(dir.join(METRICS), sizes.map(|s| s.metrics), "")?,
            losses: Log::open(dir.join(LOSSES), sizes.map(|s| s.losses), "step,loss\n")?,
            accuracies: Log::open(
                dir.join(ACCURACIES),
                sizes.map(|s| s.accuracies),
                "step,pass,val_loss,val_acc\n",
            )?,
            line: Vec::new(),
        })
    }

    /// Adds a line to `metrics.jsonl`, with its time.
    fn event(&mut self, event: &impl Serialize) -> Result<(), RunDirError> {
        self.line.clear();
        let path = &self.metrics.path;
        serde_json::to_writer(&mut self.line, event)
            .map_err(|source| RunDirError::Json { path: path.clone(), source })?;
        // Every event is an object: its time becomes the last field. Writing to memory does not fail.
        self.line.pop();
        let _written = writeln!(self.line, ",\"unix_ms\":{}}}", unix_ms());
        self.metrics.append(&self.line)
    }

    /// # Errors
    /// It cannot be written.
    pub fn step(&mut self, record: &StepRecord) -> Result<(), RunDirError> {
        self.event(record)?;
        self.line.clear();
        let _written = writeln!(self.line, "{},{}", record.step, record.loss);
        self.losses.append(&self.line)
    }

    /// # Errors
    /// It cannot be written.
    pub fn valid(&mut self, record: &ValidRecord) -> Result<(), RunDirError> {
        self.event(record)?;
        self.line.clear();
        let accuracy = record.val_acc.map(|a| a.to_string()).unwrap_or_default();
        let _written = writeln!(self.line, "{},{},{},{accuracy}", record.step, record.pass, record.val_loss);
        self.accuracies.append(&self.line)
    }

    /// The sizes of the records when they ended with a step.
    pub(crate) fn sizes_after(&self, step: u64) -> Result<RecordSizes, RunDirError> {
        let of_json = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
        let of_csv = |line: &str| line.split(',').next()?.parse().ok();
        Ok(RecordSizes {
            metrics: self.metrics.size_after(step, of_json)?,
            losses: self.losses.size_after(step, of_csv)?,
            accuracies: self.accuracies.size_after(step, of_csv)?,
        })
    }

    /// Flushes the records to disk and returns their sizes.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn sync(&mut self) -> Result<RecordSizes, RunDirError> {
        for log in [&self.metrics, &self.losses, &self.accuracies] {
            log.file.sync_data().map_err(io("write", &log.path))?;
        }
        let (metrics, losses, accuracies) = (self.metrics.len, self.losses.len, self.accuracies.len);
        Ok(RecordSizes { metrics, losses, accuracies })
    }
}

/// A line of `metrics.jsonl`, in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Line {
    Step { step: u64, loss: f32 },
    Valid(Best),
}

/// The lines of `metrics.jsonl` in order, up to one that cannot be read.
pub(crate) fn read_lines(dir: &Path) -> Result<Vec<Line>, RunDirError> {
    let path = dir.join(METRICS);
    let file = File::open(&path).map_err(io("read", &path))?;
    let line = |line: std::io::Result<String>| {
        let line: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
        Some(match line["val_loss"].as_f64() {
            Some(val_loss) => Line::Valid(Best {
                step: line["step"].as_u64()?,
                val_loss,
                val_acc: line["val_acc"].as_f64(),
            }),
            None => Line::Step { step: line["step"].as_u64()?, loss: line["loss"].as_f64()? as f32 },
        })
    };
    Ok(BufReader::new(file).lines().map_while(line).collect())
}
