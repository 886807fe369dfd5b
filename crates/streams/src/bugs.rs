//! Deliberate mistakes, compiled in only with `--cfg seeded_bugs`, that prove the simulator finds
//! real ones. In every other build `planted` is the constant `false`.

/// A mistake that can be planted in the core of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StreamBug {
    /// An upload that a restarted producer repeats is counted again.
    CountsUploadsTwice = 1,
    /// A producer of an older incarnation is not fenced.
    AdmitsOldIncarnations = 2,
    /// A step counts when one trainer has done its share.
    CommitsOneShare = 3,
    /// After the loss of a trainer the others go on without a new epoch.
    KeepsTheEpoch = 4,
    /// Uploads on their way do not count against the budget.
    IgnoresReservations = 5,
    /// Samples of a reservoir are freed in the middle of the pass that draws them.
    FreesReservoirEarly = 6,
    /// An upload is freed when the first reader has used it.
    FreesForOneReader = 7,
    /// Half-written uploads stay on the books when their producer is lost.
    KeepsHalfWritten = 8,
    /// A reader that waits is not woken when samples arrive.
    ForgetsToWake = 9,
    /// A step is acknowledged before it is recorded.
    RecordsStepsLate = 10,
    /// A run that goes back to a checkpoint gets a new horizon.
    SealsAnewAfterRewind = 11,
}

impl StreamBug {
    /// Every mistake there is.
    pub const ALL: [StreamBug; 11] = [
        StreamBug::CountsUploadsTwice,
        StreamBug::AdmitsOldIncarnations,
        StreamBug::CommitsOneShare,
        StreamBug::KeepsTheEpoch,
        StreamBug::IgnoresReservations,
        StreamBug::FreesReservoirEarly,
        StreamBug::FreesForOneReader,
        StreamBug::KeepsHalfWritten,
        StreamBug::ForgetsToWake,
        StreamBug::RecordsStepsLate,
        StreamBug::SealsAnewAfterRewind,
    ];
}

#[cfg(seeded_bugs)]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one mistake for the whole process, or none.
#[cfg(seeded_bugs)]
pub fn plant(bug: Option<StreamBug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8), std::sync::atomic::Ordering::Relaxed);
}

#[cfg(seeded_bugs)]
pub(crate) fn planted(bug: StreamBug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

#[cfg(not(seeded_bugs))]
pub(crate) const fn planted(_bug: StreamBug) -> bool {
    false
}
