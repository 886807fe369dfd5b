//! Files that become shorter while they are mapped.
//!
//! Reading the missing part raises SIGBUS, which would end the process without a word. A handler maps zeros in its
//! place and marks the map; the reader looks at the mark after it has read, and fails with the name of the file.
//!
//! ```text
//! read ─► SIGBUS ─► handler: whose map? ─► ours: zeros from this page on, mark it ─► the read goes on ─► Watch::intact
//!                                      └─► not ours: the handler that was there before
//! ```
//! A file that is cut inside of a page raises nothing: the rest of that page reads as zeros. So `intact` also asks the
//! system for the length, once for each batch.

use memmap2::Mmap;
use std::fs::File;
use std::sync::Arc;

/// A mapped file that is watched.
pub(super) struct Watched(Arc<Mapped>);

struct Mapped {
    /// Before the map: it is given up first.
    place: Option<imp::Place>,
    map: Mmap,
    file: File,
}

impl Watched {
    pub(super) fn new(map: Mmap, file: File) -> Self {
        let place = imp::Place::new(&map);
        let mapped = Arc::new(Mapped { place, map, file });
        imp::note(&mapped);
        Self(mapped)
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0.map
    }
}

/// Tells whether the file behind mapped bytes still has them all.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mapped>);

impl Watch {
    /// Of the map in which these bytes lie, if they lie in one.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        imp::find(bytes.as_ptr() as usize).map(Self)
    }

    /// Whether everything that was read until now was in the file.
    pub(crate) fn intact(&self) -> bool {
        let Mapped { place, map, file } = &*self.0;
        let whole = file.metadata().is_ok_and(|meta| meta.len() >= map.len() as u64);
        whole && place.as_ref().is_none_or(imp::Place::intact)
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("intact", &self.intact()).finish_non_exhaustive()
    }
}

/// The maps by their address, and the handler.
mod imp {
    use super::Mapped;
    use memmap2::Mmap;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

    /// How many maps are watched at once; of others only the length is.
    const PLACES: usize = 1024;

    /// Where a map lies, for the handler: it may neither lock nor allocate.
    struct Range {
        taken: AtomicBool,
        /// 0 while the place is free or changes.
        start: AtomicUsize,
        end: AtomicUsize,
        shortened: AtomicBool,
    }

    static RANGES: [Range; PLACES] = [const {
        Range {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            shortened: AtomicBool::new(false),
        }
    }; PLACES];

    /// A place among those that the handler knows.
    pub(super) struct Place(&'static Range);

    impl Place {
        pub(super) fn new(map: &Mmap) -> Option<Self> {
            handle();
            let free = |range: &&Range| !range.taken.swap(true, Ordering::AcqRel);
            let range = RANGES.iter().find(free)?;
            let start = map.as_ptr() as usize;
            range.shortened.store(false, Ordering::Relaxed);
            range.end.store(start + map.len(), Ordering::SeqCst);
            range.start.store(start, Ordering::SeqCst);
            Some(Self(range))
        }

        pub(super) fn intact(&self) -> bool {
            !self.0.shortened.load(Ordering::Acquire)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            self.0.start.store(0, Ordering::SeqCst);
            self.0.taken.store(false, Ordering::Release);
        }
    }

    /// The maps by their first address, for readers.
    static MAPS: Mutex<BTreeMap<usize, (usize, Weak<Mapped>)>> = Mutex::new(BTreeMap::new());

    pub(super) fn note(mapped: &Arc<Mapped>) {
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|_, (_, map)| map.strong_count() > 0);
        let start = mapped.map.as_ptr() as usize;
        maps.insert(start, (start + mapped.map.len(), Arc::downgrade(mapped)));
    }

    pub(super) fn find(address: usize) -> Option<Arc<Mapped>> {
        let maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, (end, map)) = maps.range(..=address).next_back()?;
        if address < *end { map.upgrade() } else { None }
    }

    /// What handled the signal before.
    static BEFORE: OnceLock<Before> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(4096);

    struct Before(libc::sigaction);

    #[expect(unsafe_code, reason = "signals are handled so")]
    fn handle() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: all pointers are to values that live through the calls, and an all-zero `sigaction` is a valid
            // value. The handler only does what a handler may do. What was there before is known to it before it can
            // run.
            unsafe {
                if let Ok(page @ 1..) = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)) {
                    PAGE.store(page, Ordering::Relaxed);
                }
                let mut before: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
                    return;
                }
                if BEFORE.set(Before(before)).is_err() {
                    return;
                }
                let mut ours: libc::sigaction = std::mem::zeroed();
                ours.sa_sigaction = on_bus_error as *const () as usize;
                ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&raw mut ours.sa_mask);
                libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut());
            }
        });
    }

    /// Maps zeros where a watched map has no file behind it any more.
    #[expect(unsafe_code, reason = "signals are handled so")]
    extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the system gives a handler with `SA_SIGINFO` a valid `info`, whose address is set for signals of the
        // system itself, which have a positive code.
        let (address, fault) = unsafe { ((*info).si_addr() as usize, (*info).si_code > 0) };
        if fault && RANGES.iter().any(|range| fill(range, address)) {
            return;
        }
        pass_on(signal, info, context);
    }

    #[expect(unsafe_code, reason = "the pages of a map are replaced so")]
    fn fill(range: &Range, address: usize) -> bool {
        let (start, end) = (range.start.load(Ordering::SeqCst), range.end.load(Ordering::SeqCst));
        // The start is stored last and cleared first: it has not changed, so both are of one map.
        let same = range.start.load(Ordering::SeqCst) == start;
        if start == 0 || !same || !(start..end).contains(&address) {
            return false;
        }
        let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
        // SAFETY: from this page on the file has nothing, so no page behind it can be read, and the pages belong to a map
        // that lives as long as the read that faulted. Private zeros take their place with the same access, and `munmap`
        // of the map removes them, too. `mmap` is a plain system call here, and `errno` is put back.
        unsafe {
            let errno = errno_place();
            let before = *errno;
            let (flags, kind) = (libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANON, libc::PROT_READ);
            let got = libc::mmap(page as *mut libc::c_void, end - page, kind, flags, -1, 0);
            *errno = before;
            if got == libc::MAP_FAILED {
                return false;
            }
        }
        range.shortened.store(true, Ordering::Release);
        true
    }

    #[cfg(target_os = "linux")]
    #[expect(unsafe_code, reason = "the place of `errno` is asked for so")]
    unsafe fn errno_place() -> *mut libc::c_int {
        // SAFETY: it has no conditions.
        unsafe { libc::__errno_location() }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(unsafe_code, reason = "the place of `errno` is asked for so")]
    unsafe fn errno_place() -> *mut libc::c_int {
        // SAFETY: it has no conditions.
        unsafe { libc::__error() }
    }

    /// Lets the handler of before have a signal that is not about our maps; by default it ends the process.
    #[expect(unsafe_code, reason = "signals are handled so")]
    fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let before = BEFORE.get().map(|before| before.0);
        match before {
            Some(before) if !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
                // SAFETY: it was installed as a handler of this kind, and gets what the system gave us.
                unsafe {
                    if before.sa_flags & libc::SA_SIGINFO != 0 {
                        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                            std::mem::transmute(before.sa_sigaction);
                        handler(signal, info, context);
                    } else {
                        let handler: extern "C" fn(libc::c_int) = std::mem::transmute(before.sa_sigaction);
                        handler(signal);
                    }
                }
            }
            // SAFETY: as in `handle`. Reading on faults again, or the signal is raised again, and then ends the process.
            _ => unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::map;
    use super::*;

    #[test]
    fn what_a_file_has_no_more_reads_as_zeros_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        for cut in [0, 1, 4096, 100_000, 199_999] {
            std::fs::write(&path, vec![7; 200_000]).unwrap();
            let bytes = map(&path).unwrap();
            let watch = Watch::of(&bytes[1000..]).unwrap();
            assert!(watch.intact());
            File::options().write(true).open(&path).unwrap().set_len(cut).unwrap();
            let whole = usize::try_from(cut).unwrap();
            assert!(bytes[..whole].iter().all(|byte| *byte == 7), "{cut}");
            assert!(bytes[whole..].iter().all(|byte| *byte == 0), "{cut}");
            assert!(!watch.intact(), "{cut}");
        }
    }

    #[test]
    fn only_mapped_bytes_are_watched_and_places_are_given_back() {
        assert!(Watch::of(&[1, 2, 3]).is_none());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, [1; 10]).unwrap();
        for _ in 0..3000 {
            let bytes = map(&path).unwrap();
            let watch = Watch::of(&bytes).unwrap();
            assert!(watch.0.place.is_some() && watch.intact());
        }
    }
}
