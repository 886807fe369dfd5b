//! What is known of a candidate before it is trained, and why candidates are refused.

use super::bugs::{ControlBug, planted};
use super::{Bound, SearchConfig};
use crate::core::objective::Known;
use crate::core::space::Genes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// What follows from a candidate alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// As a person reads it: `(1, 3, 32)`.
    pub archid: String,
    /// Equal for candidates whose training gives the same results: the network **and** everything else that changes a
    /// result, such as the learning rate. Of equal ones only the first is trained.
    pub model: String,
    /// Cheap values by name: objectives, and what constraints are on. A value that costs time to find may be missing if a
    /// bound on another is broken.
    pub known: BTreeMap<String, f64>,
}

pub trait Candidates: Send {
    /// # Errors
    /// If the candidate cannot be built: why, the same words for the same cause, because they are counted.
    fn describe(&self, genes: &Genes) -> Result<Described, String>;
}

/// Candidates that are kept described. An algorithm looks at hundreds per question, mostly the same ones.
const CACHED: usize = 100_000;

/// So many reasons are named when every candidate is refused.
const NAMED_REASONS: usize = 3;

/// Candidates by their descriptions, each made once.
pub(super) struct CandidateCache {
    candidates: Box<dyn Candidates>,
    bounds: Vec<Bound>,
    /// Names of the cheap objectives, in order.
    cheap: Vec<String>,
    described: RefCell<BTreeMap<Genes, Option<Described>>>,
    refused: RefCell<BTreeMap<String, Refused>>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    count: u64,
    /// The value that came nearest to a bound.
    nearest: Option<f64>,
}

impl CandidateCache {
    pub(super) fn new(candidates: Box<dyn Candidates>, config: &SearchConfig) -> Self {
        let cheap = config.objectives.iter().filter(|objective| objective.cheap);
        Self {
            candidates,
            bounds: config.bounds.clone(),
            cheap: cheap.map(|objective| objective.name.clone()).collect(),
            described: RefCell::default(),
            refused: RefCell::default(),
        }
    }

    /// Candidates that were looked at.
    pub(super) fn len(&self) -> u64 {
        self.described.borrow().len() as u64
    }

    /// `None` if the candidate must not be tried.
    pub(super) fn describe(&self, genes: &Genes) -> Option<Described> {
        if let Some(known) = self.described.borrow().get(genes) {
            return known.clone();
        }
        let described = self.look_at(genes);
        let mut all = self.described.borrow_mut();
        if all.len() >= CACHED {
            all.clear();
        }
        all.insert(genes.clone(), described.clone());
        described
    }

    fn look_at(&self, genes: &Genes) -> Option<Described> {
        let mut described = match self.candidates.describe(genes) {
            Ok(described) => described,
            Err(why) => {
                self.refuse(format!("cannot be built: {why}"), None);
                return None;
            }
        };
        described.known.retain(|_, value| value.is_finite());
        let broken = self.bounds.iter().find_map(|bound| {
            let value = *described.known.get(&bound.name)?;
            Some((bound.broken_by(value)?, value))
        });
        let broken = broken.filter(|_| !planted(ControlBug::IgnoresBounds));
        if let Some((what, value)) = broken {
            self.refuse(format!("have {what}"), Some(value));
            return None;
        }
        if let Some(name) = self.cheap.iter().find(|name| !described.known.contains_key(*name)) {
            self.refuse(format!("have no value of `{name}`"), None);
            return None;
        }
        Some(described)
    }

    fn refuse(&self, reason: String, value: Option<f64>) {
        let above = reason.contains(ABOVE);
        let mut all = self.refused.borrow_mut();
        let refused = all.entry(reason).or_insert(Refused { count: 0, nearest: value });
        refused.count += 1;
        refused.nearest = match (refused.nearest, value) {
            (Some(nearest), Some(value)) => Some(if above { nearest.min(value) } else { nearest.max(value) }),
            (nearest, value) => nearest.or(value),
        };
    }

    /// Why candidates were refused, the most frequent reasons first; `None` if none was.
    pub(super) fn refusals(&self) -> Option<String> {
        let all = self.refused.borrow();
        let total = all.values().map(|refused| refused.count).sum::<u64>();
        let mut reasons = all.iter().collect::<Vec<_>>();
        reasons.sort_by_key(|(_, refused)| std::cmp::Reverse(refused.count));
        let mut text = format!("of {total} candidates that were refused");
        for (index, (reason, refused)) in reasons.iter().take(NAMED_REASONS).enumerate() {
            let separator = if index == 0 { ", " } else { "; " };
            let _infallible = write!(text, "{separator}{} {reason}", refused.count);
            if let Some(nearest) = refused.nearest {
                let _infallible = write!(text, " (the nearest {nearest})");
            }
        }
        (total > 0).then_some(text)
    }
}

impl Known for CandidateCache {
    fn known(&self, genes: &Genes) -> Option<Vec<f64>> {
        let described = self.describe(genes)?;
        self.cheap.iter().map(|name| described.known.get(name).copied()).collect()
    }
}

impl fmt::Debug for CandidateCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandidateCache").field("described", &self.len()).finish_non_exhaustive()
    }
}

const ABOVE: &str = "` above ";

impl Bound {
    /// What is wrong with a value; `None` if it is within the limits.
    pub(super) fn broken_by(&self, value: f64) -> Option<String> {
        match (self.at_least, self.at_most) {
            (Some(least), _) if value < least => Some(format!("`{}` below {least}", self.name)),
            (_, Some(most)) if value > most => Some(format!("`{}{ABOVE}{most}", self.name)),
            _ => None,
        }
    }
}
