//! Run-time choice of the widest vector instructions this machine has.

use pulp::Arch;
use std::sync::LazyLock;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// Runs a loop compiled for this machine's vectors. Functions that it calls must be `#[inline(always)]`.
#[inline(always)]
pub(crate) fn simd<R>(work: impl FnOnce() -> R) -> R {
    ARCH.dispatch(work)
}

/// The instruction set, for kernels written with explicit vectors.
pub(crate) fn arch() -> Arch {
    *ARCH
}
