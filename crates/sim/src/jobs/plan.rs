//! What a seed decides beforehand: the cluster, the jobs and the faults.

use super::Options;
use crate::dice::Dice;
use bytes::Bytes;
use phalanx_jobs::core::JobSpec;
use phalanx_types::{ByteSize, Needs, Parcel, Time};
use smol_str::SmolStr;
use std::collections::BTreeSet;
use std::time::Duration;

const KINDS: [&str; 3] = ["short", "square", "train"];
/// Attempts of a job that must not run out of them by bad luck.
pub(super) const PLENTY: u32 = 64;

/// The whole of a scenario.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) mains: usize,
    pub(super) workers: Vec<WorkerPlan>,
    pub(super) jobs: Vec<JobPlan>,
    pub(super) faults: Vec<(Time, Fault)>,
    pub(super) trainings: Vec<Training>,
    /// From here on nothing fails any more.
    pub(super) heal_at: Time,
    /// One message in so many is delivered twice; never when zero.
    pub(super) duplicates: u32,
    pub(super) orphan_grace: Duration,
}

/// A computing node.
#[derive(Debug)]
pub(super) struct WorkerPlan {
    pub(super) kinds: BTreeSet<SmolStr>,
    pub(super) capacity: Needs,
    pub(super) once: bool,
}

/// A run that trains on a worker for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Training {
    pub(super) worker: usize,
    pub(super) at: Time,
    pub(super) needs: Needs,
    pub(super) lasts: Duration,
}

/// A job and what its handler will do.
#[derive(Debug)]
pub(super) struct JobPlan {
    pub(super) main: usize,
    pub(super) submit_at: Time,
    pub(super) spec: JobSpec,
    pub(super) behaviour: Behaviour,
    pub(super) run: Duration,
    pub(super) solution: Parcel,
    /// Whether payload and solution travel as blobs.
    pub(super) large: (bool, bool),
    pub(super) cancel_at: Option<Time>,
    /// Earlier jobs of the plan whose solutions it takes.
    pub(super) takes: Vec<usize>,
    /// When the user wants its kept solution, and when the user drops it.
    pub(super) wanted_at: Option<Time>,
    pub(super) released_at: Option<Time>,
}

/// What a handler does with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    Solves,
    FailsForGood,
    /// Fails in a way worth retrying, every time.
    FailsAlways,
    /// Fails in a way worth retrying this often, then solves.
    FailsTimes(u32),
    /// Takes its node down.
    Poison,
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    LinkBreaks {
        main: usize,
        worker: usize,
    },
    /// Cuts the nodes in `apart` off from the others; bits: main nodes, then workers.
    Partition {
        apart: u32,
        lasts: Duration,
    },
    WorkerCrashes {
        worker: usize,
        down: Duration,
    },
    WorkerFreezes {
        worker: usize,
        lasts: Duration,
    },
    WorkerDrains {
        worker: usize,
    },
    MainCrashes {
        main: usize,
        down: Duration,
    },
}

impl Plan {
    pub(super) fn new(seed: u64, options: &Options) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let mains = 1 + dice.index(3);
        let workers = plan_workers(&mut dice);
        let heal_at = Time::from_millis(200 + dice.number(0..1_200));
        let mut jobs: Vec<JobPlan> = Vec::new();
        let most = 20 + u64::from(options.jobs).max(1);
        for number in 0..dice.number(20..most) {
            jobs.push(plan_job(&mut dice, number, mains, workers[0].capacity, heal_at));
        }
        jobs.sort_by_key(|j| j.submit_at);
        plan_references(&mut Dice::new(seed, "references"), &mut jobs, heal_at, options.doubled);
        let faults = if dice.chance(1, 10) { 0 } else { dice.number(1..25) };
        let mut faults: Vec<(Time, Fault)> = (0..faults)
            .map(|_| {
                let at = Time(dice.number(0..heal_at.0));
                (at, plan_fault(&mut dice, mains, workers.len()))
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        let duplicates = [0, 4, 20][dice.index(3)];
        let duplicates = if options.doubled { 2 } else { duplicates };
        let orphan_grace = dice.millis(20..1_500);
        let trainings = plan_trainings(&mut Dice::new(seed, "trainings"), &workers, heal_at);
        Self { mains, workers, jobs, faults, trainings, heal_at, duplicates, orphan_grace }
    }
}

/// The first worker can run every job there is; the others are any.
fn plan_workers(dice: &mut Dice) -> Vec<WorkerPlan> {
    let capacity =
        |dice: &mut Dice| Needs { cores: 1 + dice.index(4) as u32, memory: ByteSize(4 + dice.number(0..13)) };
    let all = || KINDS.iter().map(SmolStr::new).collect();
    let mut workers = vec![WorkerPlan { kinds: all(), capacity: capacity(dice), once: false }];
    for _ in 0..dice.index(6) {
        let mut kinds: BTreeSet<SmolStr> = all();
        if dice.chance(1, 3) {
            kinds.remove(KINDS[dice.index(KINDS.len())]);
        }
        workers.push(WorkerPlan { kinds, capacity: capacity(dice), once: dice.chance(1, 8) });
    }
    workers
}

/// Some take a share of a worker, some all of its cores.
fn plan_trainings(dice: &mut Dice, workers: &[WorkerPlan], heal_at: Time) -> Vec<Training> {
    let count = if dice.chance(1, 3) { 0 } else { dice.number(1..12) };
    let training = |_| {
        let worker = dice.index(workers.len());
        let capacity = workers[worker].capacity;
        let cores = if dice.chance(1, 3) { capacity.cores } else { 1 };
        let memory = if dice.chance(1, 2) { 0 } else { dice.number(0..capacity.memory.0 + 1) };
        let at = Time(dice.number(0..heal_at.0));
        Training { worker, at, needs: Needs { cores, memory: ByteSize(memory) }, lasts: dice.millis(1..400) }
    };
    (0..count).map(training).collect()
}

fn plan_job(dice: &mut Dice, number: u64, mains: usize, largest: Needs, heal_at: Time) -> JobPlan {
    let kind = dice.index(KINDS.len());
    let behaviour = match dice.number(0..40) {
        0 => Behaviour::FailsForGood,
        1 => Behaviour::FailsAlways,
        2 => Behaviour::FailsTimes(1 + dice.index(2) as u32),
        3 if dice.chance(1, 2) => Behaviour::Poison,
        _ => Behaviour::Solves,
    };
    let mut spec = JobSpec::new(KINDS[kind], Parcel::from_bytes(format!("payload {number}")));
    spec.needs = plan_needs(dice, largest);
    spec.priority = if dice.chance(1, 4) { dice.number(0..5) as i32 - 2 } else { 0 };
    spec.max_attempts = match behaviour {
        Behaviour::Poison | Behaviour::FailsAlways => 1 + dice.index(4) as u32,
        Behaviour::Solves | Behaviour::FailsForGood | Behaviour::FailsTimes(_) => PLENTY,
    };
    let poison = behaviour == Behaviour::Poison;
    if dice.chance(1, 12) && !poison {
        spec.deadline = Some(dice.millis(1..600));
    }
    // Half of the jobs are there from the start, as when a user submits a file of them.
    let submit_at = if dice.chance(1, 2) { Time::ZERO } else { Time(dice.number(0..heal_at.0)) };
    let cancel_at = (dice.chance(1, 15) && !poison).then(|| submit_at + dice.millis(0..200));
    let large = (dice.chance(1, 6), dice.chance(1, 6));
    let run = match kind {
        // A short job now and then is not, which makes its batch slow.
        0 if dice.chance(1, 12) => dice.micros(6_000..40_000),
        0 => dice.micros(10..150),
        1 => dice.micros(500..20_000),
        _ if dice.chance(1, 8) => dice.millis(50..500),
        _ => dice.millis(2..60),
    };
    let solution = Parcel::from_bytes(Bytes::from(format!("solution {number}")));
    let (takes, wanted_at, released_at) = (Vec::new(), None, None);
    let main = dice.index(mains);
    JobPlan {
        main,
        submit_at,
        spec,
        behaviour,
        run,
        solution,
        large,
        cancel_at,
        takes,
        wanted_at,
        released_at,
    }
}

/// In most scenarios, or in all, some solutions are kept, and later jobs take them.
fn plan_references(dice: &mut Dice, jobs: &mut [JobPlan], heal_at: Time, always: bool) {
    if dice.chance(1, 4) && !always {
        return;
    }
    for at in 0..jobs.len() {
        jobs[at].spec.keep = dice.chance(1, 2);
        // Kept solutions that ride in messages are never lost.
        jobs[at].large.1 |= jobs[at].spec.keep && dice.chance(3, 4);
        let main = jobs[at].main;
        let kept: Vec<usize> = (0..at).filter(|k| jobs[*k].main == main && jobs[*k].spec.keep).collect();
        if !kept.is_empty() && dice.chance(1, 2) {
            let recent = &kept[kept.len().saturating_sub(6)..];
            jobs[at].takes = (0..1 + dice.index(3)).map(|_| recent[dice.index(recent.len())]).collect();
        }
        let submitted = jobs[at].submit_at;
        let later = |dice: &mut Dice| Time(dice.number(submitted.0..heal_at.0 + 200_000));
        if jobs[at].spec.keep {
            jobs[at].wanted_at = dice.chance(1, 3).then(|| later(dice));
            jobs[at].released_at = Some(later(dice));
        }
    }
}

fn plan_needs(dice: &mut Dice, largest: Needs) -> Needs {
    let cores = if dice.chance(3, 4) { 1 } else { 1 + dice.index(largest.cores as usize) as u32 };
    let memory = if dice.chance(1, 2) { 0 } else { dice.number(0..largest.memory.0 + 1) };
    Needs { cores, memory: ByteSize(memory) }
}

fn plan_fault(dice: &mut Dice, mains: usize, workers: usize) -> Fault {
    let (main, worker) = (dice.index(mains), dice.index(workers));
    match dice.number(0..12) {
        0..=3 => Fault::LinkBreaks { main, worker },
        4 => {
            let apart = dice.number(1..(1 << (mains + workers)) - 1) as u32;
            Fault::Partition { apart, lasts: dice.millis(20..400) }
        }
        5 | 6 => Fault::WorkerCrashes { worker, down: dice.millis(1..300) },
        7 | 8 => Fault::WorkerFreezes { worker, lasts: dice.millis(1..400) },
        9 | 10 => Fault::WorkerDrains { worker },
        _ => Fault::MainCrashes { main, down: dice.millis(1..300) },
    }
}
