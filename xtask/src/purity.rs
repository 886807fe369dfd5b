//! Checks that cores stay pure: no clock, IO, threads, async or unseeded randomness below `core/`.

use crate::tool::root;
use anyhow::{Context, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What a core must not mention, and why.
const FORBIDDEN: [(&str, &str); 16] = [
    ("tokio", "async and IO belong to the shell"),
    ("async fn", "a core never awaits"),
    (".await", "a core never awaits"),
    ("TcpStream", "sockets belong to the shell"),
    ("TcpListener", "sockets belong to the shell"),
    ("UdpSocket", "sockets belong to the shell"),
    ("std::fs", "files belong to the shell"),
    ("std::io", "IO belongs to the shell"),
    ("std::thread", "threads belong to the shell"),
    ("std::env", "the environment belongs to the shell"),
    ("Instant::now", "time is an argument"),
    ("SystemTime", "time is an argument"),
    ("RandomState", "randomness is seeded by an argument"),
    ("HashMap", "its order could reach an output"),
    ("HashSet", "its order could reach an output"),
    ("rand::", "randomness is seeded by an argument"),
];

pub(crate) fn check() -> anyhow::Result<()> {
    let crates = root().join("crates");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&crates).context("could not list crates")? {
        let core = entry?.path().join("src/core");
        if core.is_dir() {
            collect(&core, &mut files)?;
        }
    }
    for words in ["formation", "protocol", "streams", "types", "wire"] {
        collect(&crates.join(words).join("src"), &mut files)?;
    }
    let mut found = String::new();
    for file in &files {
        let text = std::fs::read_to_string(file)?;
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim_start().starts_with("//")) {
            // The planner throws dice, which an argument seeds.
            let seeded = |word: &str| word == "rand::" && file.starts_with(crates.join("formation"));
            for (word, why) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word) && !seeded(word)) {
                writeln!(found, "{}:{}: {word}: {why}", file.display(), number + 1)?;
            }
        }
    }
    if found.is_empty() { Ok(()) } else { bail!("cores must stay pure:\n{found}") }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("could not list {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
