//! What commands print: data on standard output as a table, as JSON or as bare values.

use crate::escape;
use crate::failure::Failure;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use rustix::event::{PollFd, PollFlags};
use serde::Serialize;
use std::io::{IsTerminal, Write};

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
    /// Whether the form for people has colours of our own; nothing else in it may be a control character then.
    fn is_coloured(&self) -> bool {
        false
    }
}

impl Output {
    /// Prints on standard output. A reader that went away is not an error.
    pub(crate) fn print(self, what: &impl Render) -> Result<(), Failure> {
        self.print_while_read(what).map(|_read| ())
    }

    /// The same; `false` when the reader went away.
    pub(crate) fn print_while_read(self, what: &impl Render) -> Result<bool, Failure> {
        write_line(&self.text(what, std::io::stdout().is_terminal())?)
    }

    /// What is printed. What is for people, or goes to a terminal, holds no control characters of data: they are
    /// shown, not obeyed. Programs that read bare values get them as they are.
    fn text(self, what: &impl Render, to_terminal: bool) -> Result<String, Failure> {
        let (text, as_it_is) = match self {
            Output::Table => (what.table(), what.is_coloured()),
            Output::Quiet => (what.quiet(), !to_terminal),
            // Its strings are escaped by its own rules.
            Output::Json => (serde_json::to_string(what).map_err(Failure::infrastructure)?, true),
        };
        Ok(if as_it_is { text } else { escape::lines(&text).into_owned() })
    }
}

/// Says something to the user beside what a command prints. What comes from data is shown, not obeyed.
pub(crate) fn say(line: &str) {
    // Nobody who does not listen is worth an error.
    drop(writeln!(std::io::stderr(), "{}", escape::one_line(line)));
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
    table.load_style(presets::NOTHING).set_header(header.iter().map(|name| cell(&name.to_uppercase())));
    for row in rows {
        table.add_row(row.iter().map(|text| cell(text)));
    }
    trim_lines(&table.to_string())
}

/// Two columns, a name and its value, as summaries have.
pub(crate) fn summary(rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        // A value of several lines stays beside its name.
        table.add_row([name.to_owned(), escape::lines(&value).into_owned()]);
    }
    trim_lines(&table.to_string())
}

/// A row of a listing is one line, whatever is in it.
fn cell(text: &str) -> String {
    escape::one_line(text).into_owned()
}

fn trim_lines(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2Jb\nc\u{9b}31m\u{202e}d";

    #[derive(Serialize)]
    struct Listed(String);

    impl Render for Listed {
        fn table(&self) -> String {
            format!("{}\n{}", listing(["name", "n"], [[self.0.clone(), "1".to_owned()]]), self.0)
        }

        fn quiet(&self) -> String {
            self.0.clone()
        }
    }

    fn text(output: Output, to_terminal: bool) -> String {
        output.text(&Listed(HOSTILE.to_owned()), to_terminal).unwrap()
    }

    #[test]
    fn what_is_for_people_shows_control_characters_and_obeys_none() {
        for to_terminal in [true, false] {
            let shown = text(Output::Table, to_terminal);
            assert!(shown.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{shown:?}");
            let lines: Vec<&str> = shown.lines().collect();
            assert!(lines[1].contains(r"a\u{1b}[2Jb\nc\u{9b}31m\u{202e}d"), "one row is one line: {shown}");
            assert_eq!(lines[2..], [r"a\u{1b}[2Jb", r"c\u{9b}31m\u{202e}d"]);
        }
        assert_eq!(text(Output::Quiet, true), r"a\u{1b}[2Jb".to_owned() + "\n" + r"c\u{9b}31m\u{202e}d");
    }

    #[test]
    fn programs_get_values_as_they_are() {
        assert_eq!(text(Output::Quiet, false), HOSTILE);
        assert_eq!(serde_json::from_str::<String>(&text(Output::Json, false)).unwrap(), HOSTILE);
        assert_eq!(text(Output::Json, true), text(Output::Json, false));
    }

    #[test]
    fn a_summary_keeps_the_lines_of_a_value_beside_its_name() {
        let shown = summary([("note", "one\nrun  faked\u{1b}[A".to_owned()), ("run", "first".to_owned())]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("     ") && lines[1].ends_with(r"faked\u{1b}[A"), "{shown}");
    }
}
