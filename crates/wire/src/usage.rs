//! Who uses how much of a node, and why something does not fit beside it.

use phalanx_types::{ByteSize, Needs, NodeId, RunId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most entries of a list of uses; the last one stands for all that are not listed.
pub const MAX_USES: usize = 16;

/// What uses a part of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Holder {
    /// All jobs of the node together.
    Jobs { running: u32 },
    /// A training run.
    Run { run: RunId, driver: NodeId },
    /// A training run that waits until jobs have left this part. New jobs are not started on it.
    WaitingRun { run: RunId, driver: NodeId },
    /// The holders that a shortened list leaves out.
    Others { holders: u32 },
    /// A rank of a user's program.
    Rank { launcher: NodeId },
    /// A rank that waits until jobs have left this part. New jobs are not started on it.
    WaitingRank { launcher: NodeId },
    /// The store that the node serves.
    Store,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Jobs { running: 1 } => f.write_str("1 job"),
            Holder::Jobs { running } => write!(f, "{running} jobs"),
            Holder::Run { driver, .. } => write!(f, "run of {driver}"),
            Holder::WaitingRun { driver, .. } => write!(f, "waiting run of {driver}"),
            Holder::Others { holders: 1 } => f.write_str("1 other"),
            Holder::Others { holders } => write!(f, "{holders} others"),
            Holder::Rank { launcher } => write!(f, "rank of {launcher}"),
            Holder::WaitingRank { launcher } => write!(f, "waiting rank of {launcher}"),
            Holder::Store => f.write_str("store"),
        }
    }
}

/// A part of a node and its holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeUse {
    pub holder: Holder,
    pub cores: u32,
    pub memory: ByteSize,
}

impl NodeUse {
    /// The amount without its holder.
    pub fn needs(&self) -> Needs {
        Needs { cores: self.cores, memory: self.memory }
    }
}

/// Shortens a list to [`MAX_USES`] entries and keeps its sums.
pub fn shorten(mut uses: Vec<NodeUse>) -> Vec<NodeUse> {
    if uses.len() > MAX_USES {
        let rest = uses.split_off(MAX_USES - 1);
        let Needs { cores, memory } = sum(&rest);
        let holders = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        uses.push(NodeUse { holder: Holder::Others { holders }, cores, memory });
    }
    uses
}

/// All amounts together.
pub fn sum(uses: &[NodeUse]) -> Needs {
    let none = Needs { cores: 0, memory: ByteSize(0) };
    uses.iter().fold(none, |sum, part| Needs {
        cores: sum.cores.saturating_add(part.cores),
        memory: ByteSize(sum.memory.0.saturating_add(part.memory.0)),
    })
}

/// What is left of a capacity beside these uses.
pub fn free(capacity: Needs, uses: &[NodeUse]) -> Needs {
    let used = sum(uses);
    Needs {
        cores: capacity.cores.saturating_sub(used.cores),
        memory: ByteSize(capacity.memory.0.saturating_sub(used.memory.0)),
    }
}

/// Why something does not fit on a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shortage {
    pub needed: Needs,
    pub capacity: Needs,
    /// What uses the node at the moment.
    pub uses: Vec<NodeUse>,
}

impl Shortage {
    /// Whether it would not fit on the idle node either.
    pub fn is_permanent(&self) -> bool {
        !self.needed.fit(self.capacity.cores, self.capacity.memory)
    }

    /// What is free of the node.
    pub fn free(&self) -> Needs {
        free(self.capacity, &self.uses)
    }

    /// Lists the holders of one resource.
    fn write_holders(
        &self,
        f: &mut fmt::Formatter<'_>,
        amount: impl Fn(&NodeUse) -> Option<String>,
    ) -> fmt::Result {
        let mut separator = " (";
        for part in &self.uses {
            let Some(amount) = amount(part) else { continue };
            let verb = match part.holder {
                Holder::Run { .. }
                | Holder::Rank { .. }
                | Holder::Store
                | Holder::Jobs { running: 1 }
                | Holder::Others { holders: 1 } => "uses",
                Holder::Jobs { .. } | Holder::Others { .. } => "use",
                Holder::WaitingRun { .. } | Holder::WaitingRank { .. } => "is next for",
            };
            write!(f, "{separator}{} {verb} {amount}", part.holder)?;
            separator = ", ";
        }
        f.write_str(if separator == " (" { "" } else { ")" })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, capacity, free) = (self.needed, self.capacity, self.free());
        if needed.cores > free.cores {
            let s = if needed.cores == 1 { "" } else { "s" };
            write!(f, "needs {} core{s}, ", needed.cores)?;
            if needed.cores > capacity.cores {
                return write!(f, "the node has {}", capacity.cores);
            }
            let are = if free.cores == 1 { "is" } else { "are" };
            write!(f, "{} of {} {are} free", free.cores, capacity.cores)?;
            self.write_holders(f, |part| (part.cores > 0).then(|| part.cores.to_string()))
        } else {
            write!(f, "needs {} of memory, ", needed.memory)?;
            if needed.memory > capacity.memory {
                return write!(f, "the node has {}", capacity.memory);
            }
            write!(f, "{} of {} is free", free.memory, capacity.memory)?;
            self.write_holders(f, |part| (part.memory.0 > 0).then(|| part.memory.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Needs = Needs { cores: 2, memory: ByteSize(8 << 30) };

    fn run(driver: &str, cores: u32, memory: u64) -> NodeUse {
        let driver: NodeId = driver.parse().unwrap();
        NodeUse { holder: Holder::Run { run: RunId(1), driver }, cores, memory: ByteSize::gib(memory) }
    }

    fn jobs(running: u32, cores: u32) -> NodeUse {
        NodeUse { holder: Holder::Jobs { running }, cores, memory: ByteSize(0) }
    }

    fn told(cores: u32, gib: u64, uses: Vec<NodeUse>) -> String {
        let needed = Needs { cores, memory: ByteSize::gib(gib) };
        Shortage { needed, capacity: CAPACITY, uses }.to_string()
    }

    #[test]
    fn a_shortage_says_what_is_free_and_who_has_the_rest() {
        let main = || run("main-4f2a", 1, 6);
        assert_eq!(told(2, 0, vec![main()]), "needs 2 cores, 1 of 2 is free (run of main-4f2a uses 1)");
        assert_eq!(
            told(1, 0, vec![jobs(3, 1), main()]),
            "needs 1 core, 0 of 2 are free (3 jobs use 1, run of main-4f2a uses 1)"
        );
        assert_eq!(
            told(1, 3, vec![jobs(1, 1), main()]),
            "needs 1 core, 0 of 2 are free (1 job uses 1, run of main-4f2a uses 1)"
        );
        assert_eq!(
            told(1, 3, vec![main()]),
            "needs 3 GiB of memory, 2 GiB of 8 GiB is free (run of main-4f2a uses 6 GiB)"
        );
        assert_eq!(told(4, 0, Vec::new()), "needs 4 cores, the node has 2");
        assert_eq!(told(1, 9, Vec::new()), "needs 9 GiB of memory, the node has 8 GiB");
        let (run, driver) = (RunId(1), "main-4f2a".parse().unwrap());
        let waiting = NodeUse { holder: Holder::WaitingRun { run, driver }, cores: 2, memory: ByteSize(0) };
        assert_eq!(
            told(1, 0, vec![waiting]),
            "needs 1 core, 0 of 2 are free (waiting run of main-4f2a is next for 2)"
        );
    }

    #[test]
    fn a_long_list_is_shortened_and_its_sums_stay() {
        let uses: Vec<NodeUse> = (0..40).map(|i| run("main-4f2a", i, 1)).collect();
        let total = sum(&uses);
        let short = shorten(uses);
        assert_eq!((short.len(), sum(&short)), (MAX_USES, total));
        assert_eq!(short[MAX_USES - 1].holder, Holder::Others { holders: 25 });
        assert_eq!(shorten(short.clone()), short);
    }
}
