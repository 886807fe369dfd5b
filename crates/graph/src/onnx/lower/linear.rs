//! Matrix products.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::{Binary, Dim, Op, Shape};

type Made = Result<Val, OnnxError>;

impl Lower<'_> {
    pub(super) fn reshape_to(&mut self, call: &Call, x: &Val, dims: Vec<Dim>) -> Made {
        let to = Shape::new(dims);
        if self.shape(call, x)? == to {
            return Ok(x.clone());
        }
        self.apply(call, Op::Reshape { to }, std::slice::from_ref(x))
    }

    pub(super) fn transpose_by(&mut self, call: &Call, x: &Val, perm: Vec<usize>) -> Made {
        if perm.iter().copied().eq(0..perm.len()) {
            return Ok(x.clone());
        }
        self.apply(call, Op::Transpose { perm }, std::slice::from_ref(x))
    }

    /// Vectors become matrices, and the extra dimension is removed afterwards.
    pub(super) fn matmul(&mut self, call: &Call) -> Made {
        let (mut a, mut b) = (call.input(0)?.clone(), call.input(1)?.clone());
        let (da, db) = (self.shape(call, &a)?, self.shape(call, &b)?);
        if da.rank() == 0 || db.rank() == 0 {
            return Err(call.malformed("a factor is a scalar"));
        }
        if da.rank() == 1 {
            a = self.reshape_to(call, &a, vec![Dim::Fixed(1), da[0]])?;
        }
        if db.rank() == 1 {
            b = self.reshape_to(call, &b, vec![db[0], Dim::Fixed(1)])?;
        }
        let y = self.apply(call, Op::MatMul, &[a, b])?;
        let mut dims = self.shape(call, &y)?.dims().to_vec();
        if db.rank() == 1 {
            dims.pop();
        }
        if da.rank() == 1 {
            dims.remove(dims.len() - 1 - usize::from(db.rank() > 1));
        }
        self.reshape_to(call, &y, dims)
    }

    pub(super) fn gemm(&mut self, call: &Call) -> Made {
        let (mut a, mut b) = (call.input(0)?.clone(), call.input(1)?.clone());
        let c = call.optional(2).cloned();
        let alpha = f64::from(call.attributes.float("alpha").unwrap_or(1.0));
        let beta = f64::from(call.attributes.float("beta").unwrap_or(1.0));
        let (trans_a, trans_b) = (call.attributes.flag("transA"), call.attributes.flag("transB"));
        if self.shape(call, &a)?.rank() != 2 || self.shape(call, &b)?.rank() != 2 {
            return Err(call.malformed("a factor is not a matrix"));
        }
        if trans_a {
            a = self.transpose_by(call, &a, vec![1, 0])?;
        }
        let plain = trans_b && alpha == 1.0 && beta == 1.0 && matches!(b, Val::Graph(_));
        if plain {
            let out = self.shape(call, &b)?[0];
            let bias = match &c {
                Some(c) => self.shape(call, c)?.dims() == [out],
                None => true,
            };
            if bias {
                let inputs: Vec<Val> = [a, b].into_iter().chain(c).collect();
                return self.apply(call, Op::Linear, &inputs);
            }
        }
        if trans_b {
            b = self.transpose_by(call, &b, vec![1, 0])?;
        }
        let mut y = self.apply(call, Op::MatMul, &[a, b])?;
        if alpha != 1.0 {
            y = self.binary(call, Binary::Mul, &y, &self.number(&y, alpha))?;
        }
        let Some(mut c) = c else { return Ok(y) };
        if beta != 1.0 {
            c = self.binary(call, Binary::Mul, &c, &self.number(&c, beta))?;
        }
        self.binary(call, Binary::Add, &y, &c)
    }

    /// Two factors whose letters are each shared, summed or kept: a transposed stack of products.
    pub(super) fn einsum(&mut self, call: &Call) -> Made {
        let text: String = call.attributes.text("equation").unwrap_or_default().split_whitespace().collect();
        let unusual = || call.unsupported("an equation that is not a product of two stacks of matrices");
        let (left, out) = text.split_once("->").ok_or_else(unusual)?;
        let (a, b) = left.split_once(',').ok_or_else(unusual)?;
        let letters = |s: &str| -> Option<Vec<char>> {
            let all: Vec<char> = s.chars().collect();
            let once =
                all.iter().all(|c| c.is_ascii_alphabetic() && all.iter().filter(|d| *d == c).count() == 1);
            once.then_some(all)
        };
        let (a, b, out) = match (letters(a), letters(b), letters(out)) {
            (Some(a), Some(b), Some(out)) => (a, b, out),
            _ => return Err(unusual()),
        };
        let (x, y) = (call.input(0)?.clone(), call.input(1)?.clone());
        let (dx, dy) = (self.shape(call, &x)?, self.shape(call, &y)?);
        if dx.rank() != a.len() || dy.rank() != b.len() {
            return Err(call.malformed("the equation has other dimensions than its inputs"));
        }
        let pick = |from: &[char], in_other: bool, other: &[char], in_out: bool| -> Vec<char> {
            let fits = |c: &&char| other.contains(c) == in_other && out.contains(c) == in_out;
            from.iter().filter(fits).copied().collect()
        };
        let (stack, inner) = (pick(&a, true, &b, true), pick(&a, true, &b, false));
        let (rows, columns) = (pick(&a, false, &b, true), pick(&b, false, &a, true));
        if stack.len() + inner.len() + rows.len() != a.len()
            || stack.len() + inner.len() + columns.len() != b.len()
        {
            return Err(unusual());
        }
        let size = |c: char| {
            a.iter().position(|d| *d == c).map(|i| dx[i]).or(b.iter().position(|d| *d == c).map(|i| dy[i]))
        };
        let dims = |cs: &[char]| cs.iter().filter_map(|c| size(*c)).collect::<Vec<Dim>>();
        let flat = |cs: &[char]| {
            let count = Shape::new(dims(cs)).count().ok_or_else(unusual)?;
            match count.power {
                0 => Ok(Dim::Fixed(count.factor)),
                1 => Ok(Dim::Batch(count.factor)),
                _ => Err(unusual()),
            }
        };
        let order = |from: &[char], to: [&[char]; 3]| -> Vec<usize> {
            to.concat().iter().filter_map(|c| from.iter().position(|d| d == c)).collect()
        };
        let x = self.transpose_by(call, &x, order(&a, [&stack, &rows, &inner]))?;
        let y = self.transpose_by(call, &y, order(&b, [&stack, &inner, &columns]))?;
        let x = self.reshape_to(call, &x, [dims(&stack), vec![flat(&rows)?, flat(&inner)?]].concat())?;
        let y = self.reshape_to(call, &y, [dims(&stack), vec![flat(&inner)?, flat(&columns)?]].concat())?;
        let made = self.apply(call, Op::MatMul, &[x, y])?;
        let have = [stack.clone(), rows.clone(), columns.clone()].concat();
        let made = self.reshape_to(call, &made, dims(&have))?;
        let perm = out.iter().filter_map(|c| have.iter().position(|d| d == c)).collect();
        self.transpose_by(call, &made, perm)
    }
}
