//! One file for each format: all of them end in an [`Opened`].

mod csv;
mod idx;
mod image;
pub(crate) mod images;
mod literal;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod resize;
mod safetensors;
mod table;

use crate::array::Array;
use crate::error::{DataError, Origin};
use crate::names::nearest_first;
use crate::spec::{Format, SourceSpec};
use images::Images;
use phalanx_types::DType;
use std::path::{Path, PathBuf};

/// What became of a source.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) x: Samples,
    /// As it is in the file.
    pub(crate) x_dtype: DType,
    pub(crate) y: Option<Array>,
    pub(crate) y_dtype: Option<DType>,
    /// The names of classes, where the file has them.
    pub(crate) classes: Option<Vec<String>>,
}

/// Where samples are read from.
#[derive(Debug)]
pub(crate) enum Samples {
    Array(Array),
    Images(Images),
}

impl Opened {
    pub(crate) fn arrays(x: Array, y: Option<Array>) -> Result<Self, DataError> {
        if let Some(y) = y.as_ref().filter(|y| y.rows != x.rows) {
            return Err(DataError::Lengths { x: x.rows, y: y.rows, labels: y.origin.clone() });
        }
        let (x_dtype, y_dtype) = (x.dtype, y.as_ref().map(|y| y.dtype));
        Ok(Self { x: Samples::Array(x), x_dtype, y, y_dtype, classes: None })
    }
}

/// Opens a source; its relative paths begin at `base`.
pub(crate) fn open(spec: &SourceSpec, base: &Path) -> Result<Opened, DataError> {
    let file = base.join(&spec.file);
    let format = match spec.format {
        Some(format) => format,
        None => Format::detect(&file)?,
    };
    check_options(spec, format, &file)?;
    let labels = spec.labels_file.as_ref().map(|labels| base.join(labels));
    match format {
        Format::Npy => pair(&file, labels, npy::open),
        Format::Idx => pair(&file, labels, idx::open),
        Format::Npz => npz::open(&file, spec),
        Format::Safetensors => safetensors::open(&file, spec),
        Format::Csv => csv::open(&file, spec),
        Format::Images => images::open(&file, spec.size),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::open(&file, spec),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(DataError::FormatLeftOut { format, file }),
    }
}

/// Refuses what would be ignored: the user meant something by it.
fn check_options(spec: &SourceSpec, format: Format, file: &Path) -> Result<(), DataError> {
    let named = !matches!(format, Format::Npy | Format::Idx | Format::Images);
    let useless = [
        ("x", spec.x.is_some() && !named),
        ("y", spec.y.is_some() && !named),
        ("labels_file", spec.labels_file.is_some() && !matches!(format, Format::Npy | Format::Idx)),
        ("header", spec.header.is_some() && format != Format::Csv),
        ("size", spec.size.is_some() && format != Format::Images),
    ];
    match useless.into_iter().find(|(_, useless)| *useless) {
        Some((option, _)) => Err(DataError::UselessOption { option, format, file: file.to_owned() }),
        None => Ok(()),
    }
}

/// Samples and labels from files of one array each.
fn pair(
    file: &Path,
    labels: Option<PathBuf>,
    open: fn(&Path) -> Result<Array, DataError>,
) -> Result<Opened, DataError> {
    let y = labels.map(|labels| open(&labels)).transpose()?;
    Opened::arrays(open(file)?, y)
}

/// Samples and labels from a file of named arrays.
fn named(
    file: &Path,
    format: Format,
    spec: &SourceSpec,
    names: &[String],
    mut read: impl FnMut(&str) -> Result<Array, DataError>,
) -> Result<Opened, DataError> {
    let known = |name: &str| {
        let found = names.iter().any(|have| have == name);
        found.then_some(()).ok_or_else(|| unknown(name, names, file))
    };
    let x = match spec.x.as_ref().map(|x| x.names()) {
        Some([name]) => name.clone(),
        Some(many) => return Err(DataError::ManyArrays { count: many.len(), format, file: file.to_owned() }),
        None => match names.iter().filter(|name| Some(*name) != spec.y.as_ref()).collect::<Vec<_>>()[..] {
            [only] => only.clone(),
            _ => match names.iter().find(|name| *name == "x") {
                Some(name) => name.clone(),
                None => return Err(DataError::ArrayNotNamed { have: names.to_vec(), file: file.to_owned() }),
            },
        },
    };
    known(&x)?;
    spec.y.as_deref().map(known).transpose()?;
    let y = spec.y.as_deref().map(&mut read).transpose()?;
    Opened::arrays(read(&x)?, y)
}

fn unknown(name: &str, names: &[String], file: &Path) -> DataError {
    let have = nearest_first(name, names.iter().cloned());
    DataError::UnknownArray { name: name.to_owned(), have, file: file.to_owned() }
}

/// An error about the whole file.
fn malformed(format: Format, file: &Path, fault: crate::error::Fault) -> DataError {
    DataError::Malformed { format, fault, origin: Origin::file(file) }
}
