//! What viewers of a live run cost. A dashboard is a process of its own, also with `--dashboard`, so a driver pays
//! nothing but that process.

use super::runs::{RUN_TOML, about, report};
use crate::commands::bench::numbers::Numbers;
use crate::own_program::own_program;
use anyhow::{Context, ensure};
use phalanx_protocol::progress::Place;
use phalanx_records::run_dir::{RUN_FILE, RunDir};
use phalanx_records::{Book, Events, Opened};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const VIEWERS: usize = 100;
/// Between two steps of the run.
const STEP: Duration = Duration::from_millis(20);
/// A line of a message begins with it.
const DATA: &[u8] = b"\ndata:";
/// Connections that were just made do not count.
const SETTLED: Duration = Duration::from_secs(1);

/// The dashboard; it ends with this value.
struct Served {
    process: Child,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only for a process that has ended, which is what is wanted.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

impl Served {
    fn start(runs: &Path) -> anyhow::Result<Self> {
        let mut command = own_program().command();
        command.args(["--output", "quiet", "dashboard", "--no-domain", "--bind", "127.0.0.1:0"]).arg(runs);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let process = command.spawn().context("could not start a dashboard")?;
        let mut this = Self { process, address: String::new() };
        let mut line = String::new();
        let stdout = this.process.stdout.as_mut().context("a dashboard without output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        this.address = address.with_context(|| format!("no dashboard at {line:?}"))?.to_owned();
        Ok(this)
    }

    /// The processor time that it has used, in seconds.
    fn processor_time(&self) -> anyhow::Result<f64> {
        let mut nanoseconds = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let spent = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            nanoseconds += spent.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok(nanoseconds / 1e9)
    }

    /// Asks for the changes of a run as a browser does.
    fn view(&self, run: &str) -> anyhow::Result<TcpStream> {
        let mut socket = TcpStream::connect(&self.address)?;
        let address = &self.address;
        write!(socket, "GET /api/v1/live?run={run} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        Ok(socket)
    }
}

pub(super) fn measure(time: Duration) -> anyhow::Result<Numbers> {
    let scratch = tempfile::tempdir()?;
    let runs = scratch.path().join("runs");
    let ended = Arc::new(AtomicBool::new(false));
    let live = {
        let (run, ended) = (runs.join("live"), ended.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let live = std::thread::spawn(move || live_run(&run, &ended, &ready));
        if is_ready.recv().is_err() {
            return Err(live.join().map_or_else(
                |_| anyhow::anyhow!("no run"),
                |done| done.err().unwrap_or_else(|| anyhow::anyhow!("a run ended early")),
            ));
        }
        live
    };
    let measured = with_viewers(&runs, time);
    ended.store(true, Ordering::Relaxed);
    live.join().map_err(|_panicked| anyhow::anyhow!("the run was not recorded"))??;
    measured
}

fn with_viewers(runs: &Path, time: Duration) -> anyhow::Result<Numbers> {
    let served = Served::start(runs)?;
    let share = |served: &Served| -> anyhow::Result<f64> {
        std::thread::sleep(SETTLED);
        let (before, began) = (served.processor_time()?, Instant::now());
        std::thread::sleep(time);
        Ok((served.processor_time()? - before) / began.elapsed().as_secs_f64() * 100.0)
    };
    let alone = share(&served)?;
    let seen = Arc::new(AtomicU64::new(0));
    let sockets = (0..VIEWERS).map(|_| served.view("live")).collect::<anyhow::Result<Vec<_>>>()?;
    for socket in sockets {
        let seen = seen.clone();
        std::thread::Builder::new().stack_size(128 << 10).spawn(move || read(socket, &seen))?;
    }
    let watched = share(&served)?;
    let messages = seen.load(Ordering::Relaxed) as f64 / VIEWERS as f64;
    ensure!(messages >= 1.0, "the viewers were told nothing");
    Ok(Numbers::from([
        ("viewers_none_core_percent", alone),
        ("viewers_100_core_percent", watched),
        ("viewers_messages_each", messages),
    ]))
}

/// Counts what a viewer is told, until the dashboard ends.
fn read(mut socket: TcpStream, seen: &AtomicU64) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(length @ 1..) = socket.read(&mut bytes) {
        let messages = bytes[..length].windows(DATA.len()).filter(|window| *window == DATA).count();
        seen.fetch_add(messages as u64, Ordering::Relaxed);
    }
}

/// Records a run, step by step, until it shall end.
fn live_run(run: &Path, ended: &AtomicBool, ready: &std::sync::mpsc::Sender<()>) -> anyhow::Result<()> {
    let dir = RunDir::create(run)?;
    dir.write(RUN_FILE, RUN_TOML.as_bytes())?;
    let mut ignore = ();
    let mut events = Events::of_run(&dir, &mut ignore)?;
    let Opened { mut book, .. } = Book::open(dir, about(1_000_000)?, &mut events)?;
    book.begin(Place::default())?;
    let mut report = report();
    for step in 1.. {
        (report.step, report.loss) = (step, 1.0 / step as f32);
        book.record_step(&report, None, &mut events)?;
        // The other side only waits for the first.
        let _told = ready.send(());
        if ended.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}
