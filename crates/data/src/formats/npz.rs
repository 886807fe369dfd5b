//! Arrays in a zip archive, as `numpy.savez` and `numpy.savez_compressed` write them.

use super::{Elements, malformed, named, npy};
use crate::array::Array;
use crate::arrays::Arrays;
use crate::error::{DataError, Fault, Origin};
use crate::inflate;
use crate::limit::Budget;
use crate::map::map;
use crate::spec::{Format, SourceSpec};
use bytes::Bytes;
use std::io::Cursor;
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

pub(super) fn open(file: &Path, spec: &SourceSpec, budget: Budget) -> Result<Arrays, DataError> {
    let mut archive = Archive::open(file, budget)?;
    let names = archive.names();
    named(file, Format::Npz, spec, &names, |name| {
        let origin = Origin::array(file, name);
        let (layout, data) = archive.elements(&origin, name)?;
        Array::new(origin, Format::Npz, layout, data)
    })
}

/// All arrays of a file, as they lie there.
pub(super) fn open_elements(file: &Path, budget: Budget) -> Result<Vec<(String, Elements)>, DataError> {
    let mut archive = Archive::open(file, budget)?;
    let names = archive.names();
    let read = |name: String| Ok((name.clone(), archive.elements(&Origin::array(file, &name), &name)?));
    names.into_iter().map(read).collect()
}

/// The arrays of a file, by name.
struct Archive {
    zip: ZipArchive<Cursor<Bytes>>,
    bytes: Bytes,
    /// In the order of their names.
    entries: Vec<(String, usize)>,
    budget: Budget,
}

impl Archive {
    fn open(file: &Path, budget: Budget) -> Result<Self, DataError> {
        let bytes = map(file)?;
        let zip = ZipArchive::new(Cursor::new(bytes.clone()))
            .map_err(|e| malformed(Format::Npz, file, Fault::Archive { what: e.to_string() }))?;
        let mut entries = Vec::new();
        for index in 0..zip.len() {
            if let Some(Ok(name)) = zip.name_for_index(index)
                && let Some(name) = name.strip_suffix(".npy")
            {
                entries.push((name.to_owned(), index));
            }
        }
        entries.sort();
        Ok(Self { zip, bytes, entries, budget })
    }

    fn names(&self) -> Vec<String> {
        self.entries.iter().map(|(name, _)| name.clone()).collect()
    }

    fn elements(&mut self, origin: &Origin, name: &str) -> Result<Elements, DataError> {
        let index =
            self.entries.iter().find(|(have, _)| have == name).map_or(usize::MAX, |(_, index)| *index);
        entry(origin, &mut self.zip, index, &self.bytes, &self.budget)
    }
}

fn entry(
    origin: &Origin,
    archive: &mut ZipArchive<Cursor<Bytes>>,
    index: usize,
    bytes: &Bytes,
    budget: &Budget,
) -> Result<Elements, DataError> {
    let fault = |fault| DataError::Malformed { format: Format::Npz, fault, origin: origin.clone() };
    let broken = |what: String| fault(Fault::Archive { what });
    let mut entry = archive.by_index(index).map_err(|e| broken(e.to_string()))?;
    let (size, compressed) = (entry.size(), entry.compressed_size());
    let start = entry.data_start().and_then(|start| usize::try_from(start).ok());
    let end = start.and_then(|start| start.checked_add(usize::try_from(compressed).ok()?));
    let range = start.zip(end).filter(|(_, end)| *end <= bytes.len());
    let (start, end) = range.ok_or_else(|| broken("an entry lies outside of the file".to_owned()))?;
    match entry.compression() {
        CompressionMethod::Stored if size != compressed => Err(broken("an entry with two sizes".to_owned())),
        CompressionMethod::Stored => npy::elements(origin, Format::Npz, &bytes.slice(start..end)),
        CompressionMethod::Deflated => {
            let mut start = Vec::new();
            let longest = npy::LONGEST_START.min(usize::try_from(size).unwrap_or(usize::MAX));
            inflate::fill(&mut entry, &mut start, longest).map_err(fault)?;
            let (layout, begin) = npy::header(origin, Format::Npz, &start)?;
            let available = inflate::most(compressed).min(size);
            let len = layout.fits(available).map_err(fault)?;
            let first = start.get(begin..).unwrap_or_default();
            if let Some(extra) = first.len().checked_sub(len).filter(|extra| *extra > 0) {
                return Err(fault(Fault::Trailing { extra: extra as u64 }));
            }
            let mut data = budget.vec(len).map_err(fault)?;
            data.extend_from_slice(first);
            inflate::fill(&mut entry, &mut data, len).map_err(fault)?;
            // Reading to the end also checks the checksum.
            match inflate::rest(&mut entry) {
                Some(0) => Ok((layout, data.into())),
                Some(extra) => Err(fault(Fault::Trailing { extra })),
                None => Err(fault(Fault::Compressed)),
            }
        }
        method => Err(broken(format!("compressed with {method}, only deflate is read"))),
    }
}
