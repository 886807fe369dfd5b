//! One process of a rank, with its children: started, signalled, waited for.

use crate::core::supervisor::ProcessExit;
use phalanx_wire::launch::RankSignal;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A way to signal a process that may not have begun, or have ended.
#[derive(Debug, Default)]
pub(crate) struct Signals(Mutex<SignalState>);

#[derive(Debug, Default)]
enum SignalState {
    #[default]
    NotBegun,
    /// A signal came before the process.
    Early(RankSignal),
    Runs(Pid),
    Ended,
}

fn system_signal(signal: RankSignal) -> Signal {
    match signal {
        RankSignal::Terminate => Signal::TERM,
        RankSignal::Kill => Signal::KILL,
    }
}

impl Signals {
    fn change<T>(&self, change: impl FnOnce(&mut SignalState) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Signals the process and its children, at the latest when it has begun.
    pub(crate) fn send(&self, signal: RankSignal) {
        self.change(|state| match state {
            SignalState::NotBegun | SignalState::Early(_) => *state = SignalState::Early(signal),
            // One that has ended needs no signal.
            SignalState::Runs(pid) => drop(kill_process_group(*pid, system_signal(signal))),
            SignalState::Ended => {}
        });
    }

    fn begun(&self, pid: Pid) {
        self.change(|state| {
            if let SignalState::Early(signal) = state {
                let _ended = kill_process_group(pid, system_signal(*signal));
            }
            *state = SignalState::Runs(pid);
        });
    }

    /// Kills children that are left and forgets the process, which must not be reaped yet.
    fn ended(&self) {
        self.change(|state| {
            if let SignalState::Runs(pid) = state {
                // A process of the rank that still runs would hold the output open.
                let _ended = kill_process_group(*pid, Signal::KILL);
            }
            *state = SignalState::Ended;
        });
    }
}

/// Runs a command to its end. `out` and `err` read its output on threads of their own.
///
/// The thread that calls stays until then: a process that asks to end with its parent ends with that thread.
pub(crate) fn run_process(
    mut command: Command,
    signals: &Signals,
    out: impl FnOnce(ChildStdout) + Send,
    err: impl FnOnce(ChildStderr) + Send,
) -> io::Result<ProcessExit> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: its own children get its signals, and Ctrl-C reaches it only through the launcher.
        .process_group(0);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    signals.begun(pid);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        stderr.map(|pipe| scope.spawn(move || err(pipe)));
        stdout.map(|pipe| scope.spawn(move || out(pipe)));
        wait(&mut child, pid, signals)
    })
}

fn wait(child: &mut Child, pid: Pid, signals: &Signals) -> io::Result<ProcessExit> {
    // Ended but not reaped: until then its number cannot become another process's.
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
    {}
    signals.ended();
    let status = child.wait()?;
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => ProcessExit::Code(code),
        (None, signal) => ProcessExit::Signal(signal.unwrap_or(9)),
    })
}
