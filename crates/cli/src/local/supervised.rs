//! Nodes that are started again when they end.

use super::LocalSpec;
use crate::failure::Failure;
use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a node may take to end before it is killed.
const DRAIN: Duration = Duration::from_secs(5);
/// Before a node that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// Node processes, each started again when it ends, until this value is dropped; they end with this process, too.
#[derive(Debug)]
pub(crate) struct Supervised {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    running: Vec<u32>,
}

impl Supervised {
    /// Starts nodes. They join by themselves.
    pub(crate) fn start(spec: &LocalSpec<'_>) -> Result<Self, Failure> {
        let mut nodes = Self { shared: Arc::default(), threads: Vec::new() };
        for number in 1..=spec.count {
            let mut command = spec.command(number)?;
            // Of a group of its own: Ctrl-C is for the driver, which stops its nodes when they have said all.
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            let shared = Arc::clone(&nodes.shared);
            // A node ends with the thread that started it, so that thread stays.
            let watch = move || shared.keep_running(number, command);
            let thread = std::thread::Builder::new().name(format!("n{number}")).spawn(watch);
            let thread = thread.context("could not start a thread").map_err(Failure::infrastructure)?;
            nodes.threads.push(thread);
        }
        Ok(nodes)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_running(&self, number: u32, mut command: Command) {
        loop {
            let Some(mut child) = self.spawn(&mut command) else { return };
            let ended = child.wait();
            let mut state = self.state();
            state.running.retain(|pid| *pid != child.id());
            self.changed.notify_all();
            if state.stopping {
                return;
            }
            match ended {
                Ok(status) => {
                    tracing::warn!("local node n{number} ended ({status}); another takes its place")
                }
                Err(error) => tracing::warn!(%error, "could not wait for local node n{number}"),
            }
            let waited = self.changed.wait_timeout_while(state, PAUSE, |state| !state.stopping);
            drop(waited);
        }
    }

    /// Starts a node, unless all are to stop.
    fn spawn(&self, command: &mut Command) -> Option<Child> {
        let mut state = self.state();
        if state.stopping {
            return None;
        }
        match command.spawn() {
            Ok(child) => {
                state.running.push(child.id());
                Some(child)
            }
            Err(error) => {
                tracing::error!(%error, "could not start a local node");
                None
            }
        }
    }

    fn signal(&self, state: &State, signal: rustix::process::Signal) {
        for pid in state.running.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                // One that has ended needs no signal.
                let _ended = rustix::process::kill_process(pid, signal);
            }
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stopping = true;
        self.shared.changed.notify_all();
        self.shared.signal(&state, rustix::process::Signal::TERM);
        let until = Instant::now() + DRAIN;
        while !state.running.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.shared.signal(&state, rustix::process::Signal::KILL);
                break;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        for thread in self.threads.drain(..) {
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}
