//! What ranks print, line by line, with the number of the rank in front.

use phalanx_wire::launch::MAX_OUTPUT;
use std::io::{self, BufRead, BufReader, Read, Write};

/// The longest line that is kept together.
const MOST: u64 = MAX_OUTPUT as u64;

/// Where a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    Out,
    Err,
}

impl Sink {
    /// Writes a line that comes from elsewhere, with a prefix if there is one. A reader that is gone is none.
    pub(crate) fn print(self, prefix: Option<&str>, line: &[u8]) {
        let mut whole = Vec::with_capacity(line.len() + 8);
        begin_line(&mut whole, prefix);
        whole.extend_from_slice(line);
        end_line(&mut whole, prefix);
        let _read_by_someone = self.write(&whole);
    }

    fn write(self, line: &[u8]) -> io::Result<()> {
        match self {
            Sink::Out => {
                let mut out = io::stdout().lock();
                out.write_all(line)?;
                out.flush()
            }
            Sink::Err => io::stderr().lock().write_all(line),
        }
    }
}

/// Copies all lines until the end. When the reader is gone they are dropped, so that the rank does not wait.
pub(crate) fn pass_on(from: impl Read, prefix: Option<&str>, sink: Sink) {
    let mut write = |line: &[u8]| sink.write(line);
    pass_on_to(from, prefix, &mut write);
}

/// The same, to where `write` puts a line.
pub(crate) fn pass_on_to(
    from: impl Read,
    prefix: Option<&str>,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) {
    if let Err(error) = copy_lines(from, prefix, write) {
        tracing::debug!(%error, "could not read the output of a rank");
    }
}

fn begin_line(line: &mut Vec<u8>, prefix: Option<&str>) {
    line.extend_from_slice(prefix.unwrap_or_default().as_bytes());
}

/// Lines with a prefix end, even if the rank did not end them.
fn end_line(line: &mut Vec<u8>, prefix: Option<&str>) {
    if prefix.is_some() && line.last() != Some(&b'\n') {
        line.push(b'\n');
    }
}

fn copy_lines(
    from: impl Read,
    prefix: Option<&str>,
    write: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    let mut read_by_someone = true;
    loop {
        line.clear();
        begin_line(&mut line, prefix);
        let start = line.len();
        (&mut from).take(MOST).read_until(b'\n', &mut line)?;
        if line.len() == start {
            return Ok(());
        }
        end_line(&mut line, prefix);
        read_by_someone = read_by_someone && write(&line).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(text: &str, prefix: Option<&str>) -> String {
        let mut all = Vec::new();
        copy_lines(text.as_bytes(), prefix, &mut |line| {
            all.extend_from_slice(line);
            Ok(())
        })
        .unwrap();
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn every_line_gets_its_rank() {
        assert_eq!(copied("a\n\nlast", Some("[3] ")), "[3] a\n[3] \n[3] last\n");
        assert_eq!(copied("a\nlast", None), "a\nlast");
        assert_eq!(copied("", Some("[3] ")), "");
        let long = "x".repeat(MOST as usize + 1);
        assert_eq!(copied(&long, Some("[0] ")), format!("[0] {}\n[0] x\n", "x".repeat(MOST as usize)));
    }

    #[test]
    fn a_reader_that_went_away_keeps_no_rank_waiting() {
        let mut lines = 0;
        let mut refuse = |_: &[u8]| {
            lines += 1;
            Err(io::ErrorKind::BrokenPipe.into())
        };
        copy_lines("a\nb\nc\n".as_bytes(), None, &mut refuse).unwrap();
        assert_eq!(lines, 1);
    }
}
