use crate::failure::Failure;
use crate::own_program::own_program;
use anyhow::Context;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// A store to measure; one that was started ends with this value.
#[derive(Debug)]
pub(super) struct Served {
    address: String,
    process: Option<Child>,
}

impl Served {
    pub(super) fn elsewhere(address: &str) -> Self {
        Self { address: address.to_owned(), process: None }
    }

    /// Starts a store as its users do.
    pub(super) fn start() -> Result<Self, Failure> {
        let mut command = own_program().command();
        command.args(["--output", "quiet", "store", "serve", "--bind", "127.0.0.1:0"]);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.context("could not start a store").map_err(Failure::infrastructure)?;
        let stdout = process.stdout.take();
        let mut served = Self { address: String::new(), process: Some(process) };
        // It says its address when it listens, and why it does not on standard error.
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        if !matches!(read, Some(Ok(1..))) {
            return Err(Failure::infrastructure(anyhow::anyhow!("the store did not start")));
        }
        served.address = line.trim_end().to_owned();
        Ok(served)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // Both fail only for a process that has ended, which is what is wanted.
            let _killed = process.kill();
            let _reaped = process.wait();
        }
    }
}
