//! Nodes that are measured: each on cores of its own, or with a part of one.

use super::Bench;
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// What a node may use.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) enum Allowed {
    /// This core.
    Core(usize),
    /// So many hundredths of a core, whichever.
    Percent(u32),
}

/// Node processes of a domain; they end with this value.
pub(in crate::bench) struct Nodes {
    children: Vec<Child>,
    groups: Vec<PathBuf>,
}

impl Nodes {
    /// Their processes.
    pub(in crate::bench) fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }

    pub(in crate::bench) fn start(bench: &Bench, domain: &str, allowed: &[Allowed]) -> anyhow::Result<Self> {
        let mut nodes = Self { children: Vec::new(), groups: Vec::new() };
        for (number, allowed) in allowed.iter().enumerate() {
            let mut command = command(bench, *allowed, domain, number, &mut nodes.groups)?;
            let args = [
                "node",
                "--domain",
                domain,
                "--cores",
                "1",
                "--heartbeat",
                "10s",
                "--output",
                "quiet",
                "--name",
            ];
            command.args(args).arg(format!("r{number}"));
            command.env("PHALANX_RUNTIME_DIR", bench.work.join("domains"));
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
            nodes.children.push(child.context("could not start a node")?);
        }
        for child in &mut nodes.children {
            let mut line = String::new();
            let out = child.stdout.take().context("a node has no output")?;
            ensure!(BufReader::new(out).read_line(&mut line)? > 0, "a node ended before it had joined");
        }
        Ok(nodes)
    }
}

/// The program, confined.
fn command(
    bench: &Bench,
    allowed: Allowed,
    domain: &str,
    number: usize,
    groups: &mut Vec<PathBuf>,
) -> anyhow::Result<Command> {
    match allowed {
        Allowed::Core(core) => {
            let mut command = Command::new("taskset");
            command.arg("-c").arg(core.to_string()).arg(&bench.phalanx);
            Ok(command)
        }
        Allowed::Percent(percent) => {
            let group = quota(&format!("{domain}-{number}"), percent)?;
            // The shell puts itself into the group, then becomes the node.
            let mut command = Command::new("sh");
            let tasks = group.join("cgroup.procs");
            command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(tasks).arg(&bench.phalanx);
            groups.push(group);
            Ok(command)
        }
    }
}

/// A control group that may use so many hundredths of a core, in slices of 10 ms.
fn quota(name: &str, percent: u32) -> anyhow::Result<PathBuf> {
    const PERIOD_US: u32 = 10_000;
    let (old, new) = (PathBuf::from("/sys/fs/cgroup/cpu"), PathBuf::from("/sys/fs/cgroup"));
    let is_old = old.join("cpu.cfs_quota_us").exists();
    let group = if is_old { old.join(name) } else { new.join(name) };
    let made = std::fs::create_dir_all(&group);
    made.with_context(|| format!("could not make {}; control groups need root", group.display()))?;
    let amount = PERIOD_US * percent / 100;
    if is_old {
        std::fs::write(group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
        std::fs::write(group.join("cpu.cfs_quota_us"), amount.to_string())?;
    } else {
        std::fs::write(group.join("cpu.max"), format!("{amount} {PERIOD_US}"))?;
    }
    Ok(group)
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Both fail only for a process that has ended, which is what is wanted.
            let _killed = child.kill();
            let _reaped = child.wait();
        }
        for group in &self.groups {
            // One that stays hurts nobody.
            let _removed = std::fs::remove_dir(group);
        }
    }
}
