//! Learning rates over the steps of a run, by the formulas of `torch.optim.lr_scheduler`.

use crate::named::named;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// How the learning rate changes over a run. Written as `"cosine"` or as `{ name = "cosine", min_lr = 1e-5, warmup =
/// 500 }`.
///
/// Every schedule may begin with `warmup` steps in which the rate grows: step `s` of the warm-up has the first rate of
/// the schedule times `(s + 1) / (warmup + 1)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// The same rate at every step.
    Constant {
        #[serde(default)]
        warmup: u64,
    },
    /// Multiplied by `gamma` after every `every` steps.
    Step {
        every: u64,
        #[serde(default = "tenth")]
        gamma: f64,
        #[serde(default)]
        warmup: u64,
    },
    /// Half a cosine from the base rate at the first step to `min_lr` after the last.
    Cosine {
        #[serde(default)]
        min_lr: f64,
        #[serde(default)]
        warmup: u64,
    },
    /// Multiplied by `gamma` after every step.
    Exponential {
        gamma: f64,
        #[serde(default)]
        warmup: u64,
    },
    /// Up to `max_lr` during the first part of the run, then down to nearly zero, both along cosines.
    OneCycle {
        /// The highest rate; the base rate if not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_lr: Option<f64>,
        /// The fraction of the run in which the rate grows.
        #[serde(default = "three_tenths")]
        pct_start: f64,
        /// How many times smaller than `max_lr` the first rate is.
        #[serde(default = "twenty_five")]
        div_factor: f64,
        /// How many times smaller than the first rate the last is.
        #[serde(default = "ten_thousand")]
        final_div_factor: f64,
        #[serde(default)]
        warmup: u64,
    },
    /// A list of rates: from step `steps[i]` on the rate is `rates[i]`. Before the first of them it is the base rate.
    Table {
        /// Ascending.
        #[serde(default)]
        steps: Vec<u64>,
        #[serde(default)]
        rates: Vec<f64>,
        #[serde(default)]
        warmup: u64,
    },
}

named!(Schedule);

fn tenth() -> f64 {
    0.1
}

fn three_tenths() -> f64 {
    0.3
}

fn twenty_five() -> f64 {
    25.0
}

fn ten_thousand() -> f64 {
    1e4
}

impl Default for Schedule {
    fn default() -> Self {
        Self::Constant { warmup: 0 }
    }
}

impl Schedule {
    /// The number of warm-up steps.
    pub fn warmup(&self) -> u64 {
        match *self {
            Self::Constant { warmup }
            | Self::Step { warmup, .. }
            | Self::Cosine { warmup, .. }
            | Self::Exponential { warmup, .. }
            | Self::OneCycle { warmup, .. }
            | Self::Table { warmup, .. } => warmup,
        }
    }

    /// The learning rate of step `step` (from 0) of a run of `total` steps; `base` is the optimizer's own.
    pub fn lr(&self, base: f32, step: u64, total: u64) -> f32 {
        let warmup = self.warmup();
        let total = total.saturating_sub(warmup).max(1);
        let base = f64::from(base);
        let lr = if step < warmup {
            self.after_warmup(base, 0, total) * (step + 1) as f64 / (warmup + 1) as f64
        } else {
            self.after_warmup(base, step - warmup, total)
        };
        lr as f32
    }

    fn after_warmup(&self, base: f64, step: u64, total: u64) -> f64 {
        match *self {
            Self::Constant { .. } => base,
            Self::Table { ref steps, ref rates, .. } => {
                let begun = steps.partition_point(|first| *first <= step);
                begun.checked_sub(1).and_then(|last| rates.get(last)).copied().unwrap_or(base)
            }
            Self::Step { every, gamma, .. } => base * gamma.powf((step / every.max(1)) as f64),
            Self::Cosine { min_lr, .. } => cosine(base, min_lr, step.min(total) as f64 / total as f64),
            Self::Exponential { gamma, .. } => base * gamma.powf(step as f64),
            Self::OneCycle { max_lr, pct_start, div_factor, final_div_factor, .. } => {
                let max = max_lr.unwrap_or(base);
                let first = max / div_factor;
                // PyTorch's ends of the two parts, counted from step 0.
                let (turn, end) = (pct_start * total as f64 - 1.0, total as f64 - 1.0);
                let step = step.min(total - 1) as f64;
                if step <= turn && turn > 0.0 {
                    cosine(first, max, step / turn)
                } else if end > turn.max(0.0) {
                    cosine(max, first / final_div_factor, (step - turn) / (end - turn))
                } else {
                    max
                }
            }
        }
    }
}

/// From `start` to `end` along half a cosine, at `part` (0 to 1) of the way.
fn cosine(start: f64, end: f64, part: f64) -> f64 {
    end + (start - end) * (1.0 + (PI * part).cos()) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: Value) -> Schedule {
        serde_json::from_value(value).expect("a known schedule")
    }

    #[test]
    fn rates_match_pytorch() {
        let cases: Value = serde_json::from_str(include_str!("../tests/data/schedules.json")).expect("valid");
        for case in cases.as_array().expect("a list") {
            let schedule = read(case["schedule"].clone());
            let (base, total) = (case["base"].as_f64().expect("a number") as f32, case["total"].as_u64());
            for (step, wanted) in case["rates"].as_array().expect("a list").iter().enumerate() {
                let got = f64::from(schedule.lr(base, step as u64, total.expect("a number")));
                let wanted = wanted.as_f64().expect("a number");
                assert!(
                    (got - wanted).abs() < 1e-7 * wanted.abs() + 1e-9,
                    "{schedule:?} at {step}: {got}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn every_step_of_every_run_has_a_finite_rate() {
        let schedules = [
            json!("constant"),
            json!({ "name": "step", "every": 0 }),
            json!({ "name": "cosine", "warmup": 9 }),
            json!("one_cycle"),
            json!({ "name": "one_cycle", "pct_start": 1.0 }),
            json!({ "name": "one_cycle", "pct_start": 0.0 }),
        ];
        for schedule in schedules.map(read) {
            for total in [0, 1, 2, 3, 10] {
                for step in 0..total + 3 {
                    let lr = schedule.lr(0.1, step, total);
                    assert!((0.0..=0.1000001).contains(&lr), "{schedule:?} at {step} of {total}: {lr}");
                }
            }
        }
    }

    #[test]
    fn a_table_says_the_rate_from_a_step_on() {
        let table = read(json!({ "name": "table", "steps": [1, 3], "rates": [0.5, 0.25] }));
        let rates: Vec<f32> = (0..5).map(|step| table.lr(0.1, step, 5)).collect();
        assert_eq!(rates, [0.1, 0.5, 0.5, 0.25, 0.25]);
        let short = read(json!({ "name": "table", "steps": [1, 3], "rates": [0.5] }));
        assert_eq!(short.lr(0.1, 4, 5), 0.1);
        assert_eq!(read(json!("table")).lr(0.1, 4, 5), 0.1);
    }

    #[test]
    fn unknown_settings_are_refused() {
        assert!(serde_json::from_value::<Schedule>(json!({ "name": "constant", "every": 3 })).is_err());
        assert_eq!(read(json!("constant")), Schedule::default());
        let one_cycle = read(json!({ "name": "one_cycle", "warmup": 3 }));
        assert_eq!(read(serde_json::to_value(&one_cycle).expect("plain")), one_cycle);
    }
}
