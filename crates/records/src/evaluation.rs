//! Loss and metrics of a model on a dataset.

use phalanx_wire::train::ValidSums;
use std::collections::BTreeMap;

/// Loss and metrics of a model on a dataset.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    pub samples: u64,
    pub loss: f64,
    /// The first metric, if it is an accuracy.
    pub accuracy: Option<f64>,
    /// The name of that metric among the others.
    pub accuracy_name: Option<String>,
    /// The requested metrics, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// Sums over samples, from which an evaluation is computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    pub samples: u64,
    pub loss: f64,
    /// By metric: the sum and its divisor.
    pub metrics: Vec<(f64, u64)>,
}

impl Sums {
    /// As numbers that can be added to the sums of other replicas.
    pub fn to_flat(&self) -> Vec<f64> {
        let metrics = self.metrics.iter().flat_map(|(sum, count)| [*sum, *count as f64]);
        [self.samples as f64, self.loss].into_iter().chain(metrics).collect()
    }

    /// The inverse of [`Sums::to_flat`], after adding.
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
