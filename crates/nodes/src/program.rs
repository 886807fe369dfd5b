//! Which program has `node` as a command.

use crate::error::NodesError;
use std::path::{Path, PathBuf};

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
    fn a_program_is_looked_for_beside_examples_too() {
        let places = beside(Path::new("/target/debug/examples/first"));
        assert_eq!(places, [Path::new("/target/debug/examples/phalanx"), Path::new("/target/debug/phalanx")]);
    }
}
