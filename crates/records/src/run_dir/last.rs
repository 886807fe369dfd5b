//! Reads the last record from the end of a file that may be large.

use super::records::{ACCURACIES, METRICS};
use super::state::{Best, RunState};
use serde::Deserialize;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much is read first, and at most: a line about many replicas is long.
const TAIL: u64 = 16 << 10;
const MOST: u64 = 16 << 20;

/// A recorded step.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct LastStep {
    pub(super) step: u64,
    pub(super) loss: f32,
    pub(super) samples_per_s: f64,
}

pub(super) fn last_step(dir: &Path) -> Option<LastStep> {
    last_line(&dir.join(METRICS), |line| serde_json::from_str(line).ok())
}

/// The last validation.
pub(crate) fn last_valid(dir: &Path) -> Option<Best> {
    last_line(&dir.join(ACCURACIES), |line| {
        let mut fields = line.split(',');
        let step = fields.next()?.parse().ok()?;
        let val_loss = fields.nth(1)?.parse().ok()?;
        Some(Best { step, val_loss, val_acc: fields.next()?.parse().ok() })
    })
}

/// The number of recorded steps, or the number in the state.
pub(crate) fn recorded_steps(dir: &Path) -> u64 {
    let stated = || RunState::read(dir).ok().map(|state| state.steps);
    last_step(dir).map(|last| last.step).or_else(stated).unwrap_or(0)
}

/// The last complete line of the requested kind.
pub(super) fn last_line<T>(path: &Path, of: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut file = File::open(path).ok()?;
    let len = file.metadata().ok()?.len();
    let mut tails = std::iter::successors(Some(TAIL), |tail| (*tail < len.min(MOST)).then_some(tail * 16));
    tails.find_map(|tail| whole_lines(&mut file, len, tail)?.lines().rev().find_map(&of))
}

/// The complete lines in the last `tail` bytes of a file.
fn whole_lines(file: &mut File, len: u64, tail: u64) -> Option<String> {
    let from = len.saturating_sub(tail);
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.take(tail).read_to_end(&mut bytes).ok()?;
    // An incomplete number would look like a number, too.
    let end = bytes.iter().rposition(|byte| *byte == b'\n')? + 1;
    let begin = if from == 0 { 0 } else { bytes.iter().position(|byte| *byte == b'\n')? + 1 };
    Some(String::from_utf8_lossy(&bytes[begin..end]).into_owned())
}
