//! Jobs nobody waits for: a main node in the background sees to them, with a journal.

use super::submit::SubmitArgs;
use crate::failure::Failure;
use crate::output::{Output, Render, print_line};
use crate::paths;
use anyhow::{Context, anyhow};
use phalanx_types::NodeId;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// What the background main node says once all jobs are recorded.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Announced {
    main: String,
    submitted: u64,
}

impl Render for Announced {
    fn table(&self) -> String {
        let s = if self.submitted == 1 { "" } else { "s" };
        let (n, main) = (self.submitted, &self.main);
        format!("{n} job{s} with {main} in the background; `phalanx job list` shows them")
    }

    fn quiet(&self) -> String {
        self.main.clone()
    }
}

pub(super) fn announce(main: &NodeId, submitted: u64) -> Result<(), Failure> {
    let announced = Announced { main: main.to_string(), submitted };
    print_line(&serde_json::to_string(&announced).map_err(Failure::infrastructure)?)
}

/// Starts this same command again in the background and returns when it has recorded its jobs.
pub(super) fn submit(args: &SubmitArgs, output: Output) -> Result<(), Failure> {
    let dir = paths::job_journals(&args.domain.domain)?;
    std::fs::create_dir_all(&dir)
        .with_context(|| format!("could not make {}", dir.display()))
        .map_err(Failure::infrastructure)?;
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    let name = format!("{}-{:06x}", args.name, random & 0xff_ffff);
    let log = std::fs::File::create(dir.join(format!("{name}.log"))).map_err(Failure::infrastructure)?;
    let me = std::env::current_exe().map_err(Failure::infrastructure)?;
    // The later option wins, so what the user gave stays as it is. A command after -- stays last.
    let given: Vec<_> = std::env::args_os().skip(1).collect();
    let cut = given.iter().position(|a| a == "--").unwrap_or(given.len());
    let (options, rest) = given.split_at(cut);
    let mut command = Command::new(me);
    command.args(options).args(["--wait", "--announce", "--output", "json", "--name", &name]);
    if !options.iter().any(|a| a.to_string_lossy().starts_with("--journal")) {
        command.arg("--journal").arg(dir.join(format!("{name}.journal")));
    }
    let mut child = command
        .args(rest)
        .process_group(0)
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("could not start the background main node")
        .map_err(Failure::infrastructure)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(Failure::infrastructure)?;
    }
    match serde_json::from_str::<Announced>(&line) {
        Ok(announced) => output.print(&announced),
        Err(_not_announced) => {
            let code = child.wait().ok().and_then(|status| status.code());
            let log = std::fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
            let said = |what: &str| log.lines().find_map(|line| line.strip_prefix(what));
            let error = said("error: ").unwrap_or("it said nothing");
            let error = anyhow!("the background main node did not start: {error}");
            let failure =
                if code == Some(2) { Failure::usage(error) } else { Failure::infrastructure(error) };
            Err(match said("hint: ") {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
    }
}
