//! Ranks on nodes of a domain: a task that finds places for them, and a stream for each.
//!
//! ```text
//!   launcher ── Start, Signal ──► placer ── Reserve, for all ranks of a gang or none ──► nodes
//!            ◄── Waiting, Placed, Exited, NodeLost ── placer, threads of ranks ◄── output, end ── nodes
//! ```

mod offers;
mod rank_stream;

use crate::core::placement::{Gang, NodeChoice, NodeOffer, PlaceWait, launcher_address, place, seats};
use crate::core::supervisor::ProcessExit;
use crate::frames::write_message;
use crate::launch::LaunchError;
use crate::place::{ALLOCATOR, Meeting, Place, RankEvent};
use offers::{Machine, offers, reserve};
use phalanx_fabric::{Fabric, StreamSocket};
use phalanx_types::NodeId;
use phalanx_wire::launch::{RankProgram, RankSignal, ToRankHost};
use rank_stream::RankStream;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Ranks without a place are tried again at least this often.
const RETRY: Duration = Duration::from_secs(1);

/// On which nodes of which domain ranks run, and what they find there.
#[derive(Debug, Clone)]
pub struct DomainPlace {
    /// The launcher's node.
    pub fabric: Fabric,
    /// The runtime of the fabric.
    pub runtime: Handle,
    /// Which nodes.
    pub nodes: NodeChoice,
    /// The cores that each rank takes of its node.
    pub cores_per_rank: u32,
    /// Variables of the ranks, beside those of their nodes.
    pub variables: Vec<(OsString, OsString)>,
    /// Where the program runs; it must be there on every node.
    pub directory: PathBuf,
}

/// The ranks of a launch on nodes of a domain.
#[derive(Debug)]
pub(crate) struct DomainRanks {
    /// The placer ends with this, and all ranks with it.
    commands: mpsc::UnboundedSender<PlacerCommand>,
}

#[derive(Debug)]
enum PlacerCommand {
    Start(BTreeSet<u32>),
    Signal(u32, RankSignal),
    /// The stream of a rank has ended.
    Ended(u32),
}

impl DomainRanks {
    pub(crate) fn new(
        place: DomainPlace,
        meeting: Meeting,
        command: Vec<OsString>,
        prefix: bool,
        events: Sender<RankEvent>,
    ) -> Self {
        let (commands, inbox) = mpsc::unbounded_channel();
        let runtime = place.runtime.clone();
        let placer = Placer {
            place,
            meeting,
            command,
            prefix,
            events,
            // Weak: the task ends when the launcher is gone, whether or not threads of ranks are left.
            own: commands.downgrade(),
            gangs: Vec::new(),
            running: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        runtime.spawn(placer.run(inbox));
        Self { commands }
    }
}

impl Place for DomainRanks {
    fn start(&mut self, workers: BTreeSet<u32>) -> Result<(), LaunchError> {
        // Without its runtime nothing is started, and the launcher waits for an interrupt.
        let _sent = self.commands.send(PlacerCommand::Start(workers));
        Ok(())
    }

    fn signal(&mut self, worker: u32, signal: RankSignal) {
        let _sent = self.commands.send(PlacerCommand::Signal(worker, signal));
    }
}

/// A rank that has a place.
#[derive(Debug)]
struct Running {
    node: NodeId,
    machine: Machine,
    stream: Arc<StreamSocket>,
}

struct Placer {
    place: DomainPlace,
    meeting: Meeting,
    command: Vec<OsString>,
    prefix: bool,
    events: Sender<RankEvent>,
    own: mpsc::WeakUnboundedSender<PlacerCommand>,
    /// Ranks that are placed together, in the order in which they were asked for.
    gangs: Vec<BTreeSet<u32>>,
    running: BTreeMap<u32, Running>,
    /// Why each gang waits, as the launcher knows, by its first rank.
    told: BTreeMap<u32, PlaceWait>,
}

impl Placer {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<PlacerCommand>) {
        self.place.fabric.settled(RETRY).await;
        let mut changes = self.place.fabric.watch();
        let mut tried = true;
        loop {
            let waits = !self.gangs.is_empty();
            tokio::select! {
                biased;
                command = commands.recv() => {
                    let Some(command) = command else { return };
                    self.on_command(command);
                    tried = false;
                }
                () = std::future::ready(()), if waits && !tried => {
                    tried = self.try_gangs(&mut commands).await;
                }
                _change = changes.next(), if waits => tried = false,
                () = tokio::time::sleep(RETRY), if waits => tried = false,
            }
        }
    }

    fn on_command(&mut self, command: PlacerCommand) {
        match command {
            PlacerCommand::Start(workers) => self.gangs.push(workers),
            PlacerCommand::Ended(worker) => drop(self.running.remove(&worker)),
            PlacerCommand::Signal(worker, signal) => self.signal(worker, signal),
        }
    }

    fn signal(&mut self, worker: u32, signal: RankSignal) {
        let waited = self.gangs.iter_mut().any(|gang| gang.remove(&worker));
        self.gangs.retain(|gang| !gang.is_empty());
        if waited {
            let exit = ProcessExit::Signal(match signal {
                RankSignal::Terminate => rustix::process::Signal::TERM.as_raw(),
                RankSignal::Kill => rustix::process::Signal::KILL.as_raw(),
            });
            return self.tell(RankEvent::Exited { worker, exit });
        }
        if let Some(rank) = self.running.get(&worker)
            && let Err(error) = write_message(&*rank.stream, &ToRankHost::Signal(signal))
        {
            tracing::debug!(worker, node = %rank.node, %error, "could not signal a rank");
        }
    }

    fn tell(&self, event: RankEvent) {
        // The launcher is gone only when it has given up.
        let _heard = self.events.send(event);
    }

    /// Tries to place every gang; `false` if a command came first, which is carried out.
    async fn try_gangs(&mut self, commands: &mut mpsc::UnboundedReceiver<PlacerCommand>) -> bool {
        let mut index = 0;
        while let Some(gang) = self.gangs.get(index).cloned() {
            let attempt = tokio::select! {
                biased;
                // What was reserved is released: streams end when they are dropped.
                command = commands.recv() => {
                    command.into_iter().for_each(|command| self.on_command(command));
                    return false;
                }
                attempt = self.reserve_all(&gang) => attempt,
            };
            match attempt {
                Ok((reserved, offers)) => {
                    self.gangs.remove(index);
                    self.start(reserved, &offers);
                }
                Err(reason) => {
                    self.tell_waiting(gang, reason);
                    index += 1;
                }
            }
        }
        true
    }

    fn tell_waiting(&mut self, workers: BTreeSet<u32>, reason: PlaceWait) {
        let first = workers.first().copied().unwrap_or(0);
        if self.told.get(&first) != Some(&reason) {
            self.told.insert(first, reason.clone());
            self.tell(RankEvent::Waiting { workers, reason });
        }
    }

    /// Reserves a place for every rank of a gang, in the order of nodes: of two launchers that want the same nodes one
    /// comes first at all of them.
    async fn reserve_all(
        &self,
        gang: &BTreeSet<u32>,
    ) -> Result<(BTreeMap<u32, Running>, Vec<NodeOffer>), PlaceWait> {
        let DomainPlace { fabric, nodes: choice, cores_per_rank, .. } = &self.place;
        let offers = offers(fabric);
        let running = self.running.iter().map(|(worker, rank)| (*worker, rank.node.clone())).collect();
        let wanted = Gang { workers: gang, cores: *cores_per_rank, choice, running: &running };
        let mut reserved = BTreeMap::new();
        for (worker, node) in place(&offers, wanted)? {
            let stream = Arc::new(reserve(fabric, &node, *cores_per_rank).await?);
            let machine = Machine::of(&offers, &node);
            reserved.insert(worker, Running { node, machine, stream });
        }
        Ok((reserved, offers))
    }

    fn start(&mut self, reserved: BTreeMap<u32, Running>, offers: &[NodeOffer]) {
        let new: BTreeSet<u32> = reserved.keys().copied().collect();
        self.told.retain(|first, _| !new.contains(first));
        let nodes = reserved.iter().map(|(worker, rank)| (*worker, rank.node.clone())).collect();
        self.running.extend(reserved);
        self.tell(RankEvent::Placed { nodes });
        let machines = self.running.iter().map(|(worker, rank)| (*worker, &rank.machine)).collect();
        let seats = seats(&machines);
        for (worker, seat) in seats.into_iter().filter(|(worker, _)| new.contains(worker)) {
            let Some(rank) = self.running.get(&worker) else { continue };
            let own = offers.iter().find(|offer| offer.node == rank.node).and_then(|offer| offer.launcher);
            let Some(own) = own else { continue };
            let host = launcher_address(own, offers);
            let cores = self.place.cores_per_rank;
            let variables = self.meeting.variables(worker, host, seat, cores * seat.local_size);
            let stream = RankStream {
                worker,
                node: rank.node.clone(),
                stream: rank.stream.clone(),
                prefix: self.prefix.then(|| format!("[{worker}] ")),
                events: self.events.clone(),
                placer: self.own.clone(),
            };
            if let Err(source) = stream.begin(self.program(&variables)) {
                let program = self.command.first().cloned().unwrap_or_default();
                self.tell(RankEvent::NotStarted { error: LaunchError::Start { program, source } });
            }
        }
    }

    fn program(&self, variables: &[(&'static str, String)]) -> RankProgram {
        let bytes = |text: &OsString| text.as_bytes().to_vec();
        let given = self.place.variables.iter().map(|(name, value)| (bytes(name), bytes(value)));
        let own =
            variables.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.clone().into_bytes()));
        let threads = self.place.cores_per_rank.to_string();
        let defaults = std::iter::once(("OMP_NUM_THREADS", threads.as_str())).chain(ALLOCATOR);
        let defaults = defaults.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        RankProgram {
            command: self.command.iter().map(bytes).collect(),
            variables: given.chain(own).collect(),
            defaults: defaults.collect(),
            directory: self.place.directory.as_os_str().as_bytes().to_vec(),
        }
    }
}

impl Drop for Placer {
    fn drop(&mut self) {
        for rank in self.running.values() {
            // One that has ended cannot be ended again.
            let _ended = rank.stream.shutdown(Shutdown::Both);
        }
    }
}
