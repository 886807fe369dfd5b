//! Who holds the state of the run, and how those who do not come to it.

use super::catch_up::{CatchUp, MOST_HOLDERS, SMALL};
use super::session::Session;
use super::worker::Report;
use crate::error::DistributedError;
use phalanx_graph::weights;
use phalanx_protocol::{Standing, Vote};
use phalanx_records::StateError;
use phalanx_train::config::ExchangeOf;

/// What a replica tells the others when a group begins.
struct Greeting {
    /// Steps that its state has behind it, if it holds one.
    step: Option<u64>,
    /// Microseconds of a sample in the group before; 0 when it was in none.
    cost: f64,
}

impl Greeting {
    const LEN: usize = 17;

    fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = u8::from(self.step.is_some());
        bytes[1..9].copy_from_slice(&self.step.unwrap_or(0).to_le_bytes());
        bytes[9..].copy_from_slice(&self.cost.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let number = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self { step: (bytes[0] == 1).then(|| number(1)), cost: f64::from_bits(number(9)) }
    }
}

impl Session<'_> {
    /// Brings all replicas to the state of the one that is farthest: at once, or, when others would have to wait
    /// long for it, while they go on.
    pub(super) fn bring_level(&mut self) -> Result<(), DistributedError> {
        let own = Greeting { step: self.worker.step, cost: self.worker.cost.unwrap_or(0.0) };
        let all = self.together.gather_alike(&own.to_bytes(), "where everybody stands")?;
        let all: Vec<Greeting> = all.as_chunks().0.iter().map(Greeting::from_bytes).collect();
        let ahead = all.iter().filter_map(|greeting| greeting.step).max();
        let Some((ahead, root)) = ahead.zip(all.iter().position(|greeting| greeting.step == ahead)) else {
            return Err(DistributedError::Replica {
                reason: "no replica holds the state of the run".to_owned(),
            });
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
        self.worker.task.config.sync.exchange == ExchangeOf::Gradients && self.state_bytes() > SMALL
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
    fn take_over(&mut self, root: usize, behind: &[bool]) -> Result<(), DistributedError> {
        let rank = self.together.rank();
        let bytes = if rank == root { self.worker.state()?.to_bytes()? } else { Vec::new() };
        let bytes = self.tell_all(root, bytes, "the state")?;
        if behind[rank] {
            self.worker.take_over(bytes.into())?;
        }
        Ok(())
    }

    /// Everybody gets the bytes that the root has.
    fn tell_all(&mut self, root: usize, mut bytes: Vec<u8>, what: &str) -> Result<Vec<u8>, DistributedError> {
        let mut len = (bytes.len() as u64).to_le_bytes();
        self.together.broadcast(root, &mut len, &format!("the size of {what}"))?;
        let wrong = || StateError { what: format!("{what} would be larger than this model's can be") };
        let len = usize::try_from(u64::from_le_bytes(len)).ok().filter(|len| *len <= self.most_bytes());
        bytes.resize(len.ok_or_else(wrong)?, 0);
        self.together.broadcast(root, &mut bytes, what)?;
        Ok(bytes)
    }

    /// Those who hold the state copy a part each, for those who do not.
    fn begin_to_catch_up(&mut self, step: u64) -> Result<(), DistributedError> {
        let (rank, epoch) = (self.together.rank(), self.epoch);
        let holders: Vec<usize> = (0..self.level.len()).filter(|rank| self.level[*rank]).collect();
        let parts = holders.len().min(MOST_HOLDERS);
        if !self.level[rank] {
            let sums = self.worker.stepper.model().parameters().iter().map(|p| p.elements()).sum();
            self.catch_up = Some(CatchUp::new(parts, sums));
            // What it computes until then does not count, but must be possible.
            return Ok(self.worker.stepper.load(&self.worker.task.weights)?);
        }
        if let Some(part) = holders.iter().position(|holder| *holder == rank).filter(|part| *part < parts) {
            let state = self.worker.stepper.state_part(part, parts)?;
            let reports = self.worker.reports.clone();
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

    /// Whether this replica holds the state before a step.
    pub(super) fn standing(&self) -> Standing {
        match &self.catch_up {
            Some(catch_up) if catch_up.is_late() => Standing::Late,
            Some(catch_up) if !catch_up.is_level() => Standing::Catching,
            _ => Standing::Level,
        }
    }

    /// Comes nearer, when this replica is not level.
    pub(super) fn catch_up(&mut self) -> Result<(), DistributedError> {
        let Some(catch_up) = &mut self.catch_up else { return Ok(()) };
        for (part, bytes) in self.worker.control.take_parts(self.epoch) {
            if let Some(mut state) = catch_up.on_part(part, bytes)? {
                for (name, tensor) in &self.worker.task.weights {
                    // Buffers come last.
                    state.weights.entry(name.clone()).or_insert_with(|| tensor.clone());
                }
                self.worker.become_state(&state)?;
                // It is not the group's yet.
                self.worker.step = None;
            }
        }
        for step in catch_up.due() {
            self.worker.stepper.set_gradients(&step.sums);
            self.worker.stepper.apply(step.norm, step.lr);
        }
        Ok(())
    }

    /// Takes in those who have come level, or are late, after a step that all have seen.
    pub(super) fn let_land(&mut self, votes: &[Vote]) -> Result<(), DistributedError> {
        let stands = |rank: usize, standing: Standing| !self.level[rank] && votes[rank].standing == standing;
        let ranks = 0..self.level.len();
        let late: Vec<bool> = ranks.clone().map(|rank| stands(rank, Standing::Late)).collect();
        let landing: Vec<bool> = ranks.map(|rank| late[rank] || stands(rank, Standing::Level)).collect();
        if !landing.contains(&true) {
            return Ok(());
        }
        let (root, rank) = (self.speaker(), self.together.rank());
        if late.contains(&true) {
            self.take_over(root, &landing)?;
        } else {
            let graph = &self.worker.task.graph;
            let bytes = match rank == root {
                true => weights::to_bytes(&self.worker.stepper.buffers(graph)),
                false => Ok(Vec::new()),
            };
            let wrong = |source: weights::WeightsError| StateError { what: source.to_string() };
            let bytes = self.tell_all(root, bytes.map_err(wrong)?, "the buffers")?;
            if landing[rank] {
                self.worker.stepper.set_buffers(weights::from_bytes(bytes.into()).map_err(wrong)?)?;
            }
        }
        if landing[rank] {
            self.catch_up = None;
            self.worker.step = Some(self.at);
        }
        self.level.iter_mut().zip(landing).for_each(|(level, lands)| *level |= lands);
        self.share_out(&[]);
        if self.level.iter().all(|level| *level) {
            self.worker.say(Report::AllLevel);
        }
        Ok(())
    }
}
