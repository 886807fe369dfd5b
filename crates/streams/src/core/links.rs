//! What is known of producers while the store runs.

use crate::event::ProducerLife;
use crate::wait::StreamWait;
use phalanx_types::{ByteSize, Time};
use std::collections::BTreeMap;

/// Whether a producer is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Here { heard: Time },
    Lost { since: Time },
}

#[derive(Debug, Clone)]
pub(super) struct ProducerLink {
    pub(super) presence: Presence,
    /// Admitted uploads that are not completed, by number.
    pub(super) in_flight: BTreeMap<u64, InFlight>,
}

/// An upload on its way, for which room is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) samples: u32,
    pub(super) bytes: ByteSize,
}

impl ProducerLink {
    pub(super) fn here(now: Time) -> Self {
        Self { presence: Presence::Here { heard: now }, in_flight: BTreeMap::new() }
    }

    pub(super) fn lost(now: Time) -> Self {
        Self { presence: Presence::Lost { since: now }, in_flight: BTreeMap::new() }
    }
}

/// An upload that waits for room.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) producer: ProducerLife,
    pub(super) number: u64,
    pub(super) upload: InFlight,
    /// The reason its producer was told last.
    pub(super) told: Option<StreamWait>,
}

impl Held {
    pub(super) fn new(producer: ProducerLife, number: u64, samples: u32, bytes: ByteSize) -> Self {
        Self { producer, number, upload: InFlight { samples, bytes }, told: None }
    }
}
