//! What a journal promises while nothing goes wrong, and when it is used wrongly.

use crate::table::small_settings;
use bytes::Bytes;
use phalanx_segments::{
    AppendError, Durability, Journal, OpenError, Record, Settings, SnapshotError, Source, StoredValue,
    recover,
};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);

fn open(path: &Path) -> (Vec<(u8, Bytes)>, Vec<StoredValue>, Journal) {
    open_with(path, small_settings(Durability::EveryWrite))
}

fn open_with(path: &Path, settings: Settings) -> (Vec<(u8, Bytes)>, Vec<StoredValue>, Journal) {
    let mut recovery = recover(path, settings).unwrap();
    let (mut records, mut values) = (Vec::new(), Vec::new());
    while let Some(record) = recovery.next_record().unwrap() {
        records.push((record.kind, record.body));
        values.extend(record.values);
    }
    (records, values, recovery.start().unwrap())
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn records_come_back_in_order_with_their_parts_joined() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j");
    for durability in [Durability::EveryWrite, Durability::EverySecond, Durability::Never] {
        let (before, _, journal) = open_with(&path, small_settings(durability));
        let position = journal.append_and_wait(Record::new(7, ["a".into(), "".into(), "bc".into()])).unwrap();
        assert!(position < journal.append_and_wait(Record::new(8, [])).unwrap());
        drop(journal);
        let (records, _, _) = open(&path);
        assert_eq!(records[..before.len()], before);
        assert_eq!(records[before.len()..], [(7, "abc".into()), (8, "".into())]);
    }
}

#[test]
fn acknowledgements_come_in_order_and_share_flushes() {
    let directory = tempfile::tempdir().unwrap();
    let (_, _, journal) = open(&directory.path().join("j"));
    let (reply, replies) = channel();
    for number in 0..2000_u32 {
        let reply = reply.clone();
        let record = Record::new(1, [number.to_le_bytes().to_vec().into()]);
        journal.append(record, Box::new(move |done| reply.send((number, done.unwrap())).unwrap())).unwrap();
    }
    let done: Vec<_> = (0..2000).map(|_| replies.recv_timeout(DEADLINE).unwrap()).collect();
    assert!(done.is_sorted() && done.iter().map(|(number, _)| *number).eq(0..2000));
    assert_eq!(journal.status().synced.segment, done[1999].1.segment);
    assert!(journal.status().synced > done[1999].1);
}

#[test]
fn a_value_is_written_once_and_read_when_it_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j");
    let (_, _, journal) = open(&path);
    let value = journal.value([Bytes::from(vec![1; 100_000]), Bytes::from(vec![2; 100_000])]);
    assert!(!value.is_stored() && value.reference().is_none());
    assert_eq!(value.read().unwrap().len(), 200_000);
    for kind in 0..10 {
        journal.append_and_wait(Record::new(kind, ["head".into()]).with_value(value.clone())).unwrap();
    }
    assert!(value.is_stored());
    assert_eq!(journal.status().value_bytes, 200_000);
    assert!(journal.status().value_file_bytes < 201_000 && journal.status().journal_bytes < 2_000);
    drop((value, journal));
    let (records, values, journal) = open(&path);
    assert_eq!((records.len(), values.len()), (10, 10));
    assert_eq!(journal.status().value_bytes, 200_000, "all records have the same value");
    let expected: Vec<u8> = [vec![1; 100_000], vec![2; 100_000]].concat();
    assert!(values.iter().all(|value| value.read().unwrap() == expected && value.map().unwrap() == expected));
    drop(values);
    assert_eq!(journal.status().value_bytes, 0);
}

#[test]
fn snapshots_replace_the_journal_and_free_unused_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j");
    let (_, _, journal) = open(&path);
    let mut kept = None;
    for _ in 0..20 {
        let value = journal.value([Bytes::from(vec![3; 100_000])]);
        journal.append_and_wait(Record::new(1, []).with_value(value.clone())).unwrap();
        kept = Some(value);
    }
    let status = journal.status();
    assert!(status.reclaimable_bytes > 1_000_000, "{status:?}");
    let pending = journal.begin_snapshot().unwrap();
    assert!(matches!(journal.begin_snapshot(), Err(SnapshotError::Running)));
    // The journal goes on while the snapshot is written.
    journal.append_and_wait(Record::new(2, ["later".into()])).unwrap();
    let table = Record::new(9, ["table".into()]).with_value(kept.clone().unwrap());
    let report = pending.write([table]).unwrap();
    assert!(report.records == 1 && report.bytes < 1_000 && report.freed_bytes > 1_000_000, "{report:?}");
    let status = journal.status();
    assert!(status.value_file_bytes < 600_000 && status.journal_bytes < 200, "{status:?}");
    assert_eq!(status.value_bytes, 100_032);
    drop((kept, journal));
    let mut recovery = recover(&path, small_settings(Durability::EveryWrite)).unwrap();
    let records: Vec<_> = recovery.by_ref().map(Result::unwrap).collect();
    assert_eq!(
        records.iter().map(|r| (r.kind, &r.body[..])).collect::<Vec<_>>(),
        [(9, &b"table"[..]), (2, &b"later"[..])]
    );
    assert!(matches!((records[0].source, records[1].source), (Source::Snapshot, Source::Journal(_))));
    assert_eq!(records[0].values[0].read().unwrap(), vec![3; 100_000]);
    assert_eq!(recovery.notes(), []);
}

#[test]
fn a_value_outlives_its_segment_while_it_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let (_, _, journal) = open(&directory.path().join("j"));
    let put = |byte: u8| {
        let value = journal.value([Bytes::from(vec![byte; 60_000])]);
        journal.append_and_wait(Record::new(1, []).with_value(value.clone())).unwrap();
        value
    };
    let mut values: Vec<_> = (0..20).map(put).collect();
    let mapped = values[0].map().unwrap();
    let at_first = values[0].reference().unwrap();
    // Only the first value of the first segment is kept, so it moves.
    values.drain(1..10);
    journal.compact().unwrap();
    let moved = values[0].reference().unwrap();
    assert_ne!(moved.segment, at_first.segment);
    let report = journal.begin_snapshot().unwrap().write([]).unwrap();
    assert!(report.freed_bytes > 200_000, "{report:?}");
    assert!(mapped.iter().all(|byte| *byte == 0) && values[0].read().unwrap() == mapped);
}

#[test]
fn appends_behind_the_bound_are_rejected_or_wait() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { queue_bytes: 100_000, ..small_settings(Durability::EveryWrite) };
    let (_, _, journal) = open_with(&directory.path().join("j"), settings);
    let (reply, replies) = channel();
    let (release, released) = channel::<()>();
    // The first completion holds the writer up, so everything behind it waits.
    let hold = Box::new(move |_| released.recv_timeout(DEADLINE).unwrap());
    journal.append(Record::new(0, [vec![0; 60_000].into()]), hold).unwrap();
    let record = || Record::new(1, [vec![1; 60_000].into()]);
    let rejected = journal.try_append(record(), Box::new(|_| panic!("it was rejected"))).unwrap_err();
    assert!(matches!(rejected.reason, AppendError::QueueFull { limit: 100_000, .. }), "{rejected:?}");
    assert_eq!(rejected.record.parts[0].len(), 60_000);
    std::thread::scope(|scope| {
        let journal = &journal;
        scope.spawn(move || {
            journal.append(record(), Box::new(move |done| reply.send(done.is_ok()).unwrap())).unwrap();
        });
        release.send(()).unwrap();
        assert!(replies.recv_timeout(DEADLINE).unwrap());
    });
    // A record that is larger than the bound goes alone.
    journal.append_and_wait(Record::new(2, [vec![2; 1_000_000].into()])).unwrap();
}

#[test]
fn a_directory_belongs_to_one_process_and_one_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j");
    let (_, _, journal) = open(&path);
    let value = journal.value([Bytes::from_static(b"value")]);
    journal.append_and_wait(Record::new(1, []).with_value(value.clone())).unwrap();
    journal.begin_snapshot().unwrap().write([]).unwrap();
    let settings = || small_settings(Durability::EveryWrite);
    assert!(matches!(recover(&path, settings()), Err(OpenError::InUse { .. })));
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(files.len() >= 4 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    drop(journal);
    // A value that is still held does not hold the directory.
    drop(open(&path));
    assert_eq!(value.read().unwrap(), "value");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(recover(&path, settings()), Err(OpenError::NotPrivate { mode: 0o755, .. })));
}

#[test]
fn links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let settings = || small_settings(Durability::EveryWrite);
    let target = directory.path().join("target");
    std::fs::write(&target, "precious").unwrap();
    for name in ["journal-0000000000000001.seg", "values-0000000000000001.seg", "snapshot.part", "lock"] {
        let path = directory.path().join("j");
        drop(recover(&path, settings()).unwrap());
        std::fs::remove_file(path.join("lock")).unwrap();
        symlink(&target, path.join(name)).unwrap();
        let error = recover(&path, settings()).unwrap_err();
        assert!(matches!(error, OpenError::NotAFile { .. }), "{name}: {error:?}");
        std::fs::remove_dir_all(&path).unwrap();
    }
    let linked = directory.path().join("linked");
    symlink(directory.path(), &linked).unwrap();
    assert!(matches!(recover(&linked, settings()), Err(OpenError::Io { .. })));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn writing_begins_only_after_everything_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("j");
    open(&path).2.append_and_wait(Record::new(1, [])).unwrap();
    let recovery = recover(&path, Settings::default()).unwrap();
    assert!(matches!(recovery.start(), Err(OpenError::Unread)));
    assert_eq!(open(&path).0.len(), 1);
}

#[test]
fn segments_that_are_full_of_tiny_values_are_not_compacted_again_and_again() {
    for compact_percent in [50, 100, 1000] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let settings = Settings { segment_bytes: 128, compact_percent, ..small_settings(Durability::Never) };
        let (_, _, journal) = open_with(&directory.path().join("j"), settings);
        let put = |byte: u8| {
            let value = journal.value([Bytes::from(vec![byte; usize::from(byte) % 3])]);
            journal.append_and_wait(Record::new(1, []).with_value(value.clone())).unwrap();
            value
        };
        let values: Vec<_> = (0..200).map(put).collect();
        let places = || values.iter().map(|value| value.reference().unwrap()).collect::<Vec<_>>();
        let before = places();
        // Everything is used, so there is nothing to gain.
        let (reply, compacted) = channel();
        std::thread::spawn(move || reply.send(journal.compact().unwrap()).unwrap());
        assert_eq!(compacted.recv_timeout(DEADLINE), Ok(0), "at {compact_percent} %");
        assert_eq!(places(), before);
    }
}
