//! The algorithms of the library that are tried in simulated searches.

use phalanx_search::core::algorithm::{Algorithm, AlgorithmKind};

pub(crate) const KINDS: &[AlgorithmKind] = &[];

pub(crate) fn made(kind: AlgorithmKind) -> Box<dyn Algorithm> {
    unreachable!("{kind}")
}
