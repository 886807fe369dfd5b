//! Elementwise work: a small program run over blocks that stay in the L1 cache.
//!
//! A [`Map`] iterates over `dims` in row-major order, which is the memory order of its results. Every operand has
//! strides over the same dims (0 where it is broadcast). Chains of elementwise operators become one map, so each tensor
//! is read and written once.

use crate::kernels::eval::{BLOCK, Registers, evaluate};
use crate::threads::{Threads, per_task};
use phalanx_graph::{Binary, Compare, Unary};

/// The source of an instruction's argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Src {
    Operand(usize),
    /// The result of an earlier instruction.
    Step(usize),
    Const(f32),
}

/// One instruction; its result is identified by its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Code {
    Unary(Unary, Src),
    /// The derivative f'(x), as a factor.
    Slope(Unary, Src),
    Binary(Binary, Src, Src),
    Compare(Compare, Src, Src),
    /// c ≠ 0 ? a : b
    Select(Src, Src, Src),
    /// 0 with probability `ratio`, else 1 / (1 - ratio), drawn by the element's index (an operand) and the key.
    Keep {
        index: Src,
        key: u64,
        ratio: f32,
    },
    /// Towards zero.
    Truncate(Src),
    Pass(Src),
}

impl Code {
    pub(crate) fn sources(&self) -> [Option<Src>; 3] {
        match *self {
            Code::Unary(_, a) | Code::Slope(_, a) | Code::Truncate(a) | Code::Pass(a) => {
                [Some(a), None, None]
            }
            Code::Keep { index, .. } => [Some(index), None, None],
            Code::Binary(_, a, b) | Code::Compare(_, a, b) => [Some(a), Some(b), None],
            Code::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        }
    }

    pub(crate) fn map_sources(self, mut f: impl FnMut(Src) -> Src) -> Self {
        match self {
            Code::Unary(u, a) => Code::Unary(u, f(a)),
            Code::Slope(u, a) => Code::Slope(u, f(a)),
            Code::Truncate(a) => Code::Truncate(f(a)),
            Code::Pass(a) => Code::Pass(f(a)),
            Code::Keep { index, key, ratio } => Code::Keep { index: f(index), key, ratio },
            Code::Binary(k, a, b) => Code::Binary(k, f(a), f(b)),
            Code::Compare(k, a, b) => Code::Compare(k, f(a), f(b)),
            Code::Select(a, b, c) => Code::Select(f(a), f(b), f(c)),
        }
    }
}

/// The source of an operand's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operand {
    /// A buffer of the call's ins; `None`: the element's own index in the logical tensor.
    pub(crate) input: Option<usize>,
    pub(crate) strides: Vec<usize>,
}

/// An elementwise program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    pub(crate) dims: Vec<usize>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) code: Vec<Code>,
    /// Which instructions' results are written, in the order of the call's outs.
    pub(crate) results: Vec<usize>,
}

impl Map {
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Merges neighbouring dims wherever every operand is contiguous over both.
    pub(crate) fn collapse(&mut self) {
        let mut i = self.dims.len();
        while i > 1 {
            i -= 1;
            let (outer, inner) = (i - 1, i);
            let n = self.dims[inner];
            let one_run =
                |o: &Operand| self.dims[outer] == 1 || n == 1 || o.strides[outer] == o.strides[inner] * n;
            if self.operands.iter().all(one_run) {
                for o in &mut self.operands {
                    let kept = if n == 1 { outer } else { inner };
                    o.strides[outer] = o.strides[kept];
                    o.strides.remove(inner);
                }
                self.dims[outer] *= n;
                self.dims.remove(inner);
            }
        }
        if self.dims.is_empty() {
            self.dims.push(1);
            self.operands.iter_mut().for_each(|o| o.strides.push(0));
        }
    }

    /// The same map over finer dims with the same product; `None` if they do not divide this map's.
    pub(crate) fn refined(&self, dims: &[usize]) -> Option<Self> {
        let mut operands: Vec<Operand> = self
            .operands
            .iter()
            .map(|o| Operand { input: o.input, strides: Vec::with_capacity(dims.len()) })
            .collect();
        let mut j = dims.len();
        for i in (0..self.dims.len()).rev() {
            let mut run = 1;
            while run < self.dims[i] {
                j = j.checked_sub(1)?;
                for (o, mine) in operands.iter_mut().zip(&self.operands) {
                    o.strides.push(mine.strides[i] * run);
                }
                run *= dims[j];
            }
            if run != self.dims[i] {
                return None;
            }
        }
        if dims[..j].iter().any(|d| *d != 1) {
            return None;
        }
        for o in &mut operands {
            o.strides.resize(dims.len(), 0);
            o.strides.reverse();
        }
        Some(Self { dims: dims.to_vec(), operands, code: self.code.clone(), results: self.results.clone() })
    }
}

/// Dims that both lists can be refined to.
pub(crate) fn common_dims(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    fn ends(dims: &[usize]) -> impl Iterator<Item = usize> {
        dims.iter().rev().scan(1, |n, d| {
            *n *= d;
            Some(*n)
        })
    }
    let mut marks: Vec<usize> = std::iter::once(1).chain(ends(a)).chain(ends(b)).collect();
    marks.sort_unstable();
    marks.dedup();
    let dims =
        marks.windows(2).map(|w| (w[1] % w[0] == 0).then_some(w[1] / w[0])).collect::<Option<Vec<_>>>()?;
    Some(dims.into_iter().rev().collect())
}

/// The least and most elements of a task.
const TASK: (usize, usize) = (4 << 10, 16 << 10);

/// Runs the program over all elements.
pub(crate) fn run(threads: &Threads, map: &Map, seed: u64, ins: &[&[f32]], outs: &mut [&mut [f32]]) {
    let n = map.len();
    let task = per_task(n, TASK.0, TASK.1).next_multiple_of(64);
    match outs {
        [y] => threads.chunks(&mut y[..n], task, |i, y| run_part(map, seed, ins, i * task, &mut [y])),
        [y, z] => threads.chunks2((&mut y[..n], task), (&mut z[..n], task), |i, y, z| {
            run_part(map, seed, ins, i * task, &mut [y, z]);
        }),
        [y, z, u] => {
            let (y, z, u) = ((&mut y[..n], task), (&mut z[..n], task), (&mut u[..n], task));
            threads.chunks3(y, z, u, |i, y, z, u| run_part(map, seed, ins, i * task, &mut [y, z, u]));
        }
        _ => run_part(map, seed, ins, 0, outs),
    }
}

/// Runs the program over the elements from `start` on, as many as the outs have.
pub(crate) fn run_part(map: &Map, seed: u64, ins: &[&[f32]], start: usize, outs: &mut [&mut [f32]]) {
    let Some(n) = outs.first().map(|o| o.len()) else { return };
    Registers::lend(map, |registers| {
        let mut done = 0;
        while done < n {
            let len = BLOCK.min(n - done);
            evaluate(map, seed, ins, None, (start + done, len), registers);
            for (out, result) in outs.iter_mut().zip(&map.results) {
                out[done..done + len].copy_from_slice(registers.step(*result, len));
            }
            done += len;
        }
    });
}

/// Runs the program in place on a finished part of its first operand, beginning at element `start`. `ins` are the
/// buffers of the other operands.
pub(crate) fn run_in_place(map: &Map, seed: u64, ins: &[&[f32]], start: usize, part: &mut [f32]) {
    Registers::lend(map, |registers| {
        let n = part.len();
        let mut done = 0;
        while done < n {
            let len = BLOCK.min(n - done);
            let block = &mut part[done..done + len];
            evaluate(map, seed, ins, Some(&*block), (start + done, len), registers);
            block.copy_from_slice(registers.step(map.results[0], len));
            done += len;
        }
    });
}
