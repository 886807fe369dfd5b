//! Measures the peak memory of a piece of work, on its own thread.
//!
//! A test binary that measures installs this allocator:
//! `#[global_allocator] static COUNTING: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether any allocation was counted.
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Runs `work` and returns its result with the most bytes it held beyond those held before.
///
/// # Panics
/// [`Counting`] is not the allocator of this program.
pub fn peak_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    drop(std::hint::black_box(Box::new(0_u8)));
    assert!(COUNTS.load(Ordering::Relaxed), "`Counting` is not the global allocator");
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, usize::try_from(PEAK.get() - before).unwrap_or(0))
}

/// The system's allocator, counting for [`peak_of`].
#[derive(Debug)]
pub struct Counting;

fn grow(bytes: usize) {
    COUNTS.store(true, Ordering::Relaxed);
    // Fails while the thread ends, when nothing is measured any more.
    let live = LIVE.try_with(|live| {
        live.set(live.get() + bytes as isize);
        live.get()
    });
    if let Ok(live) = live {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    }
}

fn shrink(bytes: usize) {
    let _ = LIVE.try_with(|live| live.set(live.get() - bytes as isize));
}

#[expect(unsafe_code, reason = "only an allocator sees every allocation")]
// SAFETY: every call goes to the system's allocator with its own arguments. Counting neither allocates, which would
// recurse, nor unwinds: the cells are constants without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: `ptr` came from `System` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new memory may exist at the same time.
        grow(new_size);
        shrink(layout.size());
        // SAFETY: `ptr` came from `System` with this layout, and the caller chose `new_size`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}
