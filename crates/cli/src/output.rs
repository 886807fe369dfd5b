//! What commands print: data on standard output as a table, as JSON or as bare values.

use crate::failure::Failure;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use rustix::event::{PollFd, PollFlags};
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
        self.print_while_read(what).map(|_read| ())
    }

    /// The same; `false` when the reader went away.
    pub(crate) fn print_while_read(self, what: &impl Render) -> Result<bool, Failure> {
        let text = match self {
            Output::Table => what.table(),
            Output::Quiet => what.quiet(),
            Output::Json => serde_json::to_string(what).map_err(Failure::infrastructure)?,
        };
        write_line(&text)
    }
}

/// Prints a line on standard output, or nothing for an empty text. A reader that went away is not
/// an error.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    write_line(text).map(|_read| ())
}

fn write_line(text: &str) -> Result<bool, Failure> {
    if text.is_empty() {
        return Ok(true);
    }
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let error = anyhow::Error::new(error).context("could not write to standard output");
            Err(Failure::infrastructure(error))
        }
    }
}

/// Returns when nobody can read standard output any more, also while nothing is printed.
pub(crate) async fn reader_gone() {
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own: it waits for as long as the reader stays.
    std::thread::spawn(move || {
        let out = std::io::stdout();
        // No event is asked for, so that only an error or a hang-up counts.
        let mut watched = [PollFd::new(&out, PollFlags::empty())];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut watched, None) {}
        // A command that ended otherwise does not listen.
        let _gone = tell.send(());
    });
    let _told = told.await;
}

/// A table with a header and no lines drawn, as listings have.
pub(crate) fn listing<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    listing_of(&header, rows.into_iter().map(Vec::from))
}

/// The same with as many columns as the header has.
pub(crate) fn listing_of(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().map(|name| name.to_uppercase()));
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
