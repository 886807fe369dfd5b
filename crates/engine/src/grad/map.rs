//! Gradients of elementwise programs: the program is differentiated, instruction by instruction.

use super::Backward;
use crate::kernels::copy::Strided;
use crate::kernels::map::{Code, Map, Operand, Src};
use crate::kernels::reduce::{Fold, Reduction};
use crate::tape::{Instr, Kernel, V};
use crate::view::dense_strides;
use phalanx_graph::{Binary, Compare, Unary};

impl Backward<'_> {
    pub(super) fn map(&mut self, m: &Map, i: &Instr, dy: V) {
        if let Some((code, ins)) = from_result(m, i, dy) {
            return self.operand_gradient(m, 0, i.ins[0], code, ins, true);
        }
        let adjoints = differentiate(m);
        for (k, operand) in m.operands.iter().enumerate() {
            let (Some(input), Some(adjoint)) = (operand.input, adjoints.operands[k]) else { continue };
            let v = i.ins[input];
            if !self.wants(v) {
                continue;
            }
            let mut code = adjoints.code.clone();
            code.push(Code::Pass(adjoint));
            let mut ins = i.ins.clone();
            ins.push(dy);
            self.operand_gradient(m, k, v, code, ins, false);
        }
    }

    /// Runs `code` over all dims of the map, then sums over the dims in which the operand is broadcast. The last of
    /// `ins` is the gradient of the map's result.
    fn operand_gradient(&mut self, m: &Map, k: usize, v: V, code: Vec<Code>, ins: Vec<V>, from_result: bool) {
        if !self.wants(v) {
            return;
        }
        let full = dense_strides(&m.dims);
        let mut operands = if from_result { Vec::new() } else { m.operands.clone() };
        let inputs = if from_result { 0..ins.len() } else { ins.len() - 1..ins.len() };
        operands.extend(inputs.map(|input| Operand { input: Some(input), strides: full.clone() }));
        let results = vec![code.len() - 1];
        let mut map = Map { dims: m.dims.clone(), operands, code, results };
        let mut ins = ins;
        map.prune(&mut ins);
        let passes_on = matches!(map.code[..], [Code::Pass(Src::Operand(0))]);
        let n = m.len();
        let whole = match passes_on {
            true => ins[0],
            false => self.call1(Kernel::Map(map), ins, n),
        };
        let strides = &m.operands[k].strides;
        let repeated = |d: usize| strides[d] == 0 && m.dims[d] != 1;
        let kept: Vec<(usize, usize)> = (m.dims.iter().zip(strides))
            .filter(|(n, s)| **s != 0 && **n != 1)
            .map(|(n, s)| (*n, *s))
            .collect();
        let mut gradient = whole;
        if (0..m.dims.len()).any(repeated) {
            let sum = Reduction::new((0..m.dims.len()).map(|d| (m.dims[d], repeated(d))), Fold::Sum, 1.0);
            gradient = self.call1(Kernel::Reduce(sum), vec![whole], kept.iter().map(|(n, _)| n).product());
        }
        // The operand's axes may be in another order in memory than in the map.
        if kept.windows(2).any(|w| w[0].1 < w[1].1) {
            let (shape, strides): (Vec<usize>, Vec<usize>) = kept.into_iter().unzip();
            let view = Strided { offset: 0, shape, strides };
            let base = self.len(v);
            gradient = self.call1(Kernel::CopyGrad(view), vec![gradient], base);
        }
        self.add(v, gradient);
    }
}

/// For some functions the derivative is cheap from the result; then the argument need not be kept.
fn from_result(m: &Map, i: &Instr, dy: V) -> Option<(Vec<Code>, Vec<V>)> {
    let [Code::Unary(kind, Src::Operand(0))] = m.code[..] else { return None };
    let (y, dy_) = (Src::Operand(0), Src::Operand(1));
    let mul = |a, b| Code::Binary(Binary::Mul, a, b);
    let code = match kind {
        Unary::Relu => vec![
            Code::Compare(Compare::Greater, y, Src::Const(0.0)),
            Code::Select(Src::Step(0), dy_, Src::Const(0.0)),
        ],
        Unary::Clip { min, max } => vec![
            Code::Compare(Compare::Greater, y, Src::Const(min)),
            Code::Compare(Compare::Less, y, Src::Const(max)),
            Code::Binary(Binary::And, Src::Step(0), Src::Step(1)),
            Code::Select(Src::Step(2), dy_, Src::Const(0.0)),
        ],
        Unary::Sigmoid => {
            vec![Code::Binary(Binary::Sub, Src::Const(1.0), y), mul(y, Src::Step(0)), mul(dy_, Src::Step(1))]
        }
        Unary::Tanh => {
            vec![mul(y, y), Code::Binary(Binary::Sub, Src::Const(1.0), Src::Step(0)), mul(dy_, Src::Step(1))]
        }
        Unary::Exp => vec![mul(dy_, y)],
        Unary::Sqrt => vec![Code::Binary(Binary::Div, Src::Const(0.5), y), mul(dy_, Src::Step(0))],
        _ => return None,
    };
    Some((code, vec![i.outs[0], dy]))
}

struct Adjoints {
    /// The map's own program, then what the gradients need.
    code: Vec<Code>,
    operands: Vec<Option<Src>>,
}

/// The gradient of the result is the operand after the map's own.
fn differentiate(m: &Map) -> Adjoints {
    let mut d = Adjoints { code: m.code.clone(), operands: vec![None; m.operands.len()] };
    let mut steps: Vec<Option<Src>> = vec![None; m.code.len()];
    steps[m.results[0]] = Some(Src::Operand(m.operands.len()));
    for i in (0..m.code.len()).rev() {
        let Some(a) = steps[i] else { continue };
        for (source, contribution) in d.contributions(m.code[i], Src::Step(i), a) {
            let slot = match source {
                Src::Operand(k) => &mut d.operands[k],
                Src::Step(s) => &mut steps[s],
                Src::Const(_) => continue,
            };
            let before = slot.take();
            let sum = match before {
                None => contribution,
                Some(before) => push(&mut d.code, Code::Binary(Binary::Add, before, contribution)),
            };
            match source {
                Src::Operand(k) => d.operands[k] = Some(sum),
                Src::Step(s) => steps[s] = Some(sum),
                Src::Const(_) => {}
            }
        }
    }
    d
}

fn push(code: &mut Vec<Code>, c: Code) -> Src {
    code.push(c);
    Src::Step(code.len() - 1)
}

impl Adjoints {
    fn push(&mut self, c: Code) -> Src {
        push(&mut self.code, c)
    }

    fn binary(&mut self, kind: Binary, a: Src, b: Src) -> Src {
        self.push(Code::Binary(kind, a, b))
    }

    /// The gradients of an instruction's sources, given the gradient `a` of its result `y`.
    fn contributions(&mut self, code: Code, y: Src, a: Src) -> Vec<(Src, Src)> {
        match code {
            Code::Pass(x) => vec![(x, a)],
            Code::Unary(Unary::Neg, x) => vec![(x, self.push(Code::Unary(Unary::Neg, a)))],
            Code::Unary(kind, x) => {
                let slope = self.push(Code::Slope(kind, x));
                vec![(x, self.binary(Binary::Mul, a, slope))]
            }
            Code::Select(c, p, q) => {
                let zero = Src::Const(0.0);
                let (dp, dq) = (self.push(Code::Select(c, a, zero)), self.push(Code::Select(c, zero, a)));
                vec![(p, dp), (q, dq)]
            }
            Code::Binary(kind, p, q) => self.binary_contributions(kind, (p, q), y, a),
            Code::Slope(..) | Code::Compare(..) | Code::Keep { .. } | Code::Truncate(_) => vec![],
        }
    }

    fn binary_contributions(&mut self, kind: Binary, (p, q): (Src, Src), y: Src, a: Src) -> Vec<(Src, Src)> {
        match kind {
            Binary::Add => vec![(p, a), (q, a)],
            Binary::Sub => vec![(p, a), (q, self.push(Code::Unary(Unary::Neg, a)))],
            Binary::Mul => vec![(p, self.binary(Binary::Mul, a, q)), (q, self.binary(Binary::Mul, a, p))],
            Binary::Div => {
                let dp = self.binary(Binary::Div, a, q);
                let t = self.binary(Binary::Mul, dp, y);
                vec![(p, dp), (q, self.push(Code::Unary(Unary::Neg, t)))]
            }
            Binary::Pow => {
                let less = match q {
                    Src::Const(c) => Src::Const(c - 1.0),
                    _ => self.binary(Binary::Sub, q, Src::Const(1.0)),
                };
                let power = self.binary(Binary::Pow, p, less);
                // x^0 is constant, also at 0, where x^-1 is not finite; 0^q does not depend on q.
                let slope = self.binary(Binary::Mul, q, power);
                let slope = self.push(Code::Select(q, slope, Src::Const(0.0)));
                let dp = self.binary(Binary::Mul, a, slope);
                let log = self.push(Code::Unary(Unary::Log, p));
                let t = self.binary(Binary::Mul, y, log);
                let t = self.push(Code::Select(p, t, Src::Const(0.0)));
                vec![(p, dp), (q, self.binary(Binary::Mul, a, t))]
            }
            Binary::Min | Binary::Max => {
                let first = if kind == Binary::Max { Compare::Greater } else { Compare::Less };
                let half = self.binary(Binary::Mul, a, Src::Const(0.5));
                let equal = self.push(Code::Compare(Compare::Equal, p, q));
                let mut share = |x, other| {
                    let wins = self.push(Code::Compare(first, x, other));
                    let all = self.push(Code::Select(wins, a, Src::Const(0.0)));
                    self.push(Code::Select(equal, half, all))
                };
                let (dp, dq) = (share(p, q), share(q, p));
                vec![(p, dp), (q, dq)]
            }
            Binary::And | Binary::Or => vec![],
        }
    }
}

impl Map {
    /// Drops instructions, operands and inputs that no result needs, and merges equal ones.
    pub(crate) fn prune(&mut self, ins: &mut Vec<V>) {
        self.drop_code();
        let used = |k: usize| {
            self.code.iter().any(|c| c.sources().into_iter().flatten().any(|s| s == Src::Operand(k)))
        };
        let mut operands: Vec<Operand> = Vec::new();
        let mut fresh: Vec<V> = Vec::new();
        let mut renamed = vec![0; self.operands.len()];
        for (k, operand) in self.operands.iter().enumerate() {
            if !used(k) {
                continue;
            }
            let input = operand.input.map(|i| {
                let at = fresh.iter().position(|v| *v == ins[i]);
                at.unwrap_or_else(|| {
                    fresh.push(ins[i]);
                    fresh.len() - 1
                })
            });
            let operand = Operand { input, strides: operand.strides.clone() };
            renamed[k] = operands.iter().position(|o| *o == operand).unwrap_or_else(|| {
                operands.push(operand);
                operands.len() - 1
            });
        }
        for c in &mut self.code {
            *c = c.map_sources(|s| if let Src::Operand(k) = s { Src::Operand(renamed[k]) } else { s });
        }
        self.operands = operands;
        *ins = fresh;
    }

    fn drop_code(&mut self) {
        // A result that only forwards another step is replaced by that step.
        for r in &mut self.results {
            while let Code::Pass(Src::Step(s)) = self.code[*r] {
                *r = s;
            }
        }
        let mut needed = vec![false; self.code.len()];
        self.results.iter().for_each(|r| needed[*r] = true);
        for i in (0..self.code.len()).rev() {
            if needed[i] {
                for s in self.code[i].sources().into_iter().flatten() {
                    if let Src::Step(s) = s {
                        needed[s] = true;
                    }
                }
            }
        }
        let mut renamed = vec![0; self.code.len()];
        let mut code = Vec::new();
        for (i, c) in self.code.iter().enumerate().filter(|(i, _)| needed[*i]) {
            renamed[i] = code.len();
            code.push(c.map_sources(|s| if let Src::Step(s) = s { Src::Step(renamed[s]) } else { s }));
        }
        self.code = code;
        self.results.iter_mut().for_each(|r| *r = renamed[*r]);
    }
}
