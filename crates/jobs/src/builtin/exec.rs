//! The `exec` handler: runs a command, if the node's owner allows it.

use crate::{Handler, HandlerError, JobContext};
use phalanx_types::{DType, Parcel, Tensor};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// The name of the tensor that holds the command line, each argument ended by a zero byte.
const ARGV: &str = "argv";

/// Runs a command with the payload's bytes on its standard input; what it prints is the solution.
/// The command finds the id of its job in `PHALANX_JOB` and of its lease in `PHALANX_LEASE`.
#[derive(Debug, Clone, Default)]
pub struct Exec {
    /// A program put before every command, for example one that ties it to the node's life.
    pub wrapper: Vec<String>,
}

/// Packs a command line and what it reads on standard input into a payload.
///
/// # Errors
/// There is no command, or an argument contains a zero byte.
pub fn exec_payload(argv: &[String], stdin: impl Into<bytes::Bytes>) -> Result<Parcel, HandlerError> {
    if argv.is_empty() || argv.iter().any(|a| a.contains('\0')) {
        return Err(HandlerError::failed("a command needs at least one argument, and none with a zero byte"));
    }
    let packed: Vec<u8> = argv.iter().flat_map(|a| a.bytes().chain([0])).collect();
    let tensor = Tensor::new(DType::U8, vec![packed.len() as u64], packed.into())
        .map_err(|error| HandlerError::failed(error.to_string()))?;
    Ok(Parcel::from_bytes(stdin).with_tensor(ARGV, tensor))
}

fn argv(payload: &Parcel) -> Option<Vec<&str>> {
    let packed = payload.tensor(ARGV)?.data().strip_suffix(&[0])?;
    packed.split(|b| *b == 0).map(|a| std::str::from_utf8(a).ok()).collect()
}

impl Handler for Exec {
    fn solve(&self, job: &JobContext) -> Result<Parcel, HandlerError> {
        let argv = argv(job.payload())
            .ok_or_else(|| HandlerError::failed("the payload names no command to execute"))?;
        let mut words = self.wrapper.iter().map(String::as_str).chain(argv.iter().copied());
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(program);
        command
            .env("PHALANX_JOB", job.job().to_string())
            .env("PHALANX_LEASE", job.lease().number.to_string());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command
            .spawn()
            .map_err(|error| HandlerError::failed(format!("could not start {}: {error}", argv.join(" "))))?;
        supervise(job, child, &argv.join(" "))
    }
}

/// Feeds a child, collects what it prints, and kills it when the job is cancelled.
fn supervise(job: &JobContext, mut child: Child, what: &str) -> Result<Parcel, HandlerError> {
    let broken = |error: std::io::Error| HandlerError::failed(format!("lost touch with {what}: {error}"));
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| HandlerError::failed(format!("{what} has no process id")))?;
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let stdin = job.payload().bytes.clone();
    let kill = move || {
        // Gone already is as good as killed.
        let _gone = kill_process_group(pid, Signal::KILL);
    };
    let (output, errors) = job.cancelling(kill, || {
        let printed = std::thread::scope(|scope| {
            // A command that reads on must see the end of its input, also when there is none.
            match stdin.is_empty() {
                true => drop(input),
                false => drop(scope.spawn(move || feed(input, &stdin))),
            }
            let errors = scope.spawn(move || collect_tail(errors));
            (collect(output), errors.join().unwrap_or_default())
        });
        // Ended but not reaped: until then its id cannot become another process's.
        let _ended = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        printed
    });
    let status = child.wait().map_err(broken)?;
    if job.is_cancelled() {
        return Err(HandlerError::cancelled());
    }
    if status.success() {
        return Ok(Parcel::from_bytes(output));
    }
    let tail = String::from_utf8_lossy(&errors);
    let tail = tail.trim().lines().last().unwrap_or("nothing on stderr").to_owned();
    Err(HandlerError::failed(format!("{what}: {status}: {tail}")))
}

/// A command that does not read its input closes the pipe; that is its right.
fn feed(pipe: Option<impl Write>, stdin: &[u8]) {
    let _closed_early = pipe.map(|mut pipe| pipe.write_all(stdin));
}

fn collect(pipe: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came before the pipe broke is kept.
        let _read = pipe.read_to_end(&mut all);
    }
    all
}

/// What it said last; a command that talks for days must not fill the node.
fn collect_tail(pipe: Option<impl Read>) -> Vec<u8> {
    const TAIL: usize = 16 << 10;
    let (mut tail, mut buffer) = (Vec::new(), [0; 4096]);
    if let Some(mut pipe) = pipe {
        while let Ok(read @ 1..) = pipe.read(&mut buffer) {
            tail.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if tail.len() > 2 * TAIL {
                tail.drain(..tail.len() - TAIL);
            }
        }
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_comes_out_of_its_payload_as_it_went_in() {
        let words = ["sh".to_owned(), "-c".to_owned(), String::new()];
        let payload = exec_payload(&words, &b"in\0put"[..]).unwrap();
        assert_eq!(argv(&payload), Some(vec!["sh", "-c", ""]));
        assert_eq!(&payload.bytes[..], b"in\0put");
        assert!(exec_payload(&[], "").is_err());
        assert_eq!(argv(&Parcel::from_bytes("no argv")), None);
    }
}
