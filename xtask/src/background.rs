//! Programs that run while this one goes on.

use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A program that was started; it ends with this value.
pub(crate) struct Started {
    child: Child,
    name: String,
}

impl Started {
    pub(crate) fn new(mut command: Command, name: String) -> anyhow::Result<Self> {
        let child = command.spawn().with_context(|| format!("could not start {name}"))?;
        Ok(Self { child, name })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end and fails when it failed.
    pub(crate) fn wait(mut self) -> anyhow::Result<()> {
        let status = self.child.wait().with_context(|| format!("could not wait for {}", self.name))?;
        if !status.success() {
            bail!("{} failed: {status}", self.name);
        }
        Ok(())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Neither works when it has ended already, which is as good.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A program that answers each line with a line.
pub(crate) struct Served {
    started: Started,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Served {
    pub(crate) fn new(mut command: Command, name: String) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut started = Started::new(command, name)?;
        let pipes = started.child.stdin.take().zip(started.child.stdout.take());
        let (stdin, stdout) = pipes.context("the pipes to a program are missing")?;
        Ok(Self { started, stdin, stdout: BufReader::new(stdout) })
    }

    pub(crate) fn ask(&mut self, line: &str) -> anyhow::Result<String> {
        let gone = || format!("{} ended early", self.started.name);
        writeln!(self.stdin, "{line}").with_context(gone)?;
        let mut answer = String::new();
        let read = self.stdout.read_line(&mut answer)?;
        ensure!(read > 0, gone());
        Ok(answer)
    }
}
