//! Carries out what the supervisor decides.

use crate::core::supervisor::{LaunchFailure, LaunchSize, SuperviseCommand, Supervisor};
use crate::local::{LocalEvent, LocalProcesses, StartOrder};
use phalanx_ops::{RendezvousServer, Secret};
use phalanx_types::{Class, Outbox, Time};
use rustix::process::Signal;
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// What is started.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// How many processes.
    pub size: LaunchSize,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// What is put before the program; it ties the life of a process to that of this one.
    pub wrapper: Vec<OsString>,
    /// The cores that processes share, if not all of this machine.
    pub cores: Option<u32>,
    /// Whether lines get the number of the process in front.
    pub prefix: bool,
}

/// How it went.
#[derive(Debug, Clone, Serialize)]
pub struct LaunchSummary {
    /// How many processes were started at first.
    pub ranks: u32,
    /// The exit code that says how it went.
    pub exit_code: i32,
    /// Why it did not succeed.
    pub failure: Option<LaunchFailure>,
    /// How often a process was lost and the others went on.
    pub resets: u32,
    /// How many groups of ranks were formed.
    pub epochs: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
}

/// Why nothing could be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The sizes do not fit together.
    #[error("{ranks} ranks are not between --min {min} and --max {max}")]
    Size {
        /// How many are started.
        ranks: u32,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The program could not be started.
    #[error("could not start {}", program.display())]
    Start {
        /// The program.
        program: OsString,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The place where ranks meet could not be made.
    #[error("could not make a place for ranks to meet")]
    Rendezvous {
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl LaunchError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            LaunchError::Size { .. } | LaunchError::Start { .. } => Class::Fatal,
            LaunchError::Rendezvous { .. } => Class::Retry,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LaunchError::Start { .. } => {
                Some("the program comes after --, as in: phalanx launch -n 2 -- python train.py")
            }
            LaunchError::Size { .. } | LaunchError::Rendezvous { .. } => None,
        }
    }
}

/// Ends a launch from another thread.
#[derive(Debug, Clone)]
pub struct LaunchControl {
    events: Sender<LocalEvent>,
}

impl LaunchControl {
    /// Asks all processes to end; asked again, ends them.
    pub fn interrupt(&self) {
        // It has ended by itself.
        let _heard = self.events.send(LocalEvent::Interrupted);
    }
}

/// Starts the processes and waits for their end. `on_start` gets what ends them from another thread.
///
/// # Errors
/// The sizes make no sense, or the program cannot be started. A program that fails is no error but a summary.
pub fn launch(spec: &LaunchSpec, on_start: impl FnOnce(LaunchControl)) -> Result<LaunchSummary, LaunchError> {
    let ranks = spec.size.ranks;
    let (min, max) = spec.size.elastic.map_or((1, u32::MAX), |limits| (limits.min, limits.max));
    if ranks < min.max(1) || ranks > max || min == 0 {
        return Err(LaunchError::Size { ranks, min, max });
    }
    let meet = |source| LaunchError::Rendezvous { source };
    let secret = Secret::random().map_err(meet)?;
    let server = RendezvousServer::start("127.0.0.1:0", secret.clone(), 0..ranks).map_err(meet)?;
    let (events, happened) = channel();
    on_start(LaunchControl { events: events.clone() });
    let launcher = Launcher {
        spec,
        secret,
        supervisor: Supervisor::new(spec.size),
        processes: LocalProcesses::default(),
        server,
        events,
        began: Instant::now(),
    };
    launcher.run(&happened)
}

struct Launcher<'a> {
    spec: &'a LaunchSpec,
    secret: Secret,
    supervisor: Supervisor,
    processes: LocalProcesses,
    server: RendezvousServer,
    events: Sender<LocalEvent>,
    began: Instant,
}

impl Launcher<'_> {
    fn run(mut self, happened: &Receiver<LocalEvent>) -> Result<LaunchSummary, LaunchError> {
        let mut out = Outbox::default();
        self.supervisor.begin(&mut out);
        while self.carry_out(&mut out)? {
            let event = match self.supervisor.next_time() {
                None => happened.recv().ok(),
                Some(at) => happened.recv_timeout(at.since(self.now())).ok(),
            };
            let now = self.now();
            match event {
                Some(LocalEvent::Exited { worker, exit }) => {
                    self.supervisor.on_exit(now, worker, exit, &mut out);
                }
                Some(LocalEvent::Interrupted) => self.supervisor.on_interrupt(now, &mut out),
                Some(LocalEvent::NotStarted { error }) => return Err(self.not_started(error)),
                None => self.supervisor.on_time(now, &mut out),
            }
        }
        let failure = self.supervisor.failure();
        Ok(LaunchSummary {
            ranks: self.spec.size.ranks,
            exit_code: failure.map_or(0, LaunchFailure::code),
            failure,
            resets: self.supervisor.resets(),
            epochs: self.server.epoch(),
            seconds: self.began.elapsed().as_secs_f64(),
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    fn not_started(&self, source: io::Error) -> LaunchError {
        LaunchError::Start { program: self.spec.command.first().cloned().unwrap_or_default(), source }
    }

    /// `false` when nothing runs any more.
    fn carry_out(&self, out: &mut Outbox<SuperviseCommand>) -> Result<bool, LaunchError> {
        for command in out.drain() {
            match command {
                SuperviseCommand::Start { worker } => {
                    let started = self.processes.start(self.order(worker), self.events.clone());
                    started.map_err(|error| self.not_started(error))?;
                }
                SuperviseCommand::Expect { workers } => self.server.expect(workers),
                SuperviseCommand::Terminate { worker } => self.processes.signal(worker, Signal::TERM),
                SuperviseCommand::Kill { worker } => self.processes.signal(worker, Signal::KILL),
                SuperviseCommand::Finish => return Ok(false),
            }
        }
        Ok(true)
    }

    fn order(&self, worker: u32) -> StartOrder {
        let ranks = self.spec.size.ranks;
        let machine = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let cores = self.spec.cores.unwrap_or_else(machine);
        let mut variables = vec![
            ("PHALANX_RENDEZVOUS", self.server.address().to_string()),
            ("PHALANX_SECRET", self.secret.to_hex()),
            ("PHALANX_WORKER", worker.to_string()),
            ("PHALANX_RANK", worker.to_string()),
            ("PHALANX_SIZE", ranks.to_string()),
            ("PHALANX_LOCAL_RANK", worker.to_string()),
            ("PHALANX_LOCAL_SIZE", ranks.to_string()),
            ("PHALANX_CROSS_RANK", "0".to_owned()),
            ("PHALANX_CROSS_SIZE", "1".to_owned()),
            ("PHALANX_LOCAL_CORES", cores.to_string()),
        ];
        if std::env::var_os("OMP_NUM_THREADS").is_none() {
            variables.push(("OMP_NUM_THREADS", (cores / ranks).max(1).to_string()));
        }
        let command = self.spec.wrapper.iter().chain(&self.spec.command).cloned().collect();
        StartOrder { worker, command, variables, prefix: self.spec.prefix }
    }
}
