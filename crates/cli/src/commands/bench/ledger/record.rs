//! Metric points per second, through the code that trainings record with.

use super::runs::{RUN_TOML, about, report};
use crate::commands::bench::numbers::Numbers;
use anyhow::{Context, ensure};
use phalanx_ledger::{Feeder, LEDGER_FILE, Ledger, LedgerUrl};
use phalanx_protocol::progress::Place;
use phalanx_records::history::{Position, read_from};
use phalanx_records::run_dir::{RUN_FILE, RunDir};
use phalanx_records::{Book, Events, Opened, RunEvent, TensorBoard};
use std::path::Path;
use std::time::{Duration, Instant};

/// Metrics of a step: loss, learning rate, norm of the gradient, samples per second.
const METRICS: u64 = 4;
/// Only a ledger that does not work makes this pass.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) fn measure(steps: u64) -> anyhow::Result<Numbers> {
    let scratch = tempfile::tempdir()?;
    let run = scratch.path().join("run");
    let points = (steps * METRICS) as f64;
    let rate = |time: Duration| points / time.as_secs_f64();
    let (written, arrived) = record(&run, steps)?;
    let mut numbers = Numbers::from([
        ("record_points_per_s", rate(arrived)),
        ("record_files_points_per_s", rate(written)),
        ("record_step_us", written.as_secs_f64() * 1e6 / steps as f64),
    ]);
    numbers.insert("read_points_per_s", rate(read(&run, points)?));
    numbers.insert("feed_points_per_s", rate(feed(&run, &scratch.path().join("other.sqlite"), points)?));
    numbers.insert("event_file_points_per_s", rate(event_file(scratch.path(), steps)?));
    Ok(numbers)
}

/// Records steps as a training does, beside a feeder; says when all were in the files, and when in the ledger.
fn record(run: &Path, steps: u64) -> anyhow::Result<(Duration, Duration)> {
    let dir = RunDir::create(run)?;
    dir.write(RUN_FILE, RUN_TOML.as_bytes())?;
    let ledger = LedgerUrl::Sqlite(run.with_file_name(LEDGER_FILE));
    let feeder = Feeder::start(ledger.clone(), run.to_owned(), |warning| tracing::warn!("{warning}"));
    let mut wake = |_event: RunEvent| feeder.wake();
    let mut events = Events::of_run(&dir, &mut wake)?;
    let Opened { mut book, .. } = Book::open(dir, about(steps)?, &mut events)?;
    book.begin(Place::default())?;
    let mut report = report();
    let began = Instant::now();
    for step in 1..=steps {
        (report.step, report.loss) = (step, 1.0 / step as f32);
        book.record_step(&report, None, &mut events)?;
    }
    let written = began.elapsed();
    ensure!(feeder.finish_within(PATIENCE), "the ledger did not take everything");
    let arrived = began.elapsed();
    complete(&Ledger::open(&ledger)?, (steps * METRICS) as f64)?;
    Ok((written, arrived))
}

fn complete(ledger: &Ledger, points: f64) -> anyhow::Result<()> {
    let there = ledger.info()?.points;
    ensure!(there as f64 == points, "{there} of {points} points are in the ledger");
    Ok(())
}

/// Reads what was recorded, without a ledger.
fn read(run: &Path, points: f64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let (mut position, mut lines) = (Position::default(), 0);
    loop {
        let batch = read_from(run, &position)?;
        if batch.position == position {
            break;
        }
        (position, lines) = (batch.position, lines + batch.entries.len());
    }
    let took = began.elapsed();
    ensure!((lines as u64 * METRICS) as f64 >= points, "only {lines} records were read");
    Ok(took)
}

/// Brings a whole run into a new ledger.
fn feed(run: &Path, ledger: &Path, points: f64) -> anyhow::Result<Duration> {
    let ledger = Ledger::open(&LedgerUrl::Sqlite(ledger.to_owned()))?;
    let began = Instant::now();
    ledger.feed(run)?;
    let took = began.elapsed();
    complete(&ledger, points)?;
    Ok(took)
}

fn event_file(scratch: &Path, steps: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut file = TensorBoard::begin(&scratch.join("events"), 1).context("could not begin an event file")?;
    for step in 1..=steps {
        let loss = 1.0 / step as f64;
        file.scalars(step, [("loss", loss), ("lr", 0.001), ("grad_norm", 1.5), ("samples_per_s", 1234.5)])?;
    }
    file.flush()?;
    Ok(began.elapsed())
}
