//! Why an ONNX file cannot be imported or exported.

use crate::{InferError, Shape};
use phalanx_types::{ByteSize, Class};
use std::path::PathBuf;

/// Why an ONNX file was not imported or exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    #[error("could not read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the file has {bytes} bytes, more than the {most} that are read")]
    TooLarge { bytes: u64, most: u64 },
    #[error("it would take {implied} of memory, more than the limit of {limit}")]
    Memory { implied: ByteSize, limit: ByteSize },
    #[error("not an ONNX file")]
    Decode(#[source] prost::DecodeError),
    #[error("the file has no {what}")]
    Absent { what: &'static str },
    #[error("the operator set is version {version}, at least {least} is needed")]
    Opset { version: i64, least: i64 },
    #[error("tensor `{tensor}` {}", why)]
    Tensor { tensor: String, why: BadTensor },
    #[error("input `{input}` is not a tensor with a known number of dimensions")]
    Input { input: String },
    #[error("dimension {axis} of input `{input}` is called `{dim}` and needs a value")]
    Dimension { input: String, axis: usize, dim: String },
    #[error("value `{value}` is read by {at} before anything makes it")]
    Undefined { value: String, at: Box<At> },
    #[error("value `{value}` is made twice, the second time by {at}")]
    Redefined { value: String, at: Box<At> },
    #[error("{at} is not supported: {why}")]
    Unsupported { at: Box<At>, why: &'static str },
    #[error("{at} is malformed: {why}")]
    Malformed { at: Box<At>, why: &'static str },
    #[error("{at} does not fit its inputs")]
    Infer {
        at: Box<At>,
        #[source]
        source: Box<InferError>,
    },
    #[error("{at} makes a value of {shape}, more than the {most} elements of a sample that can be trained")]
    Large { at: Box<At>, shape: Shape, most: usize },
    #[error("the graph has more than {most} {what}")]
    Limit { what: &'static str, most: usize },
    #[error("`{name}` of the graph cannot be written as ONNX: {why}")]
    Export { name: String, why: &'static str },
}

/// Why a tensor of a file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadTensor {
    #[error("has elements of type number {code}, which is not supported")]
    Type { code: i32 },
    #[error("has a shape that cannot be counted: {dims:?}")]
    Shape { dims: Vec<i64> },
    #[error("needs {needed} bytes, but has {got}")]
    Length { needed: u64, got: u64 },
    #[error("lies in another file, but the model was not read from one")]
    NoFolder,
    #[error("lies outside of the model's folder: {}", path.display())]
    Outside { path: PathBuf },
    #[error("has a broken reference to another file: {what}")]
    Reference { what: &'static str },
    #[error("and others take {implied} of memory, more than the {left} that are left of the limit")]
    Memory { implied: ByteSize, left: ByteSize },
    #[error("and others take the bytes of other files more than {most} times")]
    Repeated { most: u64 },
    #[error("could not be read from {}: {kind}", path.display())]
    Read { path: PathBuf, kind: std::io::ErrorKind },
}

/// One node of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    pub op: String,
    pub domain: String,
    pub node: String,
    /// The index of the node in its graph or function.
    pub position: usize,
    /// The line of the user's source, as `file:line`, if the exporter recorded it.
    pub source: Option<String>,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (op, node, position) = (&self.op, &self.node, self.position);
        match self.domain.as_str() {
            "" => write!(f, "{op} `{node}` (node {position}")?,
            domain => write!(f, "{domain}::{op} `{node}` (node {position}")?,
        }
        match &self.source {
            Some(source) => write!(f, ", {source})"),
            None => f.write_str(")"),
        }
    }
}

impl OnnxError {
    /// Names the line of the user's source, if the error is about a node without one.
    #[must_use]
    pub(super) fn with_source(mut self, find: impl FnOnce() -> Option<String>) -> Self {
        if let OnnxError::Undefined { at, .. }
        | OnnxError::Redefined { at, .. }
        | OnnxError::Unsupported { at, .. }
        | OnnxError::Malformed { at, .. }
        | OnnxError::Infer { at, .. }
        | OnnxError::Large { at, .. } = &mut self
            && at.source.is_none()
        {
            at.source = find();
        }
        self
    }

    /// What the shell should do about it.
    pub fn class(&self) -> Class {
        Class::Fatal
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            OnnxError::Dimension { dim, .. } => {
                format!("give its size: `{dim}=…` (only the batch, the first dimension, may stay open)")
            }
            OnnxError::Unsupported { .. } => {
                "rewrite this part of the model with supported operators, or export it with another exporter \
                 (torch.onnx.export with dynamo=True or dynamo=False)"
                    .into()
            }
            OnnxError::Memory { implied, .. } => {
                let whole = implied.0.div_ceil(1 << 20);
                format!("if that is right, raise the limit: limit = \"{whole}MiB\" in [model]")
            }
            OnnxError::Opset { least, .. } => format!("export the model with opset_version={least} or newer"),
            OnnxError::Tensor {
                why: BadTensor::NoFolder | BadTensor::Read { .. } | BadTensor::Outside { .. },
                ..
            } => "keep the file of the weights beside the model, as the exporter wrote them".into(),
            OnnxError::Decode(_) => "the file may be cut short; copy or export it again".into(),
            _ => return None,
        })
    }
}
