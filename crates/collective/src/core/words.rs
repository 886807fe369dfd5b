//! The vocabulary of collectives: reductions, kinds, algorithms, signatures.

use phalanx_types::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the values of all ranks are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    Sum,
    /// The sum divided by the number of ranks; integers are rounded towards zero.
    Average,
    Min,
    Max,
    Product,
    /// Vectors that point the same way are averaged, orthogonal ones are added.
    Adasum,
}

impl Reduction {
    pub(crate) const ALL: [Reduction; 6] = [
        Reduction::Sum,
        Reduction::Average,
        Reduction::Min,
        Reduction::Max,
        Reduction::Product,
        Reduction::Adasum,
    ];
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reduction::Sum => "sum",
            Reduction::Average => "average",
            Reduction::Min => "min",
            Reduction::Max => "max",
            Reduction::Product => "product",
            Reduction::Adasum => "adasum",
        })
    }
}

/// The kind of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every rank gets the combination of the values of all ranks.
    AllReduce,
    /// Every rank gets one part of that combination.
    ReduceScatter,
    /// Every rank gets the values of all ranks, in rank order.
    AllGather,
    /// Every rank gets the root's values.
    Broadcast { root: u32 },
    /// The root gets the combination.
    Reduce { root: u32 },
    /// The root gets the values of all ranks.
    Gather { root: u32 },
    /// Every rank gets its part of the root's values.
    Scatter { root: u32 },
    /// Every rank gets a part of the values of every rank.
    AllToAll,
    /// No rank continues before all have arrived.
    Barrier,
    /// A rank without further values takes part with zeros until all ranks have joined.
    Join,
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Kind::AllReduce => "all-reduce",
            Kind::ReduceScatter => "reduce-scatter",
            Kind::AllGather => "all-gather",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Reduce { .. } => "reduce",
            Kind::Gather { .. } => "gather",
            Kind::Scatter { .. } => "scatter",
            Kind::AllToAll => "all-to-all",
            Kind::Barrier => "barrier",
            Kind::Join => "join",
        }
    }

    /// The code sent to peers, and the root (0 where there is none).
    pub(crate) fn code(self) -> (u8, u32) {
        match self {
            Kind::AllReduce => (0, 0),
            Kind::ReduceScatter => (1, 0),
            Kind::AllGather => (2, 0),
            Kind::Broadcast { root } => (3, root),
            Kind::Reduce { root } => (4, root),
            Kind::Gather { root } => (5, root),
            Kind::Scatter { root } => (6, root),
            Kind::AllToAll => (7, 0),
            Kind::Barrier => (8, 0),
            Kind::Join => (9, 0),
        }
    }

    /// The inverse of [`Kind::code`].
    pub(crate) fn from_code(code: u8, root: u32) -> Option<Self> {
        Some(match code {
            0 => Kind::AllReduce,
            1 => Kind::ReduceScatter,
            2 => Kind::AllGather,
            3 => Kind::Broadcast { root },
            4 => Kind::Reduce { root },
            5 => Kind::Gather { root },
            6 => Kind::Scatter { root },
            7 => Kind::AllToAll,
            8 => Kind::Barrier,
            9 => Kind::Join,
            _ => return None,
        })
    }

    /// The root rank, if the kind has one.
    pub fn root(self) -> Option<usize> {
        match self {
            Kind::Broadcast { root }
            | Kind::Reduce { root }
            | Kind::Gather { root }
            | Kind::Scatter { root } => Some(root as usize),
            _ => None,
        }
    }
}

/// The algorithm that computes a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Every rank sends everything to every other rank and combines alone: one exchange, for little data.
    Direct,
    /// Ranks of one host read each other's values in shared memory.
    Shared,
    /// Parts travel around a ring, twice: the least data per rank, for much data.
    Ring,
    /// Halves are exchanged with ever farther ranks, and back: few exchanges, for medium sizes.
    HalvingDoubling,
    /// Shared memory within hosts; a ring or halving and doubling between one rank of each host.
    Hierarchical,
}

impl Algorithm {
    pub fn word(self) -> &'static str {
        match self {
            Algorithm::Direct => "direct",
            Algorithm::Shared => "shared",
            Algorithm::Ring => "ring",
            Algorithm::HalvingDoubling => "halving-doubling",
            Algorithm::Hierarchical => "hierarchical",
        }
    }
}

/// What all ranks must agree on in one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// How many collectives this group has done before.
    pub sequence: u64,
    pub kind: Kind,
    pub reduction: Option<Reduction>,
    pub dtype: DType,
    /// Number of elements; 0 where ranks may contribute different amounts.
    pub count: u64,
    /// The caller's name for the tensor.
    pub name: String,
}

impl Signature {
    /// Whether joined ranks can take part in it with zeros: zeros change no sum.
    pub(crate) fn takes_zeros(&self) -> bool {
        self.kind == Kind::AllReduce && matches!(self.reduction, Some(Reduction::Sum | Reduction::Average))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?} ({} × {:?}", self.kind.word(), self.name, self.count, self.dtype)?;
        if let Some(reduction) = self.reduction {
            write!(f, ", {reduction}")?;
        }
        if let Some(root) = self.kind.root() {
            write!(f, ", root {root}")?;
        }
        write!(f, ", call {})", self.sequence)
    }
}
