//! Operators that work on each element.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::lit::is_float;
use crate::onnx::tensor::dtype_of;
use crate::{Binary, Compare, Op, Unary};
use phalanx_types::DType;

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    pub(super) fn unary(&mut self, call: &Call, op: Unary) -> Made {
        self.apply(call, Op::Unary(op), &[call.input(0)?.clone()])
    }

    pub(super) fn binary(&mut self, call: &Call, op: Binary, a: &Val, b: &Val) -> Made {
        self.apply(call, Op::Binary(op), &[a.clone(), b.clone()])
    }

    /// A variadic operator: joins its inputs from the left.
    pub(super) fn joined(&mut self, call: &Call, op: Binary) -> Made {
        let mut made = call.input(0)?.clone();
        for i in 1..call.inputs.len() {
            made = self.pair(call, op, &made, call.input(i)?)?;
        }
        Ok(made)
    }

    fn pair(&mut self, call: &Call, op: Binary, a: &Val, b: &Val) -> Made {
        if let Some(made) = self.dropped(call, op, a, b)? {
            return Ok(made);
        }
        self.binary(call, op, a, b)
    }

    /// Recognises a decomposed dropout: a product with a random mask, and a later factor that scales it up again.
    fn dropped(&mut self, call: &Call, op: Binary, a: &Val, b: &Val) -> Result<Option<Val>, OnnxError> {
        let (x, keep) = match (op, a, b) {
            (Binary::Mul, Val::Chance(p), x) | (Binary::Mul, x, Val::Chance(p)) => (x.clone(), *p),
            // The mask may be scaled before it is used.
            _ => return Ok(None),
        };
        if let Some(scale) = self.lit(&x).and_then(|l| l.single()) {
            let scaled = (scale * keep - 1.0).abs() < 1e-3;
            return if scaled {
                Ok(Some(Val::Chance(keep)))
            } else {
                Err(call.unsupported("an unusual dropout"))
            };
        }
        let ratio = (1.0 - keep) as f32;
        let dropped = self.apply(call, Op::Dropout { ratio }, &[x])?;
        // Our dropout scales what it keeps; this undoes it, so that the file's own scaling applies.
        Ok(Some(self.binary(call, Binary::Mul, &dropped, &self.number(&dropped, keep))?))
    }

    pub(super) fn clip(&mut self, call: &Call) -> Made {
        let bound = |name: &str, i: usize, usual: f32| match (call.attributes.float(name), call.optional(i)) {
            (Some(x), _) => Ok(x),
            (None, None) => Ok(usual),
            (None, Some(_)) => call
                .known(i)?
                .single()
                .map(|x| x as f32)
                .ok_or_else(|| call.malformed("a bound is not one number")),
        };
        let (min, max) = (bound("min", 1, f32::NEG_INFINITY)?, bound("max", 2, f32::INFINITY)?);
        let x = call.input(0)?;
        if self.lit(x).is_some() {
            let low = self.binary(call, Binary::Max, x, &self.number(x, f64::from(min)))?;
            return self.binary(call, Binary::Min, &low, &self.number(x, f64::from(max)));
        }
        self.unary(call, Unary::Clip { min, max })
    }

    pub(super) fn gelu(&mut self, call: &Call) -> Made {
        let tanh = match call.attributes.text("approximate") {
            None | Some("none") => false,
            Some("tanh") => true,
            Some(_) => return Err(call.unsupported("an approximation that is neither `none` nor `tanh`")),
        };
        self.unary(call, Unary::Gelu { tanh })
    }

    pub(super) fn selu(&mut self, call: &Call) -> Made {
        let alpha = call.attributes.float("alpha").unwrap_or(1.673_263_2);
        let gamma = call.attributes.float("gamma").unwrap_or(1.050_701);
        let y = self.unary(call, Unary::Elu { alpha })?;
        self.binary(call, Binary::Mul, &y, &self.number(&y, f64::from(gamma)))
    }

    pub(super) fn celu(&mut self, call: &Call) -> Made {
        let alpha = f64::from(call.attributes.float("alpha").unwrap_or(1.0));
        let x = call.input(0)?;
        let y = self.binary(call, Binary::Div, x, &self.number(x, alpha))?;
        let y = self.apply(call, Op::Unary(Unary::Elu { alpha: 1.0 }), &[y])?;
        self.binary(call, Binary::Mul, &y, &self.number(x, alpha))
    }

    pub(super) fn softsign(&mut self, call: &Call) -> Made {
        let x = call.input(0)?;
        let y = self.unary(call, Unary::Abs)?;
        let y = self.binary(call, Binary::Add, &y, &self.number(x, 1.0))?;
        self.binary(call, Binary::Div, x, &y)
    }

    pub(super) fn mish(&mut self, call: &Call) -> Made {
        let y = self.unary(call, Unary::Softplus)?;
        let y = self.apply(call, Op::Unary(Unary::Tanh), &[y])?;
        self.binary(call, Binary::Mul, call.input(0)?, &y)
    }

    /// `x` above the threshold, else `other`.
    fn above(&mut self, call: &Call, x: &Val, threshold: f64, other: Val) -> Made {
        let limit = self.number(x, threshold);
        let above = self.apply(call, Op::Compare(Compare::Greater), &[x.clone(), limit])?;
        self.apply(call, Op::Where, &[above, x.clone(), other])
    }

    pub(super) fn thresholded_relu(&mut self, call: &Call) -> Made {
        let x = call.input(0)?;
        let alpha = f64::from(call.attributes.float("alpha").unwrap_or(1.0));
        self.above(call, x, alpha, self.number(x, 0.0))
    }

    pub(super) fn prelu(&mut self, call: &Call) -> Made {
        let (x, slope) = (call.input(0)?, call.input(1)?);
        let scaled = self.binary(call, Binary::Mul, x, slope)?;
        self.above(call, x, 0.0, scaled)
    }

    /// Rounds up: the negative of rounding the negative down.
    pub(super) fn ceil(&mut self, call: &Call) -> Made {
        let y = self.unary(call, Unary::Neg)?;
        let y = self.apply(call, Op::Unary(Unary::Floor), &[y])?;
        self.apply(call, Op::Unary(Unary::Neg), &[y])
    }

    /// The remainder of a division, with the sign of the divisor.
    pub(super) fn modulo(&mut self, call: &Call) -> Made {
        let (a, b) = (call.input(0)?, call.input(1)?);
        if call.attributes.flag("fmod") {
            return Err(call.unsupported("fmod=1"));
        }
        let (la, lb) = (self.lit(a).and_then(|l| l.ints()), self.lit(b).and_then(|l| l.ints()));
        if let (Some(_), Some(divisors)) = (&la, &lb)
            && !divisors.iter().all(|d| *d > 0)
        {
            return Err(call.unsupported("a divisor that is not positive"));
        }
        let negative = la.is_some_and(|v| v.iter().any(|n| *n < 0));
        let float = self.dtype(a).is_some_and(is_float);
        let mut quotient = self.binary(call, Binary::Div, a, b)?;
        if float {
            quotient = self.apply(call, Op::Unary(Unary::Floor), &[quotient])?;
        } else if negative || lb.is_none() {
            return Err(call.unsupported("integers that are negative or not known"));
        }
        let whole = self.binary(call, Binary::Mul, &quotient, b)?;
        self.binary(call, Binary::Sub, a, &whole)
    }

    pub(super) fn mean(&mut self, call: &Call) -> Made {
        let sum = self.joined(call, Binary::Add)?;
        self.binary(call, Binary::Div, &sum, &self.number(&sum, call.inputs.len() as f64))
    }

    pub(super) fn compare(&mut self, call: &Call, op: Compare) -> Made {
        let (a, b) = (call.input(0)?, call.input(1)?);
        // Random numbers against a threshold are the mask of a dropout.
        let threshold = |v: &Val| self.lit(v).and_then(|l| l.single()).map(|p| p.clamp(0.0, 1.0));
        let less = match (a, b) {
            (Val::Random, t) => threshold(t).map(|p| (p, matches!(op, Compare::Less | Compare::LessOrEqual))),
            (t, Val::Random) => {
                threshold(t).map(|p| (p, matches!(op, Compare::Greater | Compare::GreaterOrEqual)))
            }
            _ => return self.apply(call, Op::Compare(op), &[a.clone(), b.clone()]),
        };
        match less {
            Some((p, true)) => Ok(Val::Chance(p)),
            Some((p, false)) => Ok(Val::Chance(1.0 - p)),
            None => Err(call.unsupported("random numbers outside of a dropout")),
        }
    }

    pub(super) fn select(&mut self, call: &Call) -> Made {
        let (condition, a, b) = (call.input(0)?, call.input(1)?, call.input(2)?);
        match condition {
            // Attention guards rows without any key; ours has no such rows.
            Val::IsNan(of) if matches!(b, Val::Graph(id) if id == of) => Ok(b.clone()),
            Val::Chance(keep) => {
                let zero = |v: &Val| self.lit(v).is_some_and(|l| l.single() == Some(0.0));
                let (x, keep) = match (zero(a), zero(b)) {
                    (false, true) => (a, *keep),
                    (true, false) => (b, 1.0 - *keep),
                    _ => return Err(call.unsupported("random numbers outside of a dropout")),
                };
                self.pair(call, Binary::Mul, x, &Val::Chance(keep))
            }
            _ => self.apply(call, Op::Where, &[condition.clone(), a.clone(), b.clone()]),
        }
    }

    pub(super) fn cast(&mut self, call: &Call, to: Option<DType>) -> Made {
        let x = call.input(0)?;
        let to = match to {
            Some(to) => to,
            None => {
                let code = call.attributes.int("to").and_then(|c| i32::try_from(c).ok());
                code.and_then(dtype_of)
                    .ok_or_else(|| call.unsupported("a cast to a type that is not supported"))?
            }
        };
        if matches!(x, Val::Chance(_) | Val::Random | Val::IsNan(_)) || self.dtype(x) == Some(to) {
            return Ok(x.clone());
        }
        self.apply(call, Op::Cast { to }, std::slice::from_ref(x))
    }
}
