//! Node processes on this machine.

use crate::error::NodesError;
use crate::program::Program;
use phalanx_types::DomainName;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a node may take to end before it is killed.
const DRAIN: Duration = Duration::from_secs(5);
/// Before a node that has ended is started again.
const PAUSE: Duration = Duration::from_secs(1);

/// Which nodes to start.
#[derive(Debug, Clone)]
pub struct LocalSpec {
    /// The program, which has `node` as a command.
    pub program: Program,
    /// The domain that they join.
    pub domain: DomainName,
    /// The file with the key of the domain, if it has one.
    pub key: Option<PathBuf>,
    /// How long a node may be silent before it counts as lost.
    pub heartbeat: Option<Duration>,
    /// How many nodes.
    pub count: u32,
    /// How many cores each has; the machine's are shared out among them when not given.
    pub cores: Option<u32>,
    /// Whether jobs of kind `exec` may run commands.
    pub allow_exec: bool,
    /// Files and folders of this process's own run, which they open in place.
    pub run_files: Vec<PathBuf>,
    /// Whether a node that ends is started again. Such nodes are not interrupted together with this process: what
    /// started them stops them when they have said all.
    pub restart: bool,
    /// Further arguments of every node.
    pub arguments: Vec<String>,
    /// Variables that every node has besides those of this process.
    pub environment: Vec<(String, String)>,
}

impl LocalSpec {
    /// Nodes that share the machine's cores and are not started again.
    pub fn new(program: impl Into<Program>, domain: DomainName, count: u32) -> Self {
        Self {
            program: program.into(),
            domain,
            key: None,
            heartbeat: None,
            count,
            cores: None,
            allow_exec: false,
            run_files: Vec::new(),
            restart: false,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// One of the nodes. Only what is said here counts, not what the user's environment says of a node that this
    /// process is itself.
    fn command(&self, number: u32) -> Command {
        let machine = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let cores = self.cores.unwrap_or_else(|| (machine / self.count.max(1)).max(1));
        let mut command = self.program.command();
        command
            .args(["node", "--domain", self.domain.as_str(), "--name", &format!("n{number}")])
            .args(["--bind", "127.0.0.1:0", "--cores", &cores.to_string(), "--output", "quiet"])
            .args(["--die-with", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(if self.restart { Stdio::null() } else { Stdio::piped() });
        for name in ["BIND", "CONNECT", "RELAY", "KEY", "HEARTBEAT"] {
            command.env_remove(format!("PHALANX_{name}"));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(key) = &self.key {
            command.arg("--key").arg(key);
        }
        if let Some(heartbeat) = self.heartbeat {
            command.args(["--heartbeat", &humantime::format_duration(heartbeat).to_string()]);
        }
        if self.allow_exec {
            command.arg("--allow-exec");
        }
        for file in &self.run_files {
            command.arg("--run-file").arg(file);
        }
        command.args(&self.arguments);
        if self.restart {
            command.process_group(0);
        }
        command
    }
}

/// Node processes that end with this value, or with this process, whichever comes first.
#[derive(Debug)]
pub struct LocalNodes {
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

impl LocalNodes {
    /// Starts nodes. Waits until each has joined, unless they are started again when they end: those join by
    /// themselves.
    ///
    /// # Errors
    /// A node could not start, or ended at once.
    pub fn start(spec: &LocalSpec) -> Result<Self, NodesError> {
        let mut nodes = Self { shared: Arc::default(), threads: Vec::new() };
        let (joined, joins) = channel();
        for number in 1..=spec.count {
            let command = spec.command(number);
            let shared = Arc::clone(&nodes.shared);
            let (restart, joined) = (spec.restart, joined.clone());
            // A node ends with the thread that started it, so that thread stays.
            let watch = move || match restart {
                true => shared.keep_running(number, command),
                false => shared.run_once(command, &joined),
            };
            let thread = std::thread::Builder::new().name(format!("n{number}")).spawn(watch);
            nodes.threads.push(thread.map_err(NodesError::Thread)?);
        }
        drop(joined);
        match spec.restart {
            true => Ok(nodes),
            false => all_joined(&joins, spec.count).map(|()| nodes),
        }
    }
}

fn all_joined(joins: &Receiver<Result<(), NodesError>>, count: u32) -> Result<(), NodesError> {
    for _ in 0..count {
        joins.recv().unwrap_or(Err(NodesError::Ended))?;
    }
    Ok(())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a node, says when it has joined, and waits for its end.
    fn run_once(&self, mut command: Command, joined: &Sender<Result<(), NodesError>>) {
        let mut child = match self.spawn(&mut command) {
            Ok(Some(child)) => child,
            Ok(None) => return,
            // The other end is gone only when nobody waits any more.
            Err(error) => return drop(joined.send(Err(NodesError::Spawn(error)))),
        };
        let mut line = String::new();
        let mut stdout = child.stdout.take().map(BufReader::new);
        let read = stdout.as_mut().map_or(Ok(0), |out| out.read_line(&mut line));
        drop(joined.send(match read {
            Ok(0) => Err(NodesError::Ended),
            Ok(_) => Ok(()),
            Err(error) => Err(NodesError::Spawn(error)),
        }));
        // Fails only for a process that has ended, which is what is waited for.
        let _ended = child.wait();
        drop(self.ended(&child));
    }

    fn keep_running(&self, number: u32, mut command: Command) {
        loop {
            let mut child = match self.spawn(&mut command) {
                Ok(Some(child)) => child,
                Ok(None) => return,
                Err(error) => return tracing::error!(%error, "could not start a local node"),
            };
            let ended = child.wait();
            let state = self.ended(&child);
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

    fn ended(&self, child: &Child) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.running.retain(|pid| *pid != child.id());
        self.changed.notify_all();
        state
    }

    /// Starts a node, unless all are to stop.
    fn spawn(&self, command: &mut Command) -> std::io::Result<Option<Child>> {
        let mut state = self.state();
        if state.stopping {
            return Ok(None);
        }
        let child = command.spawn()?;
        state.running.push(child.id());
        Ok(Some(child))
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

impl Drop for LocalNodes {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(program: &str) -> LocalSpec {
        LocalSpec::new(program, crate::private_domain().unwrap(), 2)
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(matches!(LocalNodes::start(&spec("/nowhere/phalanx")), Err(NodesError::Spawn(_))));
    }

    #[test]
    fn a_program_that_ends_at_once_is_an_error() {
        assert!(matches!(LocalNodes::start(&spec("true")), Err(NodesError::Ended)));
    }

    #[test]
    fn a_program_that_says_a_line_has_joined() {
        LocalNodes::start(&spec("echo")).unwrap();
    }
}
