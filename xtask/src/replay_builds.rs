//! `cargo xtask replay-builds`: recordings of runs under faults, replayed by two builds of one version.

use crate::tool::{cargo, root, target, tool};
use anyhow::{Context, bail, ensure};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Args)]
pub(crate) struct ReplayBuildsArgs {
    /// Runs to simulate, with nodes that die and come back.
    #[arg(long, default_value_t = 20)]
    runs: u64,
    /// Replay the recordings below this directory, too. Tests leave theirs in $PHALANX_KEEP_RECORDINGS.
    #[arg(long, value_name = "DIR")]
    recordings: Option<PathBuf>,
    /// How the other build is made.
    #[arg(long, default_value = "release")]
    profile: String,
    /// A program to replay with, in the place of the other build.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
}

/// What one program prints for a recording.
#[derive(Debug, PartialEq)]
struct Replay {
    code: Option<i32>,
    stdout: Vec<u8>,
}

impl Replay {
    /// Core, events and decisions.
    fn counts(&self) -> (String, usize, usize) {
        let (mut core, mut events, mut decisions) = (String::new(), 0, 0);
        for line in self.stdout.split(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap_or_default();
            if let Some(name) = line["section"].as_str() {
                name.clone_into(&mut core);
            }
            if let Some(commands) = line["commands"].as_array() {
                events += 1;
                decisions += commands.len();
            }
        }
        (core, events, decisions)
    }
}

pub(crate) fn run(args: &ReplayBuildsArgs) -> anyhow::Result<()> {
    let first = build("dev")?;
    let second = match &args.binary {
        Some(binary) => root().join(binary),
        None => build(&args.profile)?,
    };
    let [version, other] = [&first, &second].map(|program| tool(program, &["--version"]).capture());
    let (version, other) = (version?, other?);
    ensure!(version == other, "{} is {other}, not {version}", second.display());
    let mut files = simulate(&first, args.runs)?;
    if let Some(dir) = &args.recordings {
        find(&root().join(dir), &mut files)?;
    }
    ensure!(!files.is_empty(), "there is nothing to replay");
    let differ = compare(&files, &first, &second)?;
    match differ {
        0 => Ok(()),
        some => bail!("{some} of {} recordings are replayed to other decisions", files.len()),
    }
}

/// Builds the program; gives its place.
fn build(profile: &str) -> anyhow::Result<PathBuf> {
    cargo(&["build", "--package", "phalanx-cli", "--profile", profile]).run()?;
    let dir = if profile == "dev" { "debug" } else { profile };
    Ok(target().join(dir).join("phalanx"))
}

/// Simulates runs whose nodes fail, each with a recording.
fn simulate(program: &Path, runs: u64) -> anyhow::Result<Vec<PathBuf>> {
    let dir = target().join("replay-builds");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("could not empty {}", dir.display()))?;
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
    let mut files = Vec::new();
    for seed in 0..runs {
        let file = dir.join(format!("{seed}.recording"));
        let (stages, replicas) = ((2 + seed % 3).to_string(), (1 + seed % 2).to_string());
        let (seed, path) = (seed.to_string(), file.to_string_lossy().into_owned());
        let args =
            ["simulate", "train", "--model", "digits-cnn", "--stages", &stages, "--replicas", &replicas];
        let rest = ["--steps", "300", "--step-time", "500ms", "--checkpoint-every", "20"];
        let faults = ["--mtbf", "90s", "--mttr", "5s", "--seed", &seed, "--recording", &path];
        tool(program, &[&args[..], &rest, &faults].concat()).capture()?;
        files.push(file);
    }
    Ok(files)
}

/// Adds the recordings below a directory, in the order of their names.
fn find(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "recording") {
            files.push(path);
        }
    }
    Ok(())
}

/// Replays every recording with both programs and prints a table; gives how many differ.
#[expect(clippy::print_stdout, reason = "the table is what this chore is for")]
fn compare(files: &[PathBuf], first: &Path, second: &Path) -> anyhow::Result<usize> {
    println!(
        "{:<40}{:>10}{:>10}{:>12}{:>12}  decisions",
        "recording", "core", "events", "decisions", "bytes"
    );
    let mut differ = 0;
    for file in files {
        let (own, other) = (replay(first, file)?, replay(second, file)?);
        let same = own == other && own.code == Some(0);
        differ += usize::from(!same);
        let (core, events, decisions) = own.counts();
        let verdict = match (same, own == other) {
            (true, _) => "the same".to_owned(),
            (false, true) => format!("not those recorded (exit code {:?})", own.code),
            (false, false) => "DIFFER".to_owned(),
        };
        let tail: Vec<_> = file.iter().rev().take(3).collect();
        let name = tail.into_iter().rev().collect::<PathBuf>().display().to_string();
        println!("{name:<40}{core:>10}{events:>10}{decisions:>12}{:>12}  {verdict}", own.stdout.len());
    }
    Ok(differ)
}

fn replay(program: &Path, file: &Path) -> anyhow::Result<Replay> {
    let output = Command::new(program).arg("replay").arg(file).arg("--output=json").output();
    let output = output.with_context(|| format!("could not start {}", program.display()))?;
    Ok(Replay { code: output.status.code(), stdout: output.stdout })
}
