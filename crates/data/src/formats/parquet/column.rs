//! One column of a Parquet file, read block by block.

use crate::element::{convert, integer};
use crate::error::{DataError, Fault, Origin};
use crate::formats::malformed;
use crate::spec::Format;
use ::parquet::basic::{ConvertedType, LogicalType, Type};
use ::parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use ::parquet::data_type::DataType;
use ::parquet::errors::Result as ParquetResult;
use ::parquet::file::reader::RowGroupReader;
use ::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use phalanx_types::DType;
use std::path::Path;

/// The values of one block.
#[derive(Debug)]
pub(super) enum Values {
    Numbers(Vec<f32>),
    Names(Vec<String>),
}

pub(super) struct Column {
    origin: Origin,
    pub(super) dtype: DType,
    leaf: usize,
    /// The definition level of a value that is not null.
    defined: i16,
    list: bool,
    /// The length of every list, once one was read.
    width: Option<usize>,
    reader: Option<ColumnReader>,
    values: Values,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
}

impl Column {
    pub(super) fn new(file: &Path, name: &str, schema: &SchemaDescriptor) -> Result<Self, DataError> {
        let origin = Origin::array(file, name);
        let of_column = |leaf: &usize| schema.get_column_root(*leaf).name() == name;
        let leaves: Vec<usize> = (0..schema.num_columns()).filter(of_column).collect();
        let unsupported =
            |dtype: &str| DataError::UnsupportedType { dtype: dtype.to_owned(), origin: origin.clone() };
        let [leaf] = leaves[..] else { return Err(unsupported("structure")) };
        let column = schema.column(leaf);
        let list = match (column.max_rep_level(), column.path().parts().len()) {
            (0, 1) => false,
            (1, 1..=3) => true,
            (0, _) => return Err(unsupported("structure")),
            _ => return Err(unsupported("list of lists")),
        };
        let (dtype, values) = match element(&column) {
            Some(Element::Number(dtype)) => (dtype, Values::Numbers(Vec::new())),
            Some(Element::Name) if !list => (DType::I64, Values::Names(Vec::new())),
            _ => return Err(unsupported(&type_name(&column))),
        };
        Ok(Self {
            dtype,
            leaf,
            defined: column.max_def_level(),
            list,
            width: (!list).then_some(1),
            reader: None,
            values,
            definitions: Vec::new(),
            repetitions: Vec::new(),
            origin,
        })
    }

    pub(super) fn leaf(&self) -> usize {
        self.leaf
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn is_list(&self) -> bool {
        self.list
    }

    pub(super) fn is_text(&self) -> bool {
        matches!(self.values, Values::Names(_))
    }

    pub(super) fn unsupported(&self) -> DataError {
        DataError::UnsupportedType { dtype: "text".to_owned(), origin: self.origin.clone() }
    }

    /// The numbers in a row.
    pub(super) fn width(&self) -> usize {
        self.width.unwrap_or(0)
    }

    /// Goes on with the next group of rows.
    pub(super) fn enter(&mut self, group: &dyn RowGroupReader) -> ParquetResult<()> {
        self.reader = Some(group.get_column_reader(self.leaf)?);
        Ok(())
    }

    /// The values of the block that was read last.
    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    /// The numbers of one row of the block that was read last.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        match &self.values {
            Values::Numbers(values) => {
                values.get(row * self.width()..(row + 1) * self.width()).unwrap_or_default()
            }
            Values::Names(_) => &[],
        }
    }

    /// Reads up to `most` rows; `before` is how many came earlier.
    pub(super) fn block(&mut self, file: &Path, most: usize, before: usize) -> Result<usize, DataError> {
        self.definitions.clear();
        self.repetitions.clear();
        let Some(reader) = &mut self.reader else { return Ok(0) };
        let levels = (&mut self.definitions, &mut self.repetitions);
        let unsigned = matches!(self.dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
        let read = match (&mut self.values, reader) {
            (Values::Names(names), ColumnReader::ByteArrayColumnReader(reader)) => {
                fill(reader, most, levels, names, |v| {
                    Ok(v.as_utf8()
                        .map_or_else(|_| String::from_utf8_lossy(v.data()).into_owned(), str::to_owned))
                })
            }
            (Values::Numbers(out), ColumnReader::BoolColumnReader(r)) => {
                fill(r, most, levels, out, |v| Ok(f32::from(u8::from(*v))))
            }
            (Values::Numbers(out), ColumnReader::Int32ColumnReader(r)) => fill(r, most, levels, out, |v| {
                exact(if unsigned { i128::from(*v as u32) } else { i128::from(*v) })
            }),
            (Values::Numbers(out), ColumnReader::Int64ColumnReader(r)) => fill(r, most, levels, out, |v| {
                exact(if unsigned { i128::from(*v as u64) } else { i128::from(*v) })
            }),
            (Values::Numbers(out), ColumnReader::FloatColumnReader(r)) => {
                fill(r, most, levels, out, |v| Ok(*v))
            }
            (Values::Numbers(out), ColumnReader::DoubleColumnReader(r)) => {
                fill(r, most, levels, out, |v| Ok(*v as f32))
            }
            (Values::Numbers(out), ColumnReader::FixedLenByteArrayColumnReader(r)) => {
                fill(r, most, levels, out, |v| {
                    let mut half = [0.0];
                    convert(DType::F16, false, v.data(), &mut half).map_err(|inexact| inexact.value)?;
                    Ok(half[0])
                })
            }
            _ => Err(Stopped::Decoder("the type of the column changed".to_owned())),
        };
        let rows = read.map_err(|stopped| match stopped {
            Stopped::Decoder(what) => malformed(Format::Parquet, file, Fault::Decoder { what }),
            Stopped::Inexact { value, level } => {
                let row = (before + self.row_of(level)) as u64;
                DataError::TooLarge { value, row, origin: self.origin.clone() }
            }
        })?;
        self.check_block(rows, before)?;
        Ok(rows)
    }

    /// Checks that all lists have the same length, and that no value is missing.
    fn check_block(&mut self, rows: usize, before: usize) -> Result<(), DataError> {
        let mut starts =
            self.repetitions.iter().enumerate().filter(|(_, level)| **level == 0).map(|(at, _)| at);
        let mut start = starts.next().unwrap_or(0);
        for row in 0..if self.list { rows } else { 0 } {
            let end = starts.next().unwrap_or(self.repetitions.len());
            let found = end - start;
            let expected = *self.width.get_or_insert(found);
            if found != expected {
                let row = (before + row) as u64;
                return Err(DataError::ListLength { row, expected, found, origin: self.origin.clone() });
            }
            start = end;
        }
        let missing = self.definitions.iter().position(|level| *level != self.defined);
        match missing.filter(|_| self.defined > 0) {
            Some(missing) => {
                let row = (before + self.row_of(missing)) as u64;
                Err(DataError::MissingValue { row, origin: self.origin.clone() })
            }
            None => Ok(()),
        }
    }

    /// The row in the block to which a level belongs.
    fn row_of(&self, level: usize) -> usize {
        if self.list {
            let starts = self.repetitions.iter().take(level + 1).filter(|level| **level == 0).count();
            starts.saturating_sub(1)
        } else {
            level
        }
    }
}

/// Why a block could not be read.
enum Stopped {
    Decoder(String),
    /// The index of the faulty value in the block.
    Inexact {
        value: i128,
        level: usize,
    },
}

fn exact(value: i128) -> Result<f32, i128> {
    integer(value).ok_or(value)
}

/// Reads up to `most` rows and converts their values; returns the rows.
fn fill<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    most: usize,
    (definitions, repetitions): (&mut Vec<i16>, &mut Vec<i16>),
    out: &mut Vec<V>,
    convert: impl Fn(&T::T) -> Result<V, i128>,
) -> Result<usize, Stopped> {
    let mut raw = Vec::new();
    let (rows, _, _) = reader
        .read_records(most, Some(definitions), Some(repetitions), &mut raw)
        .map_err(|e| Stopped::Decoder(e.to_string()))?;
    out.clear();
    for (level, value) in raw.iter().enumerate() {
        out.push(convert(value).map_err(|value| Stopped::Inexact { value, level })?);
    }
    Ok(rows)
}

enum Element {
    Number(DType),
    Name,
}

/// The element type of a column, if it is numbers or text.
fn element(column: &ColumnDescriptor) -> Option<Element> {
    let dtype = match (column.physical_type(), column.converted_type()) {
        (Type::BOOLEAN, _) => DType::Bool,
        (Type::INT32, ConvertedType::NONE | ConvertedType::INT_32) => DType::I32,
        (Type::INT32, ConvertedType::INT_8) => DType::I8,
        (Type::INT32, ConvertedType::INT_16) => DType::I16,
        (Type::INT32, ConvertedType::UINT_8) => DType::U8,
        (Type::INT32, ConvertedType::UINT_16) => DType::U16,
        (Type::INT32, ConvertedType::UINT_32) => DType::U32,
        (Type::INT64, ConvertedType::NONE | ConvertedType::INT_64) => DType::I64,
        (Type::INT64, ConvertedType::UINT_64) => DType::U64,
        (Type::FLOAT, _) => DType::F32,
        (Type::DOUBLE, _) => DType::F64,
        (Type::FIXED_LEN_BYTE_ARRAY, _) if column.logical_type_ref() == Some(&LogicalType::Float16) => {
            DType::F16
        }
        (Type::BYTE_ARRAY, ConvertedType::UTF8 | ConvertedType::ENUM) => return Some(Element::Name),
        _ => return None,
    };
    // A time without a converted type is a number for display, not for computing.
    match column.logical_type_ref() {
        None | Some(LogicalType::Integer { .. } | LogicalType::Float16) => Some(Element::Number(dtype)),
        Some(_) => None,
    }
}

fn type_name(column: &ColumnDescriptor) -> String {
    match column.converted_type() {
        ConvertedType::NONE => column.physical_type().to_string(),
        converted => converted.to_string(),
    }
}
