//! What an operation computes, and whether two ranks mean the same.

use phalanx_collective::Reduction;
use phalanx_types::DType;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A set of ranks that compute together. The set of all ranks is [`SetId::WORLD`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SetId(pub u32);

impl SetId {
    /// All ranks.
    pub const WORLD: SetId = SetId(0);
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// What an operation computes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpKind {
    /// Every rank gets the combination of the tensors of all ranks.
    AllReduce { reduction: Reduction },
    /// Every rank gets its rows of that combination; the first ranks get one row more if rows are left over.
    ReduceScatter { reduction: Reduction },
    /// Every rank gets the rows of all ranks, in the order of ranks; first dimensions may differ.
    AllGather,
    /// Every rank gets the tensor of the root.
    Broadcast { root: u32 },
    /// Every rank sends some rows to every rank.
    AllToAll,
    /// No rank goes on before all have come.
    Barrier,
    /// Makes a set of some ranks. All ranks take part.
    AddSet { ranks: Vec<u32> },
    /// Removes a set. All ranks take part.
    RemoveSet { set: SetId },
}

impl OpKind {
    /// The name of the kind.
    pub fn word(&self) -> &'static str {
        match self {
            OpKind::AllReduce { .. } => "all-reduce",
            OpKind::ReduceScatter { .. } => "reduce-scatter",
            OpKind::AllGather => "all-gather",
            OpKind::Broadcast { .. } => "broadcast",
            OpKind::AllToAll => "all-to-all",
            OpKind::Barrier => "barrier",
            OpKind::AddSet { .. } => "add-set",
            OpKind::RemoveSet { .. } => "remove-set",
        }
    }

    /// The reduction, if the kind has one.
    pub fn reduction(&self) -> Option<Reduction> {
        match self {
            OpKind::AllReduce { reduction } | OpKind::ReduceScatter { reduction } => Some(*reduction),
            _ => None,
        }
    }

    /// Whether first dimensions may differ between ranks.
    fn has_free_rows(&self) -> bool {
        matches!(self, OpKind::AllGather | OpKind::AllToAll)
    }

    /// Whether a rank that has joined can take part without data of its own.
    pub(crate) fn takes_joined(&self) -> bool {
        match self {
            OpKind::AllReduce { reduction } => matches!(reduction, Reduction::Sum | Reduction::Average),
            OpKind::AllGather | OpKind::Barrier => true,
            _ => false,
        }
    }
}

/// The element type and shape of one tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// The type of its elements.
    pub dtype: DType,
    /// Its dimensions, outermost first; none for a scalar.
    pub shape: Vec<u64>,
}

impl TensorSpec {
    /// A tensor of this type and shape.
    pub fn new(dtype: DType, shape: impl Into<Vec<u64>>) -> Self {
        Self { dtype, shape: shape.into() }
    }

    /// Its elements; `None` if there are more than can be counted.
    pub fn elements(&self) -> Option<usize> {
        let count = self.shape.iter().try_fold(1_u64, |count, dim| count.checked_mul(*dim))?;
        usize::try_from(count).ok()
    }

    /// Its bytes; `None` if there are more than can be counted.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.size())
    }

    /// The first dimension; a scalar has one row.
    pub(crate) fn rows(&self) -> u64 {
        self.shape.first().copied().unwrap_or(1)
    }

    /// The bytes of one row.
    pub(crate) fn row_bytes(&self) -> usize {
        let inner = self.shape.get(1..).unwrap_or_default();
        inner.iter().fold(self.dtype.size(), |bytes, dim| bytes.saturating_mul(*dim as usize))
    }
}

/// How values travel between ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireFormat {
    /// As they are.
    #[default]
    Same,
    /// Floats as 16-bit floats, which are summed as such.
    F16,
}

/// What all ranks must agree on. Several tensors are a group: all of them are computed, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpSignature {
    /// What is computed.
    pub kind: OpKind,
    /// Which ranks take part.
    pub set: SetId,
    /// The tensors, in order.
    pub tensors: Vec<TensorSpec>,
    /// The factor of the values before they are combined.
    pub prescale: f64,
    /// The factor of the result.
    pub postscale: f64,
    /// How values travel.
    pub wire: WireFormat,
}

/// What differs between two ranks' operations of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Difference {
    /// The kind.
    Kind,
    /// The reduction.
    Reduction,
    /// The root of a broadcast.
    Root,
    /// The set of ranks.
    Set,
    /// The number of tensors of a group.
    Count,
    /// The element type.
    DType,
    /// The shape.
    Shape,
    /// The factors before or after.
    Scale,
    /// How values travel.
    Wire,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Kind => "kind",
            Difference::Reduction => "reduction",
            Difference::Root => "root",
            Difference::Set => "process set",
            Difference::Count => "number of tensors",
            Difference::DType => "element type",
            Difference::Shape => "shape",
            Difference::Scale => "scale factor",
            Difference::Wire => "compression",
        })
    }
}

impl OpSignature {
    /// An operation on one tensor, of all ranks.
    pub fn new(kind: OpKind, tensor: TensorSpec) -> Self {
        Self::of(kind, vec![tensor])
    }

    /// An operation on any number of tensors, of all ranks.
    pub fn of(kind: OpKind, tensors: Vec<TensorSpec>) -> Self {
        Self { kind, set: SetId::WORLD, tensors, prescale: 1.0, postscale: 1.0, wire: WireFormat::Same }
    }

    /// The same among the ranks of a set.
    #[must_use]
    pub fn on(mut self, set: SetId) -> Self {
        self.set = set;
        self
    }

    /// The same with factors before and after.
    #[must_use]
    pub fn scaled(mut self, prescale: f64, postscale: f64) -> Self {
        (self.prescale, self.postscale) = (prescale, postscale);
        self
    }

    /// The same with values that travel in another format.
    #[must_use]
    pub fn wired(mut self, wire: WireFormat) -> Self {
        self.wire = wire;
        self
    }

    /// The first difference that matters, if there is one.
    pub fn difference(&self, other: &OpSignature) -> Option<Difference> {
        if self.set != other.set {
            return Some(Difference::Set);
        }
        if let Some(difference) = kind_difference(&self.kind, &other.kind) {
            return Some(difference);
        }
        if self.tensors.len() != other.tensors.len() {
            return Some(Difference::Count);
        }
        for (mine, theirs) in self.tensors.iter().zip(&other.tensors) {
            if mine.dtype != theirs.dtype {
                return Some(Difference::DType);
            }
            let skip = usize::from(self.kind.has_free_rows());
            let same_inner = mine.shape.get(skip..) == theirs.shape.get(skip..);
            if mine.shape.len() != theirs.shape.len() || !same_inner {
                return Some(Difference::Shape);
            }
        }
        if self.prescale.to_bits() != other.prescale.to_bits()
            || self.postscale.to_bits() != other.postscale.to_bits()
        {
            return Some(Difference::Scale);
        }
        (self.wire != other.wire).then_some(Difference::Wire)
    }

    /// The bytes of all tensors.
    pub fn bytes(&self) -> usize {
        self.tensors.iter().filter_map(TensorSpec::bytes).fold(0, usize::saturating_add)
    }
}

fn kind_difference(ours: &OpKind, theirs: &OpKind) -> Option<Difference> {
    if ours == theirs {
        return None;
    }
    Some(match (ours, theirs) {
        (OpKind::AllReduce { .. }, OpKind::AllReduce { .. })
        | (OpKind::ReduceScatter { .. }, OpKind::ReduceScatter { .. }) => Difference::Reduction,
        (OpKind::Broadcast { .. }, OpKind::Broadcast { .. }) => Difference::Root,
        (OpKind::AddSet { .. }, OpKind::AddSet { .. })
        | (OpKind::RemoveSet { .. }, OpKind::RemoveSet { .. }) => Difference::Set,
        _ => Difference::Kind,
    })
}

impl fmt::Display for OpSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        for tensor in self.tensors.iter().take(4) {
            write!(f, " {:?}{:?}", tensor.dtype, tensor.shape)?;
        }
        if self.tensors.len() > 4 {
            write!(f, " and {} more", self.tensors.len() - 4)?;
        }
        if let Some(reduction) = self.kind.reduction() {
            write!(f, ", {reduction}")?;
        }
        match &self.kind {
            OpKind::Broadcast { root } => write!(f, ", root {root}")?,
            OpKind::AddSet { ranks } => write!(f, " of ranks {ranks:?}")?,
            OpKind::RemoveSet { set } => write!(f, " {set}")?,
            _ => {}
        }
        if self.prescale != 1.0 || self.postscale != 1.0 {
            write!(f, ", scaled by {} and {}", self.prescale, self.postscale)?;
        }
        if self.set != SetId::WORLD {
            write!(f, ", set {}", self.set)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(shape: &[u64]) -> OpSignature {
        OpSignature::new(OpKind::AllReduce { reduction: Reduction::Sum }, TensorSpec::new(DType::F32, shape))
    }

    #[test]
    fn every_difference_is_found() {
        let base = sum(&[2, 3]);
        assert_eq!(base.difference(&sum(&[2, 3])), None);
        assert_eq!(base.difference(&sum(&[3, 2])), Some(Difference::Shape));
        assert_eq!(base.difference(&sum(&[2, 3, 1])), Some(Difference::Shape));
        let mut other = base.clone();
        other.kind = OpKind::AllReduce { reduction: Reduction::Max };
        assert_eq!(base.difference(&other), Some(Difference::Reduction));
        other.kind = OpKind::AllGather;
        assert_eq!(base.difference(&other), Some(Difference::Kind));
        assert_eq!(base.difference(&base.clone().scaled(2.0, 1.0)), Some(Difference::Scale));
        assert_eq!(base.difference(&base.clone().wired(WireFormat::F16)), Some(Difference::Wire));
        assert_eq!(base.difference(&base.clone().on(SetId(3))), Some(Difference::Set));
        let mut other = base.clone();
        other.tensors[0].dtype = DType::F64;
        assert_eq!(base.difference(&other), Some(Difference::DType));
        other.tensors.push(TensorSpec::new(DType::F32, []));
        assert_eq!(base.difference(&other), Some(Difference::Count));
        let root = |root| OpSignature::of(OpKind::Broadcast { root }, Vec::new());
        assert_eq!(root(0).difference(&root(1)), Some(Difference::Root));
    }

    #[test]
    fn rows_of_gathers_are_free() {
        let gather = |shape: &[u64]| OpSignature::new(OpKind::AllGather, TensorSpec::new(DType::I8, shape));
        assert_eq!(gather(&[2, 3]).difference(&gather(&[7, 3])), None);
        assert_eq!(gather(&[2, 3]).difference(&gather(&[2, 4])), Some(Difference::Shape));
        assert_eq!(gather(&[]).difference(&gather(&[1])), Some(Difference::Shape));
    }

    #[test]
    fn sizes_do_not_overflow() {
        assert_eq!(TensorSpec::new(DType::F32, [u64::MAX, 2]).bytes(), None);
        assert_eq!(TensorSpec::new(DType::F32, []).bytes(), Some(4));
        assert_eq!(TensorSpec::new(DType::F32, [3, 2]).row_bytes(), 8);
    }
}
