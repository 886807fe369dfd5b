//! What a benchmark measured, by name.

use crate::output::{Render, summary};
use serde::Serialize;
use std::collections::BTreeMap;

/// Numbers by their names; the ends of the names are the units.
pub(super) type Numbers = BTreeMap<&'static str, f64>;

#[derive(Debug, Serialize)]
pub(super) struct Measured {
    #[serde(flatten)]
    pub(super) numbers: Numbers,
}

impl Render for Measured {
    fn table(&self) -> String {
        summary(self.numbers.iter().map(|(name, value)| (*name, shown(*value))))
    }

    fn quiet(&self) -> String {
        self.numbers.values().map(|value| shown(*value)).collect::<Vec<_>>().join("\n")
    }
}

fn shown(value: f64) -> String {
    if value < 100.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}
