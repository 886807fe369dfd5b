//! Decomposed activations.

use super::{Change, From, Step, View};
use crate::{Binary, Node, Op, Unary, ValueId};

fn near(x: f64, y: f64) -> bool {
    (x - y).abs() <= 1e-3 * y.abs()
}

fn single(op: Unary, x: ValueId) -> Option<Change> {
    Some(Change::Steps { named: None, steps: vec![Step::new(Op::Unary(op), vec![From::Value(x)])] })
}

/// The factors of a product, with numbers combined into one.
fn factors(view: &View<'_>, node: &Node) -> Option<(Vec<ValueId>, f64)> {
    if !matches!(node.op, Op::Binary(Binary::Mul | Binary::Div)) {
        return None;
    }
    let (mut open, mut found, mut number) = (vec![node.outputs[0]], Vec::new(), 1.0);
    while let Some(v) = open.pop() {
        if let Some(c) = view.number(v) {
            number *= c;
        } else if let Some((x, c)) = view.scaled(v) {
            number *= c;
            open.push(x);
        } else if let Some((a, b)) = view.binary(v, Binary::Mul).filter(|_| found.len() + open.len() < 3) {
            open.extend([a, b]);
        } else {
            found.push(v);
        }
    }
    Some((found, number))
}

/// `x × ½ × (1 + erf(x / √2))` and `x × ½ × (1 + tanh(√(2/π) (x + 0.044715 x³)))`, in any order.
pub(super) fn gelu(view: &View<'_>, node: &Node) -> Option<Change> {
    let (found, number) = factors(view, node)?;
    let [a, b] = found[..] else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let (inner, one) = view.shifted(gate)?;
        // The half may be inside of the parentheses.
        let (inner, half) = match view.scaled(inner) {
            Some((inner, c)) if near(c, 0.5) && near(one, 0.5) => (inner, near(number, 1.0)),
            _ => (inner, near(one, 1.0) && near(number, 0.5)),
        };
        if !half {
            return None;
        }
        if let Some(z) = view.unary(inner, Unary::Erf) {
            let (y, c) = view.scaled(z)?;
            return if y == x && near(c, std::f64::consts::FRAC_1_SQRT_2) {
                single(Unary::Gelu { tanh: false }, x)
            } else {
                None
            };
        }
        let z = view.unary(inner, Unary::Tanh)?;
        let (sum, c) = view.scaled(z)?;
        let (p, q) = view.binary(sum, Binary::Add)?;
        let cubic = |v: ValueId| {
            let (cube, k) = view.scaled(v)?;
            (near(k, 0.044715) && is_power(view, cube, x, 3.0)).then_some(())
        };
        let fits = (p == x && cubic(q).is_some()) || (q == x && cubic(p).is_some());
        if !fits || !near(c, (2.0 / std::f64::consts::PI).sqrt()) {
            return None;
        }
        single(Unary::Gelu { tanh: true }, x)
    })
}

/// Whether `v` is `x` to this whole power, by `Pow` or by products.
fn is_power(view: &View<'_>, v: ValueId, x: ValueId, power: f64) -> bool {
    if power == 1.0 {
        return v == x;
    }
    if let Some((base, n)) = view.binary(v, Binary::Pow) {
        return base == x && view.number(n) == Some(power);
    }
    let Some((a, b)) = view.binary(v, Binary::Mul) else { return false };
    (a == x && is_power(view, b, x, power - 1.0)) || (b == x && is_power(view, a, x, power - 1.0))
}

/// `x × sigmoid(x)` and `x × hard-sigmoid(x)`.
pub(super) fn gated(view: &View<'_>, node: &Node) -> Option<Change> {
    let (found, number) = factors(view, node)?;
    let [a, b] = found[..] else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(x, gate)| {
        let maker = view.maker(gate)?;
        match maker.op {
            Op::Unary(Unary::Sigmoid) if maker.inputs[0] == x && number == 1.0 => single(Unary::Silu, x),
            Op::Unary(Unary::HardSigmoid { alpha, beta })
                if maker.inputs[0] == x
                    && number == 1.0
                    && near(f64::from(alpha), 1.0 / 6.0)
                    && beta == 0.5 =>
            {
                single(Unary::HardSwish, x)
            }
            // x × clip(x + 3, 0, 6) / 6
            Op::Unary(Unary::Clip { min: 0.0, max: 6.0 }) => {
                let (y, three) = view.shifted(maker.inputs[0])?;
                if y == x && three == 3.0 && near(number, 1.0 / 6.0) {
                    single(Unary::HardSwish, x)
                } else {
                    None
                }
            }
            _ => None,
        }
    })
}
