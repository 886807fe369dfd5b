//! Nodes, messages and a driver, in no time: a search under a random scenario, where nodes die, results are late, double
//! or lost, and the driver is killed at any of its commands and goes on from what it has written.

pub(crate) mod books;
pub(crate) mod kinds;
pub(crate) mod scenario;

use books::Books;
use phalanx_search::core::control::{SearchCommand, SearchCore, SearchEvent};
use phalanx_search::core::dice::Dice;
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialId};
use phalanx_types::Seed;
use scenario::Scenario;

/// After so many steps nothing breaks any more, and the search must end.
const CHAOS: u32 = 600;
/// It must have ended by then.
const STEPS: u32 = 20_000;

#[derive(Debug, Clone, Copy)]
struct Order {
    trial: TrialId,
    from: f64,
    to: f64,
    priority: i32,
}

#[derive(Debug)]
struct Attempt {
    order: Order,
    node: u32,
    /// How far it is.
    at: f64,
}

/// What happened in a simulated search.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) searches: u64,
    pub(crate) finished: u64,
    pub(crate) trials: u64,
    pub(crate) twins: u64,
    pub(crate) trainings: u64,
    pub(crate) kills: u64,
    pub(crate) stops: u64,
    pub(crate) lost_nodes: u64,
    pub(crate) doubled: u64,
    pub(crate) prefixes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.searches += more.searches;
        self.finished += more.finished;
        self.trials += more.trials;
        self.twins += more.twins;
        self.trainings += more.trainings;
        self.kills += more.kills;
        self.stops += more.stops;
        self.lost_nodes += more.lost_nodes;
        self.doubled += more.doubled;
        self.prefixes += more.prefixes;
    }
}

pub(crate) struct Cluster {
    scenario: Scenario,
    dice: Dice,
    core: SearchCore,
    books: Books,
    nodes: Vec<u32>,
    next_node: u32,
    /// Trainings that no node has begun.
    orders: Vec<Order>,
    attempts: Vec<Attempt>,
    messages: Vec<SearchEvent>,
    ended: Option<SearchEnd>,
    chaos: bool,
    pub(crate) counts: Counts,
}

/// Runs the search of a seed to its end.
///
/// # Errors
/// If a promise is broken: which one.
pub(crate) fn run(seed: u64) -> Result<Counts, String> {
    let scenario = Scenario::random(seed);
    let core = fresh(&scenario);
    let mut cluster = Cluster {
        books: Books::new(&scenario),
        scenario,
        dice: Dice::of(Seed(seed), "cluster", 0),
        core,
        nodes: Vec::new(),
        next_node: 0,
        orders: Vec::new(),
        attempts: Vec::new(),
        messages: Vec::new(),
        ended: None,
        chaos: true,
        counts: Counts { searches: 1, ..Counts::default() },
    };
    cluster.run_to_the_end()?;
    Ok(cluster.counts)
}

fn fresh(scenario: &Scenario) -> SearchCore {
    let candidates = Box::new(scenario.truth.clone());
    SearchCore::new(scenario.config.clone(), scenario.space.clone(), scenario.algorithm(), candidates)
}

fn restored(scenario: &Scenario, records: &[SearchRecord]) -> Result<SearchCore, String> {
    let candidates = Box::new(scenario.truth.clone());
    let (config, space) = (scenario.config.clone(), scenario.space.clone());
    SearchCore::restore(config, space, scenario.algorithm(), candidates, records)
        .map_err(|error| format!("{error}: {}", error.what))
}

impl Cluster {
    fn run_to_the_end(&mut self) -> Result<(), String> {
        for _ in 0..1 + self.dice.below(6) {
            self.join();
        }
        self.tell(SearchEvent::Capacity { slots: self.nodes.len() })?;
        for step in 0..STEPS {
            self.chaos = step < CHAOS;
            match &self.ended {
                Some(SearchEnd::Stopped) => self.restart()?,
                Some(end) => {
                    let end = end.clone();
                    return self.finish(&end);
                }
                None => self.step()?,
            }
        }
        Err(format!("the search does not end: {:?}", self.core.reason()))
    }

    fn join(&mut self) {
        self.nodes.push(self.next_node);
        self.next_node += 1;
    }

    fn step(&mut self) -> Result<(), String> {
        if self.chaos {
            match self.dice.below(100) {
                0..3 => return self.lose_a_node(),
                3..6 if self.nodes.len() < 8 => {
                    self.join();
                    return self.tell(SearchEvent::Capacity { slots: self.nodes.len() });
                }
                6..9 => return self.kill(),
                9 => {
                    self.counts.stops += 1;
                    return self.tell(SearchEvent::StopAsked);
                }
                10..12 => return self.tell_nonsense(),
                _ => {}
            }
        } else if self.nodes.is_empty() {
            self.join();
            return self.tell(SearchEvent::Capacity { slots: self.nodes.len() });
        }
        if self.begin()? {
            return Ok(());
        }
        let moves = self.attempts.len();
        let choice = self.dice.below(moves + self.messages.len());
        if choice < moves {
            self.advance(choice);
            return Ok(());
        }
        if self.messages.is_empty() {
            if self.chaos && self.nodes.is_empty() {
                return Ok(());
            }
            return Err(format!("nothing runs and nothing will: {:?}", self.core.reason()));
        }
        self.deliver(choice - moves)
    }

    /// A free node takes the order of the highest priority.
    fn begin(&mut self) -> Result<bool, String> {
        let is_busy = |node: &u32| self.attempts.iter().any(|attempt| attempt.node == *node);
        let Some(node) = self.nodes.iter().copied().find(|node| !is_busy(node)) else { return Ok(false) };
        let Some(highest) = self.orders.iter().map(|order| order.priority).max() else { return Ok(false) };
        let at = self.orders.iter().position(|order| order.priority == highest).unwrap();
        let order = self.orders.remove(at);
        self.attempts.push(Attempt { order, node, at: order.from });
        self.counts.trainings += 1;
        self.tell(SearchEvent::TrialStarted { trial: order.trial, node: format!("n{node}") })?;
        Ok(true)
    }

    /// A training goes on, and ends at its budget. The result travels.
    fn advance(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        let Order { trial, to, .. } = attempt.order;
        let model = self.books.model(trial);
        attempt.at = if attempt.at < 0.5 { 0.5 } else { attempt.at.floor() + 1.0 };
        if attempt.at < to {
            let (budget, values) = (attempt.at, self.scenario.truth.values(&model, attempt.at));
            self.messages.push(SearchEvent::TrialProgress { trial, budget, values });
            return;
        }
        self.attempts.remove(index);
        let values = self.scenario.truth.values(&model, to);
        let lost = self.chaos && self.dice.chance(0.05);
        self.messages.push(if lost {
            SearchEvent::TrialFailed { trial, why: "its result was lost".to_owned(), retry: true }
        } else if self.chaos && self.dice.chance(0.01) {
            SearchEvent::TrialFailed { trial, why: "it ran out of memory".to_owned(), retry: false }
        } else {
            SearchEvent::TrialReached { trial, budget: to, values, seconds: to }
        });
    }

    fn deliver(&mut self, index: usize) -> Result<(), String> {
        let double = self.chaos && self.dice.chance(0.15);
        let message = if double { self.messages[index].clone() } else { self.messages.swap_remove(index) };
        self.counts.doubled += u64::from(double);
        self.tell(message)
    }

    fn lose_a_node(&mut self) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        let node = self.nodes.remove(self.dice.below(self.nodes.len()));
        self.counts.lost_nodes += 1;
        if let Some(at) = self.attempts.iter().position(|attempt| attempt.node == node) {
            let trial = self.attempts.remove(at).order.trial;
            let why = format!("n{node} was lost");
            self.messages.push(SearchEvent::TrialFailed { trial, why, retry: true });
        }
        self.tell(SearchEvent::Capacity { slots: self.nodes.len() })
    }

    /// Events that no node of this search would send.
    fn tell_nonsense(&mut self) -> Result<(), String> {
        let trial = TrialId(self.dice.below(60) as u64);
        let budget = *self.dice.pick(&[0.0, 0.7, f64::NAN, 1e9]).unwrap();
        let values = self.scenario.truth.values("none", 1.0);
        let event = match self.dice.below(3) {
            0 => SearchEvent::TrialReached { trial, budget, values, seconds: f64::NAN },
            1 => SearchEvent::TrialProgress { trial, budget, values },
            _ => SearchEvent::TrialStarted { trial: TrialId(trial.0 + 1_000), node: "n0".to_owned() },
        };
        self.tell(event)
    }

    fn tell(&mut self, event: SearchEvent) -> Result<(), String> {
        let commands = self.core.on(event);
        let kill = self.chaos && self.dice.chance(0.01);
        let carried_out = if kill { self.dice.below(commands.len() + 1) } else { commands.len() };
        self.carry_out(&commands[..carried_out])?;
        if kill {
            return self.kill();
        }
        self.core.check_invariants()
    }

    fn carry_out(&mut self, commands: &[SearchCommand]) -> Result<(), String> {
        for command in commands {
            match command {
                SearchCommand::Record(record) => self.books.write(record)?,
                SearchCommand::Run { trial, from, to, priority } => {
                    self.books.may_run(*trial, *from, *to)?;
                    let order = Order { trial: *trial, from: *from, to: *to, priority: *priority };
                    self.orders.push(order);
                }
                SearchCommand::Cancel { trial } => {
                    self.orders.retain(|order| order.trial != *trial);
                    self.attempts.retain(|attempt| attempt.order.trial != *trial);
                }
                SearchCommand::Ended(end) => self.ended = Some(end.clone()),
            }
        }
        Ok(())
    }

    /// The driver is gone; what nodes were doing is lost, or comes in later.
    fn kill(&mut self) -> Result<(), String> {
        self.counts.kills += 1;
        self.orders.clear();
        if self.dice.chance(0.7) {
            self.attempts.clear();
            self.messages.clear();
        }
        self.restart()
    }

    fn restart(&mut self) -> Result<(), String> {
        self.ended = None;
        self.core = restored(&self.scenario, &self.books.records)?;
        let commands = self.core.resume();
        self.carry_out(&commands)?;
        self.core.check_invariants()?;
        if self.ended.is_none() {
            self.tell(SearchEvent::Capacity { slots: self.nodes.len() })?;
        }
        Ok(())
    }

    fn finish(&mut self, end: &SearchEnd) -> Result<(), String> {
        let again = restored(&self.scenario, &self.books.records)?;
        if again.trials() != self.core.trials() || again.front() != self.core.front() {
            return Err("the state does not follow from the records".to_owned());
        }
        self.books.balance(&self.scenario, end, &self.core.front())?;
        self.check_replay()?;
        self.counts.finished += u64::from(*end == SearchEnd::Finished);
        self.counts.trials += self.core.trials().len() as u64;
        self.counts.twins +=
            self.core.trials().values().filter(|trial| trial.same_as.is_some()).count() as u64;
        for _ in 0..12.min(self.books.records.len()) {
            let length = self.dice.below(self.books.records.len());
            self.check_prefix(length)?;
            self.counts.prefixes += 1;
        }
        Ok(())
    }

    /// Decided again from every recorded state, everything is as it was; another candidate in the records is found.
    fn check_replay(&self) -> Result<(), String> {
        let scenario = &self.scenario;
        let replay = |records: &[SearchRecord]| {
            let candidates = Box::new(scenario.truth.clone());
            let (config, space) = (scenario.config.clone(), scenario.space.clone());
            SearchCore::replay(config, space, &|| scenario.algorithm(), candidates, records)
                .map_err(|error| format!("{error}: {}", error.what))
        };
        let report = replay(&self.books.records)?;
        if let Some(difference) = report.differences.first() {
            return Err(format!("decided again it is not the same: {difference:?}"));
        }
        let mut changed = self.books.records.clone();
        let proposals = changed.iter_mut().enumerate().rev();
        let archid = proposals.filter_map(|(line, record)| match record {
            SearchRecord::TrialProposed { archid, .. } => Some((line + 1, archid)),
            _ => None,
        });
        if let Some((line, archid)) = archid.last() {
            archid.push('?');
            let lines = replay(&changed)?.differences.iter().map(|found| found.line).collect::<Vec<_>>();
            if lines != [line] {
                return Err(format!("line {line} was changed, found were {lines:?}"));
            }
        }
        Ok(())
    }

    /// A search that is restored from the first records writes the next one, when the same happens.
    fn check_prefix(&self, length: usize) -> Result<(), String> {
        let mut core = restored(&self.scenario, &self.books.records[..length])?;
        let next = &self.books.records[length];
        let mut commands = core.resume();
        let queued = core.trials().values().filter(|trial| trial.is_queued()).count();
        let first = |commands: &[SearchCommand]| {
            commands.iter().find_map(|command| match command {
                SearchCommand::Record(record) => Some(record.clone()),
                SearchCommand::Run { .. } | SearchCommand::Cancel { .. } | SearchCommand::Ended(_) => None,
            })
        };
        if first(&commands).is_none() {
            let happened = self.books.event_of(next);
            commands = core.on(happened.unwrap_or(SearchEvent::Capacity { slots: queued + 1 }));
        }
        match first(&commands) {
            Some(record) if record == *next => Ok(()),
            other => {
                if std::env::var("PHALANX_SEARCH_SEED").is_ok() {
                    println!("{:#?}\n{:?}", self.scenario, core.reason());
                    for record in &self.books.records[..length] {
                        println!("{record:?}");
                    }
                }
                Err(format!("after {length} records comes {other:?} and not {next:?}"))
            }
        }
    }
}
