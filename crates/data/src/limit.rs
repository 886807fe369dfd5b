//! How much memory a file may take when it is opened.
//!
//! A small file can imply a large array: compressed zeros, a shape, a count of rows. The size that a header implies is
//! taken from a [`Budget`] before anything is inflated or allocated for it, and memory that the system refuses is an
//! error.

use crate::error::Fault;
use phalanx_types::ByteSize;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;

/// The most memory that opening one source of samples may take; mapped files do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(ByteSize);

/// The limit where the memory of the machine is not known.
const USUAL: ByteSize = ByteSize(4 << 30);

impl Limit {
    /// A limit of this size.
    pub const fn new(size: ByteSize) -> Self {
        Self(size)
    }

    /// The limit as a size.
    pub const fn size(self) -> ByteSize {
        self.0
    }
}

impl Default for Limit {
    /// Half of the memory that this process can have.
    fn default() -> Self {
        static HALF: OnceLock<ByteSize> = OnceLock::new();
        Self(*HALF.get_or_init(|| memory().map_or(USUAL, |memory| ByteSize(memory.0 / 2))))
    }
}

/// The memory that this process can have: that of the machine or of its control group, whichever is less.
pub fn memory() -> Option<ByteSize> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| machine_memory(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let group = group_files(&groups).filter_map(|file| read(&file)?.trim().parse().ok());
    machine.into_iter().chain(group).filter(|bytes| *bytes > 0).min().map(ByteSize)
}

fn machine_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The files that may hold the limit of this process's control group or of the groups around it.
fn group_files(groups: &str) -> impl Iterator<Item = String> {
    groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let folders = std::path::Path::new(path).ancestors();
        folders.map(|folder| format!("{root}{}/{file}", folder.display())).collect()
    })
}

/// What is left of a limit while one source is opened. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    limit: Limit,
    taken: Rc<Cell<u64>>,
}

impl Budget {
    pub(crate) fn new(limit: Limit) -> Self {
        Self { limit, taken: Rc::default() }
    }

    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    /// How much can still be taken.
    pub(crate) fn left(&self) -> u64 {
        self.limit.0.0.saturating_sub(self.taken.get())
    }

    /// Charges bytes to the budget, or says that the sum would exceed it.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Fault> {
        let implied = self.taken.get().saturating_add(bytes);
        self.check(implied)?;
        self.taken.set(implied);
        Ok(())
    }

    /// Refuses a size that is above the limit by itself.
    pub(crate) fn check(&self, implied: u64) -> Result<(), Fault> {
        if implied > self.limit.0.0 {
            return Err(Fault::TooLarge { implied: ByteSize(implied), limit: self.limit.0 });
        }
        Ok(())
    }

    /// An empty vector with room for `len` bytes, which are taken.
    pub(crate) fn vec(&self, len: usize) -> Result<Vec<u8>, Fault> {
        self.take(len as u64)?;
        let mut vec = Vec::new();
        reserve(&mut vec, len)?;
        Ok(vec)
    }
}

/// Makes room for exactly `more` elements; a refusal of the system is an error.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<(), Fault> {
    let needed = ByteSize((more as u64).saturating_mul(size_of::<T>() as u64));
    vec.try_reserve_exact(more).ok().ok_or(Fault::NoMemory { needed })
}

/// A vector of `len` zeros.
pub(crate) fn zeros<T: Clone + Default>(len: usize) -> Result<Vec<T>, Fault> {
    let mut vec = Vec::new();
    reserve(&mut vec, len)?;
    vec.resize(len, T::default());
    Ok(vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_shared_and_says_how_much_all_would_take() {
        let budget = Budget::new(Limit::new(ByteSize(100)));
        budget.clone().take(60).unwrap();
        assert_eq!(budget.left(), 40);
        let error = budget.take(41).unwrap_err();
        assert_eq!(error, Fault::TooLarge { implied: ByteSize(101), limit: ByteSize(100) });
        budget.take(40).unwrap();
        assert!(budget.take(u64::MAX).is_err());
    }

    #[test]
    fn memory_that_the_system_refuses_is_an_error() {
        let budget = Budget::new(Limit::new(ByteSize(u64::MAX)));
        assert!(matches!(budget.vec(isize::MAX as usize), Err(Fault::NoMemory { .. })));
        assert!(matches!(zeros::<f32>(usize::MAX / 2), Err(Fault::NoMemory { .. })));
    }

    #[test]
    fn the_memory_of_the_machine_and_of_its_groups_is_found() {
        assert_eq!(machine_memory("MemTotal:        2048 kB\nMemFree:  1 kB\n"), Some(2 << 20));
        assert_eq!(machine_memory("nothing"), None);
        let files: Vec<_> = group_files("7:memory:/a\n3:cpu:/b\n0::/c/d\n").collect();
        assert_eq!(files[0], "/sys/fs/cgroup/memory/a/memory.limit_in_bytes");
        assert!(files.contains(&"/sys/fs/cgroup/c/memory.max".to_owned()), "{files:?}");
        assert!(memory().is_none_or(|memory| memory.0 > 1 << 20));
    }
}
