//! The `exec` handler: runs a command, if the node's owner allows it.

use crate::{Handler, HandlerError, JobContext};
use phalanx_types::{DType, Parcel, Tensor};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

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
        command.env("PHALANX_JOB", job.job().to_string()).env("PHALANX_LEASE", job.lease().number.to_string());
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
    let (mut input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (pid, stdin) = (child.id(), job.payload().bytes.clone());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that does not read its input closes the pipe; that is its right.
            if let Some(pipe) = input.as_mut() {
                let _closed_early = pipe.write_all(&stdin);
            }
        });
        let output = scope.spawn(move || collect(output));
        let errors = scope.spawn(move || collect(errors));
        let (over, ended) = std::sync::mpsc::channel();
        let waiter = scope.spawn(move || {
            let status = child.wait();
            // The receiver lives until the end of the scope.
            let _sent = over.send(());
            status
        });
        let mut cancelled = false;
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) =
            ended.recv_timeout(Duration::from_millis(if cancelled { 1000 } else { 20 }))
        {
            if job.is_cancelled() {
                cancelled = true;
                kill_group(pid);
            }
        }
        let joined = |text: std::thread::Result<Vec<u8>>| text.unwrap_or_default();
        let (output, errors) = (joined(output.join()), joined(errors.join()));
        if cancelled {
            return Err(HandlerError::cancelled());
        }
        let status = waiter.join().map_err(|_panic| HandlerError::failed("waiting panicked"))?.map_err(broken)?;
        if status.success() {
            return Ok(Parcel::from_bytes(output));
        }
        let tail = String::from_utf8_lossy(&errors);
        let tail = tail.trim().lines().last().unwrap_or("nothing on stderr").to_owned();
        Err(HandlerError::failed(format!("{what}: {status}: {tail}")))
    })
}

fn collect(pipe: Option<impl Read>) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(mut pipe) = pipe {
        // What came before the pipe broke is kept.
        let _read = pipe.read_to_end(&mut all);
    }
    all
}

fn kill_group(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // Gone already is as good as killed.
        let _gone = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
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
