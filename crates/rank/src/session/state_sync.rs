//! How replicas agree on the state that a group begins with, and how ranks that lack it come to it.

use super::Session;
use super::catch_up::{CatchUp, MOST_HOLDERS, SMALL};
use crate::connector::broken;
use crate::error::RankError;
use crate::sync::SyncStrategy;
use crate::worker::Report;
use phalanx_graph::weights;
use phalanx_protocol::{Balance, Shares, Standing, Vote, better};
use phalanx_records::{ModelState, StateError};
use phalanx_wire::ballot::Greeting;
use phalanx_wire::state_frame::StateLength;
use phalanx_wire::train_reason::StepFailure;

impl Session<'_, '_> {
    /// Brings all replicas to the state of the one that is farthest: at once, or, when others would have to wait
    /// long for it, while they go on.
    pub(super) fn level_state(&mut self) -> Result<(), RankError> {
        let step = self.part.is_level.then_some(self.part.step);
        let own = Greeting { step, cost: self.worker.cost.unwrap_or(0.0) };
        let gathered = self.lane.all_gather(&own.to_bytes(), "where all ranks stand")?;
        let read = |rank: usize| Greeting::from_bytes(gathered.part(rank)?.try_into().ok()?);
        let all: Option<Vec<Greeting>> = (0..self.lane.ranks()).map(read).collect();
        let all = all.ok_or_else(|| broken("a rank greets in another way".to_owned()))?;
        let ahead = all.iter().filter_map(|greeting| greeting.step).max();
        let Some((ahead, root)) = ahead.zip(all.iter().position(|greeting| greeting.step == ahead)) else {
            return Err(RankError::Step(StepFailure::NoState));
        };
        let new = all.iter().any(|greeting| greeting.step.is_none());
        let behind = all.iter().any(|greeting| greeting.step.is_some_and(|step| step < ahead));
        if new && !behind && ahead > 0 && self.is_worth_catching_up() {
            self.level = all.iter().map(|greeting| greeting.step.is_some()).collect();
            self.begin_to_catch_up(ahead)?;
        } else if new || behind {
            let behind: Vec<bool> = all.iter().map(|greeting| greeting.step != Some(ahead)).collect();
            self.take_over(root, &behind)?;
        }
        self.at = ahead;
        self.spans.begin();
        let costs: Vec<f64> = all.iter().map(|greeting| greeting.cost).collect();
        self.share_out(&costs);
        Ok(())
    }

    fn is_worth_catching_up(&self) -> bool {
        matches!(self.sync, SyncStrategy::Gradients { .. }) && self.state_bytes() > SMALL
    }

    /// Bytes of all weights and what the optimizer has for each.
    fn state_bytes(&self) -> usize {
        let task = &self.worker.task;
        let states = 1 + task.config.train.optimizer.state_names().len();
        let weights: usize = task.weights.values().map(|tensor| tensor.data().len()).sum();
        weights * states
    }

    /// No state takes more: there may be one for the outer optimizer, too, and every tensor has a name.
    fn most_bytes(&self) -> usize {
        let names: usize = self.worker.task.weights.keys().map(|name| name.len() + 1024).sum();
        2 * self.state_bytes() + 8 * names + (1 << 20)
    }

    /// Those behind take over the state of the root, while all wait.
    fn take_over(&mut self, root: usize, behind: &[bool]) -> Result<(), RankError> {
        let rank = self.rank;
        let bytes = if rank == root { self.part.state()?.to_bytes()? } else { Vec::new() };
        let bytes = self.tell_all(root, bytes, "the state")?;
        if behind[rank] {
            self.part.take_over(&ModelState::from_bytes(bytes.into())?)?;
        }
        Ok(())
    }

    /// Everybody gets the bytes that the root has.
    fn tell_all(&mut self, root: usize, mut bytes: Vec<u8>, what: &str) -> Result<Vec<u8>, RankError> {
        let mut len = StateLength(bytes.len() as u64).to_bytes();
        self.lane.broadcast(root, &mut len, &format!("the size of {what}"))?;
        let wrong = || StateError { what: format!("{what} would be larger than this model's can be") };
        let StateLength(len) = StateLength::from_bytes(len);
        let len = usize::try_from(len).ok().filter(|len| *len <= self.most_bytes());
        bytes.resize(len.ok_or_else(wrong)?, 0);
        self.lane.broadcast(root, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Those who hold the state copy a part each, for those who do not.
    fn begin_to_catch_up(&mut self, step: u64) -> Result<(), RankError> {
        let (rank, epoch) = (self.rank, self.epoch);
        let holders: Vec<usize> = (0..self.level.len()).filter(|rank| self.level[*rank]).collect();
        let parts = holders.len().min(MOST_HOLDERS);
        if !self.level[rank] {
            let sums = self.part.stepper.model().parameters().iter().map(|p| p.elements()).sum();
            self.catch_up = Some(CatchUp::new(parts, sums));
            // What it computes until then does not count, but must be possible.
            self.part.is_level = false;
            return Ok(self.part.stepper.load(&self.worker.task.weights)?);
        }
        if let Some(part) = holders.iter().position(|holder| *holder == rank).filter(|part| *part < parts) {
            let state = self.part.stepper.state_part(part, parts)?;
            let Some(reports) = self.worker.outlet.driver() else { return Ok(()) };
            let send = move || match state.to_bytes() {
                Ok(bytes) => reports.say(Report::Part { epoch, step, part, parts, bytes: bytes.into() }),
                Err(error) => tracing::warn!(%error, "could not pack a part of the state"),
            };
            // Packing it takes time that the group has better use for. Whoever waits for a part in vain is late
            // sooner or later, and gets the whole.
            let thread = std::thread::Builder::new().name("part".to_owned()).spawn(send);
            if let Err(error) = thread {
                tracing::warn!(%error, "could not start a thread");
            }
        }
        Ok(())
    }

    /// Shares out batches among the ranks that hold the state; `costs` are microseconds for a sample, where known.
    fn share_out(&mut self, costs: &[f64]) {
        let batch = self.shares.batch();
        let levels = self.level.iter().filter(|level| **level).count();
        let equal = Shares::equal(batch, levels.max(1));
        let of_levels: Vec<f64> =
            costs.iter().zip(&self.level).filter(|(_, level)| **level).map(|(cost, _)| *cost).collect();
        let known =
            self.balance.is_some() && of_levels.len() == levels && of_levels.iter().all(|cost| *cost > 0.0);
        let fast = known.then(|| better(batch, &of_levels, &equal)).flatten();
        self.set_shares(Some(fast.unwrap_or(equal).among(&self.level)));
        let ranks = self.level.len();
        if let Some(balance) = &mut self.balance {
            *balance = Balance::new(batch, ranks);
        }
    }

    /// Whether this replica holds the state before a step.
    pub(super) fn standing(&self) -> Standing {
        match &self.catch_up {
            Some(catch_up) if catch_up.is_late() => Standing::Late,
            Some(catch_up) if !catch_up.is_level() => Standing::Catching,
            _ => Standing::Level,
        }
    }

    /// Comes nearer, when this replica is not level.
    pub(super) fn catch_up(&mut self) -> Result<(), RankError> {
        let Some(catch_up) = &mut self.catch_up else { return Ok(()) };
        for (part, bytes) in self.worker.mailbox.take_parts(self.epoch) {
            if let Some(mut state) = catch_up.on_part(part, bytes)? {
                for (name, tensor) in &self.worker.task.weights {
                    // Buffers come last.
                    state.weights.entry(name.clone()).or_insert_with(|| tensor.clone());
                }
                self.part.take_over(&state)?;
                // It is not the group's yet.
                self.part.is_level = false;
            }
        }
        for step in catch_up.due() {
            self.part.stepper.set_gradients(&step.sums);
            self.part.apply(step.norm, step.lr);
        }
        Ok(())
    }

    /// Takes in those who have come level, or are late, after a step that all have seen.
    pub(super) fn let_land(&mut self, votes: &[Vote]) -> Result<(), RankError> {
        if self.level.iter().all(|level| *level) {
            return Ok(());
        }
        let stands = |rank: usize, standing: Standing| !self.level[rank] && votes[rank].standing == standing;
        let ranks = 0..self.level.len();
        let late: Vec<bool> = ranks.clone().map(|rank| stands(rank, Standing::Late)).collect();
        let landing: Vec<bool> = ranks.map(|rank| late[rank] || stands(rank, Standing::Level)).collect();
        if !landing.contains(&true) {
            return Ok(());
        }
        let (root, rank) = (self.speaker(), self.rank);
        if late.contains(&true) {
            self.take_over(root, &landing)?;
        } else {
            let graph = &self.worker.task.graph;
            let bytes = match rank == root {
                true => weights::to_bytes(&self.part.stepper.buffers(graph)),
                false => Ok(Vec::new()),
            };
            let wrong = |source: weights::WeightsError| StateError { what: source.to_string() };
            let bytes = self.tell_all(root, bytes.map_err(wrong)?, "the buffers")?;
            if landing[rank] {
                self.part.stepper.set_buffers(weights::from_bytes(bytes.into()).map_err(wrong)?)?;
            }
        }
        if landing[rank] {
            self.catch_up = None;
            (self.part.step, self.part.is_level) = (self.at, true);
        }
        self.level.iter_mut().zip(landing).for_each(|(level, lands)| *level |= lands);
        self.share_out(&[]);
        if self.level.iter().all(|level| *level) {
            self.worker.say(Report::AllLevel);
        }
        Ok(())
    }
}
