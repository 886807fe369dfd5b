//! `phalanx store watch` and `phalanx store seal`.

use super::at::{At, failure};
use crate::escape::one_line;
use crate::failure::Failure;
use crate::output::{Output, Render, print_line};
use crate::stop::StopSignals;
use clap::Args;
use phalanx_store_client::{StreamError, StreamInfo, StreamWatch};
use phalanx_streams::{ProducerOverview, ProducerPresence, ReaderOverview};
use phalanx_types::{ByteSize, Time};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Screens follow each other no faster than this, however much happens.
const SHORTEST: Duration = Duration::from_millis(250);
/// How long the store waits before it says that nothing has changed.
const ONE_WAIT: Duration = Duration::from_secs(30);
/// The most clients of a stream that are shown one by one.
const SHOWN: usize = 16;

#[derive(Debug, Args)]
#[command(
    after_help = "The screen follows what happens: the store tells changes, nothing is asked in between.
Ctrl-C ends it.

Examples:
  phalanx store watch training_data
  phalanx store watch --once --output json        all streams, once"
)]
pub(crate) struct WatchArgs {
    /// The stream; all if none is given.
    stream: Option<String>,
    /// Show what there is and end.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Readers then know that they have seen all samples. Lists of datasets end only so.

Example:
  phalanx store seal training_data")]
pub(crate) struct SealArgs {
    /// The stream.
    stream: String,
    #[command(flatten)]
    at: At,
}

/// How a command ends when a stream did not do what was asked.
fn stream_failure(error: StreamError) -> Failure {
    let hint = error.hint();
    match error {
        StreamError::Store(error) => failure(error),
        error @ StreamError::TimedOut { .. } => Failure::work(error).hint_if(hint),
        error => Failure::usage(error).hint_if(hint),
    }
}

#[derive(Debug, Serialize)]
struct Sealed {
    stream: String,
    samples: u64,
}

impl Render for Sealed {
    fn table(&self) -> String {
        format!("stream {} has ended with {} samples", self.stream, self.samples)
    }

    fn quiet(&self) -> String {
        self.samples.to_string()
    }
}

pub(crate) fn seal(args: &SealArgs, output: Output) -> Result<(), Failure> {
    let store = args.at.connect()?;
    store.seal_stream(&args.stream).map_err(stream_failure)?;
    let info = store.stream_info(&args.stream).map_err(stream_failure)?;
    output.print(&Sealed { stream: args.stream.clone(), samples: info.stream.samples })
}

/// What is shown at a time.
#[derive(Debug, Serialize)]
struct Watched {
    streams: Vec<WatchedStream>,
}

#[derive(Debug, Serialize)]
struct WatchedStream {
    /// Samples in a second, since the last time or since the store was started.
    samples_per_second: f64,
    #[serde(flatten)]
    info: StreamInfo,
}

pub(crate) async fn watch(args: WatchArgs, output: Output) -> Result<(), Failure> {
    let mut stop = StopSignals::new()?;
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let store = args.at.connect()?;
    let follow = store.watch_streams(args.stream.as_deref()).map_err(stream_failure)?;
    // The client blocks; a thread that waits when the command ends goes with the process.
    std::thread::spawn(move || follow_streams(follow, &tell));
    let mut before: BTreeMap<String, (Time, u64)> = BTreeMap::new();
    loop {
        let infos = tokio::select! {
            infos = told.recv() => match infos {
                Some(infos) => infos.map_err(stream_failure)?,
                None => return Ok(()),
            },
            () = stop.next() => return Ok(()),
            () = crate::output::reader_gone(), if !args.once => return Ok(()),
        };
        if let Some(missing) = args.stream.as_ref().filter(|_| args.once && infos.is_empty()) {
            return Err(Failure::usage(anyhow::anyhow!("there is no stream {missing}")));
        }
        let streams = infos.into_iter().map(|info| rated(info, &mut before)).collect();
        show(&Watched { streams }, output, args.once)?;
        if args.once {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(SHORTEST) => {}
            () = stop.next() => return Ok(()),
        }
    }
}

/// Asks for changes until no one listens.
fn follow_streams(
    mut watch: StreamWatch,
    tell: &tokio::sync::mpsc::Sender<Result<Vec<StreamInfo>, StreamError>>,
) {
    loop {
        let found = match watch.next(ONE_WAIT) {
            Ok(None) => continue,
            Ok(Some(infos)) => Ok(infos),
            Err(error) => Err(error),
        };
        let failed = found.is_err();
        if tell.blocking_send(found).is_err() || failed {
            return;
        }
    }
}

fn rated(info: StreamInfo, before: &mut BTreeMap<String, (Time, u64)>) -> WatchedStream {
    let before = before.insert(info.name.clone(), (info.at, info.stream.samples));
    WatchedStream { samples_per_second: info.samples_per_second(before), info }
}

fn show(watched: &Watched, output: Output, once: bool) -> Result<(), Failure> {
    if output == Output::Table && !once && std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        // The cursor goes home and the screen is cleared.
        print_line("\u{1b}[H\u{1b}[2J")?;
    }
    output.print(watched)
}

impl Render for Watched {
    fn table(&self) -> String {
        if self.streams.is_empty() {
            return "there are no streams".to_owned();
        }
        let shown: Vec<String> = self.streams.iter().map(WatchedStream::text).collect();
        shown.join("\n\n")
    }

    fn quiet(&self) -> String {
        let line = |one: &WatchedStream| format!("{} {}", one.info.name, one.info.stream.samples);
        self.streams.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn rounded(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

impl WatchedStream {
    fn text(&self) -> String {
        let (info, stream) = (&self.info, &self.info.stream);
        let budget = stream.settings.budget.map(|budget| format!(" of {budget}")).unwrap_or_default();
        let limit = match info.store_memory {
            ByteSize(0) => String::new(),
            limit => format!(" of {limit}"),
        };
        let mut text = format!(
            "stream    {}{}\nsamples   {} in {} uploads, {:.1}/s\nmemory    {}{budget} of samples, {} uploads kept; store {}{limit}",
            one_line(&info.name),
            if stream.ended { " (ended)" } else { "" },
            stream.samples,
            stream.uploads,
            self.samples_per_second,
            stream.stored,
            stream.kept_uploads,
            info.store_used,
        );
        if info.store_on_disk.0 > 0 || info.read_back_values > 0 {
            let (values, bytes) = (info.read_back_values, info.read_back);
            let noun = if values == 1 { "value" } else { "values" };
            let disk = format!("{} of the store; {values} {noun} read back, {bytes}", info.store_on_disk);
            line(&mut text, "disk", &disk);
        }
        if info.pending_datasets > 0 {
            let why = info.list_wait.as_ref().map(|wait| format!(", {wait}")).unwrap_or_default();
            let pending = format!("{} of the list do not count yet{why}", info.pending_datasets);
            line(&mut text, "datasets", &pending);
        }
        for producer in stream.producers.iter().take(SHOWN) {
            line(&mut text, "producer", &producer_text(producer));
        }
        more(&mut text, "producer", stream.producers.len());
        for reader in stream.readers.iter().take(SHOWN) {
            line(&mut text, "reader", &reader_text(reader));
            for trainer in reader.trainers.iter().take(SHOWN) {
                let behind = reader.cursor.map_or(0, |cursor| trainer.done.saturating_sub(cursor.step));
                let ahead = if behind > 0 {
                    format!(", {behind} steps done and not committed")
                } else {
                    String::new()
                };
                line(&mut text, "trainer", &format!("{} rank {}{ahead}", trainer.id, trainer.rank));
            }
            more(&mut text, "trainer", reader.trainers.len());
        }
        more(&mut text, "reader", stream.readers.len());
        for wait in stream.waits.iter().take(SHOWN) {
            line(&mut text, "waits", &format!("{}: {}", wait.waiter, wait.reason));
        }
        more(&mut text, "waits", stream.waits.len());
        for (_, report) in info.reports.iter().rev().take(4).rev() {
            line(&mut text, "report", report);
        }
        text
    }
}

fn line(text: &mut String, title: &str, rest: &str) {
    // Writing to a string cannot fail.
    let _written = write!(text, "\n{title:<9} {}", one_line(rest));
}

fn more(text: &mut String, title: &str, count: usize) {
    if count > SHOWN {
        line(text, title, &format!("… and {} more", count - SHOWN));
    }
}

fn producer_text(producer: &ProducerOverview) -> String {
    let state = match producer.presence {
        ProducerPresence::Open { .. } => "open".to_owned(),
        ProducerPresence::Lost { lost_for } => format!("lost {} ago", rounded(lost_for)),
        ProducerPresence::Closed => "closed".to_owned(),
    };
    let held = if producer.held > 0 { ", held back" } else { "" };
    format!("{} {state}, {} uploads{held}", producer.id, producer.next_upload)
}

fn reader_text(reader: &ReaderOverview) -> String {
    let place = match reader.cursor {
        Some(cursor) => format!("pass {}, step {} of {}", cursor.pass, cursor.step, reader.steps),
        None => "before its first pass".to_owned(),
    };
    let state = match (&reader.ending, reader.away_for) {
        (Some(ending), _) => format!(", ended ({ending:?})"),
        (None, Some(away)) => format!(", away for {}", rounded(away)),
        (None, None) => String::new(),
    };
    format!("{} {place}, {} samples behind{state}", reader.id, reader.lag)
}
