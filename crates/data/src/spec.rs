//! The user's description of a source of samples, and its file format.

use crate::error::DataError;
use crate::map::open_regular;
use phalanx_types::ByteSize;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A source of samples in `run.toml` under `[data]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// A file, or a folder with a subfolder of images for each class.
    pub file: PathBuf,
    /// The array or columns of the samples; in a table, by default all columns but `y`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<Columns>,
    /// The array or column of the label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
    /// The file with the labels, for formats that have one array in a file: idx and npy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels_file: Option<PathBuf>,
    /// The format; by default detected from the name of the file and its first bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Whether the first line of a CSV file names the columns; by default detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<bool>,
    /// Height and width to which images are scaled; the excess is cropped on both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<[usize; 2]>,
    /// The most memory that opening it may take; by default half of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ByteSize>,
}

impl SourceSpec {
    /// A source that is a file, with defaults for everything else.
    pub fn file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }
}

/// One name or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Columns {
    One(String),
    Many(Vec<String>),
}

impl Columns {
    pub fn names(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Many(names) => names,
        }
    }
}

impl From<&str> for Columns {
    fn from(name: &str) -> Self {
        Self::One(name.to_owned())
    }
}

/// How samples are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Format {
    Npy,
    Npz,
    /// Also compressed with gzip.
    Idx,
    Csv,
    Safetensors,
    Parquet,
    /// A folder for each class.
    Images,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Idx => "idx",
            Self::Csv => "csv",
            Self::Safetensors => "safetensors",
            Self::Parquet => "parquet",
            Self::Images => "images",
        })
    }
}

impl Format {
    /// Detects the format by the name of a file or its first bytes.
    pub(crate) fn detect(file: &Path) -> Result<Self, DataError> {
        let open = |source| DataError::Open { file: file.to_owned(), source };
        if std::fs::metadata(file).map_err(open)?.is_dir() {
            return Ok(Self::Images);
        }
        if let Some(format) = Self::by_name(file) {
            return Ok(format);
        }
        let mut start = Vec::new();
        let (opened, _) = open_regular(file)?;
        opened
            .take(8)
            .read_to_end(&mut start)
            .map_err(|source| DataError::Read { file: file.to_owned(), source })?;
        Self::by_magic(&start).ok_or_else(|| DataError::UnknownFormat { file: file.to_owned() })
    }

    fn by_name(file: &Path) -> Option<Self> {
        let name = file.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        if name.ends_with("-ubyte") {
            return Some(Self::Idx);
        }
        match name.rsplit_once('.')?.1 {
            "npy" => Some(Self::Npy),
            "npz" => Some(Self::Npz),
            "idx" | "idx1" | "idx2" | "idx3" | "idx4" => Some(Self::Idx),
            "csv" | "tsv" => Some(Self::Csv),
            "safetensors" => Some(Self::Safetensors),
            "parquet" | "pq" => Some(Self::Parquet),
            _ => None,
        }
    }

    fn by_magic(start: &[u8]) -> Option<Self> {
        match start {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Self::Npy),
            [b'P', b'K', 3, 4, ..] => Some(Self::Npz),
            [b'P', b'A', b'R', b'1', ..] => Some(Self::Parquet),
            [0x1f, 0x8b, ..] | [0, 0, 0x08..=0x0e, 1..=8, ..] => Some(Self::Idx),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_first_bytes_tell_the_format() {
        for (name, format) in [
            ("a.npy", Format::Npy),
            ("a.NPZ", Format::Npz),
            ("train-images-idx3-ubyte", Format::Idx),
            ("train-images-idx3-ubyte.gz", Format::Idx),
            ("train-images.idx3-ubyte", Format::Idx),
            ("a.b.tsv", Format::Csv),
            ("a.safetensors", Format::Safetensors),
            ("a.parquet", Format::Parquet),
        ] {
            assert_eq!(Format::by_name(Path::new(name)), Some(format), "{name}");
        }
        assert_eq!(Format::by_magic(b"\x93NUMPY\x01\0"), Some(Format::Npy));
        assert_eq!(Format::by_magic(b"PK\x03\x04    "), Some(Format::Npz));
        assert_eq!(Format::by_magic(b"\0\0\x08\x03\0\0\0\0"), Some(Format::Idx));
        assert_eq!(Format::by_magic(b"a,b,c\n1,"), None);
    }

    #[test]
    fn a_spec_reads_as_it_is_written() {
        let spec: SourceSpec = serde_json::from_str(r#"{"file":"a.csv","x":["a","b"],"y":"c"}"#).unwrap();
        assert_eq!(spec.x.unwrap().names(), ["a", "b"]);
        let spec: SourceSpec = serde_json::from_str(r#"{"file":"a.npz","x":"a","format":"npz"}"#).unwrap();
        assert_eq!((spec.x.unwrap().names(), spec.format), (&["a".to_owned()][..], Some(Format::Npz)));
        assert!(serde_json::from_str::<SourceSpec>(r#"{"file":"a","z":"b"}"#).is_err());
    }
}
