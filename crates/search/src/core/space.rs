//! The candidates of a search: genes, of which each has a few choices, and of which some exist only with others.

use serde::{Deserialize, Serialize};

/// A candidate: the number of a choice per gene, in the space's order. Genes that a candidate does not use are 0, so that
/// equal candidates are equal here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Genes(pub Vec<u16>);

/// One thing to choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gene {
    pub name: String,
    pub choices: Vec<Choice>,
    pub activity: Activity,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// As a person reads it.
    pub label: String,
    /// Choices that all have numbers are ordered by them.
    pub number: Option<f64>,
}

/// When a gene exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    Always,
    /// Any of these, of which all needs are met.
    AnyOf(Vec<Vec<Need>>),
}

/// An earlier gene that exists and has one of some choices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    pub gene: usize,
    pub choices: Vec<u16>,
}

/// All candidates of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Space {
    pub genes: Vec<Gene>,
}
