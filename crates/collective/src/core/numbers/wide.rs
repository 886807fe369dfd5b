//! Loops compiled for the widest vectors this machine has, chosen when it runs.

use pulp::Arch;
use std::sync::LazyLock;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// The vectors this machine has.
#[inline]
pub(crate) fn arch() -> Arch {
    *ARCH
}

/// A closure that gives this away can be called once only. Then it is called itself; one that could be called again is
/// called through a function in between that need not be inlined, and would be compiled for the oldest machine.
#[derive(Debug)]
pub(crate) struct Once;

/// Evaluates a call compiled for this machine's vectors. What it calls must be `#[inline(always)]`.
///
/// A macro, because only a closure that must be inlined is sure to be compiled for every kind of vectors.
macro_rules! wide {
    ($work:expr) => {{
        let once = $crate::core::numbers::wide::Once;
        $crate::core::numbers::wide::arch().dispatch(
            #[inline(always)]
            || {
                let _: $crate::core::numbers::wide::Once = { once };
                $work
            },
        )
    }};
}

pub(crate) use wide;
