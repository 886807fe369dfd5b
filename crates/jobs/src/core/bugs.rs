//! Deliberate mistakes, compiled in only with `--cfg seeded_bugs`, that prove the simulator finds
//! real ones. In every other build `planted` is the constant `false`.

/// A mistake that can be planted in the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// A solution that arrives a second time is counted a second time.
    CountsDuplicates = 1,
    /// Leases that had not started are forgotten when their node is lost.
    ForgetsUnstarted = 2,
    /// A computing node starts jobs without looking at its memory.
    IgnoresMemory = 3,
    /// A draining node drops what it has not started instead of handing it back.
    DropsOnDrain = 4,
    /// Losing a node with a running job is not counted as an attempt.
    NeverSetsAside = 5,
    /// A lease handed back stays with the node that handed it back.
    KeepsHandedBack = 6,
    /// A reconnecting node's lease is adopted although the job is leased elsewhere.
    AdoptsTwice = 7,
    /// A computing node starts jobs on cores that training uses.
    IgnoresTraining = 8,
    /// A kept solution is freed with its handle, although jobs that take it have not ended.
    FreesTakenSolutions = 9,
    /// A node that comes back with a solution that is not needed any more keeps it for ever.
    LeavesFreedSolutions = 10,
    /// A message that comes a second time is heard a second time.
    HearsTwice = 11,
}

impl Bug {
    pub const ALL: [Bug; 11] = [
        Bug::CountsDuplicates,
        Bug::ForgetsUnstarted,
        Bug::IgnoresMemory,
        Bug::DropsOnDrain,
        Bug::NeverSetsAside,
        Bug::KeepsHandedBack,
        Bug::AdoptsTwice,
        Bug::IgnoresTraining,
        Bug::FreesTakenSolutions,
        Bug::LeavesFreedSolutions,
        Bug::HearsTwice,
    ];
}

#[cfg(seeded_bugs)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one mistake for the whole process, or none.
#[cfg(seeded_bugs)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8), std::sync::atomic::Ordering::Relaxed);
}

#[cfg(seeded_bugs)]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(seeded_bugs))]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}
