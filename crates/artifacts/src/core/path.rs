//! Names of files in a manifest, which may come from anyone.

use std::fmt;

/// The longest name, in bytes, and the longest part of one: what file systems take.
const LONGEST: usize = 1024;
const LONGEST_PART: usize = 240;

/// The path of a file inside of a run, with `/` between its parts. It leads nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

/// Why a name is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    #[error("it is empty")]
    Empty,
    #[error("it is too long")]
    TooLong,
    #[error("it is absolute")]
    Absolute,
    #[error("it leads out of the directory, or has an empty part")]
    Traversal,
    #[error("it has a character that names of files do not have")]
    Character,
    #[error("it is a name that Phalanx keeps for itself")]
    Reserved,
    #[error("a part of it is a symbolic link or no directory")]
    Link,
}

impl FilePath {
    /// # Errors
    /// The name could lead out of the directory, or cannot be a file everywhere.
    pub fn new(text: &str) -> Result<Self, PathFault> {
        if text.is_empty() {
            return Err(PathFault::Empty);
        }
        if text.starts_with('/') {
            return Err(PathFault::Absolute);
        }
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return Err(PathFault::Character);
        }
        if text.len() > LONGEST || text.split('/').any(|part| part.len() > LONGEST_PART) {
            return Err(PathFault::TooLong);
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(PathFault::Traversal);
        }
        let first = text.split('/').next().unwrap_or_default();
        let is_manifest = !text.contains('/') && super::manifest::number_of(text).is_some();
        if is_manifest || matches!(first, "lock" | "live.json" | PUSHING | PULLING) {
            return Err(PathFault::Reserved);
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directories it lies in, and its last part.
    pub(crate) fn parts(&self) -> (Vec<&str>, &str) {
        let mut parts: Vec<&str> = self.0.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        (parts, name)
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// In a run directory: what a push has sent so far.
pub(crate) const PUSHING: &str = ".push";
/// In a directory that a run is pulled into: which one.
pub(crate) const PULLING: &str = ".pull.json";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_run_are_taken() {
        for name in
            ["model.safetensors", "checkpoints/step-000010/manifest.json", "a b/ä#1%.txt", "..a", "a..b/.c"]
        {
            assert_eq!(FilePath::new(name).unwrap().as_str(), name);
        }
        let deep = FilePath::new("a/b/c").unwrap();
        assert_eq!(deep.parts(), (vec!["a", "b"], "c"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        use PathFault::{Absolute, Character, Empty, Reserved, TooLong, Traversal};
        let long = "x".repeat(300);
        let deep = "x/".repeat(600) + "x";
        let cases = [
            ("", Empty),
            ("/etc/passwd", Absolute),
            ("//x", Absolute),
            ("..", Traversal),
            ("../x", Traversal),
            ("a/../../x", Traversal),
            ("a/..", Traversal),
            ("./a", Traversal),
            ("a//b", Traversal),
            ("a/", Traversal),
            ("a\0b", Character),
            ("a\nb", Character),
            ("\u{1b}[2J", Character),
            ("..\\x", Character),
            ("lock", Reserved),
            ("live.json", Reserved),
            (".push/x", Reserved),
            (".pull.json", Reserved),
            ("manifest-7.json", Reserved),
            (long.as_str(), TooLong),
            (deep.as_str(), TooLong),
        ];
        for (name, fault) in cases {
            assert_eq!(FilePath::new(name), Err(fault), "{name:?}");
        }
    }
}
