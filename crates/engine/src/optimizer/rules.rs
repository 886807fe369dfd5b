//! One pass over a parameter, its gradient and its state: PyTorch's formulas, operation by operation.
//!
//! Every product and sum is rounded by itself, so all machines compute the same bits.

use super::spec::{Adagrad, Adam, OptimizerSpec, RmsProp, Sgd};
use crate::kernels::math::wide;

/// The constants of a step, the same for every element.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    Sgd { decay: f32, lr: f32 },
    Momentum { decay: f32, lr: f32, momentum: f32, fresh: f32, nesterov: bool },
    Adam(Moments),
    RmsProp { decay: f32, lr: f32, alpha: f32, fresh: f32, eps: f32, momentum: f32, centered: bool },
    Adagrad { decay: f32, lr: f32, eps: f32 },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// Added to the gradient, times the parameter.
    decay: f32,
    /// The factor of the parameter before the step.
    kept: f32,
    first: f32,
    second: f32,
    second_fresh: f32,
    correction: f32,
    eps: f32,
    step: f32,
    amsgrad: bool,
}

/// A chunk of a parameter with its gradient and state; states that the rule does not have are empty.
#[derive(Debug)]
pub(super) struct ParameterChunk<'a> {
    pub(super) parameter: &'a mut [f32],
    pub(super) gradient: &'a [f32],
    pub(super) state: [&'a mut [f32]; 3],
}

impl Rule {
    /// The rule of step `step`, counted from 1.
    pub(super) fn new(spec: &OptimizerSpec, step: u64, lr: f32) -> Self {
        match spec {
            OptimizerSpec::Sgd(s) => Self::sgd(s, step, lr),
            OptimizerSpec::Adam(s) => Self::Adam(Moments::new(s, step, lr)),
            OptimizerSpec::AdamW(s) => {
                let like =
                    Adam { lr: s.lr, betas: s.betas, eps: s.eps, weight_decay: 0.0, amsgrad: s.amsgrad };
                let kept = (1.0 - f64::from(lr) * s.weight_decay) as f32;
                Self::Adam(Moments { kept, ..Moments::new(&like, step, lr) })
            }
            OptimizerSpec::RmsProp(s) => Self::rms_prop(s, lr),
            OptimizerSpec::Adagrad(Adagrad { lr_decay, eps, weight_decay, .. }) => {
                let before = step.saturating_sub(1) as f64;
                let lr = (f64::from(lr) / (1.0 + before * lr_decay)) as f32;
                Self::Adagrad { decay: *weight_decay as f32, lr, eps: *eps as f32 }
            }
        }
    }

    fn sgd(s: &Sgd, step: u64, lr: f32) -> Self {
        let decay = s.weight_decay as f32;
        if s.momentum == 0.0 {
            return Self::Sgd { decay, lr };
        }
        // The first gradient enters the momentum undampened.
        let fresh = if step <= 1 { 1.0 } else { (1.0 - s.dampening) as f32 };
        Self::Momentum { decay, lr, momentum: s.momentum as f32, fresh, nesterov: s.nesterov }
    }

    fn rms_prop(s: &RmsProp, lr: f32) -> Self {
        Self::RmsProp {
            decay: s.weight_decay as f32,
            lr,
            alpha: s.alpha as f32,
            fresh: (1.0 - s.alpha) as f32,
            eps: s.eps as f32,
            momentum: if s.momentum > 0.0 { s.momentum as f32 } else { 0.0 },
            centered: s.centered,
        }
    }

    /// Applies the step to a chunk.
    pub(super) fn apply(self, part: ParameterChunk<'_>) {
        match self {
            Self::Sgd { decay, lr } => wide!(sgd, (decay, lr, part)),
            Self::Momentum { nesterov: false, .. } => wide!(momentum::<false>, (self, part)),
            Self::Momentum { .. } => wide!(momentum::<true>, (self, part)),
            Self::Adam(moments) if moments.amsgrad => wide!(adam_max, (moments, part)),
            Self::Adam(moments) => wide!(adam, (moments, part)),
            Self::RmsProp { momentum, centered, .. } => match (momentum > 0.0, centered) {
                (false, false) => wide!(rms_prop::<false, false>, (self, part)),
                (false, true) => wide!(rms_prop::<false, true>, (self, part)),
                (true, false) => wide!(rms_prop::<true, false>, (self, part)),
                (true, true) => wide!(rms_prop::<true, true>, (self, part)),
            },
            Self::Adagrad { decay, lr, eps } => wide!(adagrad, (decay, lr, eps, part)),
        }
    }
}

impl Moments {
    fn new(s: &Adam, step: u64, lr: f32) -> Self {
        let [beta1, beta2] = s.betas;
        Self {
            decay: s.weight_decay as f32,
            kept: 1.0,
            first: (1.0 - beta1) as f32,
            second: beta2 as f32,
            second_fresh: (1.0 - beta2) as f32,
            correction: (1.0 - power(beta2, step)).sqrt() as f32,
            eps: s.eps as f32,
            step: (f64::from(lr) / (1.0 - power(beta1, step))) as f32,
            amsgrad: s.amsgrad,
        }
    }

    /// The new parameter, exp_avg and exp_avg_sq, the latter also as it enters the step.
    #[inline(always)]
    fn moments(&self, p: f32, g: f32, m: f32, v: f32) -> (f32, f32, f32) {
        let p = p * self.kept;
        let g = g + p * self.decay;
        let m = m + self.first * (g - m);
        (p, m, v * self.second + self.second_fresh * g * g)
    }

    #[inline(always)]
    fn step(&self, p: f32, m: f32, v: f32) -> f32 {
        let denominator = v.sqrt() / self.correction + self.eps;
        p - self.step * m / denominator
    }
}

/// By repeated squaring, independent of the machine's math library.
fn power(base: f64, mut exponent: u64) -> f64 {
    let (mut result, mut square) = (1.0, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[inline(always)]
fn sgd((decay, lr, part): (f32, f32, ParameterChunk<'_>)) {
    for (p, g) in part.parameter.iter_mut().zip(part.gradient) {
        *p -= lr * (g + *p * decay);
    }
}

#[inline(always)]
fn momentum<const NESTEROV: bool>((rule, part): (Rule, ParameterChunk<'_>)) {
    let Rule::Momentum { decay, lr, momentum, fresh, .. } = rule else { return };
    let [buffer, ..] = part.state;
    for ((p, g), b) in part.parameter.iter_mut().zip(part.gradient).zip(buffer) {
        let g = g + *p * decay;
        *b = *b * momentum + g * fresh;
        *p -= lr * if NESTEROV { g + momentum * *b } else { *b };
    }
}

#[inline(always)]
fn adam((rule, part): (Moments, ParameterChunk<'_>)) {
    let [first, second, _] = part.state;
    for (((p, g), m), v) in part.parameter.iter_mut().zip(part.gradient).zip(first).zip(second) {
        let decayed;
        (decayed, *m, *v) = rule.moments(*p, *g, *m, *v);
        *p = rule.step(decayed, *m, *v);
    }
}

#[inline(always)]
fn adam_max((rule, part): (Moments, ParameterChunk<'_>)) {
    let [first, second, max] = part.state;
    for ((((p, g), m), v), x) in part.parameter.iter_mut().zip(part.gradient).zip(first).zip(second).zip(max)
    {
        let decayed;
        (decayed, *m, *v) = rule.moments(*p, *g, *m, *v);
        *x = if *x > *v { *x } else { *v };
        *p = rule.step(decayed, *m, *x);
    }
}

#[inline(always)]
fn rms_prop<const MOMENTUM: bool, const CENTERED: bool>((rule, part): (Rule, ParameterChunk<'_>)) {
    let Rule::RmsProp { decay, lr, alpha, fresh, eps, momentum, .. } = rule else { return };
    let [square, second, third] = part.state;
    let (buffer, mean) = if MOMENTUM { (second, third) } else { (third, second) };
    // One length for all slices, so that the compiler need not check bounds at every element.
    let n = part.parameter.len();
    let (gradient, square) = (&part.gradient[..n], &mut square[..n]);
    let buffer = &mut buffer[..if MOMENTUM { n } else { 0 }];
    let mean = &mut mean[..if CENTERED { n } else { 0 }];
    for (i, p) in part.parameter.iter_mut().enumerate() {
        let g = gradient[i] + *p * decay;
        square[i] = square[i] * alpha + fresh * g * g;
        let spread = if CENTERED {
            mean[i] += fresh * (g - mean[i]);
            (square[i] - mean[i] * mean[i]).sqrt() + eps
        } else {
            square[i].sqrt() + eps
        };
        if MOMENTUM {
            buffer[i] = buffer[i] * momentum + g / spread;
            *p -= lr * buffer[i];
        } else {
            *p -= lr * g / spread;
        }
    }
}

#[inline(always)]
fn adagrad((decay, lr, eps, part): (f32, f32, f32, ParameterChunk<'_>)) {
    let [sum, ..] = part.state;
    for ((p, g), s) in part.parameter.iter_mut().zip(part.gradient).zip(sum) {
        let g = g + *p * decay;
        *s += g * g;
        *p -= lr * g / (s.sqrt() + eps);
    }
}
