//! Runs that train on workers, beside their jobs: only what they take and give back.

use super::event::WorkerEvent;
use super::worker_shell::WorkerNode;
use super::world::World;
use phalanx_account::Holder;
use phalanx_account::core::ClaimId;
use phalanx_types::{ByteSize, Needs, RunId};

impl WorkerNode {
    /// What runs use of it.
    pub(super) fn trained_with(&self) -> Needs {
        let none = Needs { cores: 0, memory: ByteSize(0) };
        let uses = self.account.iter().flat_map(phalanx_account::core::Account::uses);
        let runs = uses.filter(|part| !matches!(part.holder, Holder::Jobs { .. }));
        runs.fold(none, |sum, part| Needs {
            cores: sum.cores + part.cores,
            memory: ByteSize(sum.memory.0 + part.memory.0),
        })
    }
}

impl World {
    pub(super) fn on_training_arrives(&mut self, index: usize) {
        let worker = self.plan.trainings[index].worker;
        if self.workers[worker].core.is_some() {
            self.worker_soon(worker, 0, WorkerEvent::TrainingTries { index, waits: None });
        }
    }

    /// Claims what it needs, or waits for it until its time is over.
    pub(super) fn on_training_tries(&mut self, worker: usize, index: usize, waits: Option<ClaimId>) {
        let training = self.plan.trainings[index];
        self.count_jobs(worker);
        let node = &mut self.workers[worker];
        let Some(account) = &mut node.account else { return };
        let (run, driver) = (RunId(index as u64), "driver-0000".parse().expect("a name"));
        let holder = Holder::Run { run, driver };
        let claimed = match waits {
            Some(turn) => account.claim_in_turn(turn, holder, training.needs),
            None => account.try_claim(holder, training.needs),
        };
        let next = match claimed {
            Ok(claim) => {
                self.trace.line(self.now, format_args!("w{worker} trains {index} with {:?}", training.needs));
                let lasts = u64::try_from(training.lasts.as_micros()).unwrap_or(u64::MAX);
                Some((lasts, WorkerEvent::TrainingEnds { claim }))
            }
            Err(shortage) if self.now < training.at + training.lasts => {
                self.trace.line(self.now, format_args!("w{worker} does not train {index}: {shortage}"));
                let driver = "driver-0000".parse().expect("a name");
                let waits = waits
                    .unwrap_or_else(|| account.wait_for(Holder::WaitingRun { run, driver }, training.needs));
                Some((5_000, WorkerEvent::TrainingTries { index, waits: Some(waits) }))
            }
            Err(_) => {
                waits.map(|waits| account.give_up(waits));
                None
            }
        };
        if let Some((delay, event)) = next {
            self.worker_soon(worker, delay, event);
        }
        self.tell_taken(worker);
    }

    pub(super) fn on_training_ends(&mut self, worker: usize, claim: ClaimId) {
        if let Some(account) = &mut self.workers[worker].account {
            account.release(claim);
        }
        self.tell_taken(worker);
    }

    /// The account knows what jobs use whenever somebody asks for a part of the node.
    fn count_jobs(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        let (Some(core), Some(account)) = (&node.core, &mut node.account) else { return };
        if let Err(shortage) = account.set_jobs(core.running(), core.in_use()) {
            self.violate(format!("w{worker}: jobs use more than their share: {shortage}"));
        }
    }

    fn tell_taken(&mut self, worker: usize) {
        let node = &mut self.workers[worker];
        let (Some(core), Some(account)) = (&mut node.core, &node.account) else { return };
        account.check_invariants();
        core.on_taken(account.taken());
        self.touch_worker(worker);
    }
}
