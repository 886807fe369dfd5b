//! A disk that is full.

use crate::table::{Lengths, Table, small_settings};
use phalanx_segments::{AppendError, Durability, Journal, Spill, SpillError, SpillSettings, recover};
use phalanx_types::Class;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Values fill the disk, or records do: then it is the journal that cannot be written.
const LENGTHS: [Lengths; 2] =
    [Lengths { small: 2_000, large: 100_000 }, Lengths { small: 100_000, large: 0 }];

/// A file system of a few MiB, unmounted at the end.
struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        let mounted =
            mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).status().unwrap();
        assert!(mounted.success(), "tests mount file systems and need root");
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A file that takes this many bytes.
    fn fill(&self, bytes: usize) -> PathBuf {
        let path = self.path().join("filler");
        std::fs::write(&path, vec![1; bytes]).unwrap();
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status().unwrap();
        assert!(unmounted.success());
    }
}

fn append(table: &mut Table, journal: &Journal) -> Result<(), AppendError> {
    let (record, key, entry) = table.prepare(journal).split();
    journal.append_and_wait(record)?;
    table.commit(key, entry);
    Ok(())
}

fn fill_up(table: &mut Table, journal: &Journal) -> AppendError {
    loop {
        if let Err(error) = append(table, journal) {
            return error;
        }
    }
}

fn assert_full(error: &AppendError) {
    let (AppendError::Io { source, .. } | AppendError::Refused { source }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(source.kind(), ErrorKind::StorageFull);
    assert_eq!(error.class(), Class::Retry);
    assert_eq!(error.hint(), Some("free space on the disk"));
}

fn survives_a_full_disk(lengths: Lengths, durability: Durability) {
    let disk = SmallDisk::new("12m");
    let path = disk.path().join("journal");
    let mut recovery = recover(&path, small_settings(durability)).unwrap();
    let mut table = Table::read(lengths, &mut recovery);
    let journal = recovery.start().unwrap();
    let filler = disk.fill(6 << 20);

    let error = fill_up(&mut table, &journal);
    assert!(matches!(error, AppendError::Io { .. }), "{error:?}");
    assert_full(&error);
    let AppendError::Io { path: failed, .. } = &error else { unreachable!() };
    let expected = if lengths.large > 0 { "values-" } else { "journal-" };
    assert!(failed.file_name().unwrap().to_str().unwrap().starts_with(expected), "{failed:?}");
    let reached = table.last;
    assert!(reached > 20);
    for _ in 0..10 {
        let refused = append(&mut table, &journal).unwrap_err();
        assert!(matches!(refused, AppendError::Refused { .. }), "{refused:?}");
        assert_full(&refused);
    }
    table.check();
    // The last pages are taken, so that a probe finds no room.
    let rest = disk.path().join("rest");
    let _full = std::fs::write(&rest, vec![1; 6 << 20]).unwrap_err();
    assert_full(&journal.probe().unwrap_err());
    assert_full(&append(&mut table, &journal).unwrap_err());
    table.check();

    std::fs::remove_file(&rest).unwrap();
    std::fs::remove_file(&filler).unwrap();
    journal.probe().unwrap();
    let error = fill_up(&mut table, &journal);
    assert_full(&error);
    assert!(table.last > reached + 20, "{} after {reached}", table.last);
    drop(journal);

    let mut recovery = recover(&path, small_settings(durability)).unwrap();
    let read = Table::read(lengths, &mut recovery);
    assert_eq!(read.last, table.last);
    read.check();
}

#[test]
fn a_full_disk_refuses_records_and_goes_on_when_there_is_space() {
    for durability in [Durability::EveryWrite, Durability::EverySecond, Durability::Never] {
        LENGTHS.into_iter().for_each(|lengths| survives_a_full_disk(lengths, durability));
    }
}

#[test]
fn a_snapshot_that_does_not_fit_leaves_the_one_before() {
    let disk = SmallDisk::new("12m");
    let path = disk.path().join("journal");
    let mut recovery = recover(&path, small_settings(Durability::Never)).unwrap();
    let mut table = Table::read(LENGTHS[1], &mut recovery);
    let journal = recovery.start().unwrap();
    for _ in 0..40 {
        append(&mut table, &journal).unwrap();
    }
    journal.begin_snapshot().unwrap().write(table.snapshot()).unwrap();
    append(&mut table, &journal).unwrap();
    let pending = journal.begin_snapshot().unwrap();
    let filler = disk.path().join("filler");
    let _full = std::fs::write(&filler, vec![1; 12 << 20]).unwrap_err();
    let error = pending.write(table.snapshot()).unwrap_err();
    assert_eq!(error.class(), Class::Retry, "{error:?}");
    std::fs::remove_file(filler).unwrap();
    append(&mut table, &journal).unwrap();
    drop(journal);
    let mut recovery = recover(&path, small_settings(Durability::Never)).unwrap();
    let read = Table::read(table.lengths, &mut recovery);
    assert_eq!(read.last, table.last);
    read.check();
    let journal = recovery.start().unwrap();
    journal.begin_snapshot().unwrap().write(read.snapshot()).unwrap();
}

#[test]
fn a_spill_on_a_full_disk_says_so_and_keeps_what_it_has() {
    let disk = SmallDisk::new("4m");
    let settings = SpillSettings { limit_bytes: 1 << 30, segment_bytes: 1 << 20 };
    let spill = Spill::open(disk.path(), &settings).unwrap();
    let mut values = Vec::new();
    let error = loop {
        let byte = u8::try_from(values.len()).unwrap();
        match spill.put([vec![byte; 300_000].into()]) {
            Ok(value) => values.push(value),
            Err(error) => break error,
        }
    };
    let SpillError::Io { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), ErrorKind::StorageFull);
    assert!(values.len() >= 10);
    let correct = |byte: usize, value: &phalanx_segments::StoredValue| {
        value.read().unwrap().iter().all(|b| usize::from(*b) == byte)
    };
    assert!(values.iter().enumerate().all(|(byte, value)| correct(byte, value)));
    values.truncate(5);
    let more = spill.put([vec![9; 300_000].into()]).unwrap();
    assert!(correct(9, &more) && values.iter().enumerate().all(|(byte, value)| correct(byte, value)));
}
