//! Metrics as CSV (RFC 4180).

use super::{RunTable, WriteTableError, all_metrics};
use std::io::Write;

/// Writes runs as one table: `run,step,pass,unix_ms`, then all metrics; a field without a value is empty.
///
/// # Errors
/// It cannot be written.
pub fn write_csv(tables: &[RunTable], out: &mut dyn Write) -> Result<(), WriteTableError> {
    let metrics = all_metrics(tables);
    let mut line = "run,step,pass,unix_ms".to_owned();
    for metric in &metrics {
        line.push(',');
        put_field(&mut line, metric);
    }
    line.push('\n');
    out.write_all(line.as_bytes())?;
    for table in tables {
        let mut run = String::new();
        put_field(&mut run, &table.run);
        for row in table.rows() {
            let time = row.unix_ms.map(|ms| ms.to_string()).unwrap_or_default();
            line.clear();
            line.push_str(&format!("{run},{},{},{time}", row.step, row.pass));
            for metric in &metrics {
                line.push(',');
                if let Some(value) = table.value(metric, row.step) {
                    // The shortest form that reads back as the same number.
                    line.push_str(&value.to_string());
                }
            }
            line.push('\n');
            out.write_all(line.as_bytes())?;
        }
    }
    Ok(())
}

/// Adds a text, in quotes if it needs them. A spreadsheet takes a field with one of the signs `=+-@` at its beginning
/// for a formula: it gets an apostrophe before it.
fn put_field(line: &mut String, text: &str) {
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    if text.contains(['"', ',', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(&text);
    }
}
