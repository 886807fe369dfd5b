//! Errors of data, with the place of the error.

use crate::spec::Format;
use phalanx_types::{ByteSize, Class};
use std::fmt;
use std::path::{Path, PathBuf};

/// The origin of data: a file, and an array or column in it if there are several; memory by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Origin {
    /// The file, or another name of the origin; empty for memory.
    pub file: PathBuf,
    /// The array or column.
    pub array: Option<String>,
}

impl Origin {
    /// An origin with a name, such as a database table or a stream.
    pub fn named(name: impl Into<PathBuf>) -> Self {
        Self { file: name.into(), array: None }
    }

    /// A file without arrays or columns.
    pub fn file(file: &Path) -> Self {
        Self::named(file)
    }

    /// An array or a column of a file.
    pub fn array(file: &Path, array: &str) -> Self {
        Self { file: file.to_owned(), array: Some(array.to_owned()) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(array) = &self.array {
            write!(f, "{array:?} of ")?;
        }
        if self.file.as_os_str().is_empty() { f.write_str("memory") } else { self.file.display().fmt(f) }
    }
}

/// Why samples could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    #[error("could not open {}", file.display())]
    Open { file: PathBuf, source: std::io::Error },
    #[error("could not read {}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    #[error("it is a device, a pipe or a socket, and not a file: {}", file.display())]
    NotRegular { file: PathBuf },
    #[error("it became shorter while it was read: {origin}")]
    Shortened { origin: Origin },
    #[error("cannot tell the format of {}", file.display())]
    UnknownFormat { file: PathBuf },
    #[error("this build does not read {format} files: {}", file.display())]
    FormatLeftOut { format: Format, file: PathBuf },
    #[error("its columns are compressed with {codec}: {}", file.display())]
    Codec { codec: String, file: PathBuf },
    #[error("{}{fault}: {origin}", not_good(*format, fault))]
    Malformed { format: Format, fault: Fault, origin: Origin },
    #[error("no array or column {name:?}, there is {}: {}", list(have), file.display())]
    UnknownArray { name: String, have: Vec<String>, file: PathBuf },
    #[error("which array are the samples, {}? {}", list(have), file.display())]
    ArrayNotNamed { have: Vec<String>, file: PathBuf },
    #[error("{count} columns are named, but a {format} file has arrays, of which `x` is one: {}", file.display())]
    ManyArrays { count: usize, format: Format, file: PathBuf },
    #[error("`{option}` means nothing for a {format} file: {}", file.display())]
    UselessOption { option: &'static str, format: Format, file: PathBuf },
    #[error("a {format} file has no named tensors; npy, npz and safetensors files have: {}", file.display())]
    NoTensors { format: Format, file: PathBuf },
    #[error("elements of type {dtype} are not numbers that can be read: {origin}")]
    UnsupportedType { dtype: String, origin: Origin },
    #[error("a number alone is not a list of samples: {origin}")]
    NoSampleAxis { origin: Origin },
    #[error("no samples in {origin}")]
    Empty { origin: Origin },
    #[error("{x} samples but {y} labels: {labels}")]
    Lengths { x: usize, y: usize, labels: Origin },
    #[error("line {line}, column {column:?} has {text:?} where a number is due: {}", file.display())]
    NotANumber { line: u64, column: String, text: String, file: PathBuf },
    #[error("line {line} has {found} cells, the lines before have {expected}: {}", file.display())]
    Ragged { line: u64, expected: u64, found: u64, file: PathBuf },
    #[error("two columns are called {name:?}: {}", file.display())]
    TwiceTheColumn { name: String, file: PathBuf },
    #[error("no value in row {row} of {origin}")]
    MissingValue { row: u64, origin: Origin },
    #[error("row {row} is a list of {found}, the rows before have {expected}: {origin}")]
    ListLength { row: u64, expected: usize, found: usize, origin: Origin },
    #[error("{value} in row {row} is an integer that f32 does not hold exactly: {origin}")]
    TooLarge { value: i128, row: u64, origin: Origin },
    #[error("the label of row {row} is {value}: {origin}")]
    LabelNotFinite { value: f32, row: u64, origin: Origin },
    #[error("the label of row {row} is {label}, but there are {classes} classes, from 0 on: {origin}")]
    LabelOutOfRange { label: f32, row: u64, classes: usize, origin: Origin },
    #[error("the label of row {row} is {label}, but this loss takes numbers from 0 to 1: {origin}")]
    LabelNotShare { label: f32, row: u64, origin: Origin },
    #[error(
        "there is a class {name:?} that the model was not trained for, it knows {}: {origin}",
        list(have)
    )]
    UnknownClass { name: String, have: Vec<String>, origin: Origin },
    #[error("there are no labels to check: {origin}")]
    NoLabels { origin: Origin },
    #[error("a sample or label of shape {shape:?} has no elements, or too many: {origin}")]
    SampleShape { shape: Vec<usize>, origin: Origin },
    #[error("{values} numbers do not make whole samples of shape {shape:?}: {origin}")]
    Uneven { values: usize, shape: Vec<usize>, origin: Origin },
    #[error("this source does not know its length yet, it has {now} samples so far: {origin}")]
    LengthUnknown { now: usize, origin: Origin },
    #[error("could not read samples from {origin}")]
    Source { source: Box<dyn std::error::Error + Send + Sync>, origin: Origin },
    #[error("no folders of PNG or JPEG images in {}", dir.display())]
    NoImages { dir: PathBuf },
    #[error("not a good image: {what}: {}", file.display())]
    Image { what: String, file: PathBuf },
    #[error("the system has no {needed} of memory for a batch of {len} samples of {origin}")]
    BatchMemory { needed: ByteSize, len: usize, origin: Origin },
    #[error("the image is {} by {} (height by width), others are {} by {}: {}",
        found[0], found[1], expected[0], expected[1], file.display())]
    ImageSize { expected: [usize; 2], found: [usize; 2], file: PathBuf },
    #[error("no sample {index}, there are {len}: {origin}")]
    Index { index: usize, len: usize, origin: Origin },
    #[error("the samples of {origin} cannot be transformed so")]
    Transform { source: TransformError, origin: Origin },
    #[error("a batch of no samples was asked for")]
    EmptyBatch,
    #[error("shard {index} of {count} was asked for")]
    NoSuchShard { index: usize, count: usize },
    #[error("the weights of shards must be numbers from 0 on, and one of them above 0, not {weights:?}")]
    Weights { weights: Vec<f64> },
    #[error("could not start the thread that reads ahead")]
    Thread { source: std::io::Error },
    #[error("the thread that reads ahead ended without a word")]
    ReaderDied,
}

/// What is wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    #[error("it does not begin as one")]
    Magic,
    #[error("version {major}.{minor} is not known")]
    Version { major: u8, minor: u8 },
    #[error("its header is broken: {what}")]
    Header { what: &'static str },
    #[error("shape {shape:?} has more elements than can be counted")]
    Overflow { shape: Vec<usize> },
    #[error("shape {shape:?} needs {}, there are {} bytes", ByteSize(*needed), have)]
    Short { shape: Vec<usize>, needed: u64, have: u64 },
    #[error("{extra} bytes follow the last element")]
    Trailing { extra: u64 },
    #[error("{rows} rows are more than its bytes can hold")]
    Rows { rows: i64 },
    #[error("the compressed data ends early or is broken")]
    Compressed,
    #[error("it would take {implied} of memory, more than the limit of {limit}")]
    TooLarge { implied: ByteSize, limit: ByteSize },
    #[error("the system has no {needed} of memory for it")]
    NoMemory { needed: ByteSize },
    #[error("the archive is broken: {what}")]
    Archive { what: String },
    #[error("{what}")]
    Decoder { what: String },
}

/// Why a transformation does not fit the samples.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    #[error("samples of shape {from:?} cannot have shape {to:?}")]
    Reshape { from: Vec<usize>, to: Vec<usize> },
    #[error(
        "crop and flip need images, of shape [height, width] or [channels, height, width], not {shape:?}"
    )]
    NotAnImage { shape: Vec<usize> },
    #[error("a crop of {} by {} does not fit an image of {} by {} with {pad} of padding",
        size[0], size[1], image[0], image[1])]
    CropTooLarge { size: [usize; 2], image: [usize; 2], pad: usize },
    #[error("`{option}` has {given} values, but there are {channels} channels")]
    Channels { option: &'static str, given: usize, channels: usize },
    #[error("`{option}` has a value that cannot be used: {value}")]
    Value { option: &'static str, value: f32 },
    #[error("one_hot needs one class index per sample")]
    NotClasses,
}

/// Names for an error message, the most similar first and not too many.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// How an error about a file begins: a file that is too large may be a good one.
fn not_good(format: Format, fault: &Fault) -> String {
    match fault {
        Fault::TooLarge { .. } | Fault::NoMemory { .. } => String::new(),
        _ => format!("not a good {format} file: "),
    }
}

impl DataError {
    /// An error of a custom source.
    pub fn source(source: impl Into<Box<dyn std::error::Error + Send + Sync>>, origin: Origin) -> Self {
        Self::Source { source: source.into(), origin }
    }

    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::ReaderDied | Self::Index { .. } => Class::Bug,
            Self::Thread { .. } | Self::BatchMemory { .. } => Class::Retry,
            Self::Malformed { fault: Fault::NoMemory { .. }, .. } => Class::Retry,
            _ => Class::Fatal,
        }
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Malformed { fault: Fault::TooLarge { implied, .. }, .. } => {
                let whole = implied.0.div_ceil(1 << 20);
                format!("if that is right, raise the limit: limit = \"{whole}MiB\" in [data], or --limit")
            }
            Self::Shortened { .. } => {
                "leave data alone while it is used: write a new file, then rename it".to_owned()
            }
            Self::BatchMemory { .. } => "say a smaller batch".to_owned(),
            Self::UnknownFormat { .. } => {
                "say `format`: npy, npz, idx, csv, safetensors, parquet or images".to_owned()
            }
            Self::FormatLeftOut { .. } => "build with the feature of that name".to_owned(),
            Self::Codec { .. } => {
                "write it with snappy or gzip; zstd needs the feature of that name".to_owned()
            }
            Self::UnknownArray { have, .. } => format!("did you mean {:?}?", have.first()?),
            Self::ArrayNotNamed { have, .. } => format!("say for example x = {:?}", have.first()?),
            Self::ImageSize { .. } => "say `size`, to which all images are then scaled".to_owned(),
            Self::NotANumber { line: 1, .. } => "say header = true if that line names columns".to_owned(),
            Self::TooLarge { .. } => "scale the numbers, or number classes and ids from 0 on".to_owned(),
            Self::NoImages { .. } => "put the images of each class in a folder of its own".to_owned(),
            Self::LabelOutOfRange { classes, .. } => {
                format!(
                    "number classes from 0 to {}, or let the model have more outputs",
                    classes.saturating_sub(1)
                )
            }
            Self::LengthUnknown { .. } => {
                "passes, shuffling and shards need all samples: use a source that is complete".to_owned()
            }
            Self::Uneven { .. } => "say the shape of one sample, without the axis of samples".to_owned(),
            Self::LabelNotShare { .. } => "give labels as 0 and 1, or as probabilities".to_owned(),
            Self::UnsupportedType { .. } => {
                "store it as one of f16, f32, f64, i8 to i64 or u8 to u64".to_owned()
            }
            _ => return None,
        })
    }
}
