//! Spaces that Python describes.

use crate::errors::Failure;
use phalanx_search::core::dice::Dice;
use phalanx_search::core::space::{Activity, Choice, Gene, Genes, Need, Space};
use phalanx_types::Seed;
use pyo3::prelude::*;

/// Choices, each with its label and, if it has one, its number.
type Choices = Vec<(String, Option<f64>)>;
/// Alternatives, each of some needs: the number of an earlier gene, and those of its choices.
type Condition = Vec<Vec<(usize, Vec<u16>)>>;

/// All candidates of a search; a candidate is the number of a choice per gene.
#[pyclass(frozen)]
pub(crate) struct SearchSpace {
    pub(super) space: Space,
}

#[pymethods]
impl SearchSpace {
    /// Genes have a name, choices and, if they do not always exist, a condition.
    #[new]
    fn new(genes: Vec<(String, Choices, Option<Condition>)>) -> PyResult<Self> {
        let gene = |(name, choices, condition): (String, Choices, Option<Condition>)| Gene {
            name,
            choices: choices.into_iter().map(|(label, number)| Choice { label, number }).collect(),
            activity: condition.map_or(Activity::Always, |alternatives| {
                let need = |(gene, choices)| Need { gene, choices };
                let needs = |needs: Vec<(usize, Vec<u16>)>| needs.into_iter().map(need).collect();
                Activity::AnyOf(alternatives.into_iter().map(needs).collect())
            }),
        };
        let space = Space::new(genes.into_iter().map(gene).collect());
        Ok(Self { space: space.map_err(|error| Failure::input(error.to_string()))? })
    }

    /// How many different candidates there are, if that can be counted.
    fn count(&self) -> Option<u128> {
        self.space.count()
    }

    /// The genes that a candidate has.
    fn active(&self, genes: Vec<u16>) -> Vec<usize> {
        self.space.active(&Genes(genes))
    }

    fn contains(&self, genes: Vec<u16>) -> bool {
        self.space.contains(&Genes(genes))
    }

    /// Genes that do not exist become 0.
    fn fold(&self, genes: Vec<u16>) -> Vec<u16> {
        self.space.fold(Genes(genes)).0
    }

    fn archid(&self, genes: Vec<u16>) -> String {
        self.space.archid(&Genes(genes))
    }

    /// A random candidate; the same seed gives the same one.
    fn sample(&self, seed: u64) -> Vec<u16> {
        self.space.sample(&mut Dice::of(Seed(seed), "sample", 0)).0
    }

    /// A candidate that differs in so many genes.
    fn mutate(&self, genes: Vec<u16>, changes: usize, seed: u64) -> Vec<u16> {
        self.space.mutate(&Genes(genes), changes, &mut Dice::of(Seed(seed), "mutate", 0)).0
    }

    /// A candidate with the genes of two.
    fn crossover(&self, a: Vec<u16>, b: Vec<u16>, seed: u64) -> Vec<u16> {
        self.space.crossover(&Genes(a), &Genes(b), &mut Dice::of(Seed(seed), "crossover", 0)).0
    }
}
