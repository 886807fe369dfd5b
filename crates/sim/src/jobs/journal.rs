use phalanx_jobs::core::Outcome;
use phalanx_types::{JobId, Time};

/// What a main node has on disk; it survives the process.
#[derive(Debug, Default)]
pub(super) struct Journal {
    records: Vec<Record>,
}

/// One job on disk.
#[derive(Debug)]
pub(super) struct Record {
    /// Which job of the plan it is.
    pub(super) plan: usize,
    pub(super) submitted: Time,
    pub(super) attempts: u32,
    pub(super) outcome: Option<(Time, Outcome)>,
    /// How often its handler failed; the world's knowledge, not the disk's.
    pub(super) failures: u32,
    /// How many workers it took down; the world's knowledge too.
    pub(super) crashes: u32,
    /// The jobs whose solutions it takes.
    pub(super) inputs: Vec<JobId>,
    /// The user has dropped its kept solution.
    pub(super) released: bool,
    /// The user waits for its kept solution; forgotten with the process.
    pub(super) wanted: bool,
}

impl Journal {
    pub(super) fn submit(&mut self, now: Time, plan: usize, inputs: Vec<JobId>) -> JobId {
        self.records.push(Record {
            plan,
            submitted: now,
            attempts: 0,
            outcome: None,
            failures: 0,
            crashes: 0,
            inputs,
            released: false,
            wanted: false,
        });
        JobId(self.records.len() as u64)
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn records_mut(&mut self) -> &mut [Record] {
        &mut self.records
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Record> {
        self.records.get(usize::try_from(job.0.checked_sub(1)?).ok()?)
    }

    pub(super) fn get_mut(&mut self, job: JobId) -> Option<&mut Record> {
        self.records.get_mut(usize::try_from(job.0.checked_sub(1)?).ok()?)
    }

    /// The id of a planned job, once it was submitted.
    pub(super) fn find(&self, plan: usize) -> Option<JobId> {
        self.records.iter().position(|r| r.plan == plan).map(|at| JobId(at as u64 + 1))
    }
}
