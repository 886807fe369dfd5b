//! What a model is worth on some data.

use phalanx_wire::train::ValidSums;
use std::collections::BTreeMap;

/// What a model is worth on some data.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub samples: u64,
    pub loss: f64,
    /// The first metric, where it is an accuracy.
    pub accuracy: Option<f64>,
    /// What that metric is called among the others.
    pub accuracy_name: Option<String>,
    /// Those that were asked for, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// What is added up over samples.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    pub samples: u64,
    pub loss: f64,
    /// By metric: the sum and what it is divided by.
    pub metrics: Vec<(f64, u64)>,
}

impl Sums {
    /// As numbers that can be added to those of other replicas.
    pub fn to_flat(&self) -> Vec<f64> {
        let metrics = self.metrics.iter().flat_map(|(sum, count)| [*sum, *count as f64]);
        [self.samples as f64, self.loss].into_iter().chain(metrics).collect()
    }

    /// The same, added up.
    pub fn from_flat(flat: &[f64]) -> Self {
        let [samples, loss, metrics @ ..] = flat else { return Self::default() };
        let metrics = metrics.chunks(2).map(|pair| (pair[0], pair[1] as u64)).collect();
        Self { samples: *samples as u64, loss: *loss, metrics }
    }
}

impl From<Sums> for ValidSums {
    fn from(Sums { samples, loss, metrics }: Sums) -> Self {
        Self { samples, loss, metrics }
    }
}

impl From<ValidSums> for Sums {
    fn from(ValidSums { samples, loss, metrics }: ValidSums) -> Self {
        Self { samples, loss, metrics }
    }
}
