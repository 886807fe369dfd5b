//! Ranks as processes of this machine, with a thread for each.

use crate::core::placement::Seat;
use crate::launch::LaunchError;
use crate::output::{Sink, pass_on};
use crate::place::{ALLOCATOR, Meeting, Place, RankEvent};
use crate::process::{Signals, run_process};
use phalanx_wire::launch::RankSignal;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// The processes of this machine. They are ended when this is dropped.
#[derive(Debug)]
pub(crate) struct LocalProcesses {
    pub(crate) meeting: Meeting,
    /// What ties the life of a process to that of this one.
    pub(crate) wrapper: Vec<OsString>,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The cores that all ranks share.
    pub(crate) cores: u32,
    pub(crate) prefix: bool,
    pub(crate) events: Sender<RankEvent>,
    pub(crate) running: BTreeMap<u32, Arc<Signals>>,
}

impl LocalProcesses {
    fn rank_command(&self, worker: u32) -> io::Result<Command> {
        let mut words = self.wrapper.iter().chain(&self.command);
        let program = words.next().ok_or(io::ErrorKind::InvalidInput)?;
        let ranks = self.meeting.ranks;
        let seat = Seat { local_rank: worker, local_size: ranks, cross_rank: 0, cross_size: 1 };
        let mut command = Command::new(program);
        command.args(words);
        command.envs(self.meeting.variables(worker, Ipv4Addr::LOCALHOST.into(), seat, self.cores));
        let threads = (self.cores / ranks).max(1).to_string();
        let defaults = std::iter::once(("OMP_NUM_THREADS", threads.as_str())).chain(ALLOCATOR);
        command.envs(defaults.filter(|(name, _)| std::env::var_os(name).is_none()));
        Ok(command)
    }

    fn start_one(&mut self, worker: u32) -> io::Result<()> {
        let command = self.rank_command(worker)?;
        let signals = Arc::new(Signals::default());
        self.running.insert(worker, signals.clone());
        let (events, program) = (self.events.clone(), self.command.first().cloned().unwrap_or_default());
        let prefix = self.prefix.then(|| format!("[{worker}] "));
        let run = move || {
            let prefix = prefix.as_deref();
            let exit = run_process(
                command,
                &signals,
                |out| pass_on(out, prefix, Sink::Out),
                |err| pass_on(err, prefix, Sink::Err),
            );
            let event = match exit {
                Ok(exit) => RankEvent::Exited { worker, exit },
                Err(source) => RankEvent::NotStarted { error: LaunchError::Start { program, source } },
            };
            // The launcher is gone only when it has given up.
            let _heard = events.send(event);
        };
        std::thread::Builder::new().name(format!("rank {worker}")).spawn(run).map(drop)
    }
}

impl Place for LocalProcesses {
    fn start(&mut self, workers: BTreeSet<u32>) -> Result<(), LaunchError> {
        let program = self.command.first().cloned().unwrap_or_default();
        workers
            .into_iter()
            .try_for_each(|worker| self.start_one(worker))
            .map_err(|source| LaunchError::Start { program, source })
    }

    fn signal(&mut self, worker: u32, signal: RankSignal) {
        if let Some(signals) = self.running.get(&worker) {
            signals.send(signal);
        }
    }
}

impl Drop for LocalProcesses {
    fn drop(&mut self) {
        self.running.values().for_each(|signals| signals.send(RankSignal::Kill));
    }
}
