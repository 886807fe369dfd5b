//! One node of the file, with its resolved inputs.

use super::Val;
use crate::onnx::attributes::Attributes;
use crate::onnx::error::{At, OnnxError};
use crate::onnx::lit::{Lit, Sym};
use std::rc::Rc;

#[derive(Debug)]
pub(in crate::onnx) struct Call {
    pub at: Box<At>,
    pub attributes: Attributes,
    pub inputs: Vec<Val>,
    /// Which outputs may be read.
    pub outputs: Vec<bool>,
    pub opset: i64,
    pub name: String,
    /// The path of the module that made the node.
    pub scope: Option<String>,
}

impl Call {
    pub(in crate::onnx) fn unsupported(&self, why: &'static str) -> OnnxError {
        OnnxError::Unsupported { at: self.at.clone(), why }
    }

    pub(in crate::onnx) fn malformed(&self, why: &'static str) -> OnnxError {
        OnnxError::Malformed { at: self.at.clone(), why }
    }

    /// A required input.
    pub(super) fn input(&self, i: usize) -> Result<&Val, OnnxError> {
        self.optional(i).ok_or_else(|| self.malformed("an input that is needed is missing"))
    }

    pub(super) fn optional(&self, i: usize) -> Option<&Val> {
        self.inputs.get(i).filter(|v| !matches!(v, Val::Absent))
    }

    /// An input that must be known at import time.
    pub(super) fn known(&self, i: usize) -> Result<Rc<Lit>, OnnxError> {
        let lit = match self.input(i)? {
            Val::Lit(l) => Some(l.clone()),
            Val::Tensor(t) => Lit::from_tensor(t).map(Rc::new),
            _ => None,
        };
        lit.ok_or_else(|| {
            self.unsupported("one of its settings is computed from data instead of being known")
        })
    }

    pub(super) fn known_ints(&self, i: usize) -> Result<Vec<i64>, OnnxError> {
        self.known(i)?
            .ints()
            .ok_or_else(|| self.unsupported("one of its settings is not a list of known integers"))
    }

    pub(super) fn known_syms(&self, i: usize) -> Result<Vec<Sym>, OnnxError> {
        let lit = self.known(i)?;
        lit.syms()
            .map(<[Sym]>::to_vec)
            .ok_or_else(|| self.malformed("one of its settings is not a list of integers"))
    }

    /// Integers that are an attribute in old operator sets and an input in new ones.
    pub(super) fn ints(&self, attribute: &str, input: usize) -> Result<Option<Vec<i64>>, OnnxError> {
        if let Some(ints) = self.attributes.ints(attribute) {
            return Ok(Some(ints.to_vec()));
        }
        self.optional(input).map(|_| self.known_ints(input)).transpose()
    }

    /// An axis counted from the front.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize, OnnxError> {
        let at = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
        let at = at.and_then(|a| usize::try_from(a).ok()).filter(|a| *a < rank);
        at.ok_or_else(|| self.malformed("there is no such axis"))
    }

    /// Axes counted from the front, sorted.
    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>, OnnxError> {
        let mut found = axes.iter().map(|a| self.axis(*a, rank)).collect::<Result<Vec<_>, _>>()?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    pub(super) fn sizes(&self, ints: &[i64]) -> Result<Vec<usize>, OnnxError> {
        let sizes = ints.iter().map(|n| usize::try_from(*n).ok()).collect::<Option<Vec<_>>>();
        sizes.ok_or_else(|| self.malformed("a size is negative"))
    }
}
