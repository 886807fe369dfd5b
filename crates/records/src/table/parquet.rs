//! Metrics as Parquet.

use super::{Row, RunTable, WriteTableError, all_metrics};
use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::{PrimitiveTypeBuilder, Type};
use std::io::Write;
use std::sync::Arc;

/// Rows of a row group: all values of a column of that many are in memory at once.
const GROUP_ROWS: usize = 1 << 20;

/// Writes runs as one table: `run`, `step`, `pass`, `unix_ms`, then all metrics; a missing value is null.
///
/// # Errors
/// It cannot be written.
pub fn write_parquet(tables: &[RunTable], out: impl Write + Send) -> Result<(), WriteTableError> {
    let metrics = all_metrics(tables);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema(&metrics)?), Arc::new(properties))?;
    for table in tables {
        for first in (0..table.rows().len()).step_by(GROUP_ROWS) {
            let end = table.rows().len().min(first + GROUP_ROWS);
            let mut group = writer.next_row_group()?;
            write_rows(&mut group, table, &table.rows()[first..end], &metrics)?;
            group.close()?;
        }
    }
    writer.close()?;
    Ok(())
}

fn field(name: &str, of: Physical, repetition: Repetition) -> PrimitiveTypeBuilder<'_> {
    Type::primitive_type_builder(name, of).with_repetition(repetition)
}

fn schema(metrics: &[&str]) -> Result<Type, ParquetError> {
    let mut fields = vec![
        field("run", Physical::BYTE_ARRAY, Repetition::REQUIRED)
            .with_logical_type(Some(LogicalType::String))
            .build()?,
        field("step", Physical::INT64, Repetition::REQUIRED).build()?,
        field("pass", Physical::INT64, Repetition::REQUIRED).build()?,
        field("unix_ms", Physical::INT64, Repetition::OPTIONAL).build()?,
    ];
    for metric in metrics {
        fields.push(field(metric, Physical::DOUBLE, Repetition::OPTIONAL).build()?);
    }
    Type::group_type_builder("metrics").with_fields(fields.into_iter().map(Arc::new).collect()).build()
}

fn write_rows<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    table: &RunTable,
    rows: &[Row],
    metrics: &[&str],
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("a column of the schema is missing".to_owned());
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);

    let mut column = group.next_column()?.ok_or_else(missing)?;
    let run = ByteArray::from(table.run.as_str());
    column.typed::<ByteArrayType>().write_batch(&vec![run; rows.len()], None, None)?;
    column.close()?;
    let numbers: [Vec<i64>; 2] = [
        rows.iter().map(|row| signed(row.step)).collect(),
        rows.iter().map(|row| signed(row.pass)).collect(),
    ];
    for numbers in numbers {
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<Int64Type>().write_batch(&numbers, None, None)?;
        column.close()?;
    }

    let mut column = group.next_column()?.ok_or_else(missing)?;
    let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.unix_ms.is_some())).collect();
    let times: Vec<i64> = rows.iter().filter_map(|row| row.unix_ms.map(signed)).collect();
    column.typed::<Int64Type>().write_batch(&times, Some(&levels), None)?;
    column.close()?;

    for metric in metrics {
        let values: Vec<Option<f64>> = rows.iter().map(|row| table.value(metric, row.step)).collect();
        let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<f64> = values.into_iter().flatten().collect();
        let mut column = group.next_column()?.ok_or_else(missing)?;
        column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}
