//! Losses of the user's own that a node has, by name.

use phalanx_engine::OwnLoss;
use std::collections::BTreeMap;

/// Losses of the user's own by name; a run file means one with `train.own_loss`.
///
/// ```
/// use phalanx_engine::{LossBatch, OwnLoss};
/// use phalanx_train::Losses;
///
/// let zero = OwnLoss::new("zero", |_: &LossBatch<'_>, gradient: &mut [f32]| {
///     gradient.fill(0.0);
///     0.0
/// });
/// let losses = Losses::new().with(zero);
/// assert!(losses.get("zero").is_some());
/// assert!(losses.get("other").is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Losses {
    by_name: BTreeMap<String, OwnLoss>,
}

/// A run needs a custom loss that is not here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the loss `{name}` is a function that this node does not have")]
pub struct MissingLoss {
    pub name: String,
}

impl Losses {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one; it replaces one of the same name.
    #[must_use]
    pub fn with(mut self, loss: OwnLoss) -> Self {
        self.by_name.insert(loss.name().to_owned(), loss);
        self
    }

    /// The loss of this name.
    pub fn get(&self, name: &str) -> Option<&OwnLoss> {
        self.by_name.get(name)
    }
}
