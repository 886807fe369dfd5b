//! `[model]`: the source of the graph.

use super::error::ConfigError;
use super::section::Section;
use super::tree::Value;
use phalanx_types::ByteSize;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(crate) const KEYS: &[&str] =
    &["onnx", "toml", "zoo", "input", "classes", "dims", "weights", "dropout", "limit"];

/// The model and its initial weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelConfig {
    pub from: ModelFrom,
    /// The shape of one sample, for models that leave it open.
    pub input: Option<Vec<usize>>,
    pub classes: Option<usize>,
    /// Sizes of the dimensions that an ONNX model names.
    pub dims: BTreeMap<String, usize>,
    /// A safetensors file to start from.
    pub weights: Option<PathBuf>,
    /// Replaces the ratio of every dropout.
    pub dropout: Option<f32>,
    /// The most memory that reading an ONNX file may take; by default half of the machine's.
    pub limit: Option<ByteSize>,
}

/// The source of a graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ModelFrom {
    Onnx(PathBuf),
    /// A list of layers.
    Toml(PathBuf),
    /// A built-in model, by name.
    Zoo(String),
    /// In the program's memory, without a file.
    #[default]
    Memory,
}

impl ModelConfig {
    /// A model with defaults for everything else.
    pub fn new(from: ModelFrom) -> Self {
        Self { from, ..Self::default() }
    }

    pub(crate) fn read(section: &mut Section<'_>) -> Result<Self, ConfigError> {
        let onnx = section.path("onnx")?.map(ModelFrom::Onnx);
        let toml = section.path("toml")?.map(ModelFrom::Toml);
        let zoo = section.word("zoo", "model", &phalanx_graph::zoo::NAMES)?;
        let zoo = zoo.map(|name| ModelFrom::Zoo(name.value.to_owned()));
        let from = match (onnx, toml, zoo) {
            (Some(_), Some(_), _) => return Err(section.conflict("toml", "onnx")),
            (Some(_), _, Some(_)) => return Err(section.conflict("zoo", "onnx")),
            (_, Some(_), Some(_)) => return Err(section.conflict("zoo", "toml")),
            (Some(from), None, None) | (None, Some(from), None) | (None, None, Some(from)) => from,
            (None, None, None) => {
                let hint =
                    "say which model: onnx = \"cnn.onnx\", toml = \"cnn.toml\" or zoo = \"digits-cnn\"";
                return Err(section.missing("onnx", hint));
            }
        };
        let (unread, why): (&[&str], _) = match from {
            ModelFrom::Onnx(_) => (&["input", "classes"], "an ONNX model says it itself"),
            ModelFrom::Toml(_) => (&["input", "classes", "dims"], "a list of layers says it itself"),
            ModelFrom::Zoo(_) | ModelFrom::Memory => (&["dims"], "models of the zoo name no dimensions"),
        };
        for key in unread {
            if let Some(node) = section.node(key) {
                let (key, why) = (section.key(key), why.to_owned());
                return Err(ConfigError::Useless { key, why, at: node.key.clone() });
            }
        }
        Ok(Self {
            from,
            input: section.dims("input")?,
            classes: section.int("classes", 1..=1 << 24)?.map(|n| n.value as usize),
            dims: dims(section)?,
            weights: section.path("weights")?,
            dropout: section.number("dropout")?.map(|said| said.value as f32),
            limit: section.parsed("limit", "a size such as \"8GiB\"")?,
        })
    }
}

fn dims(section: &mut Section<'_>) -> Result<BTreeMap<String, usize>, ConfigError> {
    let Some(node) = section.node("dims") else { return Ok(BTreeMap::new()) };
    let Value::Table(table) = &node.value else { return Err(section.wrong("dims", "a table", node)) };
    let mut dims = BTreeMap::new();
    for (name, node) in table {
        match node.value {
            Value::Int(n @ 1..) => dims.insert(name.clone(), n as usize),
            _ => return Err(section.wrong(&format!("dims.{name}"), "a whole number from 1 on", node)),
        };
    }
    section.note_node("dims", node);
    Ok(dims)
}
