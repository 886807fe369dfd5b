//! CSV tables: numeric columns, and a label that may be the name of a class.

use super::malformed;
use super::table::{ColumnChoice, Labels, Numbers, choose, number};
use crate::arrays::Arrays;
use crate::error::{DataError, Fault, Origin};
use crate::spec::{Format, SourceSpec};
use ::csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use phalanx_types::DType;
use std::fs::File;
use std::path::Path;

pub(super) fn open(file: &Path, spec: &SourceSpec) -> Result<Arrays, DataError> {
    let source = File::open(file).map_err(|source| DataError::Open { file: file.to_owned(), source })?;
    let tabs = file.extension().is_some_and(|e| e.eq_ignore_ascii_case("tsv"));
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .delimiter(if tabs { b'\t' } else { b',' })
        .buffer_capacity(64 << 10)
        .from_reader(source);
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
    let mut rows = Rows { file, names: &names, choice, x: Numbers::default(), y: None, count: 0 };
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

/// Reads the next line that is not empty; false at the end.
fn next(reader: &mut Reader<File>, record: &mut ByteRecord, file: &Path) -> Result<bool, DataError> {
    reader.read_byte_record(record).map_err(|error| match error.into_kind() {
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
}

impl Rows<'_> {
    fn push(&mut self, record: &ByteRecord) -> Result<(), DataError> {
        for column in &self.choice.x {
            let cell = record.get(*column).unwrap_or_default().trim_ascii();
            let value = cell_number(cell).ok_or_else(|| self.not_a_number(record, *column))?;
            self.x.push(value);
        }
        if let Some(column) = self.choice.y {
            let cell = String::from_utf8_lossy(record.get(column).unwrap_or_default().trim_ascii());
            let origin = self.origin(column);
            if cell.is_empty() {
                return Err(DataError::MissingValue { row: self.count as u64, origin });
            }
            if !self.y.get_or_insert_with(|| Labels::like(&cell)).push(&cell, &origin)? {
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
