//! Deliberate mistakes, compiled in only with `--cfg seeded_bugs`, that prove the simulated search finds real ones. In
//! every other build `planted` is the constant `false`.

/// A mistake that can be planted in the control of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ControlBug {
    /// A result is taken whatever budget it is for.
    TakesLateResults = 1,
    /// A network that equals an earlier one is trained again.
    TrainsEqualNetworks = 2,
    /// A training that failed for no fault of its own begins at nothing, not at its last recorded budget.
    RetriesFromTheBeginning = 3,
    /// A search that is resumed takes every trial that is queued for one that a node trains.
    ForgetsQueuedTrials = 4,
    /// The dice of a question depend on what is in memory, not on the number of the proposal.
    ThrowsOtherDice = 5,
    /// What a candidate is known to cost is not compared with the bounds.
    IgnoresBounds = 6,
    /// A trial without a value of an objective is taken for one with a result.
    AcceptsMissingObjectives = 7,
    /// The search ends while trials are being trained.
    EndsEarly = 8,
    /// The front is not trained in full at the end.
    SkipsTheFinish = 9,
    /// A trial is queued before it is written down which candidate it is.
    RunsBeforeItRecords = 10,
}

impl ControlBug {
    /// Every mistake there is.
    pub const ALL: [ControlBug; 10] = [
        ControlBug::TakesLateResults,
        ControlBug::TrainsEqualNetworks,
        ControlBug::RetriesFromTheBeginning,
        ControlBug::ForgetsQueuedTrials,
        ControlBug::ThrowsOtherDice,
        ControlBug::IgnoresBounds,
        ControlBug::AcceptsMissingObjectives,
        ControlBug::EndsEarly,
        ControlBug::SkipsTheFinish,
        ControlBug::RunsBeforeItRecords,
    ];
}

#[cfg(seeded_bugs)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one mistake for the whole process, or none.
#[cfg(seeded_bugs)]
pub fn plant(bug: Option<ControlBug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8), std::sync::atomic::Ordering::Relaxed);
}

#[cfg(seeded_bugs)]
pub(crate) fn planted(bug: ControlBug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(seeded_bugs))]
pub(crate) const fn planted(_bug: ControlBug) -> bool {
    false
}
