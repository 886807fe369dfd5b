//! Running other programs.

use crate::background::{Served, Started};
use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A program about to run in the root of the workspace.
pub(crate) struct Tool {
    command: Command,
    name: String,
}

pub(crate) fn tool<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: &[S]) -> Tool {
    let mut command = Command::new(&program);
    command.args(args).current_dir(root());
    // What cargo tells this chore about itself would make build scripts below run anew.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    let words = args.iter().map(|a| a.as_ref().to_string_lossy().into_owned());
    let program = Path::new(program.as_ref()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ");
    Tool { command, name }
}

pub(crate) fn cargo(args: &[&str]) -> Tool {
    tool(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

impl Tool {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    #[expect(clippy::print_stderr, reason = "says what runs")]
    fn say(&self) {
        eprintln!("\x1b[1m==> {}\x1b[0m", self.name);
    }

    /// Runs it and fails when it fails.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        self.say();
        let status = self.command.status().with_context(|| format!("could not start {}", self.name))?;
        if !status.success() {
            bail!("{} failed: {status}", self.name);
        }
        Ok(())
    }

    /// Starts it and lets it run.
    pub(crate) fn start(mut self) -> anyhow::Result<Started> {
        self.say();
        self.command.stdin(Stdio::null());
        Started::new(self.command, self.name)
    }

    /// Starts it to be asked line by line.
    pub(crate) fn serve(self) -> anyhow::Result<Served> {
        self.say();
        Served::new(self.command, self.name)
    }

    /// Runs it and gives what it printed on standard output.
    pub(crate) fn capture(mut self) -> anyhow::Result<String> {
        self.say();
        let output = self.command.stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("could not start {}", self.name))?;
        if !output.status.success() {
            bail!("{} failed: {}", self.name, output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Whether a program is on the path.
pub(crate) fn present(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}
