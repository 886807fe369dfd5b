//! Jobs nobody waits for: a main node in the background sees to them, with a journal.

use super::submit::SubmitArgs;
use crate::failure::Failure;
use crate::output::{Output, Render, print_line};
use crate::own_program::{own_arguments, own_program};
use crate::paths;
use anyhow::{Context, anyhow};
use phalanx_nodes::random;
use phalanx_types::NodeId;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;

/// Longer names are cut.
const MAX_NAME: usize = 48;

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
    // Leaves room for these digits and for those that every node's name gets.
    let given = args.name.get(..MAX_NAME).unwrap_or(&args.name);
    let name = format!("{given}-{:06x}", random() & 0xff_ffff);
    let stdin = match args.reads_stdin() {
        true => Stdio::from(whole_stdin(&dir.join(format!("{name}.payload")))?),
        false => Stdio::null(),
    };
    let log = dir.join(format!("{name}.log"));
    let said = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&log)
        .with_context(|| format!("could not make {}", log.display()))
        .map_err(Failure::infrastructure)?;
    // The later option wins, so what the user gave stays as it is. A command after -- stays last.
    let given = own_arguments();
    let cut = given.iter().position(|a| a == "--").unwrap_or(given.len());
    let (options, rest) = given.split_at(cut);
    let mut command = own_program().command();
    command.args(options).args(["--wait", "--announce", "--output", "json", "--name", &name]);
    if args.journal.is_none() {
        command.arg("--journal").arg(dir.join(format!("{name}.journal")));
    }
    let mut child = command
        .args(rest)
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(said)
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
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            Err(failure_of_child(code, &said, &log))
        }
    }
}

/// All of standard input, in a file that is gone when nobody has it open any more.
///
/// Taken before there is a process in the background: that may not read from a terminal, and would
/// take the end of an interrupted command for the end of the payload.
fn whole_stdin(path: &Path) -> Result<File, Failure> {
    let take = || {
        let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        std::fs::remove_file(path)?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
        file.rewind()?;
        Ok(file)
    };
    take()
        .map_err(|error: std::io::Error| anyhow::Error::new(error))
        .with_context(|| format!("could not keep the payload from standard input in {}", path.display()))
        .map_err(Failure::infrastructure)
}

/// What the background main node said before it ended, as this command's own failure.
fn failure_of_child(code: Option<i32>, said: &str, log: &Path) -> Failure {
    let lines = |prefix: &'static str| said.lines().filter_map(move |line| line.strip_prefix(prefix));
    let causes: Vec<&str> = lines("error: ").chain(lines("  caused by: ")).collect();
    let hint = lines("hint: ").next();
    let where_log = format!("its log is {}", log.display());
    let error = match causes.split_last() {
        // From the inside out, so that the chain reads as the child wrote it.
        Some((last, outer)) => outer.iter().rev().fold(anyhow!("{last}"), |e, c| e.context(c.to_string())),
        None => anyhow!("the background main node ended without a word; {where_log}"),
    };
    match code {
        Some(2) => {
            // All of it is told here; nobody need look for it.
            let _removed = std::fs::remove_file(log);
            Failure::usage(error).hint_if(hint)
        }
        _ => Failure::infrastructure(error.context("the background main node did not start"))
            .hint(hint.map_or(where_log, str::to_owned)),
    }
}
