//! The ranks as the process sees them that started them.

use super::rank::Times;
use super::{AllreduceArgs, Transport};
use crate::failure::Failure;
use crate::own_program::own_program;
use anyhow::{Context, anyhow};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Processes that end with this value, or with this process, whichever comes first.
struct Ranks {
    children: Vec<(Child, Option<ChildStdin>)>,
    lines: Receiver<Said>,
}

/// A line of a rank; an empty one when it has ended.
struct Said {
    rank: usize,
    line: String,
}

/// Starts the ranks, brings them together and lets them measure; gives the times of every rank, size after size.
pub(super) fn measure(args: &AllreduceArgs) -> Result<Vec<Vec<Times>>, Failure> {
    let mut ranks = Ranks::start(args)?;
    let addresses = ranks.hear()?;
    ranks.tell(&format!("[{}]\n", addresses.join(",")))?;
    let times = ranks.hear()?;
    times.iter().map(|line| serde_json::from_str(line).map_err(Failure::infrastructure)).collect()
}

impl Ranks {
    fn start(args: &AllreduceArgs) -> Result<Self, Failure> {
        let (tell, lines) = channel();
        let mut ranks = Self { children: Vec::new(), lines };
        for rank in 0..args.ranks {
            let mut child = command(args, rank)?
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("could not start a rank")
                .map_err(Failure::infrastructure)?;
            let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
            ranks.children.push((child, stdin));
            let stdout = stdout.context("a rank without output").map_err(Failure::infrastructure)?;
            let tell = tell.clone();
            // Ends with the rank, which closes its output.
            std::thread::spawn(move || forward(rank as usize, BufReader::new(stdout), &tell));
        }
        Ok(ranks)
    }

    /// The next line of every rank, in their order.
    fn hear(&self) -> Result<Vec<String>, Failure> {
        let mut heard: Vec<Option<String>> = vec![None; self.children.len()];
        while heard.iter().any(Option::is_none) {
            let said = self.lines.recv().map_err(Failure::infrastructure)?;
            let slot = &mut heard[said.rank];
            if !said.line.is_empty() {
                *slot = Some(said.line);
            } else if slot.is_none() {
                // It has said why on standard error.
                return Err(Failure::infrastructure(anyhow!("rank {} ended early", said.rank)));
            }
        }
        Ok(heard.into_iter().flatten().collect())
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        for (_, stdin) in &mut self.children {
            if let Some(mut stdin) = stdin.take() {
                let told = stdin.write_all(line.as_bytes());
                told.context("could not tell a rank where the others are")
                    .map_err(Failure::infrastructure)?;
            }
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            // Both fail only for a process that has ended, which is what is wanted.
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

fn forward(rank: usize, lines: impl BufRead, tell: &Sender<Said>) {
    for line in lines.lines().map_while(Result::ok) {
        // Nobody listens any more when another rank has failed.
        if tell.send(Said { rank, line }).is_err() {
            return;
        }
    }
    let _unheard = tell.send(Said { rank, line: String::new() });
}

fn command(args: &AllreduceArgs, rank: u32) -> Result<Command, Failure> {
    let mut command = own_program().command();
    command
        .args(["bench", "allreduce", "--ranks", &args.ranks.to_string(), "--rank", &rank.to_string()])
        .args(["--die-with", &std::process::id().to_string()])
        .args(["--time", &humantime::format_duration(args.time).to_string()])
        .args(["--transport", if args.transport == Transport::Tcp { "tcp" } else { "shared" }])
        .args(args.sizes.iter().flat_map(|size| ["--size".to_owned(), size.0.to_string()]));
    if args.private {
        command.arg("--private");
    }
    Ok(command)
}
