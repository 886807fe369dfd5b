//! Deliberate mistakes, compiled in only with `--cfg seeded_bugs`, that prove the simulator finds
//! real ones. In every other build `planted` is the constant `false`.

/// A mistake that can be planted in the cores of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RunBug {
    /// A rank remembers only its last validation.
    RemembersOneValidation = 1,
    /// Reports that are not recorded yet are forgotten when a group begins.
    ForgetsPendingReports = 2,
    /// A group begins although the only holder of a part is lost.
    IgnoresLostGivers = 3,
    /// A checkpoint is written as soon as it is complete, whatever is before it.
    SavesOutOfOrder = 4,
    /// A group resumes from a step of which not every operator is held.
    ResumesWithHoles = 5,
    /// Steps of an interval are recorded although not all of it is sure to have happened.
    RecordsHalfAnInterval = 6,
    /// A run that is resumed forgets that its last step was validated.
    ForgetsTheLastValidation = 7,
    /// A run that is resumed takes the step after its checkpoint for recorded.
    SkipsAStepAfterRestart = 8,
    /// A run that is stopped ends without a checkpoint of its last step.
    StopsWithoutACheckpoint = 9,
    /// A checkpoint that the store has not heard of is not told to it again.
    CommitsOnce = 10,
}

impl RunBug {
    /// Every mistake there is.
    pub const ALL: [RunBug; 10] = [
        RunBug::RemembersOneValidation,
        RunBug::ForgetsPendingReports,
        RunBug::IgnoresLostGivers,
        RunBug::SavesOutOfOrder,
        RunBug::ResumesWithHoles,
        RunBug::RecordsHalfAnInterval,
        RunBug::ForgetsTheLastValidation,
        RunBug::SkipsAStepAfterRestart,
        RunBug::StopsWithoutACheckpoint,
        RunBug::CommitsOnce,
    ];
}

#[cfg(seeded_bugs)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one mistake for the whole process, or none.
#[cfg(seeded_bugs)]
pub fn plant(bug: Option<RunBug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8), std::sync::atomic::Ordering::Relaxed);
}

#[cfg(seeded_bugs)]
pub(crate) fn planted(bug: RunBug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(seeded_bugs))]
pub(crate) const fn planted(_bug: RunBug) -> bool {
    false
}
