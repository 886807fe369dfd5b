//! A trial that is a program of the user's: what it finds when it starts, and what is made of what it says.

use crate::bundle::Bundle;
use crate::host::{Opened, failed};
use crate::lines::Points;
use crate::link::Reports;
use phalanx_jobs::{HandlerError, JobContext};
use phalanx_records::with_causes;
use phalanx_wire::trial::{TrialOrder, TrialPoint, TrialResult};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Longer lines are cut.
const MAX_LINE: u64 = 1 << 20;
/// What is kept of what a program says on standard error.
const TAIL: usize = 16 << 10;
/// What is told of it. The message of a failed job has about a thousand bytes.
const TOLD: usize = 700;
/// A file does not say when it grows: how often it is looked at while the program runs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

const RESULT: &str = "result.jsonl";
const ABOUT: &str = "trial.json";
const CHECKPOINT: &str = "checkpoint";

pub(crate) struct ProgramTrial<'a> {
    pub(crate) opened: &'a Opened,
    pub(crate) wrapper: &'a [OsString],
    pub(crate) argv: &'a [String],
    pub(crate) genes: &'a BTreeMap<String, String>,
}

/// Runs the program and reads what it says; gives its files, too.
pub(crate) fn run(job: &JobContext, trial: &ProgramTrial<'_>) -> Result<(TrialResult, Bundle), HandlerError> {
    let order = &trial.opened.task.order;
    let place = Place::prepare(trial)?;
    trial.opened.reports.say(order.from, BTreeMap::new());
    let began = Instant::now();
    let what = trial.argv.join(" ");
    let child = trial.command(job, &place).spawn();
    let child = child.map_err(|error| HandlerError::failed(format!("could not start {what}: {error}")))?;
    let said = supervise(job, child, &place, &trial.opened.reports, order)?;
    let seconds = began.elapsed().as_secs_f64();
    if !said.success {
        return Err(HandlerError::failed(format!("{what}: {}: {}", said.status, tail_of(&said.errors))));
    }
    let curve = said.points;
    let Some(last) = curve.last() else {
        let message = format!(
            "{what} ended without a result: it printed no JSON object, and wrote none to PHALANX_RESULT"
        );
        return Err(HandlerError::failed(message));
    };
    let values = result_of(last, order, seconds, &what)?;
    let bundle = match order.keep {
        true => Bundle::of_dir(&place.dir).map_err(failed)?,
        false => Bundle::default(),
    };
    Ok((TrialResult { values, curve, seconds }, bundle))
}

/// The values that were ordered, from the last object.
fn result_of(
    last: &TrialPoint,
    order: &TrialOrder,
    seconds: f64,
    what: &str,
) -> Result<BTreeMap<String, f64>, HandlerError> {
    let mut values = last.values.clone();
    values.entry("seconds".to_owned()).or_insert(seconds);
    if let Some(missing) = order.values.iter().find(|name| !values.contains_key(*name)) {
        let there: Vec<&str> = last.values.keys().map(String::as_str).collect();
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        return Err(HandlerError::failed(format!("{what} gave no {missing}; its last result has {there}")));
    }
    values.retain(|name, _| order.values.contains(name));
    Ok(values)
}

/// The files of a program's trial.
struct Place {
    dir: PathBuf,
    about: PathBuf,
    result: PathBuf,
    checkpoint: PathBuf,
    /// What the program wrote for earlier orders.
    read: u64,
}

impl Place {
    fn prepare(trial: &ProgramTrial<'_>) -> Result<Self, HandlerError> {
        let (order, dir) = (&trial.opened.task.order, trial.opened.dir());
        let [about, result, checkpoint] = [ABOUT, RESULT, CHECKPOINT].map(|name| dir.join(name));
        let here_only = |error: &dyn std::error::Error| HandlerError::retry(with_causes(error));
        std::fs::create_dir_all(&dir).map_err(|error| here_only(&error))?;
        trial.opened.bundle.write(&dir).map_err(|error| here_only(&error))?;
        let text = json!({
            "search": order.search,
            "trial": order.trial,
            "attempt": order.attempt,
            "genes": trial.genes,
            "from": order.from,
            "budget": order.to,
            "full": order.full,
            "values": order.values,
        });
        let write = || {
            std::fs::create_dir_all(&checkpoint)?;
            std::fs::write(&about, format!("{text:#}\n"))?;
            // Programs may open it without making it.
            File::options().append(true).create(true).open(&result)?.metadata()
        };
        let read = write().map_err(|error| here_only(&error))?.len();
        Ok(Self { dir, about, result, checkpoint, read })
    }
}

impl ProgramTrial<'_> {
    fn command(&self, job: &JobContext, place: &Place) -> Command {
        let order = &self.opened.task.order;
        let argv = self.argv.iter().map(OsString::from);
        let mut words = self.wrapper.iter().cloned().chain(argv);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .env("PHALANX_JOB", job.job().to_string())
            .env("PHALANX_TRIAL", &place.about)
            .env("PHALANX_RESULT", &place.result)
            .env("PHALANX_CHECKPOINT_DIR", &place.checkpoint)
            .env("PHALANX_BUDGET", order.to.to_string())
            .env("PHALANX_FROM", order.from.to_string())
            .envs(self.genes.iter().map(|(name, value)| (variable(name), value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// The variable of a gene: `cells.0.op` is in `PHALANX_GENE_CELLS_0_OP`.
fn variable(gene: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    gene.chars().map(letter).fold("PHALANX_GENE_".to_owned(), |mut name, c| {
        name.push(c);
        name
    })
}

/// What came of a program.
struct Said {
    success: bool,
    status: String,
    /// Of its result file; if that is empty, of its standard output.
    points: Vec<TrialPoint>,
    errors: Vec<u8>,
}

/// Hears what a program says until its end, and kills it when the job is cancelled.
fn supervise(
    job: &JobContext,
    mut child: Child,
    place: &Place,
    reports: &Reports,
    order: &TrialOrder,
) -> Result<Said, HandlerError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| HandlerError::failed("the program has no process id"))?;
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let kill = move || {
        // Gone already is as good as killed.
        let _gone = kill_process_group(pid, Signal::KILL);
    };
    let (printed, written, errors) = job.cancelling(kill, || {
        let heard = std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let written = scope.spawn(move || follow(place, order, reports, &end));
            let errors = scope.spawn(move || tail(errors));
            let printed = hear(output, order, reports);
            drop(ended);
            (printed, written.join().unwrap_or_default(), errors.join().unwrap_or_default())
        });
        // Ended but not reaped: until then its id cannot become another process's.
        let _ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        heard
    });
    let status = child.wait().map_err(failed)?;
    if job.is_cancelled() {
        return Err(HandlerError::cancelled());
    }
    let points = if written.is_empty() { printed } else { written };
    Ok(Said { success: status.success(), status: status.to_string(), points: points.into_points(), errors })
}

/// The points that a program prints.
fn hear(pipe: Option<impl Read>, order: &TrialOrder, reports: &Reports) -> Points {
    let mut points = Points::default();
    let Some(pipe) = pipe else { return points };
    let mut lines = BufReader::new(pipe);
    while let Some(line) = next_line(&mut lines) {
        if let Some(point) = points.add(&line, order.to) {
            reports.say(point.budget, point.values.clone());
        }
    }
    points
}

/// The points that it writes to its result file, until it has ended and all are read.
fn follow(place: &Place, order: &TrialOrder, reports: &Reports, end: &Receiver<()>) -> Points {
    let (mut points, mut at, mut rest) = (Points::default(), place.read, Vec::new());
    loop {
        let ended = end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Disconnected);
        at = read_on(&place.result, at, &mut rest);
        if ended && !rest.is_empty() {
            // The last line may have no end.
            rest.push(b'\n');
        }
        while let Some(line) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=line).collect();
            if let Some(point) = points.add(&line, order.to) {
                reports.say(point.budget, point.values.clone());
            }
        }
        if ended {
            return points;
        }
    }
}

/// Adds what a file has from a place on; gives the place after it. A file that has become shorter is read again.
fn read_on(path: &Path, at: u64, into: &mut Vec<u8>) -> u64 {
    let mut read = || {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        let from = if len < at { 0 } else { at };
        file.seek(SeekFrom::Start(from))?;
        let read = file.take(64 * MAX_LINE).read_to_end(into)?;
        Ok::<u64, std::io::Error>(from + read as u64)
    };
    // A program may remove it; then there is nothing to read.
    read().unwrap_or(at)
}

/// The next line, or as much of it as a line may have.
fn next_line(lines: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
    // What came before the pipe broke is kept.
    read.ok().filter(|read| *read > 0).map(|_| line)
}

/// What it says last; a program that talks for days must not fill the node.
fn tail(pipe: Option<impl Read>) -> Vec<u8> {
    let (mut tail, mut buffer) = (Vec::new(), [0; 4096]);
    if let Some(mut pipe) = pipe {
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            tail.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if tail.len() > 2 * TAIL {
                tail.drain(..tail.len() - TAIL);
            }
        }
    }
    tail
}

/// The end of what a program said on standard error, from the beginning of a line where there is one.
fn tail_of(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let text = text.trim();
    if text.is_empty() {
        return "nothing on stderr".to_owned();
    }
    let from = text.ceil_char_boundary(text.len().saturating_sub(TOLD));
    let told = &text[from..];
    let line = told.find('\n').filter(|_| from > 0).map_or(0, |end| end + 1);
    told[line..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genes_are_in_variables_that_a_shell_can_name() {
        assert_eq!(variable("lr"), "PHALANX_GENE_LR");
        assert_eq!(variable("cells.0.op-é"), "PHALANX_GENE_CELLS_0_OP__");
    }

    #[test]
    fn the_end_of_what_was_said_is_told_in_whole_lines() {
        assert_eq!(tail_of(b" \n"), "nothing on stderr");
        assert_eq!(tail_of(b"first\nlast\n"), "first\nlast");
        let long = format!("{}\nlast line", "ä".repeat(TOLD));
        assert_eq!(tail_of(long.as_bytes()), "last line");
        assert_eq!(tail_of("x".repeat(2 * TOLD).as_bytes()).len(), TOLD);
    }

    #[test]
    fn a_file_is_read_on_from_where_it_was_and_again_when_it_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut read) = (dir.path().join("result"), Vec::new());
        assert_eq!(read_on(&path, 0, &mut read), 0, "it is not there");
        std::fs::write(&path, "one\ntwo").unwrap();
        let at = read_on(&path, 0, &mut read);
        std::fs::write(&path, "one\ntwo and three\n").unwrap();
        let at = read_on(&path, at, &mut read);
        assert_eq!(read, b"one\ntwo and three\n");
        std::fs::write(&path, "new\n").unwrap();
        read.clear();
        assert_eq!((read_on(&path, at, &mut read), &read[..]), (4, &b"new\n"[..]));
    }
}
