//! `[data]`: the sources of samples and their transformations.

use super::error::ConfigError;
use super::section::Section;
use super::stream::StreamConfig;
use super::tree::{Node, Value};
use phalanx_data::{Columns, Crop, Format, Sides, SourceSpec, Transform};
use phalanx_types::ByteSize;

pub(crate) const KEYS: &[&str] = &[
    "train",
    "valid",
    "limit",
    "shuffle",
    "drop_last",
    "reshape",
    "crop",
    "flip",
    "scale",
    "mean",
    "std",
    "one_hot",
];
/// The keys of `data.train` and `data.valid`.
pub(crate) const SOURCE_KEYS: &[&str] = &[
    "file",
    "x",
    "y",
    "labels_file",
    "format",
    "header",
    "size",
    "stream",
    "store",
    "mode",
    "min_samples",
    "new_samples",
    "window",
    "capacity",
    "steps",
    "private",
];
const FORMATS: &[&str] = &["npy", "npz", "idx", "csv", "safetensors", "parquet", "images"];

/// The sources of samples.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConfig {
    /// Not used if the samples come from a stream.
    pub train: SourceSpec,
    /// The stream to learn from.
    pub stream: Option<StreamConfig>,
    pub valid: Option<SourceSpec>,
    /// The most memory that opening a source may take; by default half of the machine's.
    pub limit: Option<ByteSize>,
    pub shuffle: bool,
    /// Drop an incomplete last batch.
    pub drop_last: bool,
    pub transform: Transform,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            train: SourceSpec::default(),
            stream: None,
            valid: None,
            limit: None,
            shuffle: true,
            drop_last: false,
            transform: Transform::default(),
        }
    }
}

impl DataConfig {
    pub(crate) fn read(section: &mut Section<'_>) -> Result<Self, ConfigError> {
        let hint =
            "say where samples are: train = { file = \"digits.npz\", x = \"x_train\", y = \"y_train\" }";
        let (train, stream) = match train(section)?.ok_or_else(|| section.missing("train", hint))? {
            Samples::File(train) => (train, None),
            Samples::Stream(stream) => (SourceSpec::default(), Some(stream)),
        };
        Ok(Self {
            train,
            stream,
            valid: valid(section)?,
            limit: section.parsed("limit", "a size such as \"8GiB\"")?,
            shuffle: section.bool_or("shuffle", true)?,
            drop_last: section.bool_or("drop_last", false)?,
            transform: transform(section)?,
        })
    }
}

impl DataConfig {
    /// A source as it is opened: with the limit of all sources, unless it has one of its own.
    pub fn limited(&self, source: &SourceSpec) -> SourceSpec {
        SourceSpec { limit: source.limit.or(self.limit), ..source.clone() }
    }
}

/// What to learn from.
enum Samples {
    File(SourceSpec),
    Stream(StreamConfig),
}

fn train(data: &mut Section<'_>) -> Result<Option<Samples>, ConfigError> {
    let Some(mut section) = data.table("train", SOURCE_KEYS)? else { return Ok(None) };
    refuse_private(&section)?;
    match StreamConfig::read(&mut section)? {
        Some(stream) => Ok(Some(Samples::Stream(stream))),
        None => source(section).map(|source| Some(Samples::File(source))),
    }
}

fn valid(data: &mut Section<'_>) -> Result<Option<SourceSpec>, ConfigError> {
    let Some(section) = data.table("valid", SOURCE_KEYS)? else { return Ok(None) };
    refuse_private(&section)?;
    match super::stream::KEYS.iter().find(|key| section.node(key).is_some()) {
        Some(key) => {
            Err(section.useless(key, "a model is validated with the same samples every time: name a file"))
        }
        None => source(section).map(Some),
    }
}

fn refuse_private(section: &Section<'_>) -> Result<(), ConfigError> {
    match section.node("private") {
        Some(_) => Err(section.useless("private", "private data as a source are still to come")),
        None => Ok(()),
    }
}

fn source(mut section: Section<'_>) -> Result<SourceSpec, ConfigError> {
    let file =
        section.path("file")?.ok_or_else(|| section.missing("file", "name the file with the samples"))?;
    let format = section.word("format", "format", FORMATS)?.map(|format| match format.value {
        "npy" => Format::Npy,
        "npz" => Format::Npz,
        "idx" => Format::Idx,
        "csv" => Format::Csv,
        "safetensors" => Format::Safetensors,
        "parquet" => Format::Parquet,
        _ => Format::Images,
    });
    let header = match section.node("header") {
        Some(_) => Some(section.bool_or("header", false)?),
        None => None,
    };
    let size = match (section.dims("size")?.as_deref(), section.node("size")) {
        (Some([side]), _) => Some([*side; 2]),
        (Some([height, width]), _) => Some([*height, *width]),
        (Some(_), Some(node)) => return Err(section.wrong("size", "one number or [height, width]", node)),
        _ => None,
    };
    Ok(SourceSpec {
        file,
        x: columns(&mut section)?,
        y: section.text("y")?.map(|y| y.value),
        labels_file: section.path("labels_file")?,
        format,
        header,
        size,
        limit: None,
    })
}

fn columns(section: &mut Section<'_>) -> Result<Option<Columns>, ConfigError> {
    let Some(node) = section.node("x") else { return Ok(None) };
    let text = |node: &Node| match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let columns = match &node.value {
        Value::List(items) => items.iter().map(text).collect::<Option<Vec<_>>>().map(Columns::Many),
        _ => text(node).map(Columns::One),
    };
    section.note_node("x", node);
    columns.map(Some).ok_or_else(|| section.wrong("x", "a name or a list of names", node))
}

fn transform(section: &mut Section<'_>) -> Result<Transform, ConfigError> {
    let floats = |numbers: Option<Vec<f64>>| numbers.map(|n| n.into_iter().map(|x| x as f32).collect());
    Ok(Transform {
        reshape: section.dims("reshape")?,
        crop: crop(section)?,
        flip: section.bool_or("flip", false)?,
        scale: section.number("scale")?.map(|scale| scale.value as f32),
        mean: floats(section.numbers("mean")?),
        std: floats(section.numbers("std")?),
        one_hot: section.int("one_hot", 1..=1 << 24)?.map(|n| n.value as usize),
    })
}

/// `crop = 24`, `crop = [24, 32]` or `crop = { size = 24, pad = 4 }`.
fn crop(data: &mut Section<'_>) -> Result<Option<Crop>, ConfigError> {
    let Some(node) = data.node("crop") else { return Ok(None) };
    let sides =
        |section: &mut Section<'_>, key: &str| match (section.dims(key)?.as_deref(), section.node(key)) {
            (Some([side]), _) => Ok(Some(Sides::Square(*side))),
            (Some([height, width]), _) => Ok(Some(Sides::Sides([*height, *width]))),
            (Some(_), Some(node)) => Err(section.wrong(key, "one number or [height, width]", node)),
            _ => Ok(None),
        };
    if !matches!(node.value, Value::Table(_)) {
        return Ok(Some(Crop { size: sides(data, "crop")?, pad: 0 }));
    }
    let Some(mut section) = data.table("crop", &["size", "pad"])? else { return Ok(None) };
    Ok(Some(Crop {
        size: sides(&mut section, "size")?,
        pad: section.int_or("pad", 0..=1 << 16, 0)? as usize,
    }))
}
