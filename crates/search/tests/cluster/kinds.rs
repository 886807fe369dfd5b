//! The algorithms of the library that are tried in simulated searches.

use phalanx_search::core::algorithm::{Algorithm, AlgorithmKind, AlgorithmSettings, make};

pub(crate) const KINDS: &[AlgorithmKind] = &AlgorithmKind::ALL;

/// With settings that take effect after a few trials, and that cost little.
pub(crate) fn made(kind: AlgorithmKind) -> Box<dyn Algorithm> {
    let settings = AlgorithmSettings {
        start: Some(6),
        candidates: Some(60),
        population: Some(6),
        history: Some(8),
        sample: Some(4),
        parents: Some(4),
        batch: Some(3),
        networks: Some(2),
        layers: Some(1),
        width: Some(4),
        training_steps: Some(10),
        ..AlgorithmSettings::default()
    };
    make(kind, &settings)
}
