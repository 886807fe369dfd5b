//! Reductions.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::eval::accumulate;
use crate::{Binary, Op, Reduce, Unary};
use std::rc::Rc;

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    /// The axes and whether they are kept; `None` if nothing is reduced.
    fn reduction(&self, call: &Call) -> Result<Option<(Vec<usize>, bool)>, OnnxError> {
        let rank = self.shape(call, call.input(0)?)?.rank();
        let axes = call.ints("axes", 1)?.unwrap_or_default();
        if axes.is_empty() && call.attributes.flag("noop_with_empty_axes") {
            return Ok(None);
        }
        let axes = if axes.is_empty() { (0..rank).collect() } else { call.axes(&axes, rank)? };
        Ok(Some((axes, call.attributes.int("keepdims").unwrap_or(1) != 0)))
    }

    pub(super) fn reduce(&mut self, call: &Call, kind: Reduce) -> Made {
        let x = call.input(0)?.clone();
        self.reduce_of(call, kind, &x)
    }

    fn reduce_of(&mut self, call: &Call, kind: Reduce, x: &Val) -> Made {
        match self.reduction(call)? {
            Some((axes, keep)) if !axes.is_empty() => {
                self.apply(call, Op::Reduce { kind, axes, keep }, std::slice::from_ref(x))
            }
            _ => Ok(x.clone()),
        }
    }

    pub(super) fn reduce_l1(&mut self, call: &Call) -> Made {
        let x = self.unary(call, Unary::Abs)?;
        self.reduce_of(call, Reduce::Sum, &x)
    }

    pub(super) fn reduce_sum_square(&mut self, call: &Call) -> Made {
        let x = call.input(0)?;
        let square = self.binary(call, Binary::Mul, x, x)?;
        self.reduce_of(call, Reduce::Sum, &square)
    }

    pub(super) fn reduce_l2(&mut self, call: &Call) -> Made {
        let sum = self.reduce_sum_square(call)?;
        self.apply(call, Op::Unary(Unary::Sqrt), &[sum])
    }

    pub(super) fn reduce_log_sum(&mut self, call: &Call) -> Made {
        let sum = self.reduce(call, Reduce::Sum)?;
        self.apply(call, Op::Unary(Unary::Log), &[sum])
    }

    /// Subtracts the maximum first, so that nothing overflows.
    pub(super) fn reduce_log_sum_exp(&mut self, call: &Call) -> Made {
        let x = call.input(0)?.clone();
        let Some((axes, keep)) = self.reduction(call)? else { return Ok(x) };
        let max = self.apply(
            call,
            Op::Reduce { kind: Reduce::Max, axes: axes.clone(), keep: true },
            std::slice::from_ref(&x),
        )?;
        let less = self.binary(call, Binary::Sub, &x, &max)?;
        let exp = self.apply(call, Op::Unary(Unary::Exp), &[less])?;
        let sum =
            self.apply(call, Op::Reduce { kind: Reduce::Sum, axes: axes.clone(), keep: true }, &[exp])?;
        let log = self.apply(call, Op::Unary(Unary::Log), &[sum])?;
        let y = self.binary(call, Binary::Add, &log, &max)?;
        if keep {
            return Ok(y);
        }
        let dims = self.shape(call, &y)?;
        let left =
            dims.dims().iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect();
        self.reshape_to(call, &y, left)
    }

    pub(super) fn reduce_prod(&mut self, call: &Call) -> Made {
        let Some(x) = self.lit(call.input(0)?) else {
            return Err(call.unsupported("products along an axis are not trained"));
        };
        let Some((axes, keep)) = self.reduction(call)? else { return Ok(call.input(0)?.clone()) };
        let made = accumulate(Binary::Mul, &axes, keep, &x);
        made.map(|l| Val::Lit(Rc::new(l))).ok_or_else(|| call.unsupported("the product cannot be computed"))
    }
}
