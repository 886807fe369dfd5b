//! Node processes of this command's own, on this machine.

mod supervised;

pub(crate) use supervised::Supervised;

use crate::failure::Failure;
use anyhow::Context;
use phalanx_types::DomainName;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to drain before it is killed.
const DRAIN: Duration = Duration::from_secs(5);

/// Node processes that end with this value, or with this process, whichever comes first.
#[derive(Debug)]
pub(crate) struct LocalNodes {
    children: Vec<Child>,
}

/// A number nobody else has: the standard library seeds this hasher from the operating system.
pub(crate) fn random() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id())
}

/// A domain nobody else is in, for nodes of one command.
pub(crate) fn private_domain() -> Result<DomainName, Failure> {
    DomainName::new(format!("local-{:08x}", random() >> 32)).map_err(Failure::infrastructure)
}

/// Which nodes to start.
#[derive(Debug, Clone)]
pub(crate) struct LocalSpec<'a> {
    pub(crate) domain: &'a DomainName,
    pub(crate) key: Option<PathBuf>,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) count: u32,
    /// How many each has; the machine's are shared out among them when not given.
    pub(crate) cores: Option<u32>,
    pub(crate) allow_exec: bool,
}

impl<'a> LocalSpec<'a> {
    pub(crate) fn new(domain: &'a DomainName, count: u32) -> Self {
        Self { domain, key: None, heartbeat: None, count, cores: None, allow_exec: false }
    }

    /// One of the nodes. Only what is said here counts, not what the user's environment says of
    /// the node that this command is itself.
    fn command(&self, number: u32) -> Result<Command, Failure> {
        let me = own_binary()?;
        let machine = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let cores = self.cores.unwrap_or_else(|| (machine / self.count.max(1)).max(1));
        let mut command = Command::new(me);
        command
            .args(["node", "--domain", self.domain.as_str(), "--name", &format!("n{number}")])
            .args(["--bind", "127.0.0.1:0", "--cores", &cores.to_string(), "--output", "quiet"])
            .args(["--die-with", &std::process::id().to_string()]);
        for name in ["BIND", "CONNECT", "RELAY", "KEY", "HEARTBEAT"] {
            command.env_remove(format!("PHALANX_{name}"));
        }
        if let Some(key) = &self.key {
            command.arg("--key").arg(key);
        }
        if let Some(heartbeat) = self.heartbeat {
            command.args(["--heartbeat", &humantime::format_duration(heartbeat).to_string()]);
        }
        if self.allow_exec {
            command.arg("--allow-exec");
        }
        Ok(command)
    }
}

/// The file this process runs from.
pub(crate) fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("could not find this program's own file").map_err(Failure::infrastructure)
}

impl LocalNodes {
    /// Starts nodes and waits until each has joined.
    pub(crate) fn start(spec: &LocalSpec<'_>) -> Result<Self, Failure> {
        let mut nodes = Self { children: Vec::new() };
        for i in 1..=spec.count {
            let child = spec
                .command(i)?
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("could not start a local node")
                .map_err(Failure::infrastructure)?;
            nodes.children.push(child);
        }
        for child in &mut nodes.children {
            let mut line = String::new();
            let stdout = child.stdout.take();
            let read = stdout.map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line));
            if read.map_err(Failure::infrastructure)? == 0 {
                return Err(Failure::infrastructure(anyhow::anyhow!(
                    "a local node ended before it had joined"
                )));
            }
        }
        Ok(nodes)
    }

    /// Lets the nodes drain, then sees that they end.
    fn stop(&mut self) {
        for child in &self.children {
            let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid {
                // One that has ended needs no signal.
                let _ended = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        let until = Instant::now() + DRAIN;
        for child in &mut self.children {
            while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
            // Both fail only for a process that has ended, which is what is wanted.
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

impl Drop for LocalNodes {
    fn drop(&mut self) {
        self.stop();
    }
}
