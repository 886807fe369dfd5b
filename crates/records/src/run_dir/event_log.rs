//! `events.jsonl`: what happened to a run, append-only, so that a reader can follow it and never sees a line change.
//!
//! Readers of metrics rely on one order. When metrics are cut, `metrics.jsonl` is cut first; then an `opened` event says
//! to which length; then new lines follow. A reader that reads metrics before events thus learns about a cut before it
//! takes a new line for an old one.

use super::error::{RunDirError, io};
use super::state::RunState;
use crate::events::{Event, Opening};
use crate::params_hash::{hex, sha256};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Events of a run, a line each.
pub const EVENTS: &str = "events.jsonl";

/// Bytes of a run's identity.
const UID_BYTES: usize = 16;

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The log, open for writing. Only the process that holds the run directory's lock has it.
#[derive(Debug)]
pub(crate) struct EventLog {
    path: PathBuf,
    file: File,
    uid: String,
    /// The number of the next event.
    seq: u64,
    /// Reused for every line.
    line: Vec<u8>,
    /// Whether a failure to write was reported: one warning is enough.
    failed: bool,
}

#[derive(Serialize)]
struct Written<'a> {
    seq: u64,
    unix_ms: u64,
    #[serde(flatten)]
    event: &'a Event,
}

impl EventLog {
    /// Opens the log of a run. A last line that a killed process did not finish is removed.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(crate) fn open(run: &Path) -> Result<Self, RunDirError> {
        let path = run.join(EVENTS);
        let mut options = File::options();
        options.read(true).append(true).create(true);
        let mut file = options.open(&path).map_err(io("open", &path))?;
        let len = whole_lines(&mut file).map_err(io("read", &path))?;
        file.set_len(len).map_err(io("write", &path))?;
        let seq = next_seq(&path).map_err(io("read", &path))?;
        Ok(Self { uid: uid(run)?, path, file, seq, line: Vec::new(), failed: false })
    }

    /// How this process opens the run.
    pub(crate) fn opening(&self, step: u64, metrics_bytes: u64) -> Opening {
        Opening {
            uid: self.uid.clone(),
            step,
            metrics_bytes,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// # Errors
    /// It cannot be written; then nothing of it is there.
    pub(crate) fn write(&mut self, unix_ms: u64, event: &Event) -> Result<(), RunDirError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, &Written { seq: self.seq, unix_ms, event })
            .map_err(|source| RunDirError::Json { path: self.path.clone(), source })?;
        self.line.push(b'\n');
        let before = self.file.metadata().map_err(io("read", &self.path))?.len();
        if let Err(error) = self.file.write_all(&self.line) {
            // The disk may have taken a part, which would spoil the next line.
            let _cut = self.file.set_len(before);
            return Err(io("write", &self.path)(error));
        }
        self.seq += 1;
        Ok(())
    }

    /// The same for events without which the run is still understood: a failure is a warning.
    pub(crate) fn write_if_possible(&mut self, unix_ms: u64, event: &Event) {
        if let Err(error) = self.write(unix_ms, event)
            && !std::mem::replace(&mut self.failed, true)
        {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "an event of the run is not recorded");
        }
    }
}

/// The length of a file up to the end of its last whole line.
fn whole_lines(file: &mut File) -> std::io::Result<u64> {
    const BLOCK: u64 = 4096;
    let mut end = file.seek(SeekFrom::End(0))?;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(begin))?;
        let mut block = Vec::new();
        (&mut *file).take(end - begin).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + at as u64 + 1);
        }
        end = begin;
    }
    Ok(0)
}

fn next_seq(path: &Path) -> std::io::Result<u64> {
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    let last = super::last::last_line(path, |line| serde_json::from_str::<Numbered>(line).ok());
    match last {
        Some(last) => Ok(last.seq + 1),
        // All lines are damaged, or there is none.
        None => Ok(BufReader::new(File::open(path)?).split(b'\n').count() as u64),
    }
}

/// The identity of a run: as its events say, or made from its name and start for a run that is older than `events.jsonl`.
///
/// # Errors
/// There is no run, or its files cannot be read.
pub fn run_uid(run: &Path) -> Result<String, RunDirError> {
    match logged_uid(run)? {
        Some(uid) => Ok(uid),
        None => Ok(uid_of_older_run(run, &RunState::read(run)?)),
    }
}

/// The same; a new one for a new run.
fn uid(run: &Path) -> Result<String, RunDirError> {
    if let Some(uid) = logged_uid(run)? {
        return Ok(uid);
    }
    if let Ok(state) = RunState::read(run) {
        return Ok(uid_of_older_run(run, &state));
    }
    let mut bytes = [0; UID_BYTES];
    let path = run.join(EVENTS);
    let no_entropy = |_error| io("make an identity for", &path)(std::io::Error::other("no random bytes"));
    SystemRandom::new().fill(&mut bytes).map_err(no_entropy)?;
    Ok(hex(&bytes))
}

fn uid_of_older_run(run: &Path, state: &RunState) -> String {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    sha256(format!("{name}\n{}", state.started).as_bytes()).chars().take(2 * UID_BYTES).collect()
}

/// The identity in the first `opened` event that can be read.
fn logged_uid(run: &Path) -> Result<Option<String>, RunDirError> {
    #[derive(Deserialize)]
    struct Line {
        value: Opened,
    }
    #[derive(Deserialize)]
    struct Opened {
        uid: String,
    }
    let path = run.join(EVENTS);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("read", &path)(error)),
    };
    let is_uid =
        |uid: &String| uid.len() == 2 * UID_BYTES && uid.bytes().all(|digit| digit.is_ascii_hexdigit());
    let uid_in = |line: Vec<u8>| {
        let line: Line = serde_json::from_slice(&line).ok()?;
        Some(line.value.uid).filter(is_uid)
    };
    Ok(BufReader::new(file).split(b'\n').map_while(Result::ok).find_map(uid_in))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn lines(run: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(run.join(EVENTS)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_log_goes_on_after_a_kill_with_the_same_identity_and_the_next_number() {
        let tmp = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(tmp.path()).unwrap();
        let opening = log.opening(0, 0);
        log.write(1, &Event::Opened(opening.clone())).unwrap();
        log.write(2, &Event::Note("a".to_owned())).unwrap();
        drop(log);
        // Killed in the middle of a line that is longer than a block.
        let half = format!("{{\"seq\":2,\"text\":\"{}", "x".repeat(10_000));
        let mut file = File::options().append(true).open(tmp.path().join(EVENTS)).unwrap();
        file.write_all(half.as_bytes()).unwrap();
        let mut log = EventLog::open(tmp.path()).unwrap();
        assert_eq!(log.opening(5, 70).uid, opening.uid);
        log.write(3, &Event::Opened(log.opening(5, 70))).unwrap();
        let lines = lines(tmp.path());
        let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!((&lines[2]["event"], &lines[2]["value"]["metrics_bytes"]), (&"opened".into(), &70.into()));
        assert_eq!(run_uid(tmp.path()).unwrap(), opening.uid);
    }

    #[test]
    fn two_runs_have_two_identities_and_no_run_has_none() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let uid = |dir: &tempfile::TempDir| EventLog::open(dir.path()).unwrap().uid;
        assert_ne!(uid(&one), uid(&two));
        assert!(run_uid(&one.path().join("none")).is_err());
    }
}
