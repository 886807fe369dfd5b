//! `train = { stream = … }`: samples that arrive in a tensor store while the model trains.

use super::RunConfig;
use super::error::ConfigError;
use super::section::Section;
use super::tree::{Node, Value};
use phalanx_engine::Schedule;
use phalanx_protocol::Length;
use phalanx_streams::ReadMode;
use std::collections::BTreeMap;

/// The keys of `data.train` for a stream only.
pub(crate) const KEYS: [&str; 8] =
    ["stream", "store", "mode", "min_samples", "new_samples", "window", "capacity", "steps"];
/// Its keys for a file only.
const OF_FILES: [&str; 5] = ["file", "labels_file", "format", "header", "size"];
const MODES: &[&str] = &["static", "grow", "once", "reservoir"];
/// Where the store is if nothing says so.
const USUAL_STORE: &str = "127.0.0.1:6780";
/// Samples of a window, if the run file does not say how many.
const USUAL_WINDOW: u64 = 1024;

/// A stream of samples in a tensor store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamConfig {
    /// The name of the stream.
    pub stream: String,
    /// The address of the store.
    pub store: String,
    /// The tensor of the samples.
    pub x: String,
    /// The tensor of the labels.
    pub y: String,
    /// Which samples a pass has.
    pub mode: ReadMode,
}

impl StreamConfig {
    /// Reads the table of a stream, if it is one.
    pub(super) fn read(section: &mut Section<'_>) -> Result<Option<Self>, ConfigError> {
        let Some(stream) = section.text("stream")? else {
            let useless = KEYS.iter().find(|key| section.node(key).is_some());
            return match useless {
                Some(key) => Err(section.useless(key, "it is for a stream, and `stream` is not given")),
                None => Ok(None),
            };
        };
        if section.node("file").is_some() {
            return Err(section.conflict("stream", "file"));
        }
        if let Some(key) = OF_FILES.iter().find(|key| section.node(key).is_some()) {
            return Err(section.useless(key, "the samples come from a stream, not from a file"));
        }
        if stream.value.is_empty() {
            return Err(stream.should_be("the name of a stream"));
        }
        let name = "name the tensors of an upload: x = \"samples\", y = \"targets\"";
        let tensor = |section: &mut Section<'_>, key: &'static str| match section.text(key)? {
            Some(name) => Ok(name.value),
            None => Err(section.missing(key, name)),
        };
        let (x, y) = (tensor(section, "x")?, tensor(section, "y")?);
        let store = match section.text("store")? {
            Some(store) => store.value,
            None => {
                let named = ["PHALANX_STORE", "SSDB"].into_iter().find_map(|name| std::env::var(name).ok());
                let store = named.unwrap_or_else(|| USUAL_STORE.to_owned());
                section.note_default("store", &Value::Text(store.clone()));
                store
            }
        };
        let mode = mode(section)?;
        Ok(Some(Self { stream: stream.value, store, x, y, mode }))
    }

    /// The name of its mode.
    pub fn mode_name(&self) -> &'static str {
        match self.mode {
            ReadMode::Static => "static",
            ReadMode::Grow { .. } => "grow",
            ReadMode::Once { .. } => "once",
            ReadMode::Reservoir { .. } => "reservoir",
        }
    }

    /// The table of a run file.
    pub(super) fn to_value(&self) -> Value {
        let mut table = BTreeMap::new();
        let text = |text: &str| Value::Text(text.to_owned());
        for (key, value) in [("stream", &self.stream), ("store", &self.store), ("x", &self.x), ("y", &self.y)]
        {
            table.insert(key, text(value));
        }
        table.insert("mode", text(self.mode_name()));
        let mut number = |key, number: u64| {
            table.insert(key, Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
        };
        match self.mode {
            ReadMode::Static => {}
            ReadMode::Grow { min_samples, new_samples } => {
                number("min_samples", min_samples);
                number("new_samples", new_samples);
            }
            ReadMode::Once { window } => number("window", window),
            ReadMode::Reservoir { capacity, min_samples, steps } => {
                number("capacity", capacity);
                number("min_samples", min_samples);
                steps.into_iter().for_each(|steps| number("steps", steps));
            }
        }
        let node = |(key, value): (&str, Value)| (key.to_owned(), Node::default_of(value));
        Value::Table(table.into_iter().map(node).collect())
    }

    /// Checks it against the rest of a configuration.
    pub(super) fn validate(&self, run: &RunConfig) -> Result<(), ConfigError> {
        let useless = |key: &str, why: &str| ConfigError::Useless {
            key: key.to_owned(),
            why: why.to_owned(),
            at: super::source::Source::Code,
        };
        if !run.data.shuffle {
            let why = "a stream has an order of its own, which follows from the seed, in every pass";
            return Err(useless("data.shuffle", why));
        }
        let once = matches!(self.mode, ReadMode::Once { .. });
        if once && run.data.drop_last {
            return Err(useless("data.drop_last", "in mode \"once\" no sample is left out"));
        }
        if once && matches!(run.train.length, Length::Passes(2..)) {
            let why = "in mode \"once\" every sample is used once: epochs = 1, or say steps";
            return Err(useless("train.epochs", why));
        }
        let needs_length = matches!(run.train.schedule, Schedule::Cosine { .. } | Schedule::OneCycle { .. });
        if needs_length && matches!(run.train.length, Length::Passes(_)) {
            let why =
                "this schedule needs the number of steps, which nobody knows of a stream: say train.steps";
            return Err(useless("train.schedule", why));
        }
        Ok(())
    }
}

/// Which samples a pass has.
fn mode(section: &mut Section<'_>) -> Result<ReadMode, ConfigError> {
    let any = 1..=i64::MAX;
    let word = match section.word("mode", "mode", MODES)? {
        Some(mode) => mode.value,
        None => {
            section.note_default("mode", &Value::Text("static".to_owned()));
            "static"
        }
    };
    let (mode, own): (ReadMode, &[&str]) = match word {
        "grow" => {
            let min_samples = section.int_or("min_samples", any, 1)?;
            let new_samples = section.int_or("new_samples", 0..=i64::MAX, 0)?;
            (ReadMode::Grow { min_samples, new_samples }, &["min_samples", "new_samples"])
        }
        "once" => {
            let window = section.int_or("window", any, USUAL_WINDOW)?;
            (ReadMode::Once { window }, &["window"])
        }
        "reservoir" => {
            let hint = "say how many samples the reservoir holds: capacity = 100000";
            let capacity = section.int("capacity", 1..=1 << 32)?;
            let capacity = capacity.ok_or_else(|| section.missing("capacity", hint))?.value;
            let min_samples = section.int_or("min_samples", any.clone(), 1)?;
            let steps = section.int("steps", any)?.map(|steps| steps.value);
            (ReadMode::Reservoir { capacity, min_samples, steps }, &["capacity", "min_samples", "steps"])
        }
        _ => (ReadMode::Static, &[]),
    };
    let of_modes = ["min_samples", "new_samples", "window", "capacity", "steps"];
    match of_modes.iter().find(|key| !own.contains(key) && section.node(key).is_some()) {
        Some(key) => Err(section.useless(key, &format!("mode \"{word}\" does not have it"))),
        None => Ok(mode),
    }
}
