//! Lines of the log: each event is one line, whatever the names and reasons in it hold.
//!
//! The subscriber writes a whole event at once, and escapes some of what a terminal obeys, but not line breaks, carriage
//! returns and what turns text around. Its own colours are kept.

use crate::escape;
use std::io::{self, Write};

/// Where the log goes.
pub(crate) fn stderr() -> LogLines<io::Stderr> {
    LogLines(io::stderr())
}

/// Writes events with everything in them shown, nothing obeyed.
pub(crate) struct LogLines<W>(W);

impl<W: Write> Write for LogLines<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(shown(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An event as it is shown.
fn shown(event: &str) -> String {
    let (event, end) = event.strip_suffix('\n').map_or((event, ""), |event| (event, "\n"));
    let mut out = String::with_capacity(event.len() + 1);
    let mut rest = event;
    while let Some(at) = rest.find('\u{1b}') {
        let (text, from) = rest.split_at(at);
        out.push_str(&escape::one_line(text));
        let colour = colour(from);
        let (own, after) = from.split_at(colour.unwrap_or(1));
        match colour {
            Some(_) => out.push_str(own),
            None => out.push_str(&escape::one_line(own)),
        }
        rest = after;
    }
    out.push_str(&escape::one_line(rest));
    out.push_str(end);
    out
}

/// The length of a change of colour at the beginning of a text: `ESC [ digits m`.
///
/// The subscriber escapes ESC in what it is given, so these are its own.
fn colour(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("\u{1b}[")?;
    let len = digits.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    digits.get(len..)?.starts_with('m').then_some(len + 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    #[test]
    fn an_event_is_one_line_with_its_colours() {
        let line = "\u{1b}[33m WARN\u{1b}[0m lost node=a\nINFO all is well\r\u{202e}x\u{1b}]0;title\u{7}\n";
        let shown = shown(line);
        assert_eq!(
            shown,
            "\u{1b}[33m WARN\u{1b}[0m lost node=a\\nINFO all is well\\r\\u{202e}x\\u{1b}]0;title\\u{7}\n"
        );
        assert_eq!(super::shown("plain, größer\n"), "plain, größer\n");
        assert_eq!(super::shown("\u{1b}["), "\\u{1b}[");
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_subscriber_cannot_be_made_to_write_another_line() {
        let written = Written::default();
        let out = written.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || LogLines(out.clone())).with_ansi(true);
        tracing::subscriber::with_default(subscriber.finish(), || {
            let hostile = "n1\nERROR forged\r\u{1b}[2J\u{1b}[31m\u{202e}";
            tracing::warn!(node = %hostile, text = ?hostile, "lost {hostile}");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.contains(['\r', '\u{202e}']) && !text.contains("\u{1b}[2J"), "{text:?}");
    }
}
