//! Processes of this machine, with a thread for each.

use crate::core::supervisor::ProcessExit;
use crate::output::{Sink, pass_on};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// One process that is to be started.
#[derive(Debug, Clone)]
pub struct StartOrder {
    /// Its number.
    pub worker: u32,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What it finds in its environment, beside that of this process.
    pub variables: Vec<(&'static str, String)>,
    /// Whether lines get the number in front.
    pub prefix: bool,
}

/// What happened to a process.
#[derive(Debug)]
pub(crate) enum LocalEvent {
    Exited { worker: u32, exit: ProcessExit },
    NotStarted { error: io::Error },
    Interrupted,
}

/// The processes that run. They are ended when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct LocalProcesses {
    running: Arc<Mutex<Running>>,
}

#[derive(Debug, Default)]
struct Running {
    groups: BTreeMap<u32, Pid>,
    /// Signals for processes that are still being started.
    early: BTreeMap<u32, Signal>,
}

impl Running {
    fn signal(&mut self, worker: u32, signal: Signal) {
        match self.groups.get(&worker) {
            // One that has ended needs no signal.
            Some(pid) => drop(kill_process_group(*pid, signal)),
            None => drop(self.early.insert(worker, signal)),
        }
    }

    fn started(&mut self, worker: u32, pid: Pid) {
        self.groups.insert(worker, pid);
        if let Some(signal) = self.early.remove(&worker) {
            self.signal(worker, signal);
        }
    }
}

impl LocalProcesses {
    /// Starts a process on a thread of its own, which stays until the process has ended: a process that asks to end
    /// with its parent ends with the thread that started it.
    pub(crate) fn start(&self, order: StartOrder, events: Sender<LocalEvent>) -> io::Result<()> {
        let running = Arc::clone(&self.running);
        let name = format!("rank {}", order.worker);
        let run = move || {
            let event = match run(&order, &running) {
                Ok(exit) => LocalEvent::Exited { worker: order.worker, exit },
                Err(error) => LocalEvent::NotStarted { error },
            };
            // The launcher is gone only when it has given up.
            let _heard = events.send(event);
        };
        std::thread::Builder::new().name(name).spawn(run).map(drop)
    }

    pub(crate) fn signal(&self, worker: u32, signal: Signal) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).signal(worker, signal);
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        for pid in running.groups.values() {
            let _ended = kill_process_group(*pid, Signal::KILL);
        }
    }
}

fn run(order: &StartOrder, running: &Mutex<Running>) -> io::Result<ProcessExit> {
    let (program, arguments) = order.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(order.variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: its own children get its signals, and Ctrl-C reaches it only through the launcher.
        .process_group(0);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        running.lock().unwrap_or_else(PoisonError::into_inner).started(order.worker, pid);
    }
    let exit = watch(order, &mut child);
    running.lock().unwrap_or_else(PoisonError::into_inner).groups.remove(&order.worker);
    exit
}

/// Passes output on until the process has ended and all it said was read.
fn watch(order: &StartOrder, child: &mut Child) -> io::Result<ProcessExit> {
    let prefix = order.prefix.then(|| format!("[{}] ", order.worker));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let prefix = prefix.as_deref();
        if let Some(err) = err {
            scope.spawn(move || pass_on(err, prefix, Sink::Err));
        }
        if let Some(out) = out {
            scope.spawn(move || pass_on(out, prefix, Sink::Out));
        }
        let status = child.wait()?;
        // A process of the rank that still runs would hold the output open.
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ended = kill_process_group(pid, Signal::KILL);
        }
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => ProcessExit::Code(code),
            (None, signal) => ProcessExit::Signal(signal.unwrap_or(9)),
        })
    })
}
