//! TensorBoard's event files beside a run, in `tensorboard/`: every process that trains the run writes one file.
//!
//! ```text
//!   record = length u64, masked crc32c of it, data, masked crc32c of that; all little endian
//!   data   = Event (protobuf): 1 wall_time f64, 2 step i64, 3 file_version, 5 summary, 7 session_log
//! ```
//! Steps that take less than a few milliseconds are written together, so that a step does not pay a call of the system for
//! what readers look at every few seconds.
//! A run that goes on from a checkpoint tells readers by a `SessionLog` with status `START`: they drop what earlier
//! files have from that step on.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The directory of the event files, below the run directory.
pub const TENSORBOARD: &str = "tensorboard";
const PREFIX: &str = "events.out.tfevents.";
const FILE_VERSION: &str = "brain.Event:2";
/// `SessionLog.status`: training starts, at the step of the event.
const SESSION_START: u64 = 1;
/// How long an event may wait for the next ones, and how many bytes of them.
const GATHER: Duration = Duration::from_millis(250);
const MOST_GATHERED: usize = 64 << 10;
/// Longer names of hosts are cut, so that names of files stay short.
const HOST_CHARS: usize = 64;

/// An event file that is being written.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: File,
    /// Reused for every event.
    event: Vec<u8>,
    /// Whole records that are not in the file yet.
    gathered: Vec<u8>,
    /// When the file was written last.
    written: Instant,
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        // There is no use for it any more that could fail.
        let _written = self.flush();
    }
}

impl TensorBoard {
    /// Begins a new event file of the run in `run`. The first step that it will have is `first`: what earlier files
    /// have from there on does not count any more.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(run: &Path, first: u64) -> io::Result<Self> {
        let dir = run.join(TENSORBOARD);
        std::fs::create_dir_all(&dir)?;
        let (path, is_first) = new_file(&dir)?;
        let file = File::options().write(true).create_new(true).open(&path)?;
        let mut events =
            Self { path, file, event: Vec::new(), gathered: Vec::new(), written: Instant::now() };
        events.event.clear();
        put_wall_time(&mut events.event);
        put_bytes(&mut events.event, 3, FILE_VERSION.as_bytes());
        events.append();
        events.flush()?;
        if !is_first {
            events.restart(first)?;
        }
        Ok(events)
    }

    /// Steps from `first` on come again: readers drop those they have.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn restart(&mut self, first: u64) -> io::Result<()> {
        self.event.clear();
        put_wall_time(&mut self.event);
        put_number(&mut self.event, 2, first);
        let mut log = Vec::new();
        put_number(&mut log, 1, SESSION_START);
        put_bytes(&mut self.event, 7, &log);
        self.append();
        self.flush()
    }

    /// Writes scalars of a step as one event: at once, or soon, together with the next ones.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn scalars<'a>(
        &mut self,
        step: u64,
        values: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> io::Result<()> {
        let (mut summary, mut value) = (Vec::new(), Vec::new());
        for (tag, scalar) in values {
            value.clear();
            put_bytes(&mut value, 1, tag.as_bytes());
            // A field of four bytes: `simple_value`.
            put_varint(&mut value, 2 << 3 | 5);
            value.extend_from_slice(&(scalar as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &value);
        }
        self.event.clear();
        put_wall_time(&mut self.event);
        put_number(&mut self.event, 2, step);
        put_bytes(&mut self.event, 5, &summary);
        self.append();
        if self.gathered.len() > MOST_GATHERED || self.written.elapsed() > GATHER {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what still waits. A reader sees whole records unless the process is killed in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.written = Instant::now();
        let gathered = std::mem::take(&mut self.gathered);
        self.file.write_all(&gathered)?;
        self.gathered = gathered;
        self.gathered.clear();
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a record of the event.
    fn append(&mut self) {
        let length = (self.event.len() as u64).to_le_bytes();
        self.gathered.extend_from_slice(&length);
        self.gathered.extend_from_slice(&masked_crc32c(&length).to_le_bytes());
        self.gathered.extend_from_slice(&self.event);
        self.gathered.extend_from_slice(&masked_crc32c(&self.event).to_le_bytes());
    }
}

/// The path of a new event file, which sorts after all others (readers go by that), and whether it is the first.
fn new_file(dir: &Path) -> io::Result<(PathBuf, bool)> {
    let mut newest: Option<u64> = None;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let seconds =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok());
        newest = newest.max(seconds);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = newest.map_or(now, |newest| now.max(newest.saturating_add(1)));
    let name = format!("{PREFIX}{seconds:010}.{}.{}.0", host(), std::process::id());
    Ok((dir.join(name), newest.is_none()))
}

/// The name of this host, as a part of a file's name.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name: String = name.trim().chars().filter(plain).take(HOST_CHARS).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

fn put_wall_time(event: &mut Vec<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A field of eight bytes.
    put_varint(event, 1 << 3 | 1);
    event.extend_from_slice(&now.as_secs_f64().to_le_bytes());
}

fn put_number(message: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(message, field << 3);
    put_varint(message, value);
}

fn put_bytes(message: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(message, field << 3 | 2);
    put_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

fn put_varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

const CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| crc >> 8 ^ CRC32C[(crc as u8 ^ byte) as usize])
}

/// The checksum as these files have it: a checksum of data that holds checksums would be weak.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of the records of a file, checked.
    fn records(path: &Path) -> Vec<Vec<u8>> {
        let bytes = std::fs::read(path).unwrap();
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
            let crc = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(crc(at + 8), masked_crc32c(&bytes[at..at + 8]));
            let data = &bytes[at + 12..at + 12 + length];
            assert_eq!(crc(at + 12 + length), masked_crc32c(data));
            found.push(data.to_vec());
            at += 16 + length;
        }
        found
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_scalar_is_an_event_of_the_known_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let mut events = TensorBoard::begin(dir.path(), 1).unwrap();
        events.scalars(300, [("loss", 0.5)]).unwrap();
        events.flush().unwrap();
        let records = records(events.path());
        assert_eq!(records.len(), 2, "the version and the step");
        assert_eq!(&records[0][9..], b"\x1a\x0dbrain.Event:2");
        // Step 300, a summary of one value: its tag, and 0.5 as four bytes.
        assert_eq!(&records[1][9..], b"\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f");
    }

    #[test]
    fn a_later_file_sorts_after_the_earlier_and_says_where_it_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> =
            (0..3).map(|life| TensorBoard::begin(dir.path(), life * 10 + 1).unwrap().path.clone()).collect();
        assert!(paths.is_sorted() && paths[0] < paths[1], "{paths:?}");
        assert_eq!(records(&paths[0]).len(), 1);
        let last = records(&paths[2]);
        assert_eq!(&last[1][9..], b"\x10\x15\x3a\x02\x08\x01", "step 21, a session that starts");
    }

    #[test]
    fn fast_steps_are_written_together_and_nothing_stays_behind() {
        let dir = tempfile::tempdir().unwrap();
        let mut events = TensorBoard::begin(dir.path(), 1).unwrap();
        let path = events.path().to_owned();
        let steps = |events: &mut TensorBoard, steps: std::ops::Range<u64>| {
            steps.for_each(|step| events.scalars(step, [("loss", 0.5)]).unwrap());
            records(&path).len() - 1
        };
        assert!(steps(&mut events, 0..3000) > 0, "more than is gathered");
        events.written = Instant::now().checked_sub(GATHER * 2).unwrap();
        assert_eq!(steps(&mut events, 3000..3001), 3001, "a step after a while brings all of them");
        steps(&mut events, 3001..3003);
        drop(events);
        assert_eq!(records(&path).len() - 1, 3003);
    }
}
