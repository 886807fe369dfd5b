//! Arrays in a zip archive, as `numpy.savez` and `numpy.savez_compressed` write them.

use super::{malformed, named, npy};
use crate::array::Array;
use crate::arrays::Arrays;
use crate::error::{DataError, Fault, Origin};
use crate::inflate;
use crate::map::map;
use crate::spec::{Format, SourceSpec};
use bytes::Bytes;
use std::io::Cursor;
use std::path::Path;
use zip::{CompressionMethod, ZipArchive};

pub(super) fn open(file: &Path, spec: &SourceSpec) -> Result<Arrays, DataError> {
    let bytes = map(file)?;
    let mut archive = ZipArchive::new(Cursor::new(bytes.clone()))
        .map_err(|e| malformed(Format::Npz, file, Fault::Archive { what: e.to_string() }))?;
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        if let Some(Ok(name)) = archive.name_for_index(index)
            && let Some(name) = name.strip_suffix(".npy")
        {
            entries.push((name.to_owned(), index));
        }
    }
    entries.sort();
    let names: Vec<String> = entries.iter().map(|(name, _)| name.clone()).collect();
    named(file, Format::Npz, spec, &names, |name| {
        let index = entries.iter().find(|(have, _)| have == name).map_or(usize::MAX, |(_, index)| *index);
        entry(&Origin::array(file, name), &mut archive, index, &bytes)
    })
}

fn entry(
    origin: &Origin,
    archive: &mut ZipArchive<Cursor<Bytes>>,
    index: usize,
    bytes: &Bytes,
) -> Result<Array, DataError> {
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
        CompressionMethod::Stored => npy::from_bytes(origin.clone(), Format::Npz, &bytes.slice(start..end)),
        CompressionMethod::Deflated => {
            let mut start = Vec::new();
            let longest = npy::LONGEST_START.min(usize::try_from(size).unwrap_or(usize::MAX));
            if !inflate::fill(&mut entry, &mut start, longest) {
                return Err(fault(Fault::Compressed));
            }
            let (layout, begin) = npy::header(origin, Format::Npz, &start)?;
            let available = inflate::most(compressed).min(size);
            let len = layout.fits(available).map_err(fault)?;
            let mut data = start.split_off(begin.min(start.len()));
            if let Some(extra) = data.len().checked_sub(len).filter(|extra| *extra > 0) {
                return Err(fault(Fault::Trailing { extra: extra as u64 }));
            }
            if !inflate::fill(&mut entry, &mut data, len) {
                return Err(fault(Fault::Compressed));
            }
            // Reading to the end also checks the checksum.
            match inflate::rest(&mut entry) {
                Some(0) => Array::new(origin.clone(), Format::Npz, layout, data.into()),
                Some(extra) => Err(fault(Fault::Trailing { extra })),
                None => Err(fault(Fault::Compressed)),
            }
        }
        method => Err(broken(format!("compressed with {method}, only deflate is read"))),
    }
}
