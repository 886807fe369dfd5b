//! Which program has `node` as a command.

use crate::error::NodesError;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that has `node` as a command, with the arguments that come before its commands.
///
/// An interpreter that runs a script is such a program: its file is the interpreter, and the script is an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    file: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// An executable file that needs no arguments before its commands.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), arguments: Vec::new() }
    }

    /// The same with one more argument before its commands.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Ready for the name of a command and its arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments);
        command
    }

    /// The file and the arguments, in this order.
    pub fn words(&self) -> impl Iterator<Item = &OsStr> {
        std::iter::once(self.file.as_os_str()).chain(self.arguments.iter().map(OsString::as_os_str))
    }
}

impl From<PathBuf> for Program {
    fn from(file: PathBuf) -> Self {
        Self::new(file)
    }
}

impl From<&Path> for Program {
    fn from(file: &Path) -> Self {
        Self::new(file)
    }
}

impl From<&str> for Program {
    fn from(file: &str) -> Self {
        Self::new(file)
    }
}

/// The variable of the environment that names the program.
pub const NODE_PROGRAM: &str = "PHALANX_NODE_PROGRAM";
const NAME: &str = "phalanx";

/// The program that local nodes are started from: `PHALANX_NODE_PROGRAM`, else the `phalanx` beside this program or on
/// PATH.
///
/// # Errors
/// There is none.
pub fn node_program() -> Result<PathBuf, NodesError> {
    if let Some(named) = std::env::var_os(NODE_PROGRAM).filter(|name| !name.is_empty()) {
        return Ok(named.into());
    }
    let own = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = beside(&own).into_iter().chain(std::env::split_paths(&path).map(|dir| dir.join(NAME)));
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| NodesError::NoProgram { beside: own.display().to_string() })
}

/// Beside a program, and one directory up, where Cargo puts binaries of which it puts tests and examples below.
fn beside(own: &Path) -> Vec<PathBuf> {
    let dir = own.parent();
    [dir, dir.and_then(Path::parent)].into_iter().flatten().map(|dir| dir.join(NAME)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_program_come_before_its_commands() {
        let program = Program::new("/bin/echo").argument("a").argument("b c");
        assert_eq!(program.words().collect::<Vec<_>>(), ["/bin/echo", "a", "b c"]);
        let output = program.command().arg("node").output().unwrap();
        assert_eq!(output.stdout, b"a b c node\n");
    }

    #[test]
    fn a_program_is_looked_for_beside_examples_too() {
        let places = beside(Path::new("/target/debug/examples/first"));
        assert_eq!(places, [Path::new("/target/debug/examples/phalanx"), Path::new("/target/debug/phalanx")]);
    }
}
