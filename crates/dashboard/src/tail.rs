//! What a run recorded since a viewer looked: read from the end of its files, once for all viewers.
//!
//! A viewer's place is a place in the files. So it holds at any process, and needs no memory of a run: a viewer that is
//! far behind reads the reduced curves anew instead of the lines.

use crate::entry::{Entry, Line, read_from};
use crate::error::ApiError;
use crate::runs::lock;
use phalanx_records::history::{self, LoggedEvent, Position};
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex};

/// How many runs, and how many pieces of each, are kept for other viewers.
const MOST_RUNS: usize = 16;
const MOST_PIECES: usize = 8;
/// A viewer that lacks more lines than this reads curves anew.
const MOST_LINES: usize = 400;

/// How much of a run's records a viewer has seen, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) metrics: u64,
    pub(crate) events: u64,
}

impl From<Position> for Seen {
    fn from(position: Position) -> Self {
        Self { metrics: position.metrics, events: position.events }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.metrics, self.events)
    }
}

impl FromStr for Seen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (metrics, events) = text.split_once('.').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_text| ());
        Ok(Self { metrics: number(metrics)?, events: number(events)? })
    }
}

/// What is new to a viewer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct News {
    /// Curves have to be read anew: too much was recorded, or something was taken back. There are no lines then.
    pub(crate) reload: bool,
    pub(crate) lines: Vec<Line>,
    pub(crate) events: Vec<LoggedEvent>,
    pub(crate) seen: Seen,
}

/// Entries between two positions.
#[derive(Debug, Clone)]
struct Piece {
    from: Position,
    to: Position,
    entries: Arc<Vec<Entry>>,
}

#[derive(Debug, Default)]
struct Tail {
    /// The end of the files as of a version of the hub.
    end: Option<(u64, Position)>,
    /// The run in listings as of a version of the hub.
    summary: Option<(u64, Value)>,
    pieces: VecDeque<Piece>,
}

/// The ends of runs that are followed.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    tails: Mutex<Vec<(PathBuf, Arc<Mutex<Tail>>)>>,
}

impl Tails {
    /// What a run recorded since. `version` is that of the newest change that the viewer was told of.
    pub(crate) fn since(&self, run: &Path, seen: Seen, version: u64) -> Result<News, ApiError> {
        let tail = self.tail(run);
        let mut tail = lock(&tail);
        let end = match tail.end {
            Some((known, end)) if known >= version => end,
            _ => history::end_of(run)?,
        };
        tail.end = Some((version, end));
        let mut news = News { seen, ..News::default() };
        if news.seen.metrics > end.metrics {
            (news.reload, news.seen.metrics) = (true, end.metrics);
        }
        let mut position =
            Position { metrics: news.seen.metrics, events: seen.events, annotations: end.annotations };
        while position.metrics < end.metrics || position.events < end.events {
            let Some(piece) = tail.piece(run, position)? else { break };
            position = piece.to;
            for entry in piece.entries.iter() {
                news.push(entry, seen);
            }
            if news.lines.len() > MOST_LINES {
                news.reload = true;
            }
            if news.reload {
                news.lines.clear();
                position.metrics = position.metrics.max(end.metrics);
            }
        }
        news.seen = position.into();
        Ok(news)
    }

    /// The run in listings, made once for all viewers that were told of the same change.
    pub(crate) fn summary(
        &self,
        run: &Path,
        version: u64,
        make: impl FnOnce() -> Option<Value>,
    ) -> Option<Value> {
        let tail = self.tail(run);
        let mut tail = lock(&tail);
        if let Some((known, summary)) = &tail.summary
            && *known >= version
        {
            return Some(summary.clone());
        }
        let summary = make()?;
        tail.summary = Some((version, summary.clone()));
        Some(summary)
    }

    fn tail(&self, run: &Path) -> Arc<Mutex<Tail>> {
        let mut tails = lock(&self.tails);
        let found = tails.iter().position(|(path, _)| path == run).map(|at| tails.remove(at));
        let entry = found.unwrap_or_else(|| (run.to_owned(), Arc::default()));
        let tail = Arc::clone(&entry.1);
        tails.push(entry);
        // The one that was not looked at for the longest time.
        if tails.len() > MOST_RUNS {
            tails.remove(0);
        }
        tail
    }
}

impl Tail {
    fn piece(&mut self, run: &Path, from: Position) -> Result<Option<Piece>, ApiError> {
        if let Some(known) = self.pieces.iter().find(|piece| piece.from == from) {
            return Ok(Some(known.clone()));
        }
        let mut to = from;
        let Some(entries) = read_from(run, &mut to)? else { return Ok(None) };
        let piece = Piece { from, to, entries: Arc::new(entries) };
        self.pieces.push_back(piece.clone());
        if self.pieces.len() > MOST_PIECES {
            self.pieces.pop_front();
        }
        Ok(Some(piece))
    }
}

impl News {
    fn push(&mut self, entry: &Entry, seen: Seen) {
        match entry {
            Entry::Event(event) => self.events.push(event.clone()),
            Entry::Cut { metrics_bytes, .. } => {
                self.reload |= *metrics_bytes < seen.metrics;
                self.lines.retain(|line| line.at < *metrics_bytes);
            }
            Entry::Line(line) => self.lines.push(line.clone()),
            Entry::Annotation(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn append(run: &Path, name: &str, text: &str) {
        let mut file = File::options().append(true).create(true).open(run.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn steps(run: &Path, steps: std::ops::Range<u64>) {
        let lines = steps.map(|step| format!("{{\"step\":{step},\"loss\":1.0}}\n"));
        append(run, "metrics.jsonl", &lines.collect::<String>());
    }

    fn opened(run: &Path, seq: u64, step: u64, metrics_bytes: u64) {
        let value = format!("{{\"uid\":\"00\",\"step\":{step},\"metrics_bytes\":{metrics_bytes}}}");
        let line = format!("{{\"seq\":{seq},\"unix_ms\":1,\"event\":\"opened\",\"value\":{value}}}\n");
        append(run, "events.jsonl", &line);
    }

    fn known(news: &News) -> Vec<u64> {
        news.lines.iter().map(|line| line.step).collect()
    }

    #[test]
    fn viewers_at_different_places_get_what_each_lacks_once() {
        let dir = tempfile::tempdir().unwrap();
        let (run, tails) = (dir.path(), Tails::default());
        opened(run, 0, 0, 0);
        steps(run, 0..5);
        let first = tails.since(run, Seen::default(), 1).unwrap();
        assert_eq!((known(&first), first.events.len(), first.reload), (vec![0, 1, 2, 3, 4], 1, false));
        steps(run, 5..7);
        append(run, "metrics.jsonl", "{\"step\":7");
        for _ in 0..2 {
            let second = tails.since(run, first.seen, 2).unwrap();
            assert_eq!((known(&second), second.events.len()), (vec![5, 6], 0));
            assert_eq!(known(&tails.since(run, second.seen, 2).unwrap()), Vec::<u64>::new());
        }
        assert_eq!(known(&tails.since(run, Seen::default(), 2).unwrap()).len(), 7);
    }

    #[test]
    fn what_was_taken_back_is_read_anew_by_those_who_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let (run, tails) = (dir.path(), Tails::default());
        opened(run, 0, 0, 0);
        steps(run, 0..3);
        let early = tails.since(run, Seen::default(), 1).unwrap().seen;
        steps(run, 3..6);
        let late = tails.since(run, early, 2).unwrap().seen;
        // A process takes the run up at step 2.
        File::options().write(true).open(run.join("metrics.jsonl")).unwrap().set_len(early.metrics).unwrap();
        opened(run, 1, 2, early.metrics);
        steps(run, 3..9);
        let told = tails.since(run, late, 3).unwrap();
        assert_eq!((told.reload, known(&told).len(), told.events.len()), (true, 0, 1));
        let told = tails.since(run, early, 3).unwrap();
        assert_eq!((told.reload, known(&told), told.events.len()), (false, vec![3, 4, 5, 6, 7, 8], 1));
    }

    #[test]
    fn a_viewer_far_behind_reads_anew_and_misses_no_event() {
        let dir = tempfile::tempdir().unwrap();
        let (run, tails) = (dir.path(), Tails::default());
        (0..5).for_each(|seq| {
            let line = format!("{{\"seq\":{seq},\"unix_ms\":1,\"event\":\"saved\"}}\n");
            append(run, "events.jsonl", &line);
        });
        steps(run, 0..100_000);
        let told = tails.since(run, Seen::default(), 1).unwrap();
        assert_eq!((told.reload, told.lines.len(), told.events.len()), (true, 0, 5));
        assert_eq!(told.seen, history::end_of(run).unwrap().into());
    }
}
