//! The scenario of a seed.

use crate::dice::Dice;
use phalanx_streams::{PartialBatch, ReadMode, ReaderSettings, Retention, StreamSettings};
use phalanx_types::{ByteSize, Seed, Time};
use std::time::Duration;

const MAX_SAMPLE_BYTES: u64 = 8;

/// The most bytes that the samples of a reservoir take.
fn reservoir_bytes(mode: ReadMode) -> u64 {
    match mode {
        ReadMode::Reservoir { capacity, .. } => capacity * MAX_SAMPLE_BYTES,
        ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } => 0,
    }
}

/// What a producer uploads: samples and bytes of each upload.
#[derive(Debug, Clone)]
pub(super) struct ProducerPlan {
    pub(super) uploads: Vec<(u32, u64)>,
    /// How many uploads it has in flight.
    pub(super) window: usize,
    /// How long it computes for an upload, in microseconds.
    pub(super) pace: u64,
}

/// How a reader trains.
#[derive(Debug, Clone)]
pub(super) struct ReaderPlan {
    pub(super) settings: ReaderSettings,
    pub(super) trainers: usize,
    pub(super) opens_at: Time,
    /// It closes when so many steps are committed.
    pub(super) close_after: Option<u64>,
    /// How long a trainer computes for a step, in microseconds.
    pub(super) pace: u64,
}

/// Everything that the seed decides beforehand.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) settings: StreamSettings,
    pub(super) producers: Vec<ProducerPlan>,
    pub(super) readers: Vec<ReaderPlan>,
    pub(super) heal_at: Time,
    /// One message of so many is lost, and one is doubled, while faults happen; 0: none.
    pub(super) loss: u32,
    /// How long a fact waits at most to become durable, in microseconds; 0: not at all.
    pub(super) flush: u64,
    /// How many faults happen.
    pub(super) faults: u64,
    /// The store dies after one event of so many; 0: only by faults.
    pub(super) crash: u32,
}

impl Plan {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "streams plan");
        let frees = dice.chance(1, 2);
        let producers: Vec<ProducerPlan> =
            (0..dice.number(1..6)).map(|_| ProducerPlan::new(&mut dice)).collect();
        let largest = producers.iter().flat_map(|p| &p.uploads).map(|(_, bytes)| *bytes).max().unwrap_or(1);
        let readers: Vec<ReaderPlan> =
            (0..dice.number(1..4)).map(|index| ReaderPlan::new(&mut dice, frees, index)).collect();
        // Room for all reservoirs and one upload: with less, uploads would be refused.
        let reservoirs: u64 = readers.iter().map(|reader| reader.settings.mode).map(reservoir_bytes).sum();
        let budget = frees.then(|| ByteSize(reservoirs + largest * dice.number(1..4) + dice.number(0..40)));
        let calm = dice.chance(1, 8);
        let silence = (!calm).then(|| Duration::from_millis(1500));
        let retention = if frees { Retention::Free } else { Retention::Keep };
        let settings = StreamSettings {
            expected_producers: dice.chance(2, 3).then_some(producers.len() as u32),
            retention,
            budget,
            producer_silence: silence,
            trainer_silence: silence,
            release_readers_after: dice.chance(1, 3).then(|| dice.millis(200..2500)),
            uploads_in_flight: 16,
        };
        Self {
            settings,
            producers,
            readers,
            heal_at: Time::from_millis(dice.number(300..3000)),
            loss: if calm || dice.chance(1, 3) { 0 } else { dice.number(4..40) as u32 },
            flush: if dice.chance(1, 2) { 0 } else { dice.number(100..30_000) },
            faults: if calm { 0 } else { dice.number(0..14) },
            crash: if calm || dice.chance(1, 2) { 0 } else { dice.number(30..300) as u32 },
        }
    }
}

impl ProducerPlan {
    fn new(dice: &mut Dice) -> Self {
        let uploads = (0..dice.number(0..14))
            .map(|_| {
                let samples = dice.number(1..8) as u32;
                (samples, u64::from(samples) * dice.number(1..MAX_SAMPLE_BYTES + 1))
            })
            .collect();
        Self { uploads, window: dice.number(1..4) as usize, pace: dice.number(500..120_000) }
    }
}

impl ReaderPlan {
    fn new(dice: &mut Dice, frees: bool, index: u64) -> Self {
        let batch = dice.number(1..9);
        let mut partial = if dice.chance(1, 4) { PartialBatch::Drop } else { PartialBatch::Keep };
        let steps = dice.chance(1, 2).then(|| dice.number(1..5));
        let reservoir =
            ReadMode::Reservoir { capacity: dice.number(1..21), min_samples: dice.number(0..20), steps };
        let mode = match dice.number(0..4) {
            0 | 1 if frees => ReadMode::Once { window: dice.number(1..25) },
            _ if frees => reservoir,
            0 => ReadMode::Static,
            1 => ReadMode::Grow { min_samples: dice.number(0..30), new_samples: dice.number(0..8) },
            2 => ReadMode::Once { window: dice.number(1..25) },
            _ => reservoir,
        };
        let once = matches!(mode, ReadMode::Once { .. });
        if frees || once {
            partial = PartialBatch::Keep;
        }
        if let ReadMode::Reservoir { capacity, .. } = mode
            && capacity < batch
        {
            partial = PartialBatch::Keep;
        }
        let closes = index > 0 && dice.chance(1, 4);
        let settings = ReaderSettings {
            mode,
            seed: Seed(dice.number(0..1000)),
            batch,
            partial,
            passes: (!once).then(|| dice.number(1..5)),
        };
        Self {
            settings,
            trainers: dice.number(1..6) as usize,
            opens_at: Time(dice.number(0..400_000)),
            close_after: closes.then(|| dice.number(0..12)),
            pace: dice.number(200..60_000),
        }
    }
}
