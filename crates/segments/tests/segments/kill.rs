//! Processes that are killed at any moment.

use crate::table::{Lengths, Table, small_settings};
use phalanx_segments::{Durability, Note, recover};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Small records go together into one write; large records are torn by a kill.
const LENGTHS: [Lengths; 2] =
    [Lengths { small: 2_000, large: 40_000 }, Lengths { small: 600_000, large: 40_000 }];

fn child() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples/crash_child")
}

/// Runs the process for some time, kills it, and returns the last operation that it acknowledged.
fn run_and_kill(directory: &Path, lengths: Lengths, after: Duration) -> u64 {
    let mut command = Command::new(child());
    command.arg(directory).arg(lengths.small.to_string()).arg(lengths.large.to_string());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let (ended, end) = channel::<()>();
    let reader = std::thread::spawn(move || {
        let _ended = ended;
        let (mut line, mut acknowledged) = (String::new(), None);
        // The last line may be cut.
        while output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            let op: u64 = line.trim_end().parse().unwrap();
            assert!(acknowledged.is_none_or(|before| op == before + 1), "{op} after {acknowledged:?}");
            acknowledged = Some(op);
            line.clear();
        }
        acknowledged.unwrap_or(0)
    });
    let waited = end.recv_timeout(after);
    assert_eq!(waited, Err(RecvTimeoutError::Timeout), "the process ended by itself");
    process.kill().unwrap();
    process.wait().unwrap();
    reader.join().unwrap()
}

/// What happened over all kills.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: u64,
    torn: u32,
    unfinished: u32,
    snapshots: u32,
    compacted: u32,
}

fn kill_repeatedly(seed: u64, kills: u32, seen: &mut Seen) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut dice = Pcg64::seed_from_u64(seed);
    let lengths = LENGTHS[seed as usize % LENGTHS.len()];
    let mut last = 0;
    for kill in 0..kills {
        let moment = Duration::from_micros(dice.random_range(2_000..120_000));
        let acknowledged = run_and_kill(&path, lengths, moment);
        let mut recovery = recover(&path, small_settings(Durability::EveryWrite)).unwrap();
        let table = Table::read(lengths, &mut recovery);
        assert!(table.last >= acknowledged.max(last), "kill {kill} lost {acknowledged}, has {}", table.last);
        table.check();
        for note in recovery.notes() {
            match note {
                Note::TornTail { .. } | Note::SegmentBehindTornTail { .. } => seen.torn += 1,
                Note::UnfinishedFile { .. } | Note::CoveredFile { .. } => seen.unfinished += 1,
            }
        }
        if dice.random_bool(0.2) {
            // Closed in order now and then.
            recovery.start().unwrap().flush().unwrap();
        }
        last = table.last;
    }
    let names = || std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    seen.acknowledged += last;
    seen.snapshots += u32::from(names().any(|name| name.starts_with("snapshot-")));
    let first_values = names().filter(|name| name.starts_with("values-")).min();
    seen.compacted += u32::from(first_values.is_some_and(|name| name.as_str() > "values-0000000000000004"));
}

#[test]
fn nothing_acknowledged_is_lost_by_killing_the_process() {
    let kills: u32 = std::env::var("PHALANX_SEGMENT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut seen = Seen::default();
    for seed in 0..4 {
        kill_repeatedly(seed, kills / 4, &mut seen);
    }
    println!("{seen:?}");
    assert!(seen.acknowledged > 1000, "{seen:?}");
    assert!(seen.snapshots > 0 && seen.compacted > 0, "no snapshot replaced anything: {seen:?}");
}
