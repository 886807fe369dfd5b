//! Writes a configuration built in code as an equivalent run file.

use super::choice::table_of;
use super::error::ConfigError;
use super::formation::{AHEAD, BatchOf, Mode, SharesBy};
use super::model::ModelFrom;
use super::resolved::Resolved;
use super::source::Source;
use super::sync::{ExchangeOf, ScaleLr, VERIFY};
use super::tree::{Node, Value};
use super::{DataConfig, FormationConfig, ModelConfig, RunConfig, SyncConfig, TrainConfig};
use phalanx_data::SourceSpec;
use phalanx_protocol::Length;
use serde::Serialize;
use std::path::Path;

impl RunConfig {
    /// The equivalent run file, for a run directory and for nodes.
    ///
    /// # Errors
    /// The configuration is invalid, or its model or data are in memory and have no file.
    pub fn resolve(&self) -> Result<Resolved, ConfigError> {
        self.validate()?;
        let mut resolved = Resolved::default();
        let mut root = Writer { resolved: &mut resolved, section: "" };
        root.option("name", self.name.clone().map(Value::Text));
        self.model.write(&mut Writer { resolved: &mut resolved, section: "model" })?;
        self.data.write(&mut Writer { resolved: &mut resolved, section: "data" })?;
        let batch = match self.formation.batch {
            BatchOf::Global => self.train.batch,
            BatchOf::PerReplica => self.train.batch / self.formation.replicas,
        };
        self.train.write(batch, &mut Writer { resolved: &mut resolved, section: "train" });
        self.formation.write(&mut Writer { resolved: &mut resolved, section: "formation" });
        self.sync.write(&mut Writer { resolved: &mut resolved, section: "sync" });
        Ok(resolved)
    }
}

struct Writer<'a> {
    resolved: &'a mut Resolved,
    section: &'static str,
}

impl Writer<'_> {
    fn put(&mut self, key: &str, value: Value) {
        self.resolved.add(self.section, key, value.to_toml(), Source::Code);
    }

    fn option(&mut self, key: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn choice(&mut self, key: &str, value: &impl Serialize) {
        self.option(key, table_of(value));
    }

    fn word(&mut self, key: &str, word: impl ToString) {
        self.put(key, Value::Text(word.to_string()));
    }
}

fn int(n: impl TryInto<i64>) -> Value {
    Value::Int(n.try_into().unwrap_or(i64::MAX))
}

fn float(x: f32) -> Value {
    Value::Float(super::choice::shortest(f64::from(x)))
}

fn list(items: impl IntoIterator<Item = Value>) -> Value {
    Value::List(items.into_iter().map(Node::default_of).collect())
}

fn path(path: &Path) -> Value {
    let absolute = std::path::absolute(path).unwrap_or_else(|_empty| path.to_owned());
    Value::Text(absolute.to_string_lossy().into_owned())
}

impl ModelConfig {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), ConfigError> {
        match &self.from {
            ModelFrom::Onnx(file) => out.put("onnx", path(file)),
            ModelFrom::Toml(file) => out.put("toml", path(file)),
            ModelFrom::Zoo(name) => out.word("zoo", name),
            ModelFrom::Memory => return Err(ConfigError::InMemory { key: "model" }),
        }
        out.option("input", self.input.as_ref().map(|shape| list(shape.iter().map(|d| int(*d)))));
        out.option("classes", self.classes.map(int));
        if !self.dims.is_empty() {
            let dims = self.dims.iter().map(|(name, size)| (name.clone(), Node::default_of(int(*size))));
            out.put("dims", Value::Table(dims.collect()));
        }
        out.option("weights", self.weights.as_deref().map(path));
        out.option("dropout", self.dropout.map(float));
        out.option("limit", self.limit.map(|limit| Value::Text(limit.0.to_string())));
        Ok(())
    }
}

impl DataConfig {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), ConfigError> {
        out.put(
            "train",
            match &self.stream {
                Some(stream) => stream.to_value(),
                None => source(&self.train, "data.train")?,
            },
        );
        out.option("valid", self.valid.as_ref().map(|valid| source(valid, "data.valid")).transpose()?);
        out.option("limit", self.limit.map(|limit| Value::Text(limit.0.to_string())));
        out.put("shuffle", Value::Bool(self.shuffle));
        out.put("drop_last", Value::Bool(self.drop_last));
        if let Some(Value::Table(transform)) = table_of(&self.transform) {
            for (key, node) in transform {
                out.put(&key, node.value);
            }
        }
        Ok(())
    }
}

fn source(spec: &SourceSpec, key: &'static str) -> Result<Value, ConfigError> {
    if spec.file.as_os_str().is_empty() {
        return Err(ConfigError::InMemory { key });
    }
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_empty| path.to_owned());
    let labels_file = spec.labels_file.as_deref().map(absolute);
    let spec = SourceSpec { file: absolute(&spec.file), labels_file, limit: None, ..spec.clone() };
    table_of(&spec).ok_or(ConfigError::InMemory { key })
}

impl TrainConfig {
    fn write(&self, batch: usize, out: &mut Writer<'_>) {
        match &self.own_loss {
            Some(own) => out.word("own_loss", own),
            None => out.choice("loss", &self.loss),
        }
        out.choice("optimizer", &self.optimizer);
        out.choice("schedule", &self.schedule);
        match self.length {
            Length::Passes(passes) => out.put("epochs", int(passes)),
            Length::Steps(steps) => out.put("steps", int(steps)),
        }
        out.put("batch", int(batch));
        out.put("seed", int(self.seed.0));
        out.put("accumulate", int(self.accumulate));
        out.option("clip_norm", self.clip_norm.map(float));
        out.option("clip_value", self.clip_value.map(float));
        out.word("validate_every", self.validate_every);
        out.word("checkpoint_every", self.checkpoint_every);
        out.put("keep", int(self.keep));
        out.option("threads", self.threads.map(int));
        out.put("recompute", Value::Bool(self.recompute));
        if !self.metrics.is_empty() {
            out.put("metrics", list(self.metrics.iter().filter_map(table_of)));
        }
    }
}

impl FormationConfig {
    fn write(&self, out: &mut Writer<'_>) {
        let unstaged = (self.local == 0 && self.replicas != 1).then_some(self.replicas);
        let said = match (self.is_staged(), self.local) {
            (false, 1..) => None,
            (true, _) => self.pipelines,
            (false, 0) => self.pipelines.or(unstaged),
        };
        out.option("replicas", said.map(int));
        out.put("stages", self.stages.map_or_else(|| Value::Text("auto".to_owned()), int));
        out.put("local", int(self.local));
        out.put("min_replicas", int(self.min_replicas));
        out.option("max_replicas", (!self.is_staged()).then(|| int(self.max_replicas)));
        out.word("patience", humantime::format_duration(self.patience));
        out.word("batch", if self.batch == BatchOf::Global { "global" } else { "per_replica" });
        out.word("shares", if self.shares == SharesBy::Equal { "equal" } else { "speed" });
        out.word("mode", if self.mode == Mode::Exact { "exact" } else { "asynchronous" });
        out.option("micro_batches", self.micro_batches.map(int));
        out.option("in_flight", self.in_flight.map(int));
        out.option("ahead", Some(self.ahead).filter(|ahead| *ahead != AHEAD).map(int));
        out.word("compress", self.compress);
        out.put("copies", int(self.copies));
        if !self.cuts.is_empty() {
            out.put("cuts", list(self.cuts.iter().map(|cut| Value::Text(cut.op.clone()))));
        }
        out.put("measure", Value::Bool(self.measure));
        out.option("cores", self.cores.map(int));
        out.option("memory", self.memory.map(|memory| Value::Text(memory.0.to_string())));
    }
}

impl SyncConfig {
    fn write(&self, out: &mut Writer<'_>) {
        out.word(
            "exchange",
            match self.exchange {
                ExchangeOf::Gradients => "gradients",
                ExchangeOf::Parameters => "parameters",
                ExchangeOf::Outer => "outer",
            },
        );
        out.put("every", int(self.every));
        out.word("compress", self.compress);
        if self.exchange == ExchangeOf::Gradients && !self.shared_statistics {
            out.word("batch_norm", "local");
        }
        out.word(
            "scale_lr",
            match self.scale_lr {
                ScaleLr::None => "none",
                ScaleLr::Linear => "linear",
                ScaleLr::Sqrt => "sqrt",
            },
        );
        if self.exchange == ExchangeOf::Outer {
            out.put("outer_lr", float(self.outer_lr));
            out.put("outer_momentum", float(self.outer_momentum));
        }
        // An explicit default would be refused where nothing is verified.
        out.option("verify", Some(self.verify).filter(|every| *every != VERIFY).map(int));
        out.put("average_optimizer", Value::Bool(self.average_optimizer));
    }
}
