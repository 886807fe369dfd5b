//! `phalanx replay`.

use crate::failure::Failure;
use crate::output::Output;
use crate::times::moment;
use anyhow::anyhow;
use clap::Args;
use phalanx_jobs::core::MainCore;
use phalanx_protocol::driver::DriverCore;
use phalanx_recording::{Comparison, Pending, Player, RecordingError, Replay, Section, Step, read};
use phalanx_types::Time;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Repeat what a recorded main node or driver decided, and why.
///
/// Feeds every recorded event to the same core again and prints what it decides on each. Ends
/// with 0 when all decisions are the recorded ones, with 1 at the first that differs, with 2 when
/// the file is no whole recording of this version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  phalanx replay jobs.journal.recording
  phalanx replay jobs.journal.recording --until 12.5s --output json
  phalanx replay runs/2026-11-16-141502-3fa9/driver.recording --until 40")]
pub(crate) struct ReplayArgs {
    /// The recording: `FILE.recording` beside a journal, or `driver.recording` in a run directory.
    file: PathBuf,
    /// The last entry to replay, or the time up to which to replay, like 12.5s; of each section.
    #[arg(long, value_name = "TIME|ENTRY")]
    until: Option<Until>,
}

/// Where a replay ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Entry(u64),
    Time(Time),
}

impl FromStr for Until {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(entry) = text.parse() {
            return Ok(Until::Entry(entry));
        }
        let wrong = || "expected the number of an entry, or a time like 12.5s or 300ms".to_owned();
        // As times are printed; people also write them like any other duration.
        let seconds = text.strip_suffix('s').and_then(|text| text.parse().ok());
        let plain = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let time = plain.or_else(|| humantime::parse_duration(text).ok()).ok_or_else(wrong)?;
        Ok(Until::Time(Time::ZERO + time))
    }
}

impl Until {
    fn excludes(self, entry: u64, at: Time) -> bool {
        match self {
            Until::Entry(last) => entry > last,
            Until::Time(last) => at > last,
        }
    }
}

/// What was replayed so far.
#[derive(Debug, Default, Serialize)]
struct Total {
    sections: u64,
    entries: u64,
    commands: u64,
    /// The recording stopped at its limit before the core did.
    cut_short: bool,
    /// Bytes of a last block that was not written to its end.
    torn_bytes: u64,
}

pub(crate) fn run(args: &ReplayArgs, output: Output) -> Result<(), Failure> {
    let recording = read(&args.file).map_err(unreadable)?;
    let mut printer = Printer::new(output);
    let mut total = Total { torn_bytes: recording.torn_bytes(), ..Total::default() };
    for section in recording.sections() {
        let core = section.header().core.as_str();
        if core == MainCore::CORE {
            replay::<MainCore>(section, args.until, &mut printer, &mut total)?;
        } else if core == DriverCore::CORE {
            replay::<DriverCore>(section, args.until, &mut printer, &mut total)?;
        } else {
            let error = anyhow!("the section at byte {} is of an unknown core: {core:?}", section.offset());
            return Err(Failure::usage(error));
        }
    }
    if let Some(damage) = recording.damage() {
        printer.finish()?;
        return Err(unreadable(damage));
    }
    printer.total(&total)
}

fn unreadable(error: RecordingError) -> Failure {
    let hint = error.hint();
    Failure::usage(error).hint_if(hint)
}

fn replay<R: Replay>(
    section: Section<'_>,
    until: Option<Until>,
    printer: &mut Printer,
    total: &mut Total,
) -> Result<(), Failure> {
    let mut player = Player::<R>::new(section).map_err(unreadable)?;
    printer.section(section)?;
    total.sections += 1;
    while let Some(pending) = player.next_event().map_err(unreadable)? {
        if until.is_some_and(|until| until.excludes(pending.entry, pending.at)) {
            return Ok(());
        }
        // Before the core hears of it: if the core panics, this event is why.
        printer.event(&pending)?;
        let step = player.apply(pending).map_err(unreadable)?;
        printer.decided(&step)?;
        total.entries += 1;
        total.commands += step.commands.len() as u64;
        if let Comparison::Differs { recorded, replayed } = step.comparison {
            printer.finish()?;
            let (entry, at) = (step.entry, step.at);
            return Err(Failure::work(anyhow!(
                "decisions differ at entry {entry} ({at}): recorded were {} (digest {:016x}), replayed {} ({:016x})",
                recorded.commands,
                recorded.digest,
                replayed.commands,
                replayed.digest
            )));
        }
    }
    total.cut_short |= player.is_cut_short();
    Ok(())
}

/// Prints a replay as it goes.
struct Printer {
    output: Output,
    out: BufWriter<StdoutLock<'static>>,
    /// The JSON of the event that is being decided on.
    event: Value,
    reader_gone: bool,
}

impl Printer {
    fn new(output: Output) -> Self {
        let out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
        Self { output, out, event: Value::Null, reader_gone: false }
    }

    /// Notes a reader that went away, which is not an error.
    fn check(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.reader_gone = true;
                Ok(())
            }
            written => written.map_err(|error| {
                Failure::infrastructure(
                    anyhow::Error::new(error).context("could not write to standard output"),
                )
            }),
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.reader_gone {
            return Ok(());
        }
        let written = writeln!(self.out, "{text}");
        self.check(written)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if self.reader_gone {
            return Ok(());
        }
        let written = self.out.flush();
        self.check(written)
    }

    fn section(&mut self, section: Section<'_>) -> Result<(), Failure> {
        let header = section.header();
        let began = humantime::format_rfc3339_millis(moment(header.unix_ms));
        let (core, program, entry) = (&header.core, &header.program, header.first_entry);
        match self.output {
            Output::Table => {
                self.line(format_args!("{core}, phalanx {program}, recorded from {began} on, entry {entry}"))
            }
            Output::Json => {
                let began = began.to_string();
                let section =
                    json!({ "section": core, "program": program, "began": began, "first_entry": entry });
                self.line(format_args!("{section}"))
            }
            Output::Quiet => Ok(()),
        }
    }

    fn event<E: std::fmt::Display>(&mut self, pending: &Pending<E>) -> Result<(), Failure> {
        let Pending { entry, at, event } = pending;
        match self.output {
            Output::Table => self.line(format_args!("{entry:>8}  {:>14}  {event}", at.to_string())),
            Output::Json => {
                self.event = json!({ "entry": entry, "at_us": at.0, "event": event.to_string() });
                Ok(())
            }
            Output::Quiet => Ok(()),
        }
    }

    fn decided<C: std::fmt::Display + Serialize>(&mut self, step: &Step<C>) -> Result<(), Failure> {
        match self.output {
            Output::Table => {
                for command in &step.commands {
                    self.line(format_args!("{:26}{command}", ""))?;
                }
                if step.comparison == Comparison::NotRecorded {
                    self.line(format_args!("{:26}(the recording ends before what was decided here)", ""))?;
                }
                Ok(())
            }
            Output::Json => {
                let commands = step.commands.iter().map(|command| {
                    let mut value = serde_json::to_value(command).unwrap_or(Value::Null);
                    if let Value::String(name) = value {
                        value = json!({ name: {} });
                    }
                    json!({ "text": command.to_string(), "command": value })
                });
                let mut event = std::mem::take(&mut self.event);
                event["commands"] = commands.collect();
                event["compared"] = (step.comparison != Comparison::NotRecorded).into();
                self.line(format_args!("{event}"))
            }
            Output::Quiet => Ok(()),
        }
    }

    fn total(&mut self, total: &Total) -> Result<(), Failure> {
        let Total { entries, commands, .. } = total;
        match self.output {
            Output::Table => {
                let cut = if total.cut_short { "; the recording stopped at its limit" } else { "" };
                let torn = if total.torn_bytes > 0 { "; a torn block at the end was left out" } else { "" };
                self.line(format_args!(
                    "{entries} events, {commands} decisions, all as recorded{cut}{torn}"
                ))?;
            }
            Output::Json => {
                let text = serde_json::to_string(total).map_err(Failure::infrastructure)?;
                self.line(format_args!("{text}"))?;
            }
            Output::Quiet => self.line(format_args!("{entries}"))?,
        }
        self.finish()
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        // Also when the core panics: what led to it must be seen.
        let _reader_gone = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_is_an_entry_or_a_time() {
        assert_eq!("17".parse(), Ok(Until::Entry(17)));
        assert_eq!("12.5s".parse(), Ok(Until::Time(Time(12_500_000))));
        assert_eq!("0.000123s".parse(), Ok(Until::Time(Time(123))));
        assert_eq!("2m 300ms".parse(), Ok(Until::Time(Time(120_300_000))));
        assert!("soon".parse::<Until>().unwrap_err().contains("12.5s"));
    }
}
