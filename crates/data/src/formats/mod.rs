//! Readers of file formats; each returns a [`Source`].

mod csv;
mod idx;
mod image;
mod images;
mod literal;
mod npy;
mod npz;
#[cfg(feature = "parquet")]
mod parquet;
mod resize;
mod safetensors;
mod table;

use crate::array::{Array, Layout};
use crate::arrays::Arrays;
use crate::error::{DataError, Origin};
use crate::limit::{Budget, Limit};
use crate::names::nearest_first;
use crate::source::Source;
use crate::spec::{Format, SourceSpec};
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens a file or a folder; relative paths are resolved against `base`.
pub(crate) fn open(spec: &SourceSpec, base: &Path) -> Result<Arc<dyn Source>, DataError> {
    let file = base.join(&spec.file);
    let format = match spec.format {
        Some(format) => format,
        None => Format::detect(&file)?,
    };
    check_options(spec, format, &file)?;
    let labels = spec.labels_file.as_ref().map(|labels| base.join(labels));
    let budget = Budget::new(spec.limit.map_or_else(Limit::default, Limit::new));
    let arrays = match format {
        Format::Npy => pair(&file, labels, npy::open),
        Format::Idx => pair(&file, labels, |file| idx::open(file, &budget)),
        Format::Npz => npz::open(&file, spec, budget),
        Format::Safetensors => safetensors::open(&file, spec),
        Format::Csv => csv::open(&file, spec, &budget),
        Format::Images => return Ok(Arc::new(images::open(&file, spec.size, budget.limit())?)),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::open(&file, spec, &budget),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => Err(DataError::FormatLeftOut { format, file }),
    };
    Ok(Arc::new(arrays?))
}

/// Refuses options that the format would ignore.
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

/// An array as it lies in its file.
pub(crate) type Elements = (Layout, Bytes);

/// All arrays of a file with their names; a file of one array calls it by the file's own name.
pub(crate) fn open_elements(
    file: &Path,
    budget: Budget,
) -> Result<(Format, Vec<(String, Elements)>), DataError> {
    let format = Format::detect(file)?;
    let arrays = match format {
        Format::Npy => {
            let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or("array").to_owned();
            vec![(name, npy::open_elements(file)?)]
        }
        Format::Npz => npz::open_elements(file, budget)?,
        Format::Safetensors => safetensors::open_elements(file)?,
        format => return Err(DataError::NoTensors { format, file: file.to_owned() }),
    };
    Ok((format, arrays))
}

/// Samples and labels from files of one array each.
fn pair(
    file: &Path,
    labels: Option<PathBuf>,
    open: impl Fn(&Path) -> Result<Array, DataError>,
) -> Result<Arrays, DataError> {
    let y = labels.map(|labels| open(&labels)).transpose()?;
    Arrays::new(open(file)?, y)
}

/// Samples and labels from a file of named arrays.
fn named(
    file: &Path,
    format: Format,
    spec: &SourceSpec,
    names: &[String],
    mut read: impl FnMut(&str) -> Result<Array, DataError>,
) -> Result<Arrays, DataError> {
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
    Arrays::new(read(&x)?, y)
}

fn unknown(name: &str, names: &[String], file: &Path) -> DataError {
    let have = nearest_first(name, names.iter().cloned());
    DataError::UnknownArray { name: name.to_owned(), have, file: file.to_owned() }
}

/// An error about the whole file.
fn malformed(format: Format, file: &Path, fault: crate::error::Fault) -> DataError {
    DataError::Malformed { format, fault, origin: Origin::file(file) }
}
