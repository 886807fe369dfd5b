use super::*;
use phalanx_types::Parcel;
use std::io::Write;

fn spec(text: &'static str) -> JobSpec {
    JobSpec::new("echo", Parcel::from_bytes(text))
}

fn filled(path: &Path) -> SessionId {
    let (mut journal, past) = Journal::open(path, SessionId(7)).unwrap();
    for (job, text) in [(1, "a"), (2, "b"), (3, "c")] {
        journal.add(&Record::Submitted { job: JobId(job), spec: RecordedSpec::new(&spec(text), 0) });
    }
    journal.add(&Record::Attempt { job: JobId(2), attempts: 2 });
    let solved = Outcome::Solved(Parcel::from_bytes("A"));
    journal.add(&Record::Ended { job: JobId(1), outcome: RecordedOutcome::new(&solved) });
    journal.write().unwrap();
    past.session
}

#[test]
fn a_journal_tells_what_was_written_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let session = filled(&path);
    let past = read_journal(&path).unwrap();
    assert_eq!((past.session, past.epoch, past.torn_bytes), (session, Epoch(1), 0));
    assert_eq!(past.jobs[&JobId(1)].outcome, Some(Outcome::Solved(Parcel::from_bytes("A"))));
    assert_eq!((past.jobs[&JobId(2)].attempts, &past.jobs[&JobId(2)].outcome), (2, &None));
    assert_eq!(past.jobs[&JobId(3)].spec, spec("c"));
    let (_, reopened) = Journal::open(&path, SessionId(99)).unwrap();
    assert_eq!((reopened.session, reopened.epoch), (session, Epoch(2)));
}

#[test]
fn a_tail_torn_anywhere_is_cut_and_everything_before_it_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    filled(&path);
    let whole = std::fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for len in record::HEADER_LEN..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let before = read_journal(&path).unwrap();
        let (_, past) = Journal::open(&path, SessionId(99)).unwrap();
        assert_eq!(past.jobs, before.jobs);
        let after = read_journal(&path).unwrap();
        assert_eq!((&after.jobs, after.torn_bytes), (&before.jobs, 0), "cut at {len}");
        seen.push(after.jobs.len());
    }
    assert!(seen.is_sorted() && seen.first() == Some(&0) && seen.last() == Some(&3), "{seen:?}");
}

#[test]
fn damage_before_the_end_is_an_error_that_names_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    filled(&path);
    let whole = std::fs::read(&path).unwrap();
    // Every byte of the first record: its length, both checksums, its body.
    for at in record::HEADER_LEN..record::HEADER_LEN + record::PREFIX_LEN + 2 {
        let mut bytes = whole.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let opened = Journal::open(&path, SessionId(1));
        assert!(matches!(opened, Err(JournalError::Damaged { offset: 16, .. })), "byte {at}: {opened:?}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the file is left as it was");
    }
}

#[test]
fn a_tail_of_zeros_is_cut_like_a_torn_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    filled(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(&[0; 100]);
    std::fs::write(&path, &bytes).unwrap();
    let (_, past) = Journal::open(&path, SessionId(1)).unwrap();
    assert_eq!((past.jobs.len(), past.torn_bytes), (3, 100));
}

#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    for text in ["my notes, not a journal", "short"] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(Journal::open(&path, SessionId(1)), Err(JournalError::NotAJournal { .. })));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn two_main_nodes_cannot_share_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let (_held, _) = Journal::open(&path, SessionId(1)).unwrap();
    assert!(matches!(Journal::open(&path, SessionId(1)), Err(JournalError::InUse { .. })));
}

#[test]
fn a_journal_killed_while_being_made_starts_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    for len in 0..record::HEADER_LEN {
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&b"PHLXJNL1\x07\0\0\0\0\0\0\0"[..len]).unwrap();
        let (_, past) = Journal::open(&path, SessionId(3)).unwrap();
        assert_eq!((past.session, past.epoch), (SessionId(3), Epoch(1)));
    }
}

/// Everything that a journal tells, by looks of any size, and how many looks that took.
fn looked_at(path: &Path, position: &mut JournalPosition) -> Vec<JournalEntry> {
    let mut all = Vec::new();
    loop {
        let batch = read_journal_from(path, position).unwrap().unwrap();
        all.extend(batch.entries);
        *position = batch.position;
        if batch.is_all {
            return all;
        }
    }
}

/// The journal and what it tells, with times left out.
fn without_times(entries: Vec<JournalEntry>) -> Vec<JournalEntry> {
    let mut entries = entries;
    for entry in &mut entries {
        if let JournalEntry::Submitted { unix_ms, .. } | JournalEntry::Ended { unix_ms, .. } = entry {
            assert!(unix_ms.take().is_some_and(|unix_ms| unix_ms > 1_700_000_000_000), "the time is known");
        }
    }
    entries
}

fn submitted(job: u64) -> JournalEntry {
    JournalEntry::Submitted { job: JobId(job), kind: "echo".into(), priority: 0, unix_ms: None }
}

#[test]
fn every_record_is_read_once_however_a_journal_is_cut_into_looks() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cut) = (dir.path().join("j"), dir.path().join("cut"));
    filled(&path);
    let solver: NodeId = "alpha-1234".parse().unwrap();
    let (mut journal, _) = Journal::open(&path, SessionId(7)).unwrap();
    journal.add(&Record::MainNode { node: "main-4f2a".parse().unwrap() });
    let outcome = RecordedOutcome::new(&Outcome::Solved(Parcel::from_bytes("B")));
    journal.add(&Record::EndedAt { job: JobId(2), outcome, node: solver.clone() });
    journal.add(&Record::Ended { job: JobId(3), outcome: RecordedOutcome::new(&Outcome::Cancelled) });
    journal.write().unwrap();
    let ended =
        |job, state, node| JournalEntry::Ended { job: JobId(job), state, reason: None, node, unix_ms: None };
    let expected = [
        JournalEntry::Opened { epoch: Epoch(1) },
        submitted(1),
        submitted(2),
        submitted(3),
        JournalEntry::Attempt { job: JobId(2), attempts: 2 },
        ended(1, "solved", None),
        JournalEntry::Opened { epoch: Epoch(2) },
        JournalEntry::MainNode { node: "main-4f2a".parse().unwrap() },
        ended(2, "solved", Some(solver.clone())),
        ended(3, "cancelled", None),
    ];
    let whole = std::fs::read(&path).unwrap();
    for at in record::HEADER_LEN..=whole.len() {
        std::fs::write(&cut, &whole[..at]).unwrap();
        let mut position = JournalPosition::default();
        let mut all = looked_at(&cut, &mut position);
        std::fs::write(&cut, &whole).unwrap();
        all.extend(looked_at(&cut, &mut position));
        assert_eq!(without_times(all), expected, "the first look ended at byte {at}");
        assert_eq!(looked_at(&cut, &mut position), [], "nothing comes twice");
    }
    let past = read_journal(&path).unwrap();
    assert_eq!(past.main.unwrap().as_str(), "main-4f2a");
    let second = &past.jobs[&JobId(2)];
    assert_eq!(second.solver, Some(solver));
    assert!(second.submitted_unix_ms.unwrap() <= second.ended_unix_ms.unwrap());
}

#[test]
fn a_journal_that_took_the_place_of_another_is_read_from_its_begin() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("j"), dir.path().join("other"));
    filled(&path);
    let mut position = JournalPosition::default();
    let first = looked_at(&path, &mut position).len();
    // As long as the first one and longer, with something else at the place where reading ended; or shorter.
    for jobs in [40, 2] {
        let (mut journal, _) = Journal::open(&other, SessionId(8)).unwrap();
        (1..=jobs).for_each(|job| {
            journal.add(&Record::Submitted { job: JobId(job), spec: RecordedSpec::new(&spec("other"), 0) });
        });
        journal.write().unwrap();
        std::fs::rename(&other, &path).unwrap();
        let before = position;
        let batch = read_journal_from(&path, &before).unwrap().unwrap();
        assert!(batch.is_from_begin && batch.session == SessionId(8), "{batch:?}");
        assert_eq!(batch.entries.len() as u64, jobs + 1);
        position = batch.position;
    }
    assert_eq!(first, 6);
}

#[test]
fn records_longer_than_a_look_are_read_and_damage_within_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let (mut journal, _) = Journal::open(&path, SessionId(7)).unwrap();
    for job in 1..=4 {
        let long = JobSpec::new("echo", Parcel::from_bytes(vec![job as u8; 5 << 20]));
        journal.add(&Record::Submitted { job: JobId(job), spec: RecordedSpec::new(&long, 0) });
    }
    journal.write().unwrap();
    let read = looked_at(&path, &mut JournalPosition::default());
    assert_eq!(without_times(read)[1..], [submitted(1), submitted(2), submitted(3), submitted(4)]);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 + (1 << 20);
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut position = JournalPosition::default();
    let error = loop {
        match read_journal_from(&path, &position) {
            Ok(batch) => {
                let batch = batch.unwrap();
                assert!(batch.position.bytes > position.bytes, "it goes on");
                position = batch.position;
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, JournalError::Damaged { .. }), "{error:?}");
}
