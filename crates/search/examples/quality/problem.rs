//! Problems whose true front is known: formulas, and tables of all candidates.

use phalanx_search::core::objective::{Goal, Known, Objective};
use phalanx_search::core::pareto::{first_front, hypervolume};
use phalanx_search::core::space::{Activity, Choice, Gene, Genes, Space};
use std::collections::{BTreeMap, BTreeSet};

/// Choices of a gene of a formula: 0, 0.05, … 1.
const STEPS: usize = 21;

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) objectives: Vec<Objective>,
    source: Source,
    /// Per objective what becomes 0 and what becomes 1; lower is better.
    ends: Vec<(f64, f64)>,
    /// The values of the best candidates there are.
    best: Vec<Vec<f64>>,
    /// In every objective, scaled.
    reference: f64,
    true_volume: f64,
}

#[derive(Debug)]
enum Source {
    Formula(fn(&[f64]) -> Vec<f64>),
    Table(BTreeMap<Genes, Row>),
}

#[derive(Debug, Clone)]
struct Row {
    values: Vec<f64>,
    /// Equal for equal networks.
    network: Option<String>,
}

impl Problem {
    /// `zdt1`, `zdt2` and `zdt3` with 30 genes, `dtlz2` with 12 genes and three objectives. Each gene has 21 ordered
    /// choices from 0 to 1. Values are scaled by the ends of the front.
    pub(crate) fn formula(name: &str) -> Option<Self> {
        type Formula = (fn(&[f64]) -> Vec<f64>, usize, Vec<(f64, f64)>);
        let unit = (0.0, 1.0);
        let (formula, genes, ends): Formula = match name {
            "zdt1" => (zdt1, 30, vec![unit, unit]),
            "zdt2" => (zdt2, 30, vec![unit, unit]),
            "zdt3" => (zdt3, 30, vec![(0.0, 0.851_832_865), (-0.773_369_012, 1.0)]),
            "dtlz2" => (dtlz2, 12, vec![unit; 3]),
            _ => return None,
        };
        let number = |step: usize| step as f64 / (STEPS - 1) as f64;
        let choice = |step: usize| Choice { label: number(step).to_string(), number: Some(number(step)) };
        let gene = |index: usize| Gene {
            name: format!("x{}", index + 1),
            choices: (0..STEPS).map(choice).collect(),
            activity: Activity::Always,
        };
        let space = Space::new((0..genes).map(gene).collect()).ok()?;
        let names: Vec<String> = (1..=ends.len()).map(|index| format!("min:f{index}")).collect();
        // The genes of the distance are optimal, those of the position anything.
        let positions = ends.len() - 1;
        let optimum = if name == "dtlz2" { 0.5 } else { 0.0 };
        let optimal = |which: usize| {
            let mut x = vec![optimum; genes];
            for (position, value) in x.iter_mut().take(positions).enumerate() {
                *value = number(which / STEPS.pow(position as u32) % STEPS);
            }
            formula(&x)
        };
        let best = (0..STEPS.pow(positions as u32)).map(optimal).collect();
        let objectives = names.iter().map(|name| objective(name)).collect::<Option<_>>()?;
        let problem = Self {
            name: name.to_owned(),
            space,
            objectives,
            source: Source::Formula(formula),
            ends,
            best,
            reference: 0.0,
            true_volume: 0.0,
        };
        Some(problem.with_reference(1.1))
    }

    /// A table of all candidates: a header, then a line per candidate. Columns of the header that begin with `min:` or
    /// `max:` are objectives, of which only those in `wanted` count, all if it is empty; the others are genes, and their
    /// choices are those of the file. A column `id:network` says which candidates are the same network under different
    /// genes: a search finds that out before it trains one, and trains each once. Values are scaled by the best and the
    /// worst of the table.
    ///
    /// # Errors
    /// If a line has another number of columns than the header, or a value is not a number.
    pub(crate) fn table(name: &str, text: &str, wanted: &[String]) -> Result<Self, String> {
        let mut lines = text.lines().map(|line| line.trim_end().split(',').collect::<Vec<&str>>());
        let header = lines.next().ok_or("an empty file")?;
        let rows: Vec<Vec<&str>> = lines.filter(|row| row.len() > 1).collect();
        if let Some(row) = rows.iter().find(|row| row.len() != header.len()) {
            return Err(format!("{} columns instead of {}: {row:?}", row.len(), header.len()));
        }
        let network = header.iter().position(|name| *name == "id:network");
        let mut genes = Vec::new();
        let mut objectives = Vec::new();
        for (column, name) in header.iter().enumerate().filter(|(column, _)| Some(*column) != network) {
            match objective(name) {
                Some(objective) if wanted.is_empty() || wanted.contains(&objective.name) => {
                    objectives.push((column, objective));
                }
                Some(_) => {}
                None => genes.push((column, gene(name, rows.iter().map(|row| row[column])))),
            }
        }
        let mut table = BTreeMap::new();
        for row in &rows {
            let choice = |(column, gene): &(usize, Gene)| {
                gene.choices.iter().position(|choice| choice.label == row[*column]).unwrap_or(0) as u16
            };
            let value = |(column, _): &(usize, Objective)| {
                row[*column].parse().map_err(|error| format!("{:?}: {error}", row[*column]))
            };
            let values = objectives.iter().map(value).collect::<Result<Vec<f64>, String>>()?;
            let row = Row { values, network: network.map(|column| row[column].to_owned()) };
            table.insert(Genes(genes.iter().map(choice).collect()), row);
        }
        let space =
            Space::new(genes.into_iter().map(|(_, gene)| gene).collect()).map_err(|e| e.to_string())?;
        let mut problem = Self {
            name: name.to_owned(),
            space,
            objectives: objectives.into_iter().map(|(_, objective)| objective).collect(),
            source: Source::Table(BTreeMap::new()),
            ends: Vec::new(),
            best: table.values().map(|row: &Row| row.values.clone()).collect(),
            reference: 0.0,
            true_volume: 0.0,
        };
        let all: Vec<Vec<f64>> = table.values().map(|row| problem.turned(&row.values)).collect();
        problem.ends = (0..problem.objectives.len())
            .map(|objective| {
                let values = || all.iter().map(|point| point[objective]);
                (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
            })
            .collect();
        problem.best = first_front(&all).into_iter().map(|row| problem.best[row].clone()).collect();
        problem.source = Source::Table(table);
        Ok(problem.with_reference(1.1))
    }

    /// With another reference, the same in each scaled objective.
    #[must_use]
    pub(crate) fn with_reference(mut self, reference: f64) -> Self {
        self.reference = reference;
        self.true_volume = self.volume(&self.best);
        self
    }

    /// Of the objectives; `None` if the table has no such candidate.
    pub(crate) fn evaluate(&self, genes: &Genes) -> Option<Vec<f64>> {
        match &self.source {
            Source::Table(table) => table.get(genes).map(|row| row.values.clone()),
            Source::Formula(formula) => {
                let of_gene = |(gene, &choice): (&Gene, &u16)| gene.choices[usize::from(choice)].number;
                let x: Option<Vec<f64>> = self.space.genes.iter().zip(&genes.0).map(of_gene).collect();
                Some(formula(&x?))
            }
        }
    }

    /// What is the same for equal networks, if the table says it.
    pub(crate) fn network(&self, genes: &Genes) -> Option<&str> {
        match &self.source {
            Source::Table(table) => table.get(genes)?.network.as_deref(),
            Source::Formula(_) => None,
        }
    }

    fn turned(&self, values: &[f64]) -> Vec<f64> {
        values.iter().zip(&self.objectives).map(|(&v, objective)| objective.lower_is_better(v)).collect()
    }

    /// The share of the true hypervolume that candidates of these values have.
    pub(crate) fn share(&self, values: &[Vec<f64>]) -> f64 {
        self.volume(values) / self.true_volume
    }

    fn volume(&self, values: &[Vec<f64>]) -> f64 {
        let scale = |values: &Vec<f64>| -> Vec<f64> {
            let turned = self.turned(values);
            turned.iter().zip(&self.ends).map(|(v, (low, high))| (v - low) / (high - low)).collect()
        };
        let points: Vec<Vec<f64>> = values.iter().map(scale).collect();
        hypervolume(&points, &vec![self.reference; self.objectives.len()])
    }

    /// Values of these objectives are known before a candidate is tried.
    #[must_use]
    pub(crate) fn knowing(mut self, cheap: &[String]) -> Self {
        for objective in &mut self.objectives {
            objective.cheap = cheap.contains(&objective.name);
        }
        self
    }
}

/// What a search knows of candidates before it tries them.
#[derive(Debug)]
pub(crate) struct Beforehand<'a> {
    problem: &'a Problem,
    networks: BTreeSet<&'a str>,
}

impl<'a> Beforehand<'a> {
    pub(crate) fn of(problem: &'a Problem) -> Self {
        Self { problem, networks: BTreeSet::new() }
    }

    /// Equal networks need not be tried again.
    pub(crate) fn tried(&mut self, genes: &Genes) {
        self.networks.extend(self.problem.network(genes));
    }
}

impl Known for Beforehand<'_> {
    fn known(&self, genes: &Genes) -> Option<Vec<f64>> {
        let values = self.problem.evaluate(genes)?;
        if self.problem.network(genes).is_some_and(|network| self.networks.contains(network)) {
            return None;
        }
        let cheap = values.iter().zip(&self.problem.objectives).filter(|(_, objective)| objective.cheap);
        Some(cheap.map(|(value, _)| *value).collect())
    }
}

/// `min:error` and the like.
fn objective(name: &str) -> Option<Objective> {
    let (goal, name) = name.split_once(':')?;
    let goal = match goal {
        "min" => Goal::Min,
        "max" => Goal::Max,
        _ => return None,
    };
    Some(Objective { name: name.to_owned(), goal, cheap: false })
}

/// Its choices are ordered if all are numbers.
fn gene<'a>(name: &str, labels: impl Iterator<Item = &'a str>) -> Gene {
    let mut labels: Vec<&str> = labels.collect();
    labels.sort_unstable();
    labels.dedup();
    let ordered = labels.iter().all(|label| label.parse::<f64>().is_ok());
    let number = |label: &str| label.parse().ok().filter(|_| ordered);
    let mut choices: Vec<Choice> =
        labels.into_iter().map(|label| Choice { label: label.to_owned(), number: number(label) }).collect();
    choices.sort_by(|a, b| a.number.unwrap_or(0.0).total_cmp(&b.number.unwrap_or(0.0)));
    Gene { name: name.to_owned(), choices, activity: Activity::Always }
}

/// How far a ZDT candidate is from the front: 1 on it.
fn distance(x: &[f64]) -> f64 {
    1.0 + 9.0 * x[1..].iter().sum::<f64>() / (x.len() - 1) as f64
}

fn zdt1(x: &[f64]) -> Vec<f64> {
    let g = distance(x);
    vec![x[0], g * (1.0 - (x[0] / g).sqrt())]
}

fn zdt2(x: &[f64]) -> Vec<f64> {
    let g = distance(x);
    vec![x[0], g * (1.0 - (x[0] / g).powi(2))]
}

fn zdt3(x: &[f64]) -> Vec<f64> {
    let g = distance(x);
    let wave = x[0] / g * (10.0 * std::f64::consts::PI * x[0]).sin();
    vec![x[0], g * (1.0 - (x[0] / g).sqrt() - wave)]
}

fn dtlz2(x: &[f64]) -> Vec<f64> {
    let radius = 1.0 + x[2..].iter().map(|x| (x - 0.5).powi(2)).sum::<f64>();
    let [a, b] = [x[0], x[1]].map(|x| x * std::f64::consts::FRAC_PI_2);
    vec![radius * a.cos() * b.cos(), radius * a.cos() * b.sin(), radius * a.sin()]
}
