//! CSV tables: numeric columns, and a label that may be the name of a class.

use super::malformed;
use super::table::{ColumnChoice, Labels, Numbers, choose, number};
use crate::arrays::Arrays;
use crate::error::{DataError, Fault, Origin};
use crate::limit::Budget;
use crate::map::open_regular;
use crate::spec::{Format, SourceSpec};
use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use phalanx_types::DType;
use std::fs::File;
use std::io::Read;
use std::path::Path;

pub(super) fn open(file: &Path, spec: &SourceSpec, budget: &Budget) -> Result<Arrays, DataError> {
    let (source, _) = open_regular(file)?;
    let longest = (budget.limit().size().0 / LINE_SHARE).max(LEAST_LINE);
    let tabs = file.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv"));
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .delimiter(if tabs { b'\t' } else { b',' })
        .buffer_capacity(64 << 10)
        .from_reader(Lines { source, line: longest, left: longest, full: false });
    let mut record = ByteRecord::new();
    if !next(&mut reader, &mut record, file)? {
        return Err(DataError::Empty { origin: Origin::file(file) });
    }
    let header = spec.header.unwrap_or_else(|| is_header(&record, spec));
    let names: Vec<String> = if header {
        record.iter().map(|cell| String::from_utf8_lossy(cell.trim_ascii()).into_owned()).collect()
    } else {
        (0..record.len()).map(|column| column.to_string()).collect()
    };
    let choice = choose(file, spec, &names)?;
    let mut rows = Rows { file, names: &names, choice, x: Numbers::new(budget), y: None, count: 0, budget };
    if header && !next(&mut reader, &mut record, file)? {
        return Err(DataError::Empty { origin: Origin::file(file) });
    }
    loop {
        rows.push(&record)?;
        if !next(&mut reader, &mut record, file)? {
            return rows.finish();
        }
    }
}

/// A line of a table takes at most this part of the limit as text; its cells take several times that.
const LINE_SHARE: u64 = 64;
/// A line of this length is read whatever the limit is.
const LEAST_LINE: u64 = 1 << 20;

/// A file of which no line is read that is longer than `line`.
struct Lines {
    source: File,
    line: u64,
    /// How much may still be read for the present line.
    left: u64,
    /// Whether more was wanted.
    full: bool,
}

impl Read for Lines {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 {
            self.full = true;
            return Ok(0);
        }
        let read = self.source.read(out)?;
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
    }
}

/// Reads the next line that is not empty; false at the end.
fn next(reader: &mut Reader<Lines>, record: &mut ByteRecord, file: &Path) -> Result<bool, DataError> {
    reader.get_mut().left = reader.get_ref().line;
    let read = reader.read_byte_record(record);
    if reader.get_ref().full {
        let fault = Fault::Header { what: "a line is far too long" };
        return Err(malformed(Format::Csv, file, fault));
    }
    read.map_err(|error| match error.into_kind() {
        ErrorKind::Io(source) => DataError::Read { file: file.to_owned(), source },
        ErrorKind::UnequalLengths { pos, expected_len: expected, len: found } => {
            let line = pos.map_or(0, |pos| pos.line());
            DataError::Ragged { line, expected, found, file: file.to_owned() }
        }
        other => malformed(Format::Csv, file, Fault::Decoder { what: format!("{other:?}") }),
    })
}

/// Whether the first line is a header: it has the requested names, or no number at all.
fn is_header(record: &ByteRecord, spec: &SourceSpec) -> bool {
    let cells: Vec<&[u8]> = record.iter().map(<[u8]>::trim_ascii).collect();
    let asked = spec.x.iter().flat_map(|x| x.names()).chain(&spec.y);
    let named = asked.into_iter().any(|name| number(name).is_none() && cells.contains(&name.as_bytes()));
    named || !cells.iter().any(|cell| cell_number(cell).is_some())
}

fn cell_number(cell: &[u8]) -> Option<f32> {
    number(std::str::from_utf8(cell).ok()?)
}

struct Rows<'a> {
    file: &'a Path,
    names: &'a [String],
    choice: ColumnChoice,
    x: Numbers,
    y: Option<Labels>,
    count: usize,
    budget: &'a Budget,
}

impl Rows<'_> {
    fn push(&mut self, record: &ByteRecord) -> Result<(), DataError> {
        for column in &self.choice.x {
            let cell = record.get(*column).unwrap_or_default().trim_ascii();
            let value = cell_number(cell).ok_or_else(|| self.not_a_number(record, *column))?;
            self.x.push(value).map_err(|fault| malformed(Format::Csv, self.file, fault))?;
        }
        if let Some(column) = self.choice.y {
            let cell = String::from_utf8_lossy(record.get(column).unwrap_or_default().trim_ascii());
            let origin = self.origin(column);
            if cell.is_empty() {
                return Err(DataError::MissingValue { row: self.count as u64, origin });
            }
            if !self.y.get_or_insert_with(|| Labels::like(&cell, self.budget)).push(
                &cell,
                &origin,
                Format::Csv,
            )? {
                return Err(self.not_a_number(record, column));
            }
        }
        self.count += 1;
        Ok(())
    }

    fn finish(self) -> Result<Arrays, DataError> {
        let shape = vec![self.count, self.choice.x.len()];
        let y_origin = self.choice.y.map(|column| self.origin(column)).unwrap_or_default();
        let y = self.y.map(|labels| labels.finish(y_origin, Format::Csv)).transpose()?;
        let x = self.x.into_array(Origin::file(self.file), Format::Csv, shape)?;
        Arrays::of_table(x, DType::F32, y)
    }

    fn origin(&self, column: usize) -> Origin {
        Origin { file: self.file.to_owned(), array: self.names.get(column).cloned() }
    }

    fn not_a_number(&self, record: &ByteRecord, column: usize) -> DataError {
        /// How much of a cell an error shows.
        const SHOWN: usize = 32;
        let cell = record.get(column).unwrap_or_default();
        DataError::NotANumber {
            line: record.position().map_or(0, |pos| pos.line()),
            column: self.names.get(column).cloned().unwrap_or_default(),
            text: String::from_utf8_lossy(cell.get(..SHOWN).unwrap_or(cell)).into_owned(),
            file: self.file.to_owned(),
        }
    }
}
