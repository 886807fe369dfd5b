//! Files with flipped bits and files that are too short.

use bytes::Bytes;
use phalanx_segments::{Durability, Note, OpenError, Record, Settings, Source, StoredValue, recover};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::TempDir;

type Files = BTreeMap<String, Vec<u8>>;

fn settings() -> Settings {
    Settings { durability: Durability::EveryWrite, segment_bytes: 400, ..Settings::default() }
}

/// In memory, since thousands of directories are made.
fn directory() -> TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir_in("/dev/shm").unwrap()
}

fn files(path: &Path) -> Files {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

/// Makes a directory hold these files, one of them changed.
fn write(path: &Path, files: &Files, changed: &str, bytes: &[u8]) {
    for (name, whole) in files {
        let wanted = if name == changed { bytes } else { whole };
        let path = path.join(name);
        if std::fs::read(&path).ok().is_none_or(|found| found != wanted) {
            std::fs::write(path, wanted).unwrap();
        }
    }
    let names =
        std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| !files.contains_key(name)) {
        std::fs::remove_file(path.join(name)).unwrap();
    }
}

/// One record as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Expected {
    in_snapshot: bool,
    body: Bytes,
    value: Option<Bytes>,
}

/// A directory with a snapshot, three journal segments and values; whole, and as a killed process leaves it.
fn small_journal() -> (Vec<Expected>, Files, Files) {
    let directory = directory();
    let path = directory.path().join("j");
    let journal = recover(&path, settings()).unwrap().start().unwrap();
    let (mut expected, mut kept) = (Vec::new(), Vec::new());
    let append = |number: u8, kept: &mut Vec<StoredValue>| {
        let body = Bytes::from(vec![number; usize::from(number) % 50]);
        let mut record = Record::new(number, [body.clone()]);
        let bytes = Bytes::from(vec![!number; 90]);
        if number.is_multiple_of(3) {
            kept.push(journal.value([bytes.clone()]));
            record = record.with_value(kept.last().unwrap().clone());
        }
        journal.append_and_wait(record.clone()).unwrap();
        (Expected { in_snapshot: false, body, value: number.is_multiple_of(3).then_some(bytes) }, record)
    };
    let mut table = Vec::new();
    for number in 1..5 {
        let (record, appended) = append(number, &mut kept);
        expected.push(Expected { in_snapshot: true, ..record });
        table.push(appended);
    }
    journal.begin_snapshot().unwrap().write(table).unwrap();
    expected.extend((5..22).map(|number| append(number, &mut kept).0));
    let killed = files(&path);
    drop(journal);
    (expected, files(&path), killed)
}

/// What a directory yields.
#[derive(Debug)]
enum Outcome {
    /// Recovery failed, and the error names a place.
    Found,
    /// A value could not be read; everything else is there.
    ValueFound,
    /// These many records, all as they were appended, and bytes that were cut off.
    Read { records: usize, cut: u64 },
}

fn outcome(path: &Path, expected: &[Expected]) -> Outcome {
    let mut recovery = match recover(path, settings()) {
        Ok(recovery) => recovery,
        Err(OpenError::Damaged { .. } | OpenError::NoValue { .. } | OpenError::Missing { .. }) => {
            return Outcome::Found;
        }
        Err(other) => panic!("{other:?}"),
    };
    let mut records = 0;
    let mut value_found = false;
    loop {
        match recovery.next_record() {
            Ok(None) => break,
            Ok(Some(record)) => {
                let expected = &expected[records];
                assert_eq!(record.body, expected.body);
                assert_eq!(matches!(record.source, Source::Snapshot), expected.in_snapshot);
                assert_eq!(record.values.len(), usize::from(expected.value.is_some()));
                let mapped = record.values.first().map(|value| value.map().ok());
                assert_eq!(
                    mapped,
                    record.values.first().map(|value| value.read().ok()),
                    "a map is verified, too"
                );
                match (record.values.first().map(StoredValue::read), &expected.value) {
                    (Some(Ok(value)), Some(expected)) => assert_eq!(value, expected),
                    (Some(Err(_)), Some(_)) => value_found = true,
                    _ => {}
                }
                records += 1;
            }
            Err(OpenError::Damaged { .. } | OpenError::NoValue { .. }) => return Outcome::Found,
            Err(other) => panic!("{other:?}"),
        }
    }
    if value_found {
        return Outcome::ValueFound;
    }
    let cut = recovery.notes().iter().map(|note| match note {
        Note::TornTail { bytes, .. } | Note::SegmentBehindTornTail { bytes, .. } => *bytes,
        Note::UnfinishedFile { .. } | Note::CoveredFile { .. } => 1,
    });
    Outcome::Read { records, cut: cut.sum() }
}

#[test]
fn the_small_journal_is_read_whole() {
    let (expected, closed, killed) = small_journal();
    for files in [closed, killed] {
        assert!(files.len() >= 6, "a lock, a snapshot, segments of journal and values: {:?}", files.keys());
        let directory = directory();
        write(directory.path(), &files, "", &[]);
        let outcome = outcome(directory.path(), &expected);
        assert!(matches!(outcome, Outcome::Read { records: 21, cut: 0 }), "{outcome:?}");
    }
}

#[test]
fn every_flipped_bit_is_found_or_harmless() {
    let (expected, closed, killed) = small_journal();
    let directory = directory();
    let path = directory.path();
    let mut counts = [0_u32; 4];
    for (files, is_closed) in [(closed, true), (killed, false)] {
        for (name, whole) in files.iter().filter(|(name, _)| *name != "lock") {
            for bit in 0..whole.len() * 8 {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                write(path, &files, name, &bytes);
                let place = format!("{name} bit {bit} of {}", whole.len() * 8);
                match outcome(path, &expected) {
                    Outcome::Found => counts[0] += 1,
                    Outcome::ValueFound => {
                        assert!(name.starts_with("values-"), "{place}");
                        counts[1] += 1;
                    }
                    // Space between values, or the barrier that was written at the end.
                    Outcome::Read { records: 21, .. } => counts[2] += 1,
                    Outcome::Read { records, cut } => {
                        assert!(!is_closed, "{place}: {records} records");
                        assert!(cut > 0, "{place}: {records} records, and nothing was said");
                        counts[3] += 1;
                    }
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn every_shorter_file_is_found_or_a_shorter_journal() {
    let (expected, closed, killed) = small_journal();
    let directory = directory();
    let path = directory.path();
    let mut prefixes = 0;
    for files in [closed, killed] {
        let last_journal = files.keys().filter(|name| name.starts_with("journal-")).max().unwrap();
        for (name, whole) in files.iter().filter(|(name, _)| *name != "lock") {
            for len in 0..whole.len() {
                write(path, &files, name, &whole[..len]);
                match outcome(path, &expected) {
                    Outcome::Found | Outcome::ValueFound => assert_ne!(name, last_journal, "cut at {len}"),
                    Outcome::Read { records: 21, .. } => {}
                    Outcome::Read { records, .. } => {
                        prefixes += 1;
                        let torn_value = name.starts_with("values-");
                        assert!(name == last_journal || torn_value, "{name} cut at {len}: {records}");
                    }
                }
            }
        }
    }
    assert!(prefixes > 0);
}

#[test]
fn a_record_whose_value_did_not_reach_the_disk_is_cut_off() {
    let (expected, closed, killed) = small_journal();
    let directory = directory();
    let path = directory.path();
    let last_values = killed.keys().filter(|name| name.starts_with("values-")).max().unwrap();
    let mut bytes = killed[last_values].clone();
    // As a machine that lost power leaves it: the length is there, the bytes are not.
    let at = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[at - 89..].fill(0);
    write(path, &killed, last_values, &bytes);
    let killed_outcome = outcome(path, &expected);
    assert!(matches!(killed_outcome, Outcome::Read { records: 20, cut } if cut > 0), "{killed_outcome:?}");
    // After the journal said that all is on disk the same is damage.
    write(path, &closed, last_values, &bytes);
    assert!(matches!(outcome(path, &expected), Outcome::ValueFound));
}

#[test]
fn missing_and_foreign_files_are_found() {
    let (expected, closed, _) = small_journal();
    let directory = directory();
    let path = directory.path();
    let journals: Vec<_> = closed.keys().filter(|name| name.starts_with("journal-")).collect();
    assert!(journals.len() >= 3);
    for name in &journals[..journals.len() - 1] {
        let mut files = closed.clone();
        files.remove(*name);
        write(path, &files, "", &[]);
        assert!(matches!(outcome(path, &expected), Outcome::Found), "{name}");
    }
    // Files that were swapped, or came from elsewhere.
    write(path, &closed, journals[0], &closed[journals[1]]);
    assert!(matches!(outcome(path, &expected), Outcome::Found));
    write(path, &closed, journals[0], "my notes".repeat(20).as_bytes());
    assert!(matches!(outcome(path, &expected), Outcome::Found));
}
