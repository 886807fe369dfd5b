//! A search on disk: `searches/<id>/`. Its events are the truth; everything else there can be made again from them.

use crate::error::SearchError;
use phalanx_ledger::{Feeder, FeederHandle};
use phalanx_records::run_dir::RunLock;
use phalanx_search::core::record::{SearchRecord, TrialId};
use phalanx_search_results::{EventLine, EventReader, SearchAbout, about::ABOUT_FILE, events::EVENTS_FILE};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub use phalanx_search_results::about::SEARCH_FILE;

/// Tables, plots and models.
pub const RESULTS: &str = "results";
const TRIALS: &str = "trials";

/// The directory of a search, which this process alone writes.
#[derive(Debug)]
pub struct SearchDir {
    path: PathBuf,
    events: File,
    feeder: Option<FeederHandle>,
    _lock: RunLock,
}

impl Drop for SearchDir {
    /// Lets the ledger learn of the last records.
    fn drop(&mut self) {
        if let Some(feeder) = &self.feeder {
            feeder.finish();
        }
    }
}

impl SearchDir {
    /// Makes the directory of a new search.
    ///
    /// # Errors
    /// There is a search already, or the directory cannot be written.
    pub fn create(path: &Path, text: &str, about: &SearchAbout) -> Result<Self, SearchError> {
        if is_search(path) {
            return Err(SearchError::Exists { path: path.to_owned() });
        }
        let trials = path.join(TRIALS);
        std::fs::create_dir_all(&trials).map_err(io("make", &trials))?;
        let lock = RunLock::take(path)?;
        about.write(path)?;
        // Last: a directory with a search file is a whole one.
        write_whole(&path.join(SEARCH_FILE), text.as_bytes())?;
        let events = open_events(path)?;
        Ok(Self { path: path.to_owned(), events, feeder: feeder(path), _lock: lock })
    }

    /// Opens the directory of a search to go on with it, and reads what was recorded. A last line that a killed process
    /// did not finish is removed.
    ///
    /// # Errors
    /// There is no search, another process has it, or its records are damaged.
    pub fn open(path: &Path) -> Result<(Self, Vec<EventLine>), SearchError> {
        if !is_search(path) {
            return Err(SearchError::NoSearch { path: path.to_owned() });
        }
        let lock = RunLock::take(path)?;
        let events = open_events(path)?;
        let file = path.join(EVENTS_FILE);
        let whole = whole_lines(&file).map_err(io("read", &file))?;
        events.set_len(whole).map_err(io("write", &file))?;
        let mut reader = EventReader::new(&file);
        let mut lines = Vec::new();
        loop {
            let new = reader.read_new()?;
            if new.is_empty() {
                break;
            }
            lines.extend(new);
        }
        Ok((Self { path: path.to_owned(), events, feeder: feeder(path), _lock: lock }, lines))
    }

    /// Says anew what the search is told, for one that goes further than it was to go.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn rewrite(&self, about: &SearchAbout) -> Result<(), SearchError> {
        Ok(about.write(&self.path)?)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes records down, lasting when this returns.
    ///
    /// # Errors
    /// They cannot be written; then the search must not go on.
    pub fn record(&mut self, records: &[SearchRecord]) -> Result<Vec<EventLine>, SearchError> {
        let at = unix_ms();
        let lines: Vec<EventLine> =
            records.iter().map(|record| EventLine { at, record: record.clone() }).collect();
        let path = self.path.join(EVENTS_FILE);
        let mut bytes = Vec::new();
        for line in &lines {
            let written = serde_json::to_writer(&mut bytes, line);
            written.map_err(|source| SearchError::Json { path: path.clone(), source })?;
            bytes.push(b'\n');
        }
        self.events.write_all(&bytes).and_then(|()| self.events.sync_data()).map_err(io("write", &path))?;
        self.feeder.iter().for_each(FeederHandle::wake);
        Ok(lines)
    }

    /// The run directory of a trial.
    pub fn trial(&self, trial: TrialId) -> PathBuf {
        trial_path(&self.path, trial)
    }
}

/// Feeds a search into the ledger that it belongs to, as it has recorded and will record.
fn feeder(path: &Path) -> Option<FeederHandle> {
    let feeder = Feeder::of_search(path);
    feeder.iter().for_each(FeederHandle::wake);
    feeder
}

/// The run directory of a trial of the search in `search`.
pub fn trial_path(search: &Path, trial: TrialId) -> PathBuf {
    search.join(TRIALS).join(trial.to_string())
}

/// Whether there is a search in a directory.
pub fn is_search(path: &Path) -> bool {
    path.join(SEARCH_FILE).is_file() && path.join(ABOUT_FILE).is_file()
}

/// The searches in a directory of searches, the newest last.
pub fn list_searches(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<(SystemTime, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter(|path| is_search(path))
        .map(|path| {
            let made = path.join(ABOUT_FILE).metadata().and_then(|file| file.modified());
            (made.unwrap_or(UNIX_EPOCH), path)
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The length of a file up to the end of its last whole line.
fn whole_lines(path: &Path) -> std::io::Result<u64> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1))
}

fn open_events(path: &Path) -> Result<File, SearchError> {
    let path = path.join(EVENTS_FILE);
    let mut options = File::options();
    options.read(true).append(true).create(true);
    options.open(&path).map_err(io("open", &path))
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SearchError> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(io("write", path))
}

/// Adds the operation and the file to an IO error.
pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SearchError {
    let path = path.to_owned();
    move |source| SearchError::Io { what, path, source }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
