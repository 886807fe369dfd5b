//! What a stream and a reader are set to.

use crate::refusal::{Quantity, SettingsError};
use phalanx_types::{ByteSize, Seed};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most producers of one stream, dead ones included.
pub const MAX_PRODUCERS: usize = 65_536;
/// The most readers of one stream, closed ones included.
pub const MAX_READERS: usize = 4_096;
/// The most trainers of one reader, dead ones included.
pub const MAX_TRAINERS: usize = 65_536;
/// The most samples of one batch.
pub const MAX_BATCH: u64 = 1 << 24;
/// The most samples of a reservoir.
pub const MAX_RESERVOIR: u64 = 1 << 32;

/// What becomes of samples that were used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Retention {
    /// They are kept: later passes use them again, and a run may go back to an older checkpoint.
    Keep,
    /// They are freed when no reader will use them again. Readers must use [`ReadMode::Once`] or [`ReadMode::Reservoir`].
    Free,
}

/// The settings of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// The stream ends when so many producers have closed; `None`: it ends when it is sealed.
    pub expected_producers: Option<u32>,
    /// What becomes of samples that were used.
    pub retention: Retention,
    /// The most bytes that samples may take; producers are held back before more arrive.
    pub budget: Option<ByteSize>,
    /// A producer that says nothing for so long is lost. `None`: only by its connection; then no request that came
    /// over a connection may be fed after the loss of that connection was.
    pub producer_silence: Option<Duration>,
    /// A trainer that says nothing for so long is lost. `None`: as for producers.
    pub trainer_silence: Option<Duration>,
    /// A reader without trainers for so long is released: samples are no longer kept for it.
    pub release_readers_after: Option<Duration>,
    /// How many uploads of one producer may be in flight.
    pub uploads_in_flight: u32,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            expected_producers: None,
            retention: Retention::Keep,
            budget: None,
            producer_silence: Some(Duration::from_secs(30)),
            trainer_silence: Some(Duration::from_secs(30)),
            release_readers_after: None,
            uploads_in_flight: 64,
        }
    }
}

impl StreamSettings {
    /// Whether a stream can be run with these settings.
    ///
    /// # Errors
    /// A number is zero that must not be, or no upload could be in flight.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.expected_producers == Some(0) {
            return Err(SettingsError::Zero { what: Quantity::ExpectedProducers });
        }
        if self.budget == Some(ByteSize(0)) {
            return Err(SettingsError::Zero { what: Quantity::Budget });
        }
        if self.uploads_in_flight == 0 {
            return Err(SettingsError::Zero { what: Quantity::UploadsInFlight });
        }
        Ok(())
    }
}

/// Which samples a pass has, and when the next pass begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadMode {
    /// All samples of the whole stream: the first pass begins when the stream has ended.
    Static,
    /// All samples that have arrived when the pass begins.
    Grow {
        /// The first pass begins with at least so many samples.
        min_samples: u64,
        /// Every other pass waits for at least so many new samples while the stream goes on.
        new_samples: u64,
    },
    /// Every sample once: each pass has the next samples in order of arrival, shuffled.
    Once {
        /// How many samples are shuffled together. A multiple of the batch leaves no partial batches.
        window: u64,
    },
    /// A seeded sample of everything that has arrived, of bounded size, for simulations without end.
    Reservoir {
        /// The most samples of the reservoir.
        capacity: u64,
        /// The first pass begins with at least so many samples.
        min_samples: u64,
        /// A pass ends after so many steps at most, so that new samples come in sooner.
        steps: Option<u64>,
    },
}

/// What becomes of the samples at the end of a pass that do not fill a batch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartialBatch {
    /// They are a smaller batch.
    #[default]
    Keep,
    /// They are not used in this pass.
    Drop,
}

/// The settings of a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderSettings {
    /// Which samples a pass has.
    pub mode: ReadMode,
    /// Decides the order of all passes.
    pub seed: Seed,
    /// Samples of a global batch, over all trainers together.
    pub batch: u64,
    /// What becomes of the last samples of a pass.
    pub partial: PartialBatch,
    /// The reader has finished after so many passes; `None`: it closes when it wants to.
    pub passes: Option<u64>,
}

impl ReaderSettings {
    /// Settings with the usual values for the rest.
    pub fn new(mode: ReadMode, seed: Seed, batch: u64) -> Self {
        Self { mode, seed, batch, partial: PartialBatch::Keep, passes: None }
    }

    /// Whether a reader can be run with these settings on a stream of this retention.
    ///
    /// # Errors
    /// A number is zero or too large, or the mode does not fit the retention or the rule for partial batches.
    pub fn validate(&self, retention: Retention) -> Result<(), SettingsError> {
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Err(SettingsError::Batch { batch: self.batch, max: MAX_BATCH });
        }
        if self.passes == Some(0) {
            return Err(SettingsError::Zero { what: Quantity::Passes });
        }
        match self.mode {
            ReadMode::Static | ReadMode::Grow { .. } if retention == Retention::Free => {
                Err(SettingsError::NeedsAll)
            }
            ReadMode::Once { window: 0 } => Err(SettingsError::Zero { what: Quantity::Window }),
            ReadMode::Once { .. } if self.partial == PartialBatch::Drop => Err(SettingsError::OnceDrops),
            ReadMode::Reservoir { steps: Some(0), .. } => Err(SettingsError::Zero { what: Quantity::Steps }),
            ReadMode::Reservoir { capacity, .. } if capacity == 0 || capacity > MAX_RESERVOIR => {
                Err(SettingsError::Reservoir { capacity, max: MAX_RESERVOIR })
            }
            ReadMode::Reservoir { capacity, .. }
                if self.partial == PartialBatch::Drop && capacity < self.batch =>
            {
                Err(SettingsError::ReservoirBelowBatch { capacity, batch: self.batch })
            }
            ReadMode::Static | ReadMode::Grow { .. } | ReadMode::Once { .. } | ReadMode::Reservoir { .. } => {
                Ok(())
            }
        }
    }

    /// The fewest samples that make a pass with a step.
    pub(crate) fn least_samples(&self) -> u64 {
        match self.partial {
            PartialBatch::Keep => 1,
            PartialBatch::Drop => self.batch,
        }
    }
}
