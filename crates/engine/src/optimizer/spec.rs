//! Which optimizer, with PyTorch's names and defaults.

use crate::named::named;
use serde::{Deserialize, Serialize};

/// The update rule of an optimizer. Written as `"adam"` or as `{ name = "adam", lr = 0.001 }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "name", rename_all = "lowercase")]
pub enum OptimizerSpec {
    Sgd(Sgd),
    Adam(Adam),
    AdamW(AdamW),
    RmsProp(RmsProp),
    Adagrad(Adagrad),
}

named!(OptimizerSpec);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sgd {
    pub lr: f32,
    pub momentum: f64,
    pub dampening: f64,
    pub nesterov: bool,
    pub weight_decay: f64,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { lr: 1e-3, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adam {
    pub lr: f32,
    pub betas: [f64; 2],
    pub eps: f64,
    /// Added to the gradient, times the parameter.
    pub weight_decay: f64,
    pub amsgrad: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, amsgrad: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamW {
    pub lr: f32,
    pub betas: [f64; 2],
    pub eps: f64,
    /// The fraction of the parameter, times the learning rate, that every step subtracts.
    pub weight_decay: f64,
    pub amsgrad: bool,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01, amsgrad: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmsProp {
    pub lr: f32,
    pub alpha: f64,
    pub eps: f64,
    pub momentum: f64,
    pub centered: bool,
    pub weight_decay: f64,
}

impl Default for RmsProp {
    fn default() -> Self {
        Self { lr: 1e-2, alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Adagrad {
    pub lr: f32,
    pub lr_decay: f64,
    pub eps: f64,
    pub weight_decay: f64,
    pub initial_accumulator_value: f32,
}

impl Default for Adagrad {
    fn default() -> Self {
        Self { lr: 1e-2, lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0, initial_accumulator_value: 0.0 }
    }
}

impl OptimizerSpec {
    /// The learning rate a schedule starts from.
    pub fn lr(&self) -> f32 {
        match self {
            Self::Sgd(s) => s.lr,
            Self::Adam(s) => s.lr,
            Self::AdamW(s) => s.lr,
            Self::RmsProp(s) => s.lr,
            Self::Adagrad(s) => s.lr,
        }
    }

    /// Sets the learning rate a schedule starts from.
    pub fn set_lr(&mut self, lr: f32) {
        match self {
            Self::Sgd(s) => s.lr = lr,
            Self::Adam(s) => s.lr = lr,
            Self::AdamW(s) => s.lr = lr,
            Self::RmsProp(s) => s.lr = lr,
            Self::Adagrad(s) => s.lr = lr,
        }
    }

    /// PyTorch's names of the state tensors of every parameter.
    pub fn state_names(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd(s) if s.momentum == 0.0 => &[],
            Self::Sgd(_) => &["momentum_buffer"],
            Self::Adam(Adam { amsgrad: false, .. }) | Self::AdamW(AdamW { amsgrad: false, .. }) => {
                &["exp_avg", "exp_avg_sq"]
            }
            Self::Adam(_) | Self::AdamW(_) => &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"],
            Self::RmsProp(s) => match (s.centered, s.momentum > 0.0) {
                (false, false) => &["square_avg"],
                (false, true) => &["square_avg", "momentum_buffer"],
                (true, false) => &["square_avg", "grad_avg"],
                (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
            },
            Self::Adagrad(_) => &["sum"],
        }
    }

    /// The initial value of every element of a state.
    pub(super) fn initial(&self) -> f32 {
        match self {
            Self::Adagrad(s) => s.initial_accumulator_value,
            _ => 0.0,
        }
    }
}
