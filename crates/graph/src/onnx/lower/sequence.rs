//! Sequences of tensors, branches and random numbers: remains of Python code in exports.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Dim, Range};

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    fn elements(&self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        match call.input(0)? {
            Val::Seq(all) => Ok(all.clone()),
            _ => Err(call.malformed("its input is not a sequence")),
        }
    }

    pub(super) fn sequence_at(&mut self, call: &Call) -> Made {
        let all = self.elements(call)?;
        let i = call.known(1)?.ints().and_then(|i| i.first().copied()).unwrap_or(0);
        let i = call.axis(i, all.len())?;
        Ok(all[i].clone())
    }

    pub(super) fn sequence_length(&mut self, call: &Call) -> Made {
        let n = self.elements(call)?.len();
        Ok(Val::Lit(std::rc::Rc::new(crate::onnx::lit::Lit::scalar(phalanx_types::DType::I64, n as f64))))
    }

    pub(super) fn concat_from_sequence(&mut self, call: &Call) -> Made {
        let mut all = self.elements(call)?;
        let axis = call.attributes.int("axis").unwrap_or(0);
        if call.attributes.flag("new_axis") {
            for part in &mut all {
                let mut dims = self.shape(call, part)?.dims().to_vec();
                let at = call.axis(axis, dims.len() + 1)?;
                dims.insert(at, Dim::Fixed(1));
                *part = self.reshape_to(call, part, dims)?;
            }
        }
        self.concat_of(call, all, axis)
    }

    pub(super) fn split_to_sequence(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let shape = self.shape(call, &x)?;
        let axis = call.axis(call.attributes.int("axis").unwrap_or(0), shape.rank())?;
        let size = shape[axis].fixed().ok_or_else(|| call.unsupported("it splits the batch"))?;
        let keep = call.optional(1).is_some() || call.attributes.int("keepdims").unwrap_or(1) != 0;
        let sizes: Vec<usize> = match call.optional(1) {
            None => vec![1; size],
            Some(_) => {
                let known = call.known(1)?;
                let ints = call.sizes(&known.ints().unwrap_or_default())?;
                match (known.shape.len(), ints.first()) {
                    (0, Some(&each)) if each > 0 => {
                        (0..size.div_ceil(each)).map(|i| each.min(size - i * each)).collect()
                    }
                    (1, _) => ints,
                    _ => return Err(call.malformed("its parts are not given by numbers")),
                }
            }
        };
        if sizes.iter().try_fold(0usize, |n, s| n.checked_add(*s)) != Some(size) || sizes.len() > 1 << 16 {
            return Err(call.malformed("its parts are not the whole"));
        }
        let mut start = 0;
        let mut all = Vec::with_capacity(sizes.len());
        for len in sizes {
            let mut part = self.slice_of(call, &x, axis, Range { start, len: Some(len), step: 1 })?;
            if !keep {
                let mut dims = self.shape(call, &part)?.dims().to_vec();
                dims.remove(axis);
                part = self.reshape_to(call, &part, dims)?;
            }
            all.push(part);
            start += len;
        }
        Ok(Val::Seq(all))
    }

    pub(super) fn branch_if(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        let condition = call.known(0)?.single();
        let condition =
            condition.ok_or_else(|| call.unsupported("which branch is taken depends on the data"))?;
        let name = if condition != 0.0 { "then_branch" } else { "else_branch" };
        let branch =
            call.attributes.graph(name).ok_or_else(|| call.malformed("a branch is missing"))?.clone();
        self.branch(call, &branch)
    }

    /// Random numbers of [low, high) are accepted only for [0, 1).
    pub(super) fn random(&mut self, call: &Call) -> Made {
        let (low, high) =
            (call.attributes.float("low").unwrap_or(0.0), call.attributes.float("high").unwrap_or(1.0));
        if (low, high) != (0.0, 1.0) {
            return Err(call.unsupported("random numbers outside of a dropout"));
        }
        Ok(Val::Random)
    }

    pub(super) fn bernoulli(&mut self, call: &Call) -> Made {
        let x = call.input(0)?;
        let p = self.lit(x).and_then(|l| l.floats()).filter(|f| f.windows(2).all(|w| w[0] == w[1]));
        let p = p.and_then(|f| f.first().copied()).or_else(|| self.filled_with(x));
        p.map(Val::Chance).ok_or_else(|| call.unsupported("its probability is not one known number"))
    }
}
