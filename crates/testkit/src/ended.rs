//! Commands that run to completion, and their results.

use crate::{Process, Sandbox};
use serde_json::Value;
use std::ffi::OsStr;

impl Sandbox {
    /// Runs the binary, which must end with this exit code; returns its standard error.
    ///
    /// # Panics
    /// It ends differently.
    pub fn fails<S: AsRef<OsStr>>(&self, code: i32, args: &[S]) -> String {
        let output = self.run(args);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "stdout:\n{stdout}\nstderr:\n{stderr}");
        stderr.into_owned()
    }

    /// Runs the binary, which must succeed; returns its standard output.
    ///
    /// # Panics
    /// It fails.
    pub fn stdout<S: AsRef<OsStr>>(&self, args: &[S]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\nstderr:\n{stderr}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The nodes of this sandbox, as `phalanx nodes` lists them.
    ///
    /// # Panics
    /// The command fails.
    pub fn nodes(&self) -> Vec<Value> {
        match self.json(&["nodes", "--output", "json"]) {
            Value::Array(nodes) => nodes,
            other => panic!("not a list: {other}"),
        }
    }
}

impl Process {
    /// Waits for its end; returns its exit code and its last line as JSON.
    ///
    /// # Panics
    /// It does not end before the deadline, or its last line is not JSON.
    pub fn summary(&mut self) -> (Option<i32>, Value) {
        let (status, printed) = self.finish();
        let line = printed.last().map(String::as_str).unwrap_or_default();
        let json = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("{status}, {line:?} ({error}); stderr:\n{}", self.stderr()));
        (status.code(), json)
    }
}

/// Whether a process with this id exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in parentheses and may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
