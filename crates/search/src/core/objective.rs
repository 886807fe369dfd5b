//! What a search wants of a candidate.

use super::space::Genes;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    Min,
    Max,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    pub name: String,
    pub goal: Goal,
    /// Follows from the candidate alone, without training or measuring: see [`Known`].
    pub cheap: bool,
}

impl Objective {
    /// The value turned so that less is better.
    pub fn lower_is_better(&self, value: f64) -> f64 {
        match self.goal {
            Goal::Min => value,
            Goal::Max => -value,
        }
    }
}

/// What is known of a candidate before it is trained.
pub trait Known: Send {
    /// The values of the cheap objectives, in the order of the objectives; `None` if the candidate cannot be built or
    /// breaks a constraint, so that it must not be tried.
    fn known(&self, genes: &Genes) -> Option<Vec<f64>>;
}

/// Every candidate can be built, and no objective is cheap.
#[derive(Debug, Clone, Copy)]
pub struct NothingKnown;

impl Known for NothingKnown {
    fn known(&self, _genes: &Genes) -> Option<Vec<f64>> {
        Some(Vec::new())
    }
}
