//! A real process under test.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A process that is killed when the value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    stderr: Arc<ProcessOutput>,
    /// Closes when standard error ends.
    said_all: Receiver<()>,
    name: String,
}

/// The output of a process so far, and a signal for more.
#[derive(Debug, Default)]
struct ProcessOutput {
    text: Mutex<String>,
    more: Condvar,
}

impl Process {
    /// Starts it with its output captured.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("could not start {name}: {error}"));
        let (sender, lines) = channel();
        let stdout = child.stdout.take().expect("stdout is piped");
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(ProcessOutput::default());
        let (collected, mut pipe) = (stderr.clone(), child.stderr.take().expect("stderr is piped"));
        let (saying, said_all) = channel();
        std::thread::spawn(move || {
            let _saying: Sender<()> = saying;
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..n]);
                collected.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                collected.more.notify_all();
            }
        });
        Self { child, lines, stderr, said_all, name }
    }

    /// The next line it prints.
    ///
    /// # Panics
    /// It ends or stays silent.
    pub fn line(&self) -> String {
        match self.lines.recv_timeout(DEADLINE) {
            Ok(line) => line,
            Err(error @ (RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) => {
                panic!("{} printed nothing more ({error}); stderr:\n{}", self.name, self.stderr())
            }
        }
    }

    /// The next line it prints, parsed as JSON.
    ///
    /// # Panics
    /// It is not JSON.
    pub fn json(&self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?} is not JSON: {error}"))
    }

    /// The next matching line of JSON; others are skipped.
    ///
    /// # Panics
    /// There is none by the deadline.
    pub fn json_where(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let until = Instant::now() + DEADLINE;
        let mut others = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            match serde_json::from_str(&line) {
                Ok(value) if wanted(&value) => return value,
                _ => others.push(line),
            }
        }
        panic!("{} did not print {what}, only {others:#?}; stderr:\n{}", self.name, self.stderr())
    }

    /// Waits until these words appear on standard error.
    ///
    /// # Panics
    /// They do not before the deadline.
    pub fn says(&self, words: &str) {
        self.says_where(words, |said| said.contains(words));
    }

    /// Waits until its standard error is as wanted.
    ///
    /// # Panics
    /// It is not before the deadline.
    pub fn says_where(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let ProcessOutput { text, more } = &*self.stderr;
        let text = text.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = more.wait_timeout_while(text, DEADLINE, |text| !wanted(text));
        let (text, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{} did not say {what:?}; stderr:\n{text}", self.name);
    }

    /// The number of its open files and sockets.
    ///
    /// # Panics
    /// The process has ended.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("its files").count()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Its standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// The process has ended.
    pub fn signal(&self, signal: Signal) {
        send(self.child.id(), signal)
            .unwrap_or_else(|error| panic!("could not signal {}: {error}", self.name));
    }

    /// Waits for its end; returns its status and the rest of its output.
    ///
    /// # Panics
    /// It does not end before the deadline.
    pub fn finish(&mut self) -> (ExitStatus, Vec<String>) {
        self.finish_within(DEADLINE)
    }

    /// Waits for its end for at most `deadline`.
    ///
    /// # Panics
    /// It does not end before the deadline.
    pub fn finish_within(&mut self, deadline: Duration) -> (ExitStatus, Vec<String>) {
        let until = Instant::now() + deadline;
        let mut printed = Vec::new();
        // Its output closes when it ends, so no polling is needed.
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let (name, stderr) = (&self.name, self.stderr());
                    panic!("{name} did not end; printed {printed:#?}; stderr:\n{stderr}")
                }
            }
        }
        let status =
            self.child.wait().unwrap_or_else(|error| panic!("could not wait for {}: {error}", self.name));
        // Its children may keep its standard error open.
        let _closed = self.said_all.recv_timeout(until.saturating_duration_since(Instant::now()));
        (status, printed)
    }

    /// Its resident memory in bytes.
    ///
    /// # Panics
    /// The process has ended.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The memory that it holds for itself: without clean pages of files, which the system takes back when it needs them.
    ///
    /// # Panics
    /// It has ended.
    pub fn held_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:") + self.status_bytes("RssShmem:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("its status");
        let line = status.lines().find_map(|l| l.strip_prefix(name)).expect("a line in the status");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended needs neither.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Sends a signal to any process.
///
/// # Panics
/// There is no such process.
pub fn signal(pid: u32, signal: Signal) {
    send(pid, signal).unwrap_or_else(|error| panic!("could not signal process {pid}: {error}"));
}

fn send(pid: u32, signal: Signal) -> rustix::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal)
}

/// Polls until there is a result.
///
/// # Panics
/// There is none before the deadline.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    while Instant::now() < until {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(10));
    }
    panic!("not within {DEADLINE:?}: {what}")
}
