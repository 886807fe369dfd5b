//! Runs one test binary, and ends it with all its processes when a test takes too long.
//!
//! ```text
//! cargo test ──runner──► xtask watch ──starts──► test binary ──starts──► nodes, drivers, …
//!    output ◄────passed on────┘ ◄─────reads─────────┘
//! ```
//!
//! cargo starts every test binary through this chore, so directory, environment and arguments are cargo's. libtest
//! itself has no time-out, but names a test that runs for a minute; `libtest` counts on from there.

mod libtest;
mod tree;

use anyhow::Context;
use clap::Args;
use libtest::Watch;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Seconds that a test may take; `.config/nextest.toml` says the same.
pub(crate) const LIMIT_S: u64 = 300;
/// What `timeout` of coreutils ends with.
const TIMED_OUT: u8 = 124;
/// How long a process that outlives the binary may hold on to its output.
const DRAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Seconds that one test may take.
    #[arg(long, default_value_t = LIMIT_S)]
    limit: u64,
    /// The test binary and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// The setting that makes cargo start test binaries through this chore.
pub(crate) fn runner(limit_s: u64) -> anyhow::Result<String> {
    let xtask = std::env::current_exe().context("could not find this program")?;
    let xtask = xtask.to_str().context("the path of this program is not UTF-8")?;
    let words = [xtask, "watch", "--limit", &limit_s.to_string(), "--"].map(|word| format!("{word:?}"));
    Ok(format!("target.'cfg(all())'.runner=[{}]", words.join(",")))
}

enum Event {
    Output(Vec<u8>),
    /// There is no more output.
    Closed,
    Ended(WaitStatus),
}

pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    // Processes whose parents have ended become children of this one, so none can get away.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("could not watch over processes")?;
    let (program, rest) = args.command.split_first().context("no test binary is given")?;
    let mut child = Command::new(program).args(rest).stdout(Stdio::piped()).spawn();
    let child =
        child.as_mut().map_err(|error| anyhow::anyhow!("could not start {}: {error}", program.display()))?;
    let stdout = child.stdout.take().context("the output of a test binary is missing")?;
    let (events, received) = channel();
    let (output, pid) = (events.clone(), Pid::from_child(child));
    std::thread::spawn(move || read(stdout, &output));
    std::thread::spawn(move || reap(pid, &events));
    follow(&received, Watch::new(Duration::from_secs(args.limit)))
}

fn read(mut stdout: impl Read, events: &Sender<Event>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stdout.read(&mut buffer) {
        if events.send(Event::Output(buffer.get(..n).unwrap_or_default().to_vec())).is_err() {
            return;
        }
    }
    // Nobody listens once the watch is over.
    let _told = events.send(Event::Closed);
}

/// Takes leave of every child, so that none stays as a zombie that others believe to run.
fn reap(binary: Pid, events: &Sender<Event>) {
    while let Ok(ended) = rustix::process::wait(WaitOptions::empty()) {
        if let Some((_, status)) = ended.filter(|(pid, _)| *pid == binary)
            && events.send(Event::Ended(status)).is_err()
        {
            return;
        }
    }
}

fn follow(events: &Receiver<Event>, mut watch: Watch) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    loop {
        match events.recv_timeout(watch.deadline().saturating_sub(started.elapsed())) {
            Ok(Event::Output(bytes)) => {
                pass_on(&bytes)?;
                watch.read(started.elapsed(), &bytes);
            }
            Ok(Event::Closed) => {}
            Ok(Event::Ended(status)) => {
                drain(events)?;
                for command in tree::kill_descendants() {
                    say(&format!("killed a process that outlived the tests: {command}"));
                }
                return Ok(exit_code(status));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                tree::kill_descendants();
                drain(events)?;
                say(&format!("\nerror: {}", watch.verdict(started.elapsed())));
                return Ok(ExitCode::from(TIMED_OUT));
            }
        }
    }
}

/// Passes on what is still in the pipe.
fn drain(events: &Receiver<Event>) -> anyhow::Result<()> {
    let until = Instant::now() + DRAIN;
    while let Ok(event) = events.recv_timeout(until.saturating_duration_since(Instant::now())) {
        match event {
            Event::Output(bytes) => pass_on(&bytes)?,
            Event::Closed => return Ok(()),
            Event::Ended(_) => {}
        }
    }
    Ok(())
}

fn pass_on(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).context("could not pass on the output of tests")
}

fn exit_code(status: WaitStatus) -> ExitCode {
    if let Some(signal) = status.terminating_signal() {
        say(&format!("error: the test binary was ended by signal {signal}"));
    }
    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

#[expect(clippy::print_stderr, reason = "says why tests were ended")]
fn say(line: &str) {
    eprintln!("{line}");
}
