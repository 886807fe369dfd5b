//! Grid search: every candidate once, in an order whose beginning is already spread over the whole space.
//!
//! The candidates are numbered (the first gene counts most), and the numbers are visited in steps of the golden ratio of
//! their count, modulo the count. The step shares no divisor with the count, so each number comes exactly once. A search
//! with fewer trials than candidates thus sees all parts of the space, not only the choices of the last genes.

use super::unseen::{is_unseen, propose_random};
use super::{Algorithm, AlgorithmSettings, History, Proposal};
use crate::core::dice::Dice;
use crate::core::space::{Genes, Space};

/// Numbers visited in one ask. Several numbers may mean one candidate where genes exist only with others.
const VISITS: usize = 50_000;
/// Genes beyond this product of choices are not numbered: no search comes so far that it matters.
const LARGEST: u128 = 1 << 100;

#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// How many numbers were visited. Follows from what was seen, because the visit begins anew after a restart and skips
    /// what it meets again; so it is no state.
    visited: u128,
}

impl Grid {
    pub fn new(_settings: &AlgorithmSettings) -> Self {
        Self::default()
    }
}

impl Algorithm for Grid {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        let numbering = Numbering::of(history.space);
        for _ in 0..VISITS {
            if self.visited >= numbering.count {
                break;
            }
            let genes = numbering.candidate(history.space, self.visited);
            self.visited += 1;
            if is_unseen(history, &genes) {
                return Some(Proposal { genes, parents: Vec::new() });
            }
        }
        // In a large space with hardly any buildable candidates the numbers do not lead to one in bounded time.
        propose_random(history, dice)
    }
}

/// The order of a visit to all combinations of choices, folded or not.
struct Numbering {
    count: u128,
    step: u128,
}

impl Numbering {
    fn of(space: &Space) -> Self {
        let mut count = 1_u128;
        for gene in &space.genes {
            let larger = count.saturating_mul(gene.choices.len().max(1) as u128);
            if larger > LARGEST {
                break;
            }
            count = larger;
        }
        let mut step = (count as f64 * 0.618_033_988_749_895) as u128;
        while greatest_common_divisor(step, count) != 1 {
            step += 1;
        }
        Self { count, step }
    }

    fn candidate(&self, space: &Space, visit: u128) -> Genes {
        let mut number = modular_product(visit, self.step, self.count);
        let mut left = self.count;
        let mut genes = Vec::with_capacity(space.genes.len());
        for gene in &space.genes {
            let choices = gene.choices.len().max(1) as u128;
            if left >= choices {
                left /= choices;
                genes.push((number / left) as u16);
                number %= left;
            } else {
                genes.push((visit % choices) as u16);
            }
        }
        space.fold(Genes(genes))
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// `a * b % modulus` by doubling, for a modulus of at most 2¹²⁶.
fn modular_product(a: u128, b: u128, modulus: u128) -> u128 {
    if let Some(product) = a.checked_mul(b) {
        return product % modulus;
    }
    let (mut a, mut b, mut sum) = (a % modulus, b % modulus, 0_u128);
    while b > 0 {
        if b & 1 == 1 {
            sum = (sum + a) % modulus;
        }
        a = a * 2 % modulus;
        b >>= 1;
    }
    sum
}
