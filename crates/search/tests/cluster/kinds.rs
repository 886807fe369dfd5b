//! The algorithms of the library that are tried in simulated searches.

use phalanx_search::core::algorithm::guided::Guided;
use phalanx_search::core::algorithm::{Algorithm, AlgorithmKind, AlgorithmSettings};

pub(crate) const KINDS: &[AlgorithmKind] = &[AlgorithmKind::Guided];

pub(crate) fn made(_kind: AlgorithmKind) -> Box<dyn Algorithm> {
    Box::new(Guided::new(&AlgorithmSettings { start: Some(6), ..AlgorithmSettings::default() }))
}
