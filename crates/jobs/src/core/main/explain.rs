//! Why jobs wait, and what people see of each job.

use super::workers::Worker;
use super::{Ending, MainCommand, MainCore, Phase, State};
use crate::core::job::Job;
use crate::core::queue::ClassId;
use phalanx_types::{JobId, Needs, Outbox, Time};
use phalanx_wire::jobs::{JobInfo, JobState};
use phalanx_wire::reason::WaitReason;
use phalanx_wire::usage::Shortage;
use smol_str::SmolStr;

impl MainCore {
    /// Why a job of this kind and needs would have to wait now.
    fn why_waiting(&self, kind: &SmolStr, needs: Needs, ahead: u64) -> WaitReason {
        let joined = || self.workers.values().filter(|w| w.joined);
        let able = || joined().filter(|w| w.kinds.contains(kind));
        if joined().next().is_none() {
            return WaitReason::NoNodes;
        }
        let Some(roomiest) = able().max_by_key(|w| (w.capacity.memory, &w.node)) else {
            return WaitReason::NoHandler { kind: kind.clone() };
        };
        if needs.memory > roomiest.capacity.memory {
            return WaitReason::NeedsMemory {
                needed: needs.memory,
                largest: roomiest.capacity.memory,
                node: roomiest.node.clone(),
            };
        }
        if !able().any(|w| w.can_run(kind, needs)) {
            let roomy = able().filter(|w| needs.memory <= w.capacity.memory);
            let widest = roomy.max_by_key(|w| (w.capacity.cores, &w.node)).unwrap_or(roomiest);
            return WaitReason::NeedsCores {
                needed: needs.cores,
                largest: widest.capacity.cores,
                node: widest.node.clone(),
            };
        }
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let fitting = || able().filter(|w| w.can_run(kind, needs));
        if fitting().all(|w| w.draining) {
            return WaitReason::NodesDraining { nodes: count(fitting().count()) };
        }
        let taking = || fitting().filter(|w| !w.draining);
        let beside = taking().filter(|w| w.fits_beside(needs)).count();
        match taking().max_by_key(|w| (w.share.cores, &w.node)) {
            Some(freest) if beside == 0 => WaitReason::InUse {
                nodes: count(taking().count()),
                node: freest.node.clone(),
                shortage: Shortage { needed: needs, capacity: freest.capacity, uses: freest.taken.clone() },
            },
            _ => WaitReason::AllBusy { nodes: count(beside), ahead },
        }
    }

    /// Tells why a class waits, when that is more than "all busy" and has changed.
    pub(super) fn explain_classes(&mut self, out: &mut Outbox<MainCommand>) {
        let classes: Vec<ClassId> = self.queue.ids().collect();
        for id in classes {
            let class = self.queue.class(id);
            let takes = |w: &Worker| {
                w.takes_jobs() && w.can_run(&class.kind, class.needs) && w.fits_beside(class.needs)
            };
            let able = || self.workers.values().any(takes);
            let reason = if class.waiting == 0 || able() {
                None
            } else {
                match self.why_waiting(&class.kind, class.needs, 0) {
                    WaitReason::AllBusy { .. } => None,
                    reason => Some(reason),
                }
            };
            let class = self.queue.class_mut(id);
            if reason != class.explained {
                if let Some(reason) = reason.clone() {
                    out.push(MainCommand::Explain { kind: class.kind.clone(), needs: class.needs, reason });
                }
                class.explained = reason;
            }
        }
    }

    /// A job as people see it; `None` for an id that was never given.
    pub fn info(&self, now: Time, job: JobId) -> Option<JobInfo> {
        let (ending, class) = self.jobs.ending_and_class(job)?;
        let Some(j) = self.jobs.get(job) else { return Some(self.ended_info(job, ending, class)) };
        let class = self.queue.class(j.class);
        Some(JobInfo {
            job,
            kind: class.kind.clone(),
            priority: j.priority,
            needs: class.needs,
            state: self.state_of(now, job, j),
            attempts: u32::from(j.attempts),
            max_attempts: u32::from(j.max_attempts),
            age_ms: millis(now, j.submitted),
            deadline_in_ms: (j.deadline != Time::NEVER).then(|| millis(j.deadline, now)),
        })
    }

    fn state_of(&self, now: Time, job: JobId, j: &Job) -> JobState {
        let class = self.queue.class(j.class);
        if j.told {
            return JobState::Solved;
        }
        match j.state {
            State::Waiting => {
                let ahead = self.queue.ahead_of(j.priority, job);
                JobState::Waiting(self.why_waiting(&class.kind, class.needs, ahead))
            }
            State::Blocked => {
                let mut missing = self.missing_inputs(job);
                let first = missing.next().unwrap_or(job);
                let missing = u32::try_from(missing.count() + 1).unwrap_or(u32::MAX);
                JobState::Waiting(WaitReason::Inputs { missing, first })
            }
            State::Stored => JobState::Solved,
            State::Leased { worker, since, phase, .. } => {
                let Some(node) = self.workers.get(&worker).map(|w| w.node.clone()) else {
                    return JobState::Waiting(WaitReason::NoNodes);
                };
                match phase {
                    Phase::Given | Phase::Recalled => JobState::Leased { node },
                    Phase::Running | Phase::Taking => JobState::Running {
                        node,
                        for_ms: millis(now, since),
                        progress: self.progress.get(&job).cloned(),
                    },
                }
            }
        }
    }

    fn ended_info(&self, job: JobId, ending: Ending, class: ClassId) -> JobInfo {
        let class = self.queue.class(class);
        let state = match ending {
            Ending::Solved | Ending::NotYet => JobState::Solved,
            Ending::Failed => match self.failed.get(&job) {
                Some(reason) => JobState::Failed(reason.clone()),
                None => JobState::Cancelled,
            },
            Ending::Cancelled => JobState::Cancelled,
            Ending::Expired => JobState::Expired,
        };
        JobInfo {
            job,
            kind: class.kind.clone(),
            priority: 0,
            needs: class.needs,
            state,
            attempts: 0,
            max_attempts: 0,
            age_ms: 0,
            deadline_in_ms: None,
        }
    }

    /// Jobs with an id above `after`, in order of id; unfinished ones only unless `all`.
    pub fn list(&self, now: Time, after: JobId, all: bool) -> impl Iterator<Item = JobInfo> + '_ {
        let listed = move |job: &JobId| all || !self.is_told(*job);
        self.jobs.ids_after(after, all).filter(listed).filter_map(move |job| self.info(now, job))
    }
}

fn millis(later: Time, earlier: Time) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}
