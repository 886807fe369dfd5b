//! Evaluates the program of a [`Map`] on one block of elements.

use crate::kernels::map::{Code, Map, Operand, Src};
use crate::kernels::math;
use crate::simd::arch;
use phalanx_graph::{Binary, Compare, Unary};
use pulp::{Simd, WithSimd};
use std::cell::RefCell;

/// Elements per block: a few registers of it fit the L1 cache.
pub(crate) const BLOCK: usize = 512;

type Register = Box<[f32; BLOCK]>;

/// The blocks that a program uses: one for each operand that must be gathered, one for each live result.
pub(crate) struct Registers {
    bank: Vec<Register>,
    /// The register of each instruction.
    steps: Vec<usize>,
    last_use: Vec<usize>,
    free: Vec<usize>,
}

thread_local! {
    static REGISTERS: RefCell<Vec<Registers>> = const { RefCell::new(Vec::new()) };
}

impl Registers {
    /// Lends registers for this program; they are kept by the thread for the next one.
    pub(crate) fn lend<R>(map: &Map, work: impl FnOnce(&mut Registers) -> R) -> R {
        let kept = REGISTERS.with_borrow_mut(|free| free.pop());
        let mut registers = kept.unwrap_or(Self {
            bank: Vec::new(),
            steps: Vec::new(),
            last_use: Vec::new(),
            free: Vec::new(),
        });
        registers.assign(map);
        let result = work(&mut registers);
        REGISTERS.with_borrow_mut(|free| free.push(registers));
        result
    }

    /// Operands get the first registers; a result's register is used again after its last reader.
    fn assign(&mut self, map: &Map) {
        let (n, last) = (map.code.len(), &mut self.last_use);
        last.clear();
        last.resize(n, 0);
        for (i, code) in map.code.iter().enumerate() {
            for source in code.sources().into_iter().flatten() {
                if let Src::Step(s) = source {
                    last[s] = i;
                }
            }
        }
        map.results.iter().for_each(|r| last[*r] = usize::MAX);
        self.steps.clear();
        self.free.clear();
        let mut used = map.operands.len();
        for i in 0..n {
            let register = self.free.pop().unwrap_or_else(|| {
                used += 1;
                used - 1
            });
            self.steps.push(register);
            // Freed only after this instruction's own register was chosen: it must not overwrite what it reads.
            for source in map.code[i].sources().into_iter().flatten() {
                if let Src::Step(s) = source
                    && last[s] == i
                    && !self.free.contains(&self.steps[s])
                {
                    self.free.push(self.steps[s]);
                }
            }
        }
        while self.bank.len() < used {
            self.bank.push(Box::new([0.0; BLOCK]));
        }
    }

    /// The result of an instruction.
    pub(crate) fn step(&self, step: usize, len: usize) -> &[f32] {
        &self.bank[self.steps[step]][..len]
    }
}

/// A source of one instruction.
#[derive(Clone, Copy)]
enum EvalInput<'a> {
    Slice(&'a [f32]),
    Splat(f32),
}

struct ElementBlock<'a, 'b> {
    map: &'a Map,
    seed: u64,
    ins: &'a [&'a [f32]],
    /// The first operand's elements when it is computed in place; `ins` then begins with the second's.
    first: Option<&'a [f32]>,
    start: usize,
    len: usize,
    registers: &'b mut Registers,
}

/// Computes every instruction for the elements `start .. start + len`.
pub(crate) fn evaluate(
    map: &Map,
    seed: u64,
    ins: &[&[f32]],
    first: Option<&[f32]>,
    (start, len): (usize, usize),
    registers: &mut Registers,
) {
    let block = ElementBlock { map, seed, ins, first, start, len, registers };
    arch().dispatch(block);
}

impl WithSimd for ElementBlock<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        evaluate_block(self);
    }
}

#[inline(always)]
fn evaluate_block(block: ElementBlock<'_, '_>) {
    let ElementBlock { map, seed, ins, first, start, len, registers } = block;
    for (i, operand) in map.operands.iter().enumerate() {
        if first.is_some() && i == 0 {
            continue;
        }
        if !is_direct(map, operand) {
            gather(map, operand, input(ins, first, operand), start, &mut registers.bank[i][..len]);
        }
    }
    for (i, code) in map.code.iter().enumerate() {
        let register = registers.steps[i];
        let mut out = std::mem::replace(&mut registers.bank[register], EMPTY.with(|e| e.take()));
        let lane = |source: Src| lane(map, registers, (ins, first), (start, len), source);
        apply(*code, seed, &mut out[..len], lane);
        EMPTY.with(|e| e.set(std::mem::replace(&mut registers.bank[register], out)));
    }
}

/// Replaces a register while it is written.
struct Spare(std::cell::Cell<Option<Register>>);

impl Spare {
    fn take(&self) -> Register {
        self.0.take().unwrap_or_else(|| Box::new([0.0; BLOCK]))
    }

    fn set(&self, register: Register) {
        self.0.set(Some(register));
    }
}

thread_local! {
    static EMPTY: Spare = const { Spare(std::cell::Cell::new(None)) };
}

#[inline(always)]
fn input<'a>(ins: &[&'a [f32]], first: Option<&'a [f32]>, operand: &Operand) -> Option<&'a [f32]> {
    let shift = usize::from(first.is_some());
    operand.input.map(|i| ins[i - shift])
}

/// Whether the operand's elements are in the order of the result's, or it is one element.
#[inline(always)]
fn is_direct(map: &Map, operand: &Operand) -> bool {
    operand.input.is_some()
        && match map.dims.as_slice() {
            [_] => operand.strides[0] <= 1,
            _ => operand.strides.iter().all(|s| *s == 0) || is_full(map, operand),
        }
}

#[inline(always)]
fn is_full(map: &Map, operand: &Operand) -> bool {
    let mut expected = 1;
    for (n, s) in map.dims.iter().zip(&operand.strides).rev() {
        if *s != expected && *n != 1 {
            return false;
        }
        expected *= n;
    }
    true
}

#[inline(always)]
fn lane<'a>(
    map: &Map,
    registers: &'a Registers,
    (ins, first): (&[&'a [f32]], Option<&'a [f32]>),
    (start, len): (usize, usize),
    source: Src,
) -> EvalInput<'a> {
    match source {
        Src::Const(c) => EvalInput::Splat(c),
        Src::Step(s) => EvalInput::Slice(&registers.bank[registers.steps[s]][..len]),
        Src::Operand(0) if first.is_some() => EvalInput::Slice(first.unwrap_or_default()),
        Src::Operand(i) => {
            let operand = &map.operands[i];
            match input(ins, first, operand) {
                Some(data) if is_direct(map, operand) => {
                    if operand.strides.iter().zip(&map.dims).all(|(s, n)| *s == 0 || *n == 1) {
                        EvalInput::Splat(data[0])
                    } else {
                        EvalInput::Slice(&data[start..start + len])
                    }
                }
                _ => EvalInput::Slice(&registers.bank[i][..len]),
            }
        }
    }
}

/// Gathers a strided operand's elements, or the logical indices, into a dense block.
#[inline(always)]
fn gather(map: &Map, operand: &Operand, data: Option<&[f32]>, start: usize, out: &mut [f32]) {
    let last = map.dims.len() - 1;
    let (inner, stride) = (map.dims[last], operand.strides[last]);
    let mut position = start;
    let mut done = 0;
    while done < out.len() {
        let column = position % inner;
        let mut rest = position / inner;
        let mut offset = column * stride;
        for d in (0..last).rev() {
            offset += rest % map.dims[d] * operand.strides[d];
            rest /= map.dims[d];
        }
        let run = (inner - column).min(out.len() - done);
        let part = &mut out[done..done + run];
        match (data, stride) {
            (Some(data), 0) => part.fill(data[offset]),
            (Some(data), 1) => part.copy_from_slice(&data[offset..offset + run]),
            (Some(data), _) => {
                for (i, p) in part.iter_mut().enumerate() {
                    *p = data[offset + i * stride];
                }
            }
            (None, _) => {
                for (i, p) in part.iter_mut().enumerate() {
                    *p = f32::from_bits((offset + i * stride) as u32);
                }
            }
        }
        position += run;
        done += run;
    }
}

// The loops are macros: a closure or function passed to another function may not be inlined; then it is compiled for
// any machine and called for every element.

/// `out = f(a)` for every element.
macro_rules! one {
    ($out:expr, $a:expr, |$x:pat_param| $f:expr) => {
        match $a {
            EvalInput::Slice(a) => {
                for (o, a) in $out.iter_mut().zip(a) {
                    let $x = *a;
                    *o = $f;
                }
            }
            EvalInput::Splat(a) => {
                let $x = a;
                $out.fill($f);
            }
        }
    };
}

/// `out = f(a, b)` for every element.
macro_rules! two {
    ($out:expr, $a:expr, $b:expr, |$x:ident, $y:ident| $f:expr) => {
        match ($a, $b) {
            (EvalInput::Slice(a), EvalInput::Slice(b)) => {
                for ((o, a), b) in $out.iter_mut().zip(a).zip(b) {
                    let ($x, $y) = (*a, *b);
                    *o = $f;
                }
            }
            (EvalInput::Slice(a), EvalInput::Splat($y)) => {
                for (o, a) in $out.iter_mut().zip(a) {
                    let $x = *a;
                    *o = $f;
                }
            }
            (EvalInput::Splat($x), EvalInput::Slice(b)) => {
                for (o, b) in $out.iter_mut().zip(b) {
                    let $y = *b;
                    *o = $f;
                }
            }
            (EvalInput::Splat($x), EvalInput::Splat($y)) => $out.fill($f),
        }
    };
}

#[inline(always)]
fn at(lane: EvalInput<'_>, i: usize) -> f32 {
    match lane {
        EvalInput::Slice(s) => s[i],
        EvalInput::Splat(v) => v,
    }
}

#[inline(always)]
fn select(out: &mut [f32], c: EvalInput<'_>, a: EvalInput<'_>, b: EvalInput<'_>) {
    match (c, a, b) {
        (EvalInput::Slice(c), EvalInput::Slice(a), EvalInput::Splat(b)) => {
            for ((o, c), a) in out.iter_mut().zip(c).zip(a) {
                *o = if *c != 0.0 { *a } else { b };
            }
        }
        (EvalInput::Slice(c), EvalInput::Slice(a), EvalInput::Slice(b)) => {
            for ((o, c), (a, b)) in out.iter_mut().zip(c).zip(a.iter().zip(b)) {
                *o = if *c != 0.0 { *a } else { *b };
            }
        }
        _ => {
            for (i, o) in out.iter_mut().enumerate() {
                *o = if at(c, i) != 0.0 { at(a, i) } else { at(b, i) };
            }
        }
    }
}

#[inline(always)]
fn apply<'a>(code: Code, seed: u64, out: &mut [f32], lane: impl Fn(Src) -> EvalInput<'a>) {
    match code {
        Code::Pass(a) => one!(out, lane(a), |x| x),
        Code::Truncate(a) => one!(out, lane(a), |x| f32::trunc(x)),
        Code::Unary(u, a) => unary(u, out, lane(a)),
        Code::Slope(u, a) => slope(u, out, lane(a)),
        Code::Binary(b, x, y) => binary(b, out, lane(x), lane(y)),
        Code::Select(c, a, b) => select(out, lane(c), lane(a), lane(b)),
        Code::Compare(c, a, b) => match c {
            Compare::Equal => two!(out, lane(a), lane(b), |a, b| truth(a == b)),
            Compare::Less => two!(out, lane(a), lane(b), |a, b| truth(a < b)),
            Compare::LessOrEqual => two!(out, lane(a), lane(b), |a, b| truth(a <= b)),
            Compare::Greater => two!(out, lane(a), lane(b), |a, b| truth(a > b)),
            Compare::GreaterOrEqual => two!(out, lane(a), lane(b), |a, b| truth(a >= b)),
        },
        Code::Keep { index, key, ratio } => {
            let key = mix(seed ^ key);
            let (low, high) = (key as u32, (key >> 32) as u32);
            let threshold = (f64::from(ratio) * 4_294_967_296.0) as u32;
            let scale = if ratio < 1.0 { 1.0 / (1.0 - ratio) } else { 0.0 };
            one!(out, lane(index), |x| if hash(x.to_bits(), low, high) < threshold { 0.0 } else { scale });
        }
    }
}

#[inline(always)]
fn truth(b: bool) -> f32 {
    if b { 1.0 } else { 0.0 }
}

/// Spreads a seed over all bits (splitmix64).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A random number for an index under a key: two rounds of a 32-bit finalizer.
#[inline(always)]
fn hash(index: u32, low: u32, high: u32) -> u32 {
    let x = index ^ low;
    let x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
    let x = (x ^ (x >> 16)).wrapping_add(high);
    let x = (x ^ (x >> 16)).wrapping_mul(0x21F0_AAAD);
    let x = (x ^ (x >> 15)).wrapping_mul(0x735A_2D97);
    x ^ (x >> 15)
}

#[inline(always)]
fn binary(kind: Binary, out: &mut [f32], a: EvalInput<'_>, b: EvalInput<'_>) {
    match kind {
        Binary::Add => two!(out, a, b, |a, b| a + b),
        Binary::Sub => two!(out, a, b, |a, b| a - b),
        Binary::Mul => two!(out, a, b, |a, b| a * b),
        Binary::Div => two!(out, a, b, |a, b| a / b),
        Binary::Pow => match b {
            EvalInput::Splat(2.0) => one!(out, a, |a| a * a),
            EvalInput::Splat(3.0) => one!(out, a, |a| a * a * a),
            EvalInput::Splat(1.0) => one!(out, a, |a| a),
            EvalInput::Splat(0.5) => one!(out, a, |x| f32::sqrt(x)),
            EvalInput::Splat(-1.0) => one!(out, a, |a| 1.0 / a),
            _ => two!(out, a, b, |x, y| x.powf(y)),
        },
        // NaN wins, as in PyTorch.
        Binary::Min => two!(out, a, b, |a, b| if a < b || a.is_nan() { a } else { b }),
        Binary::Max => two!(out, a, b, |a, b| if a > b || a.is_nan() { a } else { b }),
        Binary::And => two!(out, a, b, |a, b| truth(a != 0.0 && b != 0.0)),
        Binary::Or => two!(out, a, b, |a, b| truth(a != 0.0 || b != 0.0)),
    }
}

const SQRT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// sqrt(2 / pi)
const GELU_A: f32 = 0.797_884_6;
const GELU_B: f32 = 0.044_715;

#[inline(always)]
fn unary(kind: Unary, out: &mut [f32], a: EvalInput<'_>) {
    match kind {
        Unary::Neg => one!(out, a, |x| -x),
        Unary::Sqrt => one!(out, a, |x| f32::sqrt(x)),
        Unary::Exp => one!(out, a, |x| math::exp(x)),
        Unary::Log => one!(out, a, |x| math::log(x)),
        Unary::Abs => one!(out, a, |x| f32::abs(x)),
        Unary::Reciprocal => one!(out, a, |x| 1.0 / x),
        Unary::Erf => one!(out, a, |x| math::erf(x)),
        Unary::Sin => one!(out, a, |x| f32::sin(x)),
        Unary::Cos => one!(out, a, |x| f32::cos(x)),
        Unary::Floor => one!(out, a, |x| f32::floor(x)),
        Unary::Sign => one!(out, a, |x| value::sign(x)),
        Unary::Not => one!(out, a, |x| if x == 0.0 { 1.0 } else { 0.0 }),
        Unary::Relu => one!(out, a, |x| if x < 0.0 { 0.0 } else { x }),
        Unary::LeakyRelu { slope } => one!(out, a, |x| if x < 0.0 { x * slope } else { x }),
        Unary::Elu { alpha } => one!(out, a, |x| value::elu(x, alpha)),
        Unary::Sigmoid => one!(out, a, |x| math::sigmoid(x)),
        Unary::Tanh => one!(out, a, |x| math::tanh(x)),
        Unary::HardSigmoid { alpha, beta } => one!(out, a, |x| limit(alpha * x + beta, 0.0, 1.0)),
        Unary::HardSwish => one!(out, a, |x| x * limit(x * (1.0 / 6.0) + 0.5, 0.0, 1.0)),
        Unary::Silu => one!(out, a, |x| value::silu(x)),
        Unary::Gelu { tanh: false } => one!(out, a, |x| value::gelu(x)),
        Unary::Gelu { tanh: true } => one!(out, a, |x| value::gelu_tanh(x)),
        Unary::Softplus => one!(out, a, |x| value::softplus(x)),
        Unary::Clip { min, max } => one!(out, a, |x| limit(x, min, max)),
    }
}

/// The derivative as a factor, from the argument.
#[inline(always)]
fn slope(kind: Unary, out: &mut [f32], a: EvalInput<'_>) {
    match kind {
        Unary::Neg => one!(out, a, |_| -1.0),
        Unary::Sqrt => one!(out, a, |x| 0.5 / x.sqrt()),
        Unary::Exp => one!(out, a, |x| math::exp(x)),
        Unary::Log => one!(out, a, |x| 1.0 / x),
        Unary::Abs => one!(out, a, |x| if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            0.0
        }),
        Unary::Reciprocal => one!(out, a, |x| -1.0 / (x * x)),
        Unary::Erf => one!(out, a, |x| slopes::erf(x)),
        Unary::Sin => one!(out, a, |x| f32::cos(x)),
        Unary::Cos => one!(out, a, |x| -x.sin()),
        Unary::Floor | Unary::Sign | Unary::Not => out.fill(0.0),
        Unary::Relu => one!(out, a, |x| truth(x > 0.0)),
        Unary::LeakyRelu { slope } => one!(out, a, |x| if x > 0.0 { 1.0 } else { slope }),
        Unary::Elu { alpha } => one!(out, a, |x| slopes::elu(x, alpha)),
        Unary::Sigmoid => one!(out, a, |x| slopes::sigmoid(x)),
        Unary::Tanh => one!(out, a, |x| slopes::tanh(x)),
        Unary::HardSigmoid { alpha, beta } => one!(out, a, |x| {
            let y = alpha * x + beta;
            if y > 0.0 && y < 1.0 { alpha } else { 0.0 }
        }),
        Unary::HardSwish => one!(out, a, |x| slopes::hard_swish(x)),
        Unary::Silu => one!(out, a, |x| slopes::silu(x)),
        Unary::Gelu { tanh: false } => one!(out, a, |x| slopes::gelu(x)),
        Unary::Gelu { tanh: true } => one!(out, a, |x| slopes::gelu_tanh(x)),
        Unary::Softplus => one!(out, a, |x| math::sigmoid(x)),
        Unary::Clip { min, max } => one!(out, a, |x| truth(x > min && x < max)),
    }
}

#[inline(always)]
fn limit(x: f32, min: f32, max: f32) -> f32 {
    let x = if x < min { min } else { x };
    if x > max { max } else { x }
}

/// The longer functions.
mod value {
    use super::{GELU_A, GELU_B, SQRT_HALF, math};

    #[inline(always)]
    pub(super) fn sign(x: f32) -> f32 {
        if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else {
            x * 0.0
        }
    }

    #[inline(always)]
    pub(super) fn elu(x: f32, alpha: f32) -> f32 {
        if x < 0.0 { alpha * (math::exp(x) - 1.0) } else { x }
    }

    #[inline(always)]
    pub(super) fn silu(x: f32) -> f32 {
        x * math::sigmoid(x)
    }

    #[inline(always)]
    pub(super) fn gelu(x: f32) -> f32 {
        0.5 * x * (1.0 + math::erf(x * SQRT_HALF))
    }

    #[inline(always)]
    pub(super) fn gelu_tanh(x: f32) -> f32 {
        0.5 * x * (1.0 + math::tanh(GELU_A * (x + GELU_B * x * x * x)))
    }

    #[inline(always)]
    pub(super) fn softplus(x: f32) -> f32 {
        let y = math::log(1.0 + math::exp(x));
        if x > 20.0 { x } else { y }
    }
}

/// Their derivatives.
mod slopes {
    use super::{GELU_A, GELU_B, SQRT_HALF, math};

    #[inline(always)]
    pub(super) fn erf(x: f32) -> f32 {
        std::f32::consts::FRAC_2_SQRT_PI * math::exp(-x * x)
    }

    #[inline(always)]
    pub(super) fn elu(x: f32, alpha: f32) -> f32 {
        let y = alpha * math::exp(x);
        if x > 0.0 { 1.0 } else { y }
    }

    #[inline(always)]
    pub(super) fn sigmoid(x: f32) -> f32 {
        let s = math::sigmoid(x);
        s * (1.0 - s)
    }

    #[inline(always)]
    pub(super) fn tanh(x: f32) -> f32 {
        let t = math::tanh(x);
        1.0 - t * t
    }

    #[inline(always)]
    pub(super) fn hard_swish(x: f32) -> f32 {
        let middle = x * (1.0 / 3.0) + 0.5;
        if x <= -3.0 {
            0.0
        } else if x >= 3.0 {
            1.0
        } else {
            middle
        }
    }

    #[inline(always)]
    pub(super) fn silu(x: f32) -> f32 {
        let s = math::sigmoid(x);
        s * (1.0 + x * (1.0 - s))
    }

    #[inline(always)]
    pub(super) fn gelu(x: f32) -> f32 {
        // 1 / sqrt(2 pi)
        let density = 0.398_942_3 * math::exp(-0.5 * x * x);
        0.5 * (1.0 + math::erf(x * SQRT_HALF)) + x * density
    }

    #[inline(always)]
    pub(super) fn gelu_tanh(x: f32) -> f32 {
        let t = math::tanh(GELU_A * (x + GELU_B * x * x * x));
        let inner = GELU_A * (1.0 + 3.0 * GELU_B * x * x);
        0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner
    }
}
