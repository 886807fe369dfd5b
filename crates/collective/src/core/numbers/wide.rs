//! Loops compiled for the widest vectors of the machine, chosen at run time.

use pulp::Arch;
use std::sync::LazyLock;

static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);

/// The vector instruction set of this machine.
#[inline]
pub(crate) fn arch() -> Arch {
    *ARCH
}

/// Makes a closure that moves it `FnOnce`. Such a closure is called directly. A closure that could be called again goes
/// through a function that need not be inlined, and would be compiled for the oldest machine.
#[derive(Debug)]
pub(crate) struct Once;

/// Evaluates a call compiled for this machine's vectors. Functions it calls must be `#[inline(always)]`.
///
/// It is a macro because only a closure that must be inlined is sure to be compiled for every instruction set.
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
