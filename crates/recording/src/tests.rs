use crate::block::{PREAMBLE_LEN, PREFIX_LEN};
use crate::{Comparison, Limits, Player, Recorded, RecordingError, Replay, old_segment, read};
use phalanx_types::{Outbox, Time};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Adds up what it is told and says the sum when it is even; `BIAS` makes another build of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sum<const BIAS: u64, const CAPTURED: bool> {
    sum: u64,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Add(u64);

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Even(u64);

impl fmt::Display for Add {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "add {}", self.0)
    }
}

impl fmt::Display for Even {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "say {}", self.0)
    }
}

/// The one number on which the core panics.
const POISON: u64 = 66_666;

impl<const BIAS: u64, const CAPTURED: bool> Replay for Sum<BIAS, CAPTURED> {
    const CORE: &'static str = "sum";
    type Config = Self;
    type Event = Add;
    type Command = Even;

    fn new(config: Self) -> Self {
        config
    }

    fn feed(&mut self, _now: Time, event: Add, out: &mut Outbox<Even>) {
        assert_ne!(event.0, POISON, "poison");
        self.sum += event.0;
        // Another build decides differently from a certain sum on.
        let sum = if self.sum > 100 { self.sum + BIAS } else { self.sum };
        if self.sum.is_multiple_of(2) {
            out.push(Even(sum));
        }
    }

    fn snapshot(&self) -> Option<impl Serialize + '_> {
        CAPTURED.then_some(self)
    }
}

type Usual = Sum<0, true>;
type Biased = Sum<1, true>;
type Uncaptured = Sum<0, false>;

const ROOMY: Limits = Limits { segment: 1 << 20 };

/// Feeds 1, 2, 3 … at times that are their squares.
fn feed<R: Replay<Event = Add, Command = Even>>(core: &mut Recorded<R>, numbers: std::ops::Range<u64>) {
    let mut out = Outbox::default();
    for n in numbers {
        // What the shell has not taken yet is of earlier events.
        core.feed(Time(n * n), Add(n), &mut out);
        if n.is_multiple_of(3) {
            out.drain();
        }
    }
}

fn record(path: &Path, numbers: std::ops::Range<u64>) -> Usual {
    let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, path, ROOMY).unwrap();
    feed(&mut core, numbers);
    Usual { sum: core.sum }
}

/// What a replay of a file gives: the entries, the times, whether each is as recorded.
fn replayed<R: Replay<Event = Add>>(path: &Path) -> Result<Vec<(u64, u64, u64, Comparison)>, RecordingError> {
    let recording = read(path)?;
    let mut all = Vec::new();
    for section in recording.sections() {
        let mut player = Player::<R>::new(section)?;
        while let Some(pending) = player.next_event()? {
            let number = pending.event.0;
            let step = player.apply(pending)?;
            all.push((step.entry, step.at.0, number, step.comparison));
        }
    }
    recording.damage().map_or(Ok(all), Err)
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("core.recording");
    (dir, path)
}

#[test]
fn a_recording_gives_the_same_events_times_and_decisions() {
    let (_dir, path) = place();
    let end = record(&path, 1..50);
    let expected: Vec<_> = (1..50).map(|n| (n, n * n, n, Comparison::Same)).collect();
    assert_eq!(replayed::<Usual>(&path).unwrap(), expected);
    let recording = read(&path).unwrap();
    let section = recording.sections().next().unwrap();
    let mut player = Player::<Usual>::new(section).unwrap();
    while let Some(pending) = player.next_event().unwrap() {
        player.apply(pending).unwrap();
    }
    assert_eq!((player.core(), recording.torn_bytes()), (&end, 0));
}

#[test]
fn a_clock_that_goes_back_is_recorded_as_it_was() {
    let (_dir, path) = place();
    let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, ROOMY).unwrap();
    for at in [50, 20, 90] {
        core.feed(Time(at), Add(1), &mut Outbox::default());
    }
    drop(core);
    let times: Vec<u64> = replayed::<Usual>(&path).unwrap().iter().map(|(_, at, ..)| *at).collect();
    assert_eq!(times, [50, 20, 90]);
}

#[test]
fn a_build_that_decides_otherwise_is_told_from_the_first_difference_on() {
    let (_dir, path) = place();
    record(&path, 1..50);
    let all = replayed::<Biased>(&path).unwrap();
    let first = all.iter().find(|(.., comparison)| *comparison != Comparison::Same).unwrap();
    // 1 + … + 15 is 120, the first even sum above 100.
    assert_eq!(first.0, 15);
    let Comparison::Differs { recorded, replayed } = first.3 else { panic!("{first:?}") };
    assert_eq!((recorded.commands, replayed.commands), (1, 1));
    assert_ne!(recorded.digest, replayed.digest);
}

#[test]
fn a_new_process_adds_a_section() {
    let (_dir, path) = place();
    record(&path, 1..5);
    record(&path, 5..8);
    let all = replayed::<Usual>(&path).unwrap();
    let entries: Vec<(u64, u64)> = all.iter().map(|(entry, _, n, _)| (*entry, *n)).collect();
    assert_eq!(entries, [(1, 1), (2, 2), (3, 3), (4, 4), (1, 5), (2, 6), (3, 7)]);
    assert_eq!(read(&path).unwrap().sections().len(), 2);
}

#[test]
fn a_file_torn_anywhere_gives_what_came_before_and_can_be_gone_on_with() {
    let (_dir, path) = place();
    let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, ROOMY).unwrap();
    for n in 1..6 {
        feed(&mut core, n..n + 1);
        core.flush();
    }
    drop(core);
    let whole = std::fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for len in PREAMBLE_LEN..whole.len() {
        std::fs::write(&path, &whole[..len]).unwrap();
        let before = replayed::<Usual>(&path).unwrap();
        assert!(before.iter().all(|(.., comparison)| *comparison == Comparison::Same), "cut at {len}");
        seen.push(before.len());
        record(&path, 10..12);
        let after = replayed::<Usual>(&path).unwrap();
        assert_eq!((&after[..before.len()], after.len()), (&before[..], before.len() + 2), "cut at {len}");
    }
    assert!(seen.is_sorted() && seen.first() == Some(&0) && seen.last() == Some(&4), "{seen:?}");
}

#[test]
fn damage_before_the_end_is_an_error_that_names_the_place() {
    let (_dir, path) = place();
    let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, ROOMY).unwrap();
    feed(&mut core, 1..4);
    core.flush();
    let second = std::fs::metadata(&path).unwrap().len();
    feed(&mut core, 4..9);
    core.flush();
    let third = std::fs::metadata(&path).unwrap().len();
    feed(&mut core, 9..12);
    drop(core);
    let whole = std::fs::read(&path).unwrap();
    for at in second..third {
        let mut bytes = whole.clone();
        bytes[usize::try_from(at).unwrap()] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        let result = replayed::<Usual>(&path);
        let named = matches!(result, Err(RecordingError::Damaged { offset, .. }) if offset == second);
        assert!(named, "byte {at}: {result:?}");
    }
    // Nobody writes behind damage: the file is kept aside and a new one begins.
    record(&path, 20..22);
    assert_eq!(replayed::<Usual>(&path).unwrap().len(), 2);
    assert!(matches!(replayed::<Usual>(&old_segment(&path)), Err(RecordingError::Damaged { .. })));
}

#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    let (_dir, path) = place();
    for text in ["my notes, not a recording", "short", "PHLXJNL1\0\0\0\0\0\0\0\0"] {
        std::fs::write(&path, text).unwrap();
        assert!(matches!(read(&path), Err(RecordingError::NotARecording { .. })), "{text}");
        let begun = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, ROOMY);
        assert!(matches!(begun, Err(RecordingError::NotARecording { .. })), "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let mut other = crate::block::preamble();
    other[8] = 200;
    std::fs::write(&path, other).unwrap();
    assert!(matches!(read(&path), Err(RecordingError::OtherFormat { format: 200, .. })));
}

#[test]
fn another_core_or_version_is_refused() {
    let (_dir, path) = place();
    record(&path, 1..5);
    struct Other;
    impl Replay for Other {
        const CORE: &'static str = "other";
        type Config = u8;
        type Event = Add;
        type Command = Even;
        fn new(_config: u8) -> Self {
            Self
        }
        fn feed(&mut self, _now: Time, _event: Add, _out: &mut Outbox<Even>) {}
    }
    assert!(matches!(replayed::<Other>(&path), Err(RecordingError::OtherCore { .. })));
    let bytes = std::fs::read(&path).unwrap();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let at = bytes.windows(version.len()).position(|window| window == version).unwrap();
    let mut older = bytes;
    older[at] = b'9';
    let len = u32::from_le_bytes(*older[PREAMBLE_LEN..].first_chunk().unwrap()) as usize;
    let block = PREAMBLE_LEN..PREAMBLE_LEN + PREFIX_LEN + len;
    assert!(crate::block::seal(&mut older[block]));
    std::fs::write(&path, &older).unwrap();
    let refused = replayed::<Usual>(&path);
    assert!(
        matches!(refused, Err(RecordingError::OtherProgram { ref program, .. }) if program.starts_with('9'))
    );
}

#[test]
fn a_recording_never_outgrows_two_segments_and_its_newest_part_replays() {
    let (_dir, path) = place();
    let limits = Limits { segment: 4096 };
    let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, limits).unwrap();
    for n in 1..20_000 {
        feed(&mut core, n..n + 1);
        if n.is_multiple_of(7) {
            core.flush();
        }
    }
    assert!(core.is_recording());
    let end = core.sum;
    drop(core);
    let mut entries = Vec::new();
    for file in [old_segment(&path), path.clone()] {
        let len = std::fs::metadata(&file).unwrap().len();
        assert!(len < limits.segment + 64, "{} holds {len} bytes", file.display());
        let all = replayed::<Usual>(&file).unwrap();
        assert!(all.iter().all(|(.., comparison)| *comparison == Comparison::Same));
        entries.extend(all.iter().map(|(entry, _, n, _)| (*entry, *n)));
    }
    assert!(entries.iter().all(|(entry, n)| entry == n), "entries keep their numbers across files");
    assert!(
        entries.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0),
        "nothing is missing between the files"
    );
    assert_eq!(entries.last(), Some(&(19_999, 19_999)));
    let recording = read(&path).unwrap();
    let mut player = Player::<Usual>::new(recording.sections().last().unwrap()).unwrap();
    while let Some(pending) = player.next_event().unwrap() {
        player.apply(pending).unwrap();
    }
    assert_eq!(player.core().sum, end);
}

#[test]
fn a_core_that_cannot_be_captured_keeps_its_beginning_and_says_that_it_stopped() {
    let (_dir, path) = place();
    let mut core =
        Recorded::<Uncaptured>::begin(Uncaptured { sum: 0 }, &path, Limits { segment: 4096 }).unwrap();
    feed(&mut core, 1..20_000);
    assert!(!core.is_recording());
    assert_eq!(core.sum, (1..20_000).sum::<u64>(), "the core goes on");
    assert!(std::fs::metadata(&path).unwrap().len() < 4096 + 64 && !old_segment(&path).exists());
    let recording = read(&path).unwrap();
    let mut player = Player::<Uncaptured>::new(recording.sections().next().unwrap()).unwrap();
    let mut last = 0;
    while let Some(pending) = player.next_event().unwrap() {
        let step = player.apply(pending).unwrap();
        assert_eq!(step.comparison, Comparison::Same);
        last = step.entry;
    }
    assert!(player.is_cut_short() && last > 100, "{last}");
}

#[test]
fn the_event_on_which_a_core_panics_is_recorded() {
    let (_dir, path) = place();
    let panicked = std::panic::catch_unwind(|| {
        let mut core = Recorded::<Usual>::begin(Usual { sum: 0 }, &path, ROOMY).unwrap();
        feed(&mut core, 1..4);
        core.feed(Time(1_000), Add(POISON), &mut Outbox::default());
    });
    assert!(panicked.is_err());
    let recording = read(&path).unwrap();
    let mut player = Player::<Usual>::new(recording.sections().next().unwrap()).unwrap();
    for _ in 0..3 {
        let pending = player.next_event().unwrap().unwrap();
        player.apply(pending).unwrap();
    }
    let last = player.next_event().unwrap().unwrap();
    assert_eq!((last.entry, last.at, last.event), (4, Time(1_000), Add(POISON)));
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_and_gives_the_core_back() {
    let (dir, _path) = place();
    let begun = Recorded::<Usual>::resume(Usual { sum: 7 }, dir.path(), ROOMY);
    let (core, error) = begun.unwrap_err();
    assert!(matches!(error, RecordingError::Io { .. }), "{error:?}");
    assert_eq!(core, Usual { sum: 7 });
}
