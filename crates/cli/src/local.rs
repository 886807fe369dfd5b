//! Node processes of this command's own, on this machine.

use crate::failure::Failure;
use anyhow::Context;
use phalanx_types::DomainName;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a node may take to drain before it is killed.
const DRAIN: Duration = Duration::from_secs(5);

/// Node processes that end with this value, or with this process, whichever comes first.
#[derive(Debug)]
pub(crate) struct LocalNodes {
    children: Vec<Child>,
}

/// A domain nobody else is in, for nodes of one command.
pub(crate) fn private_domain() -> Result<DomainName, Failure> {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    DomainName::new(format!("local-{:08x}", random >> 32)).map_err(Failure::infrastructure)
}

impl LocalNodes {
    /// Starts so many nodes and waits until each has joined. The machine's cores are shared out
    /// among them unless `cores` says how many each has.
    pub(crate) fn start(
        domain: &DomainName,
        count: u32,
        cores: Option<u32>,
        extra: &[&str],
    ) -> Result<Self, Failure> {
        let me = std::env::current_exe().map_err(Failure::infrastructure)?;
        let machine = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let cores = cores.unwrap_or_else(|| (machine / count.max(1)).max(1));
        let mut nodes = Self { children: Vec::new() };
        for i in 1..=count {
            let child = Command::new(&me)
                .args(["node", "--domain", domain.as_str(), "--name", &format!("n{i}")])
                .args(["--cores", &cores.to_string(), "--output", "quiet"])
                .args(["--die-with", &std::process::id().to_string()])
                .args(extra)
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
