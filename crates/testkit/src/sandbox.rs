//! The environment of one test: its own directories, its own domain, the binary under test.

use crate::replay;
use crate::turn::Turn;
use crate::{Namespace, Process};
use serde_json::Value;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Directories and environment that isolate a test's processes from all others.
#[derive(Debug)]
pub struct Sandbox {
    binary: PathBuf,
    dir: TempDir,
    _turn: Turn,
}

impl Sandbox {
    /// For a test that runs in parallel with others.
    ///
    /// # Panics
    /// Temporary files cannot be created.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self::with_turn(binary.into(), Turn::shared())
    }

    /// For a test that measures time or memory: no other test of this binary runs while the sandbox exists.
    ///
    /// # Panics
    /// Temporary files cannot be created, or the test already has a sandbox that shares the machine.
    pub fn alone(binary: impl Into<PathBuf>) -> Self {
        Self::with_turn(binary.into(), Turn::alone())
    }

    fn with_turn(binary: PathBuf, turn: Turn) -> Self {
        Self { binary, dir: tempfile::tempdir().expect("a temporary directory"), _turn: turn }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The binary with these arguments, confined to this sandbox.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.command_at("host", None, args)
    }

    /// The same on another host: other access files, and in a network namespace if one is given.
    pub fn command_at<S: AsRef<OsStr>>(&self, host: &str, ns: Option<&Namespace>, args: &[S]) -> Command {
        let mut command = match ns {
            Some(ns) => ns.command(&self.binary),
            None => Command::new(&self.binary),
        };
        let dir = self.dir.path();
        command
            .args(args)
            .current_dir(dir)
            .env("PHALANX_RUNTIME_DIR", dir.join("run").join(host))
            .env("PHALANX_CONFIG_DIR", dir.join("config"))
            .env("PHALANX_STATE_DIR", dir.join("state"))
            .env("PHALANX_CACHE_DIR", dir.join("cache"))
            .env("RUST_BACKTRACE", "1");
        command
    }

    /// A host of this sandbox, in a network namespace if one is given; the nodes of one host find each other by access
    /// files.
    pub fn host<'a>(&'a self, name: &'a str, ns: Option<&'a Namespace>) -> Host<'a> {
        Host { sandbox: self, name, ns }
    }

    /// Starts the binary.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Process {
        Process::start(self.command(args))
    }

    /// Starts a computing node and waits until it has joined; also returns its id.
    ///
    /// # Panics
    /// It does not join.
    pub fn node(&self, args: &[&str]) -> (Process, String) {
        let node = self.host("host", None).node(args);
        (node.process, node.id)
    }

    /// Runs the binary to completion.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.command(args).output().expect("the binary starts")
    }

    /// Runs the binary, which must succeed, and parses the last line as JSON.
    ///
    /// # Panics
    /// It fails or prints no JSON.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        self.host("host", None).json(args)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        replay::keep_recordings(self.dir.path());
    }
}

/// One host of a sandbox.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    sandbox: &'a Sandbox,
    name: &'a str,
    ns: Option<&'a Namespace>,
}

/// A computing node that has joined.
#[derive(Debug)]
pub struct Node {
    pub process: Process,
    pub id: String,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Host<'_> {
    /// The binary with these arguments, on this host.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        self.sandbox.command_at(self.name, self.ns, args)
    }

    /// Starts the binary.
    pub fn start<S: AsRef<OsStr>>(&self, args: &[S]) -> Process {
        Process::start(self.command(args))
    }

    /// Starts a computing node and waits until it has joined.
    ///
    /// # Panics
    /// It does not join.
    pub fn node(&self, args: &[&str]) -> Node {
        let all: Vec<&str> = ["node", "--output", "json"].iter().chain(args).copied().collect();
        let process = self.start(&all);
        let started = process.json();
        let id = started["id"].as_str().expect("an id").to_owned();
        let address = started["address"].as_str().and_then(|a| a.parse().ok()).expect("an address");
        Node { process, id, address }
    }

    /// Runs the binary, which must succeed, and parses the last line as JSON.
    ///
    /// # Panics
    /// It fails, hangs or prints no JSON.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        let mut process = self.start(args);
        let (status, printed) = process.finish();
        assert!(status.success(), "{status}\nstdout:\n{printed:#?}\nstderr:\n{}", process.stderr());
        let line = printed.last().map(String::as_str).unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is not JSON: {error}"))
    }
}
