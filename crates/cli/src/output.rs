//! What commands print: data on standard output as a table, as JSON or as bare values.

use crate::failure::Failure;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::Serialize;
use std::io::Write;

/// The form of what a command prints on standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// Only the essential, one value a line.
    Quiet,
}

/// Something a command prints in any of the three forms.
pub(crate) trait Render: Serialize {
    /// The form for people, without a line break at the end.
    fn table(&self) -> String;
    /// The essential, one value a line; may be empty.
    fn quiet(&self) -> String;
}

impl Output {
    /// Prints on standard output. A reader that went away is not an error.
    pub(crate) fn print(self, what: &impl Render) -> Result<(), Failure> {
        let text = match self {
            Output::Table => what.table(),
            Output::Quiet => what.quiet(),
            Output::Json => serde_json::to_string(what).map_err(Failure::infrastructure)?,
        };
        print_line(&text)
    }
}

/// Prints a line on standard output, or nothing for an empty text.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::infrastructure(error)),
        _ => Ok(()),
    }
}

/// A table with a header and no lines drawn, as listings have.
pub(crate) fn listing<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.map(str::to_uppercase));
    for row in rows {
        table.add_row(row);
    }
    trim_lines(&table.to_string())
}

/// Two columns, a name and its value, as summaries have.
pub(crate) fn summary(rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        table.add_row([name.to_owned(), value]);
    }
    trim_lines(&table.to_string())
}

fn trim_lines(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
