//! The loop between what a search decides and the nodes that train.

use crate::capacity::{largest_memory, slots};
use crate::directory::SearchDir;
use crate::error::SearchError;
use crate::failure::{TrialFailure, solution_of};
use crate::plan::SearchPlan;
use phalanx_fabric::NodeWatch;
use phalanx_jobs::{JobEnd, JobHandle, MainNode, Outcome, Outcomes};
use phalanx_records::with_causes;
use phalanx_search::core::control::{SearchCommand, SearchCore, SearchEvent};
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialId};
use phalanx_search_results::{EventLine, SearchTable};
use phalanx_trial::{TrialClient, TrialTerms, TrialUpdate, TrialUpdates};
use phalanx_types::{JobId, NodeId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Is told what happens in a search.
pub trait SearchObserver: Send {
    /// These lines are recorded, and in the table.
    fn on_lines(&mut self, table: &SearchTable, lines: &[EventLine]);
    /// Fewer trials are trained than could be, and why; `None`: that is over.
    fn on_waiting(&mut self, why: Option<&str>);
}

/// A stretch of training that is a job.
#[derive(Debug)]
struct Ordered {
    trial: TrialId,
    attempt: u32,
    to: f64,
    /// The node that trains it, and since when.
    began: Option<(NodeId, Instant)>,
}

/// What may happen next.
enum Happened {
    Ended(Vec<JobEnd>),
    Update(TrialUpdate),
    Nodes,
    Stop,
    Over,
    /// It was waited for long enough to say so.
    Patience,
}

/// What holds a search up for less is not worth a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Searches to the end, or until it is asked to stop. `past` is what the directory recorded before.
///
/// # Errors
/// The directory cannot be written, or the main node has ended.
pub async fn drive(
    main: &MainNode,
    plan: &SearchPlan,
    dir: SearchDir,
    past: Vec<EventLine>,
    stop: watch::Receiver<bool>,
    observer: &mut dyn SearchObserver,
) -> Result<(SearchDir, SearchTable, SearchEnd), SearchError> {
    let mut table = SearchTable::new(plan.about().clone());
    past.iter().try_for_each(|line| table.apply(line))?;
    let records: Vec<SearchRecord> = past.into_iter().map(|line| line.record).collect();
    let core = plan.core(&records)?;
    let client = TrialClient::new(main.clone(), plan.base());
    let (updates, outcomes) = (client.updates(), main.outcomes().await?);
    let nodes = main.fabric().watch();
    let driver = Driver {
        main,
        plan,
        dir,
        table,
        client,
        observer,
        core: None,
        ordered: BTreeMap::new(),
        attempts: 0,
        troubles: VecDeque::new(),
    };
    driver.run(core, Ears { updates, outcomes, nodes, stop }).await
}

/// What the loop listens to.
struct Ears {
    updates: TrialUpdates,
    outcomes: Outcomes,
    nodes: NodeWatch,
    stop: watch::Receiver<bool>,
}

impl Ears {
    async fn next(&mut self, patience: Option<Instant>) -> Happened {
        let patience = async {
            match patience {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = patience => Happened::Patience,
            ends = self.outcomes.next_ends() => ends.map_or(Happened::Over, Happened::Ended),
            update = self.updates.next() => update.map_or(Happened::Over, Happened::Update),
            change = self.nodes.next() => change.map_or(Happened::Over, |_| Happened::Nodes),
            // A sender that is gone asks for nothing any more.
            () = asked(&mut self.stop) => Happened::Stop,
        }
    }
}

/// Returns when it was asked to stop, once.
async fn asked(stop: &mut watch::Receiver<bool>) {
    loop {
        if stop.changed().await.is_err() {
            return std::future::pending().await;
        }
        if *stop.borrow_and_update() {
            return;
        }
    }
}

/// What holds the search up, if anything does.
struct Waiting {
    why: Option<String>,
    since: Instant,
    /// What was said of it.
    told: Option<String>,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { why: None, since: Instant::now(), told: None }
    }
}

struct Driver<'a> {
    main: &'a MainNode,
    plan: &'a SearchPlan,
    dir: SearchDir,
    table: SearchTable,
    client: TrialClient,
    observer: &'a mut dyn SearchObserver,
    /// Away only while it decides.
    core: Option<SearchCore>,
    ordered: BTreeMap<JobId, Ordered>,
    attempts: u32,
    /// Trials that could not be ordered, which the core is not told of yet.
    troubles: VecDeque<SearchEvent>,
}

impl Driver<'_> {
    async fn run(
        mut self,
        core: SearchCore,
        mut ears: Ears,
    ) -> Result<(SearchDir, SearchTable, SearchEnd), SearchError> {
        let (mut capacity, mut waiting) = (None, Waiting::default());
        self.core = Some(core);
        let mut ended = self.decide(|core| core.resume()).await?;
        while ended.is_none() {
            let now = slots(self.main.fabric(), self.plan.kind(), self.plan.cores(), self.plan.workers());
            if capacity != Some(now) {
                capacity = Some(now);
                ended = self.decide(move |core| core.on(SearchEvent::Capacity { slots: now })).await?;
                continue;
            }
            if let Some(end) = self.end_overdue().await? {
                ended = Some(end);
                continue;
            }
            let patience = self.tell_reason(now, &mut waiting);
            let until = patience.into_iter().chain(self.next_deadline()).min();
            ended = match ears.next(until).await {
                Happened::Ended(ends) => self.on_ends(ends).await?,
                Happened::Update(update) => self.on_update(update).await?,
                Happened::Nodes | Happened::Patience => None,
                Happened::Stop => self.decide(|core| core.on(SearchEvent::StopAsked)).await?,
                Happened::Over => return Err(phalanx_jobs::MainError::Ended.into()),
            };
        }
        let end = ended.unwrap_or(SearchEnd::Stopped);
        for job in std::mem::take(&mut self.ordered).into_keys() {
            self.client.cancel(job).await?;
        }
        Ok((self.dir, self.table, end))
    }

    /// Says why fewer trials are trained than could be, when that has lasted. Gives the moment until when it has not.
    fn tell_reason(&mut self, slots: usize, waiting: &mut Waiting) -> Option<Instant> {
        let reason = match slots {
            0 => Some(format!("no node of the domain takes jobs of kind {:?}", self.plan.kind())),
            _ => self.core.as_ref().and_then(SearchCore::reason),
        };
        if reason != waiting.why {
            *waiting = Waiting { why: reason, since: Instant::now(), told: waiting.told.take() };
        }
        let until = waiting.since + PATIENCE;
        if waiting.why == waiting.told {
            return None;
        }
        if waiting.why.is_some() && Instant::now() < until {
            return Some(until);
        }
        self.observer.on_waiting(waiting.why.as_deref());
        waiting.told.clone_from(&waiting.why);
        None
    }

    /// When the next trial has had its time.
    fn next_deadline(&self) -> Option<Instant> {
        let limit = self.plan.deadline()?;
        self.ordered.values().filter_map(|ordered| Some(ordered.began.as_ref()?.1 + limit)).min()
    }

    /// Ends the jobs of trials that take longer than they may.
    async fn end_overdue(&mut self) -> Result<Option<SearchEnd>, SearchError> {
        let Some(limit) = self.plan.deadline() else { return Ok(None) };
        let now = Instant::now();
        let is_over = |ordered: &Ordered| {
            ordered.began.as_ref().is_some_and(|(_, began)| now.duration_since(*began) >= limit)
        };
        let jobs = self.ordered.iter().filter(|(_, ordered)| is_over(ordered));
        let jobs: Vec<JobId> = jobs.map(|(job, _)| *job).collect();
        let mut ended = None;
        for job in jobs {
            let Some(ordered) = self.ordered.remove(&job) else { continue };
            self.client.cancel(job).await?;
            let event = failed(ordered.trial, &TrialFailure::Deadline { limit });
            ended = self.decide(|core| core.on(event)).await?.or(ended);
        }
        Ok(ended)
    }

    /// Lets the core decide, and carries out what it says.
    async fn decide(
        &mut self,
        how: impl FnOnce(&mut SearchCore) -> Vec<SearchCommand> + Send + 'static,
    ) -> Result<Option<SearchEnd>, SearchError> {
        let mut ended = self.decide_once(how).await?;
        while let Some(trouble) = self.troubles.pop_front() {
            ended = self.decide_once(|core| core.on(trouble)).await?.or(ended);
        }
        Ok(ended)
    }

    /// Lets the core decide on a thread that may compute, and carries out what it says.
    async fn decide_once(
        &mut self,
        how: impl FnOnce(&mut SearchCore) -> Vec<SearchCommand> + Send + 'static,
    ) -> Result<Option<SearchEnd>, SearchError> {
        let mut core = self.core.take().ok_or(SearchError::Panicked)?;
        let decided = tokio::task::spawn_blocking(move || {
            let commands = how(&mut core);
            (core, commands)
        });
        let (core, commands) = decided.await.map_err(|_panicked| SearchError::Panicked)?;
        self.core = Some(core);
        self.carry_out(commands).await
    }

    async fn carry_out(&mut self, commands: Vec<SearchCommand>) -> Result<Option<SearchEnd>, SearchError> {
        let mut ended = None;
        let mut records = Vec::new();
        for command in commands {
            if let SearchCommand::Record(record) = command {
                records.push(record);
                continue;
            }
            self.write(std::mem::take(&mut records))?;
            match command {
                SearchCommand::Record(_) => {}
                SearchCommand::Run { trial, from, to, priority } => {
                    self.order(trial, (from, to), priority).await?
                }
                SearchCommand::Cancel { trial } => self.cancel(trial).await?,
                SearchCommand::Ended(end) => ended = Some(end),
            }
        }
        self.write(records)?;
        Ok(ended)
    }

    /// Nothing that follows from a record happens before it is written.
    fn write(&mut self, records: Vec<SearchRecord>) -> Result<(), SearchError> {
        if records.is_empty() {
            return Ok(());
        }
        let lines = self.dir.record(&records)?;
        lines.iter().try_for_each(|line| self.table.apply(line))?;
        self.observer.on_lines(&self.table, &lines);
        Ok(())
    }

    async fn order(
        &mut self,
        trial: TrialId,
        (from, to): (f64, f64),
        priority: i32,
    ) -> Result<(), SearchError> {
        self.attempts += 1;
        let attempt = self.attempts;
        match self.submit((trial, attempt), (from, to), priority).await? {
            Ok(handle) => {
                self.ordered.insert(handle.id(), Ordered { trial, attempt, to, began: None });
            }
            Err(failure) => self.troubles.push_back(failed(trial, &failure)),
        }
        Ok(())
    }

    /// Makes a job of a stretch of a trial.
    async fn submit(
        &self,
        (trial, attempt): (TrialId, u32),
        (from, to): (f64, f64),
        priority: i32,
    ) -> Result<Result<JobHandle, TrialFailure>, SearchError> {
        let row = self.table.row(trial).ok_or(SearchError::Panicked)?;
        let largest = largest_memory(self.main.fabric(), self.plan.kind());
        let order = match self.plan.order((trial, attempt), row, (from, to)) {
            Ok(order) => self.plan.within(order, largest),
            Err(error) => return Ok(Err(TrialFailure::NotOrdered { why: with_causes(&error) })),
        };
        // What was trained so far is there: a result is recorded after its directory.
        let run = self.dir.trial(trial);
        let run = (from > 0.0 && run.is_dir()).then_some(run.as_path());
        let terms = TrialTerms { priority, attempts: Some(self.plan.attempts()) };
        match self.client.submit_with(&order, run, terms).await {
            Ok(handle) => Ok(Ok(handle)),
            Err(error) => Ok(Err(TrialFailure::of_error(error, true)?)),
        }
    }

    async fn cancel(&mut self, trial: TrialId) -> Result<(), SearchError> {
        let jobs = self.ordered.iter().filter(|(_, ordered)| ordered.trial == trial);
        let jobs: Vec<JobId> = jobs.map(|(job, _)| *job).collect();
        for job in jobs {
            self.ordered.remove(&job);
            self.client.cancel(job).await?;
        }
        Ok(())
    }

    async fn on_update(&mut self, update: TrialUpdate) -> Result<Option<SearchEnd>, SearchError> {
        let trial = TrialId(update.trial);
        let current = self
            .ordered
            .values_mut()
            .find(|ordered| (ordered.trial, ordered.attempt) == (trial, update.attempt));
        let Some(ordered) = current.filter(|_| update.search == self.plan.about().id) else {
            return Ok(None);
        };
        // Another node has the whole time again.
        if ordered.began.as_ref().is_none_or(|(node, _)| *node != update.node) {
            ordered.began = Some((update.node.clone(), Instant::now()));
        }
        let event = if update.values.is_empty() {
            SearchEvent::TrialStarted { trial, node: update.node.to_string() }
        } else {
            SearchEvent::TrialProgress {
                trial,
                budget: update.budget,
                values: self.plan.named(update.values),
            }
        };
        self.decide(|core| core.on(event)).await
    }

    async fn on_ends(&mut self, ends: Vec<JobEnd>) -> Result<Option<SearchEnd>, SearchError> {
        let mut ended = None;
        for JobEnd { job, outcome, solver } in ends {
            // Others are trials that were cancelled.
            let Some(ordered) = self.ordered.remove(&job) else { continue };
            for event in self.events_of(ordered, outcome, solver.map(|node| node.to_string())).await? {
                ended = self.decide(|core| core.on(event)).await?.or(ended);
            }
        }
        Ok(ended)
    }

    /// What the end of a job means for its trial.
    async fn events_of(
        &self,
        ordered: Ordered,
        outcome: Outcome,
        solver: Option<String>,
    ) -> Result<Vec<SearchEvent>, SearchError> {
        let trial = ordered.trial;
        let parcel = match solution_of(outcome) {
            Ok(parcel) => parcel,
            Err(failure) => return Ok(vec![failed(trial, &failure)]),
        };
        let (client, into) = (self.client.clone(), self.dir.trial(trial));
        let taken = tokio::task::spawn_blocking(move || client.take(&parcel, &into)).await;
        let result = match taken.map_err(|_panicked| SearchError::Panicked)? {
            Ok(result) => result,
            Err(error) => return Ok(vec![failed(trial, &TrialFailure::of_error(error, false)?)]),
        };
        // The update that said who trains it may have been late.
        let known = self.table.row(trial).and_then(|row| row.node.clone());
        let late = solver.filter(|node| known.as_ref() != Some(node));
        let started = late.map(|node| SearchEvent::TrialStarted { trial, node });
        let values = self.plan.named(result.values);
        let reached =
            SearchEvent::TrialReached { trial, budget: ordered.to, values, seconds: result.seconds };
        Ok(started.into_iter().chain([reached]).collect())
    }
}

/// What the core is told of a stretch that came to nothing.
fn failed(trial: TrialId, failure: &TrialFailure) -> SearchEvent {
    SearchEvent::TrialFailed { trial, why: failure.to_string(), retry: failure.is_worth_a_retry() }
}
