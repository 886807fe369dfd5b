//! Carries out what the supervisor decides.

use crate::core::placement::PlaceWait;
use crate::core::supervisor::{LaunchFailure, LaunchSize, ProcessExit, SuperviseCommand, Supervisor};
use crate::domain::{DomainPlace, DomainRanks};
use crate::local::LocalProcesses;
use crate::place::{Meeting, Place, RankEvent};
use phalanx_ops::{RendezvousServer, Secret};
use phalanx_types::{Class, NodeId, Outbox, Time};
use phalanx_wire::detail::Detail;
use phalanx_wire::launch::RankSignal;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// What is started.
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// How many processes.
    pub size: LaunchSize,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Whether lines get the number of the process in front.
    pub prefix: bool,
    /// Where processes run.
    pub place: LaunchPlace,
}

/// Where processes run.
#[derive(Debug, Clone)]
pub enum LaunchPlace {
    /// On this machine.
    Here {
        /// What is put before the program; it ties the life of a process to that of this one.
        wrapper: Vec<OsString>,
        /// The cores that processes share, if not all of this machine.
        cores: Option<u32>,
    },
    /// On nodes of a domain.
    Domain(DomainPlace),
}

/// What a user may want to know while ranks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchNotice {
    /// Ranks wait for nodes. Told when the reason changes.
    Waiting {
        /// The ranks.
        workers: BTreeSet<u32>,
        /// Why.
        reason: PlaceWait,
    },
    /// Ranks run on these nodes.
    Placed {
        /// The node of each rank.
        nodes: BTreeMap<u32, NodeId>,
    },
    /// A rank is gone with its node, or with the link to it.
    NodeLost {
        /// The rank.
        worker: u32,
        /// The node.
        node: NodeId,
    },
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
    /// The program could not be started on a node.
    #[error("{node} could not start {}: {detail}", program.display())]
    StartOnNode {
        /// The program.
        program: OsString,
        /// The node.
        node: NodeId,
        /// Why.
        detail: Detail,
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
            LaunchError::Size { .. } | LaunchError::Start { .. } | LaunchError::StartOnNode { .. } => {
                Class::Fatal
            }
            LaunchError::Rendezvous { .. } => Class::Retry,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            LaunchError::Start { .. } => {
                Some("the program comes after --, as in: phalanx launch -n 2 -- python train.py")
            }
            LaunchError::StartOnNode { .. } => Some(
                "files are not copied: the directory and the program must be on every node, see --directory",
            ),
            LaunchError::Size { .. } | LaunchError::Rendezvous { .. } => None,
        }
    }
}

/// Ends a launch from another thread.
#[derive(Debug, Clone)]
pub struct LaunchControl {
    events: Sender<RankEvent>,
}

impl LaunchControl {
    /// Asks all processes to end; asked again, ends them.
    pub fn interrupt(&self) {
        // It has ended by itself.
        let _heard = self.events.send(RankEvent::Interrupted);
    }
}

/// Starts the processes and waits for their end. `on_start` gets what ends them from another thread, and `on_notice`
/// what a user may want to know meanwhile.
///
/// # Errors
/// The sizes make no sense, or the program cannot be started. A program that fails is no error but a summary.
pub fn launch(
    spec: &LaunchSpec,
    on_start: impl FnOnce(LaunchControl),
    on_notice: &mut dyn FnMut(LaunchNotice),
) -> Result<LaunchSummary, LaunchError> {
    let ranks = spec.size.ranks;
    let (min, max) = spec.size.elastic.map_or((1, u32::MAX), |limits| (limits.min, limits.max));
    if ranks < min.max(1) || ranks > max || min == 0 {
        return Err(LaunchError::Size { ranks, min, max });
    }
    let meet = |source| LaunchError::Rendezvous { source };
    let secret = Secret::random().map_err(meet)?;
    let server =
        RendezvousServer::start((spec.place.listens_at(), 0), secret.clone(), 0..ranks).map_err(meet)?;
    let (events, happened) = channel();
    on_start(LaunchControl { events: events.clone() });
    // On this machine a rank has its place at once: none comes later.
    let grows = spec.size.elastic.is_some() && matches!(spec.place, LaunchPlace::Domain(_));
    let meeting = Meeting { ranks, secret, port: server.address().port(), grows };
    let launcher = Launcher {
        spec,
        supervisor: Supervisor::new(spec.size),
        place: make_place(spec, meeting, events),
        server,
        began: Instant::now(),
    };
    launcher.run(&happened, on_notice)
}

impl LaunchPlace {
    /// Other machines come to the launcher only in a domain with a key.
    fn listens_at(&self) -> Ipv4Addr {
        match self {
            LaunchPlace::Domain(domain) if domain.fabric.is_secure() => Ipv4Addr::UNSPECIFIED,
            LaunchPlace::Domain(_) | LaunchPlace::Here { .. } => Ipv4Addr::LOCALHOST,
        }
    }
}

fn make_place(spec: &LaunchSpec, meeting: Meeting, events: Sender<RankEvent>) -> Box<dyn Place> {
    let (command, prefix) = (spec.command.clone(), spec.prefix);
    match &spec.place {
        LaunchPlace::Here { wrapper, cores } => {
            let machine = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            let (wrapper, cores) = (wrapper.clone(), cores.unwrap_or_else(machine));
            let running = BTreeMap::new();
            Box::new(LocalProcesses { meeting, wrapper, command, cores, prefix, events, running })
        }
        LaunchPlace::Domain(domain) => {
            Box::new(DomainRanks::new(domain.clone(), meeting, command, prefix, events))
        }
    }
}

struct Launcher<'a> {
    spec: &'a LaunchSpec,
    supervisor: Supervisor,
    place: Box<dyn Place>,
    server: RendezvousServer,
    began: Instant,
}

impl Launcher<'_> {
    fn run(
        mut self,
        happened: &Receiver<RankEvent>,
        on_notice: &mut dyn FnMut(LaunchNotice),
    ) -> Result<LaunchSummary, LaunchError> {
        let mut out = Outbox::default();
        self.supervisor.begin(&mut out);
        while self.carry_out(&mut out)? {
            let event = match self.supervisor.next_time() {
                None => happened.recv().ok(),
                Some(at) => happened.recv_timeout(at.since(self.now())).ok(),
            };
            self.on_event(event, &mut out, on_notice)?;
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

    /// Tells the supervisor what happened; no event is that time has passed.
    fn on_event(
        &mut self,
        event: Option<RankEvent>,
        out: &mut Outbox<SuperviseCommand>,
        on_notice: &mut dyn FnMut(LaunchNotice),
    ) -> Result<(), LaunchError> {
        let now = self.now();
        self.supervisor.on_formed(&self.server.members(), out);
        match event {
            Some(RankEvent::Exited { worker, exit }) => self.supervisor.on_exit(now, worker, exit, out),
            Some(RankEvent::NodeLost { worker, node }) => {
                on_notice(LaunchNotice::NodeLost { worker, node });
                self.supervisor.on_exit(now, worker, ProcessExit::Lost, out);
            }
            Some(RankEvent::Waiting { workers, reason }) => {
                self.supervisor.on_waiting(&workers, out);
                if !self.supervisor.are_spare(&workers) {
                    on_notice(LaunchNotice::Waiting { workers, reason });
                }
            }
            Some(RankEvent::Placed { nodes }) => {
                self.supervisor.on_placed(&nodes.keys().copied().collect(), out);
                on_notice(LaunchNotice::Placed { nodes });
            }
            Some(RankEvent::Interrupted) => self.supervisor.on_interrupt(now, out),
            Some(RankEvent::NotStarted { error }) => return Err(error),
            None => self.supervisor.on_time(now, out),
        }
        Ok(())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// `false` when nothing runs any more.
    fn carry_out(&mut self, out: &mut Outbox<SuperviseCommand>) -> Result<bool, LaunchError> {
        let (mut start, mut later) = (BTreeSet::new(), Vec::new());
        for command in out.drain() {
            match command {
                SuperviseCommand::Start { worker } => drop(start.insert(worker)),
                SuperviseCommand::StartLater { worker } => later.push(BTreeSet::from([worker])),
                SuperviseCommand::Expect { workers, newcomers } => self.server.expect(workers, newcomers),
                SuperviseCommand::Terminate { worker } => self.place.signal(worker, RankSignal::Terminate),
                SuperviseCommand::Kill { worker } => self.place.signal(worker, RankSignal::Kill),
                SuperviseCommand::Finish => return Ok(false),
            }
        }
        for gang in std::iter::once(start).chain(later).filter(|gang| !gang.is_empty()) {
            self.place.start(gang)?;
        }
        Ok(true)
    }
}
