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
