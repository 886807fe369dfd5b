//! Parquet tables, as written by Arrow, pandas and Spark: numbers, and lists of numbers of equal length.
//!
//! Blocks of rows are read from all columns at once, so that besides the result only a page of each column is in
//! memory.

mod column;
mod pages;

use super::malformed;
use super::table::{ColumnChoice, Labels, Numbers, choose};
use crate::arrays::{Arrays, LabelArray};
use crate::error::{DataError, Fault, Origin};
use crate::inflate;
use crate::limit::Budget;
use crate::map::map;
use crate::spec::{Format, SourceSpec};
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use bytes::Bytes;
use column::{Column, Values};
use phalanx_types::DType;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows read at a time.
const BLOCK: usize = 1024;
/// The memory that any file may use, however small it is.
const ALWAYS_ALLOWED: u64 = 64 << 20;

pub(super) fn open(file: &Path, spec: &SourceSpec, budget: &Budget) -> Result<Arrays, DataError> {
    let bytes = map(file)?;
    // The decoder is third-party code. If it panics on an unusual file, the file is reported as malformed.
    match catch_unwind(AssertUnwindSafe(|| read(file, spec, &bytes, budget))) {
        Ok(result) => result,
        Err(_) => {
            Err(malformed(Format::Parquet, file, Fault::Decoder { what: "the decoder gave up".to_owned() }))
        }
    }
}

fn read(file: &Path, spec: &SourceSpec, bytes: &Bytes, budget: &Budget) -> Result<Arrays, DataError> {
    let decoder = |e: ParquetError| malformed(Format::Parquet, file, Fault::Decoder { what: e.to_string() });
    let reader = SerializedFileReader::new(bytes.clone()).map_err(decoder)?;
    let metadata = reader.metadata();
    let schema = metadata.file_metadata().schema_descr();
    let names: Vec<String> =
        schema.root_schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    let choice = choose(file, spec, &names)?;
    let find = |name: usize| Column::new(file, names.get(name).map_or("", |n| n), schema);
    let mut table = ParquetTable {
        file,
        columns: choice.x.iter().map(|name| find(*name)).collect::<Result<_, _>>()?,
        label: choice.y.map(find).transpose()?,
        x: Numbers::new(budget),
        y: Numbers::new(budget),
        names: None,
        rows: 0,
        budget,
        most: ALWAYS_ALLOWED.max(inflate::most(bytes.len() as u64)),
    };
    table.check(metadata, &choice)?;
    table.check_pages(metadata, bytes)?;
    for group in 0..metadata.num_row_groups() {
        let group = reader.get_row_group(group).map_err(decoder)?;
        for column in table.columns.iter_mut().chain(&mut table.label) {
            column.enter(&*group).map_err(decoder)?;
        }
        while table.block()? > 0 {}
    }
    table.finish()
}

struct ParquetTable<'a> {
    file: &'a Path,
    columns: Vec<Column>,
    label: Option<Column>,
    x: Numbers,
    y: Numbers,
    names: Option<Labels>,
    rows: usize,
    budget: &'a Budget,
    /// The most bytes that a file of this length can hold.
    most: u64,
}

impl ParquetTable<'_> {
    /// Refuses a file that cannot be read completely.
    fn check(&self, metadata: &ParquetMetaData, choice: &ColumnChoice) -> Result<(), DataError> {
        let rows = metadata.file_metadata().num_rows();
        let columns = choice.x.len() + usize::from(choice.y.is_some());
        let needed = u64::try_from(rows).ok().and_then(|rows| rows.checked_mul(4 * columns as u64));
        if needed.is_none_or(|needed| needed > self.most) {
            return Err(malformed(Format::Parquet, self.file, Fault::Rows { rows }));
        }
        let too_large = |fault| malformed(Format::Parquet, self.file, fault);
        self.budget.check(needed.unwrap_or(u64::MAX)).map_err(too_large)?;
        if let Some(column) = self.columns.iter().find(|column| column.is_text()) {
            return Err(column.unsupported());
        }
        for group in metadata.row_groups() {
            for column in self.columns.iter().chain(&self.label) {
                let codec = group.columns().get(column.leaf()).map(|chunk| chunk.compression());
                match codec {
                    None | Some(Compression::UNCOMPRESSED | Compression::SNAPPY | Compression::GZIP(_)) => {}
                    Some(Compression::ZSTD(_)) if cfg!(feature = "zstd") => {}
                    Some(codec) => {
                        let codec = codec.to_string();
                        return Err(DataError::Codec { codec, file: self.file.to_owned() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses pages that would take too much. One page of every column is in memory at a time, and its values, which
    /// dictionaries make of a few bits.
    fn check_pages(&self, metadata: &ParquetMetaData, bytes: &Bytes) -> Result<(), DataError> {
        let wrong = |fault| malformed(Format::Parquet, self.file, fault);
        let broken = |what: &str| wrong(Fault::Decoder { what: what.to_owned() });
        for group in metadata.row_groups() {
            let mut largest = 0u64;
            for column in self.columns.iter().chain(&self.label) {
                let Some(chunk) = group.columns().get(column.leaf()) else { continue };
                let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
                let (start, len) =
                    (usize::try_from(start).ok(), usize::try_from(chunk.compressed_size()).ok());
                let end = start.zip(len).and_then(|(start, len)| start.checked_add(len));
                let range = start.zip(end).and_then(|(start, end)| bytes.get(start..end));
                let mut most = 0;
                for page in pages::pages(range.ok_or_else(|| broken("a column lies outside of the file"))?) {
                    let page = page.ok_or_else(|| broken("the header of a page is broken"))?;
                    most = most.max(page.inflated);
                }
                // A dictionary stays beside the page.
                largest = largest.saturating_add(most.saturating_mul(2));
            }
            self.budget.check(largest).map_err(wrong)?;
        }
        Ok(())
    }

    /// Reads some rows of every column; returns how many.
    fn block(&mut self) -> Result<usize, DataError> {
        let mut rows = None;
        for column in self.columns.iter_mut().chain(&mut self.label) {
            let read = column.block(self.file, BLOCK, self.rows)?;
            if *rows.get_or_insert(read) != read {
                return Err(malformed(
                    Format::Parquet,
                    self.file,
                    Fault::Header { what: "columns of different lengths" },
                ));
            }
        }
        let rows = rows.unwrap_or(0);
        let file = self.file;
        let too_large = |fault| malformed(Format::Parquet, file, fault);
        for row in 0..rows {
            for column in &self.columns {
                column.row(row).iter().try_for_each(|value| self.x.push(*value)).map_err(too_large)?;
            }
        }
        if let Some(label) = &self.label {
            match label.values() {
                Values::Numbers(values) => {
                    values.iter().try_for_each(|value| self.y.push(*value)).map_err(too_large)?;
                }
                Values::Names(values) => {
                    // Values stored as text are names, whatever they look like.
                    let names = self.names.get_or_insert_with(|| Labels::like("name", self.budget));
                    for name in values {
                        names.push(name, label.origin(), Format::Parquet)?;
                    }
                }
            }
        }
        self.rows += rows;
        if (self.x.len() + self.y.len()) as u64 > self.most {
            return Err(malformed(Format::Parquet, self.file, Fault::Rows { rows: self.rows as i64 }));
        }
        Ok(rows)
    }

    fn finish(self) -> Result<Arrays, DataError> {
        let origin = Origin::file(self.file);
        if self.rows == 0 {
            return Err(DataError::Empty { origin });
        }
        let mut dtypes = self.columns.iter().map(|column| column.dtype);
        let first = dtypes.next().unwrap_or(DType::F32);
        let dtype = if dtypes.all(|dtype| dtype == first) { first } else { DType::F32 };
        let width = self.columns.iter().map(Column::width).sum();
        let x = self.x.into_array(origin, Format::Parquet, vec![self.rows, width])?;
        let y = match (self.label, self.names) {
            (None, _) => None,
            (Some(label), Some(names)) => Some(names.finish(label.origin().clone(), Format::Parquet)?),
            (Some(label), None) => {
                let shape = if label.is_list() { vec![self.rows, label.width()] } else { vec![self.rows] };
                let array = self.y.into_array(label.origin().clone(), Format::Parquet, shape)?;
                Some(LabelArray { array, dtype: label.dtype, classes: None })
            }
        };
        Arrays::of_table(x, dtype, y)
    }
}
