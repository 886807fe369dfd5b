//! Decides which processes run: who is started again, when the others end, and how it all went.

use phalanx_types::{Outbox, Time};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process with this many failures is not started again.
const MOST_FAILURES: u32 = 3;

/// How many processes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchSize {
    /// How many are started.
    pub ranks: u32,
    /// If set, the others go on when one fails, as long as this many are left.
    pub elastic: Option<ElasticLimits>,
    /// How long processes may take to end by themselves.
    pub grace: Duration,
}

/// What an elastic program puts up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElasticLimits {
    /// With fewer processes it ends.
    pub min: u32,
    /// More processes are never started.
    pub max: u32,
    /// How often processes may be lost.
    pub reset_limit: Option<u32>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessExit {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// With its node.
    Lost,
}

impl ProcessExit {
    /// The exit code that says the same.
    pub fn code(self) -> i32 {
        match self {
            ProcessExit::Code(code) => code,
            ProcessExit::Signal(signal) => 128 + signal,
            // A failure of the infrastructure.
            ProcessExit::Lost => 3,
        }
    }
}

/// Why a program did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchFailure {
    /// A process failed.
    Process {
        /// Its number.
        worker: u32,
        /// How it ended.
        exit: ProcessExit,
    },
    /// Too few processes are left.
    TooFew {
        /// How many are left.
        left: u32,
        /// How many are needed.
        min: u32,
        /// How the last of them ended.
        exit: ProcessExit,
    },
    /// Processes were lost too often.
    ResetLimit {
        /// How often they may be lost.
        limit: u32,
        /// How the last of them ended.
        exit: ProcessExit,
    },
    /// The user asked for the end.
    Interrupted,
}

impl LaunchFailure {
    /// The exit code of the whole program.
    pub fn code(self) -> i32 {
        match self {
            LaunchFailure::Process { exit, .. }
            | LaunchFailure::TooFew { exit, .. }
            | LaunchFailure::ResetLimit { exit, .. } => match exit.code() {
                0 => 1,
                code => code,
            },
            LaunchFailure::Interrupted => 130,
        }
    }
}

/// What the shell does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SuperviseCommand {
    /// Start a process, together with all others that are to be started now.
    Start { worker: u32 },
    /// Start a process by itself as soon as there is a place for it.
    StartLater { worker: u32 },
    /// These processes are alive; they form a group when all `workers` ask for it. Newcomers are not waited for.
    Expect { workers: BTreeSet<u32>, newcomers: BTreeSet<u32> },
    /// Ask a process to end.
    Terminate { worker: u32 },
    /// End a process.
    Kill { worker: u32 },
    /// Nothing runs any more.
    Finish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Running,
    /// It was started while a group went on without it, and has not been in a group yet.
    Joining,
    /// It is to be started, but has no place.
    Waiting,
    /// It is not needed any more. How it ends says nothing.
    Withdrawn,
    Succeeded,
    Failed,
}

/// The core of a launcher.
#[derive(Debug)]
pub(crate) struct Supervisor {
    size: LaunchSize,
    workers: BTreeMap<u32, WorkerState>,
    failures: BTreeMap<u32, u32>,
    resets: u32,
    failure: Option<LaunchFailure>,
    kill_at: Option<Time>,
    finished: bool,
    /// Whether processes beyond the first ones have been asked for.
    grows: bool,
}

impl Supervisor {
    pub(crate) fn new(size: LaunchSize) -> Self {
        Self {
            size,
            workers: BTreeMap::new(),
            failures: BTreeMap::new(),
            resets: 0,
            failure: None,
            kill_at: None,
            finished: false,
            grows: false,
        }
    }

    pub(crate) fn begin(&mut self, out: &mut Outbox<SuperviseCommand>) {
        self.workers = (0..self.size.ranks).map(|worker| (worker, WorkerState::Running)).collect();
        self.expect(out);
        for worker in 0..self.size.ranks {
            out.push(SuperviseCommand::Start { worker });
        }
    }

    fn in_states(&self, states: &[WorkerState]) -> BTreeSet<u32> {
        let found = self.workers.iter().filter(|(_, state)| states.contains(state));
        found.map(|(worker, _)| *worker).collect()
    }

    /// Processes that have not ended.
    fn alive(&self) -> BTreeSet<u32> {
        use WorkerState::{Joining, Running, Waiting, Withdrawn};
        self.in_states(&[Running, Joining, Waiting, Withdrawn])
    }

    /// Whether it is one of the processes that are added when there is room.
    fn is_spare(&self, worker: u32) -> bool {
        worker >= self.size.ranks
    }

    /// Whether these processes wait for room that the program does not need.
    pub(crate) fn are_spare(&self, workers: &BTreeSet<u32>) -> bool {
        workers.iter().all(|worker| self.is_spare(*worker))
    }

    /// Processes that form the next group. It does not wait for a process without a place, unless too few have one.
    fn expected(&self) -> BTreeSet<u32> {
        let running = self.in_states(&[WorkerState::Running]);
        match self.size.elastic {
            Some(limits) if running.len() as u32 >= limits.min => running,
            _ => self.in_states(&[WorkerState::Running, WorkerState::Waiting]),
        }
    }

    /// Processes that become ranks of the next group if they have come by then.
    fn newcomers(&self) -> BTreeSet<u32> {
        self.in_states(&[WorkerState::Joining])
    }

    fn expect(&self, out: &mut Outbox<SuperviseCommand>) {
        out.push(SuperviseCommand::Expect { workers: self.expected(), newcomers: self.newcomers() });
    }

    /// A group was formed of these processes.
    pub(crate) fn on_formed(&mut self, workers: &BTreeSet<u32>, out: &mut Outbox<SuperviseCommand>) {
        self.change(workers, WorkerState::Joining, WorkerState::Running, out);
    }

    /// There is no place for processes that are to be started.
    pub(crate) fn on_waiting(&mut self, workers: &BTreeSet<u32>, out: &mut Outbox<SuperviseCommand>) {
        self.change(workers, WorkerState::Running, WorkerState::Waiting, out);
        self.change(workers, WorkerState::Joining, WorkerState::Waiting, out);
    }

    /// Processes have a place.
    pub(crate) fn on_placed(&mut self, workers: &BTreeSet<u32>, out: &mut Outbox<SuperviseCommand>) {
        let waited_for = self.expected();
        let (first, late): (BTreeSet<u32>, BTreeSet<u32>) =
            workers.iter().partition(|worker| waited_for.contains(worker));
        self.change(&first, WorkerState::Waiting, WorkerState::Running, out);
        self.change(&late, WorkerState::Waiting, WorkerState::Joining, out);
        self.grow(out);
    }

    /// Asks for as many processes as there may be, once the first ones have their places.
    fn grow(&mut self, out: &mut Outbox<SuperviseCommand>) {
        let Some(limits) = self.size.elastic.filter(|_| !self.grows && self.failure.is_none()) else {
            return;
        };
        self.grows = true;
        for worker in self.size.ranks..limits.max {
            self.workers.insert(worker, WorkerState::Waiting);
            out.push(SuperviseCommand::StartLater { worker });
        }
    }

    fn change(
        &mut self,
        workers: &BTreeSet<u32>,
        from: WorkerState,
        to: WorkerState,
        out: &mut Outbox<SuperviseCommand>,
    ) {
        let before = (self.expected(), self.newcomers());
        let which =
            self.workers.iter_mut().filter(|(worker, state)| workers.contains(worker) && **state == from);
        which.for_each(|(_, state)| *state = to);
        if self.failure.is_none() && (self.expected(), self.newcomers()) != before {
            self.expect(out);
        }
    }

    /// What is left is done without processes that have no place, or are in no group yet.
    fn withdraw_latecomers(&mut self, out: &mut Outbox<SuperviseCommand>) {
        for worker in self.in_states(&[WorkerState::Waiting, WorkerState::Joining]) {
            self.workers.insert(worker, WorkerState::Withdrawn);
            out.push(SuperviseCommand::Terminate { worker });
        }
    }

    pub(crate) fn on_exit(
        &mut self,
        now: Time,
        worker: u32,
        exit: ProcessExit,
        out: &mut Outbox<SuperviseCommand>,
    ) {
        let succeeded = exit == ProcessExit::Code(0);
        let state = if succeeded { WorkerState::Succeeded } else { WorkerState::Failed };
        let before = self.workers.insert(worker, state);
        if self.failure.is_none() && !succeeded && before != Some(WorkerState::Withdrawn) {
            let back = before.filter(|state| *state == WorkerState::Joining);
            self.on_failure(now, worker, exit, back.unwrap_or(WorkerState::Running), out);
        }
        if self.failure.is_none() {
            if succeeded {
                self.withdraw_latecomers(out);
            }
            self.expect(out);
        }
        if self.alive().is_empty() && !self.finished {
            self.finished = true;
            out.push(SuperviseCommand::Finish);
        }
    }

    /// `back` is what the process is when it is started again.
    fn on_failure(
        &mut self,
        now: Time,
        worker: u32,
        exit: ProcessExit,
        back: WorkerState,
        out: &mut Outbox<SuperviseCommand>,
    ) {
        let some_succeeded = self.workers.values().any(|state| *state == WorkerState::Succeeded);
        // A process that comes anew could not do what is left without those that have ended.
        let Some(limits) = self.size.elastic.filter(|_| !some_succeeded) else {
            return self.fail(now, LaunchFailure::Process { worker, exit }, out);
        };
        // No group breaks when a process fails that is in none.
        self.resets += u32::from(back == WorkerState::Running);
        if let Some(limit) = limits.reset_limit.filter(|limit| self.resets > *limit) {
            return self.fail(now, LaunchFailure::ResetLimit { limit, exit }, out);
        }
        let failures = self.failures.entry(worker).or_insert(0);
        // The loss of a node says nothing about the program.
        *failures += u32::from(exit != ProcessExit::Lost);
        // Room that a spare process waits for may never come.
        let waiting = self.in_states(&[WorkerState::Waiting]);
        let spare = waiting.into_iter().filter(|worker| self.is_spare(*worker)).count();
        let left = (self.alive().len() - spare) as u32;
        let failures = self.failures.get(&worker).copied().unwrap_or(0);
        if failures < MOST_FAILURES && left < limits.max {
            self.workers.insert(worker, back);
            out.push(SuperviseCommand::Start { worker });
        } else if left < limits.min {
            self.fail(now, LaunchFailure::TooFew { left, min: limits.min, exit }, out);
        }
    }

    /// Ends all processes.
    fn fail(&mut self, now: Time, failure: LaunchFailure, out: &mut Outbox<SuperviseCommand>) {
        self.failure = Some(failure);
        self.kill_at = Some(now + self.size.grace);
        for worker in self.alive() {
            out.push(SuperviseCommand::Terminate { worker });
        }
    }

    /// The user asks for the end; asked again, nothing is waited for.
    pub(crate) fn on_interrupt(&mut self, now: Time, out: &mut Outbox<SuperviseCommand>) {
        if self.failure.is_some() {
            self.kill_at = Some(now);
            return self.on_time(now, out);
        }
        self.fail(now, LaunchFailure::Interrupted, out);
    }

    pub(crate) fn on_time(&mut self, now: Time, out: &mut Outbox<SuperviseCommand>) {
        if self.kill_at.take_if(|at| now >= *at).is_some() {
            for worker in self.alive() {
                out.push(SuperviseCommand::Kill { worker });
            }
        }
    }

    /// When [`Supervisor::on_time`] has something to do.
    pub(crate) fn next_time(&self) -> Option<Time> {
        self.kill_at
    }

    pub(crate) fn failure(&self) -> Option<LaunchFailure> {
        self.failure
    }

    pub(crate) fn resets(&self) -> u32 {
        self.resets
    }
}

#[cfg(test)]
mod tests {
    use super::SuperviseCommand::{Expect, Finish, Kill, Start, StartLater, Terminate};
    use super::*;

    const KILLED: ProcessExit = ProcessExit::Signal(9);

    fn supervisor(ranks: u32, elastic: Option<ElasticLimits>) -> Supervisor {
        let mut supervisor = Supervisor::new(LaunchSize { ranks, elastic, grace: Duration::from_secs(5) });
        let mut out = Outbox::default();
        supervisor.begin(&mut out);
        assert_eq!(out.commands().len(), 1 + ranks as usize);
        supervisor
    }

    fn exit(supervisor: &mut Supervisor, worker: u32, exit: ProcessExit) -> Vec<SuperviseCommand> {
        let mut out = Outbox::default();
        supervisor.on_exit(Time::ZERO, worker, exit, &mut out);
        out.drain().collect()
    }

    fn expect(workers: &[u32]) -> SuperviseCommand {
        expect_beside(workers, &[])
    }

    fn expect_beside(workers: &[u32], newcomers: &[u32]) -> SuperviseCommand {
        let set = |workers: &[u32]| workers.iter().copied().collect();
        Expect { workers: set(workers), newcomers: set(newcomers) }
    }

    fn told(act: impl FnOnce(&mut Outbox<SuperviseCommand>)) -> Vec<SuperviseCommand> {
        let mut out = Outbox::default();
        act(&mut out);
        out.drain().collect()
    }

    #[test]
    fn all_that_end_well_are_a_success() {
        let mut supervisor = supervisor(2, None);
        assert_eq!(exit(&mut supervisor, 1, ProcessExit::Code(0)), [expect(&[0])]);
        assert_eq!(exit(&mut supervisor, 0, ProcessExit::Code(0)), [expect(&[]), Finish]);
        assert_eq!(supervisor.failure(), None);
    }

    #[test]
    fn one_that_fails_ends_the_others_with_its_code() {
        let mut supervisor = supervisor(3, None);
        let commands = exit(&mut supervisor, 1, ProcessExit::Code(7));
        assert_eq!(commands, [Terminate { worker: 0 }, Terminate { worker: 2 }]);
        assert_eq!(supervisor.next_time(), Some(Time::from_millis(5000)));
        assert_eq!(exit(&mut supervisor, 0, ProcessExit::Signal(15)), []);
        let mut out = Outbox::default();
        supervisor.on_time(Time::from_millis(5000), &mut out);
        assert_eq!(out.commands(), [Kill { worker: 2 }]);
        assert_eq!(exit(&mut supervisor, 2, KILLED), [Finish]);
        let failure = supervisor.failure().unwrap();
        assert_eq!(failure, LaunchFailure::Process { worker: 1, exit: ProcessExit::Code(7) });
        assert_eq!(failure.code(), 7);
    }

    #[test]
    fn an_interrupt_ends_all_and_the_second_one_at_once() {
        let mut supervisor = supervisor(1, None);
        let mut out = Outbox::default();
        supervisor.on_interrupt(Time(10), &mut out);
        supervisor.on_interrupt(Time(20), &mut out);
        assert_eq!(out.commands(), [Terminate { worker: 0 }, Kill { worker: 0 }]);
        assert_eq!(supervisor.failure().map(LaunchFailure::code), Some(130));
    }

    #[test]
    fn an_elastic_program_gets_a_new_process() {
        let limits = ElasticLimits { min: 1, max: 3, reset_limit: None };
        let mut supervisor = supervisor(3, Some(limits));
        assert_eq!(exit(&mut supervisor, 1, KILLED), [Start { worker: 1 }, expect(&[0, 1, 2])]);
        assert_eq!(supervisor.resets(), 1);
        exit(&mut supervisor, 1, KILLED);
        // It fails again and again: the others go on without it.
        assert_eq!(exit(&mut supervisor, 1, KILLED), [expect(&[0, 2])]);
        assert_eq!(exit(&mut supervisor, 0, ProcessExit::Code(0)), [expect(&[2])]);
        // After a success nothing is started again.
        assert_eq!(exit(&mut supervisor, 2, KILLED), [Finish]);
        assert_eq!(supervisor.failure().map(LaunchFailure::code), Some(137));
    }

    #[test]
    fn a_group_goes_on_without_a_process_that_has_no_place() {
        let limits = ElasticLimits { min: 2, max: 3, reset_limit: None };
        let mut supervisor = supervisor(3, Some(limits));
        let mut out = Outbox::default();
        assert_eq!(exit(&mut supervisor, 2, ProcessExit::Lost), [Start { worker: 2 }, expect(&[0, 1, 2])]);
        supervisor.on_waiting(&[2].into(), &mut out);
        assert_eq!(out.drain().collect::<Vec<_>>(), [expect(&[0, 1])]);
        // When it has one it comes as a newcomer, until it has been in a group.
        supervisor.on_placed(&[2].into(), &mut out);
        assert_eq!(out.drain().collect::<Vec<_>>(), [expect_beside(&[0, 1], &[2])]);
        supervisor.on_formed(&[0, 1, 2].into(), &mut out);
        assert_eq!(out.drain().collect::<Vec<_>>(), [expect(&[0, 1, 2])]);
        // With fewer than two the others wait for it.
        supervisor.on_waiting(&[2].into(), &mut out);
        exit(&mut supervisor, 1, ProcessExit::Lost);
        supervisor.on_waiting(&[1].into(), &mut out);
        assert_eq!(out.commands().last(), Some(&expect(&[0, 1, 2])));
        assert_eq!(supervisor.failure(), None);
    }

    #[test]
    fn as_many_processes_are_added_as_there_may_be() {
        let limits = ElasticLimits { min: 2, max: 4, reset_limit: Some(0) };
        let mut supervisor = supervisor(2, Some(limits));
        // Not before the first ones have their places, and only once.
        let waiting = told(|out| supervisor.on_waiting(&[0, 1].into(), out));
        assert_eq!(waiting, []);
        let placed = told(|out| supervisor.on_placed(&[0, 1].into(), out));
        assert_eq!(placed, [StartLater { worker: 2 }, StartLater { worker: 3 }]);
        assert!(supervisor.are_spare(&[2].into()) && !supervisor.are_spare(&[1, 2].into()));
        assert_eq!(told(|out| supervisor.on_placed(&[2].into(), out)), [expect_beside(&[0, 1], &[2])]);
        // It fails before it was in a group: no reset, which would be one too many.
        assert_eq!(exit(&mut supervisor, 2, KILLED), [Start { worker: 2 }, expect_beside(&[0, 1], &[2])]);
        assert_eq!((supervisor.resets(), supervisor.failure()), (0, None));
        assert_eq!(told(|out| supervisor.on_formed(&[0, 1, 2].into(), out)), [expect(&[0, 1, 2])]);
        assert_eq!(told(|out| supervisor.on_formed(&[0, 1, 2].into(), out)), []);
        // Whoever comes after the work is done is not needed.
        assert_eq!(told(|out| supervisor.on_placed(&[3].into(), out)), [expect_beside(&[0, 1, 2], &[3])]);
        let ended = exit(&mut supervisor, 0, ProcessExit::Code(0));
        assert_eq!(ended, [Terminate { worker: 3 }, expect(&[1, 2])]);
        exit(&mut supervisor, 3, ProcessExit::Signal(15));
        exit(&mut supervisor, 1, ProcessExit::Code(0));
        assert_eq!(exit(&mut supervisor, 2, ProcessExit::Code(0)), [expect(&[]), Finish]);
        assert_eq!(supervisor.failure(), None);
    }

    #[test]
    fn room_that_may_never_come_is_no_process() {
        let limits = ElasticLimits { min: 2, max: 3, reset_limit: None };
        let mut supervisor = supervisor(2, Some(limits));
        assert_eq!(told(|out| supervisor.on_placed(&[0, 1].into(), out)), [StartLater { worker: 2 }]);
        for _ in 1..MOST_FAILURES {
            assert_eq!(exit(&mut supervisor, 1, KILLED).first(), Some(&Start { worker: 1 }));
        }
        let ended = exit(&mut supervisor, 1, KILLED);
        assert_eq!(ended, [Terminate { worker: 0 }, Terminate { worker: 2 }]);
        let failure = supervisor.failure().unwrap();
        assert!(matches!(failure, LaunchFailure::TooFew { left: 1, min: 2, .. }), "{failure:?}");
    }

    #[test]
    fn losing_nodes_does_not_count_against_a_process() {
        let limits = ElasticLimits { min: 1, max: 2, reset_limit: None };
        let mut supervisor = supervisor(2, Some(limits));
        for _ in 0..2 * MOST_FAILURES {
            assert_eq!(exit(&mut supervisor, 1, ProcessExit::Lost), [Start { worker: 1 }, expect(&[0, 1])]);
        }
    }

    #[test]
    fn a_process_without_a_place_is_not_waited_for_at_the_end() {
        let limits = ElasticLimits { min: 1, max: 2, reset_limit: None };
        let mut supervisor = supervisor(2, Some(limits));
        let mut out = Outbox::default();
        exit(&mut supervisor, 1, KILLED);
        supervisor.on_waiting(&[1].into(), &mut out);
        let ended = exit(&mut supervisor, 0, ProcessExit::Code(0));
        assert_eq!(ended, [Terminate { worker: 1 }, expect(&[])]);
        // It got a place just before.
        supervisor.on_placed(&[1].into(), &mut out);
        assert_eq!(exit(&mut supervisor, 1, ProcessExit::Signal(15)), [expect(&[]), Finish]);
        assert_eq!(supervisor.failure(), None);
    }

    #[test]
    fn an_interrupt_ends_the_wait_for_a_place() {
        let mut supervisor = supervisor(2, None);
        let mut out = Outbox::default();
        supervisor.on_waiting(&[0, 1].into(), &mut out);
        supervisor.on_interrupt(Time(10), &mut out);
        assert_eq!(out.commands(), [Terminate { worker: 0 }, Terminate { worker: 1 }]);
        assert_eq!(exit(&mut supervisor, 0, ProcessExit::Signal(15)), []);
        assert_eq!(exit(&mut supervisor, 1, ProcessExit::Signal(15)), [Finish]);
        assert_eq!(supervisor.failure(), Some(LaunchFailure::Interrupted));
    }

    #[test]
    fn too_few_or_too_often_is_the_end() {
        let limits = ElasticLimits { min: 2, max: 2, reset_limit: Some(2) };
        let mut often = supervisor(2, Some(limits));
        exit(&mut often, 0, KILLED);
        exit(&mut often, 1, KILLED);
        assert_eq!(exit(&mut often, 0, KILLED), [Terminate { worker: 1 }]);
        assert_eq!(often.failure(), Some(LaunchFailure::ResetLimit { limit: 2, exit: KILLED }));
        let mut few = supervisor(2, Some(ElasticLimits { reset_limit: None, ..limits }));
        for _ in 0..2 {
            exit(&mut few, 0, KILLED);
        }
        assert_eq!(exit(&mut few, 0, KILLED), [Terminate { worker: 1 }]);
        assert_eq!(few.failure(), Some(LaunchFailure::TooFew { left: 1, min: 2, exit: KILLED }));
    }
}
