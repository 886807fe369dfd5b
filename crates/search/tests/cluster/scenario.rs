//! A random search: its space, what its candidates are worth, and how it is set.

use phalanx_search::core::algorithm::{Algorithm, AlgorithmKind, History, Proposal};
use phalanx_search::core::control::{Bound, Candidates, Described, Finish, SearchConfig};
use phalanx_search::core::dice::Dice;
use phalanx_search::core::objective::{Goal, Objective};
use phalanx_search::core::space::{Activity, Choice, Gene, Genes, Need, Space};
use phalanx_types::Seed;
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) config: SearchConfig,
    pub(crate) space: Space,
    pub(crate) algorithm: Chosen,
    pub(crate) truth: Truth,
}

/// What candidates are worth. The same question has the same answer on every node.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    seed: Seed,
    /// Candidates that differ only in this gene are the same network.
    ignored: Option<usize>,
    unbuildable: f64,
    nan: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Chosen {
    Draw,
    Walk,
    Careless,
    Kind(AlgorithmKind),
}

impl Scenario {
    pub(crate) fn random(seed: u64) -> Self {
        let mut dice = Dice::of(Seed(seed), "scenario", 0);
        let space = space(&mut dice);
        let ladders: [&[f64]; 5] =
            [&[1.0], &[1.0, 3.0], &[1.0, 30.0], &[0.5, 1.0, 4.0], &[1.0, 2.0, 4.0, 9.0]];
        let finishes = [Finish::Front, Finish::All, Finish::None];
        let objective = |name: &str, goal, cheap| Objective { name: name.to_owned(), goal, cheap };
        let mut objectives = vec![objective("accuracy", Goal::Max, false)];
        if dice.chance(0.7) {
            objectives.push(objective("params", Goal::Min, true));
        }
        if dice.chance(0.3) {
            objectives.push(objective("loss", Goal::Min, false));
        }
        let bound = |name: &str, at_least, at_most| Bound { name: name.to_owned(), at_least, at_most };
        let mut bounds = Vec::new();
        if dice.chance(0.3) {
            bounds.push(bound("params", None, Some(0.1 + dice.unit())));
        }
        if dice.chance(0.2) {
            bounds.push(bound("latency", None, Some(0.5 + dice.unit())));
        }
        if dice.chance(0.2) {
            bounds.push(bound("accuracy", Some(dice.unit()), None));
        }
        let share = |dice: &mut Dice, of: f64| if dice.chance(0.3) { dice.unit() * of } else { 0.0 };
        let truth = Truth {
            seed: Seed(seed),
            ignored: dice.chance(0.4).then(|| dice.below(space.genes.len())),
            unbuildable: share(&mut dice, 1.0),
            nan: share(&mut dice, 1.2),
        };
        let config = SearchConfig {
            seed: Seed(seed),
            trials: 3 + dice.below(40) as u64,
            objectives,
            bounds,
            rungs: dice.pick(&ladders).map(|rungs| rungs.to_vec()).unwrap(),
            eta: 2 + dice.below(3) as u32,
            finish: *dice.pick(&finishes).unwrap(),
            retries: dice.below(5) as u32,
            early_failures: dice.pick(&[0, 3, 5]).copied().unwrap(),
            stop_hopeless: dice.chance(0.4),
            generation: dice.chance(0.2).then(|| 1 + dice.below(8)),
        };
        Self { config, space, algorithm: algorithm(&mut dice), truth }
    }

    pub(crate) fn algorithm(&self) -> Box<dyn Algorithm> {
        match self.algorithm {
            Chosen::Draw => Box::new(Draw),
            Chosen::Walk => Box::new(Walk { asked: 0 }),
            Chosen::Careless => Box::new(Careless),
            Chosen::Kind(kind) => crate::cluster::kinds::made(kind),
        }
    }
}

fn algorithm(dice: &mut Dice) -> Chosen {
    let own = [Chosen::Draw, Chosen::Walk, Chosen::Careless];
    match dice.pick(crate::cluster::kinds::KINDS) {
        Some(kind) if dice.chance(0.6) => Chosen::Kind(*kind),
        _ => *dice.pick(&own).unwrap(),
    }
}

fn space(dice: &mut Dice) -> Space {
    let mut genes = Vec::<Gene>::new();
    for index in 0..2 + dice.below(4) {
        let words = dice.chance(0.4);
        let choice = |number: usize| Choice {
            label: if words { format!("w{number}") } else { number.to_string() },
            number: (!words).then_some(number as f64),
        };
        let choices = (0..2 + dice.below(3)).map(choice).collect();
        let needs = (index > 0 && dice.chance(0.3)).then(|| dice.below(index));
        let activity = needs.map_or(Activity::Always, |gene| {
            let choices = vec![dice.below(genes[gene].choices.len()) as u16];
            Activity::AnyOf(vec![vec![Need { gene, choices }]])
        });
        genes.push(Gene { name: format!("g{index}"), choices, activity });
    }
    Space::new(genes).unwrap()
}

impl Truth {
    fn dice(&self, model: &str, what: &str) -> Dice {
        Dice::new(self.seed.derive(model).derive(what))
    }

    pub(crate) fn model(&self, genes: &Genes) -> String {
        let mut genes = genes.0.clone();
        if let Some(gene) = self.ignored {
            genes[gene] = 0;
        }
        format!("{genes:?}")
    }

    pub(crate) fn params(&self, model: &str) -> f64 {
        self.dice(model, "params").unit()
    }

    /// What is measured at a budget. Some networks never give a value of an objective, some not at every budget.
    pub(crate) fn values(&self, model: &str, budget: f64) -> BTreeMap<String, f64> {
        let mut dice = self.dice(model, "worth");
        let (worth, speed) = (dice.unit(), 0.3 + dice.unit());
        let noise = self.dice(model, &budget.to_string()).unit() * 0.1;
        let accuracy = worth * (1.0 - (-budget * speed).exp()) + noise;
        let mut values = BTreeMap::from([
            ("accuracy".to_owned(), accuracy),
            ("loss".to_owned(), 1.0 - worth + noise),
            ("latency".to_owned(), self.dice(model, "latency").unit() * 1.2),
            ("other".to_owned(), if worth < 0.1 { f64::INFINITY } else { worth }),
        ]);
        let mut broken = self.dice(model, "nan");
        if broken.chance(self.nan) && budget >= broken.unit() * 3.0 {
            if broken.chance(0.5) {
                values.insert("accuracy".to_owned(), f64::NAN);
            } else {
                values.remove("accuracy");
            }
        }
        values
    }
}

impl Candidates for Truth {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        let model = self.model(genes);
        if self.dice(&model, "build").chance(self.unbuildable) {
            return Err("the kernel is larger than its input".to_owned());
        }
        let known = BTreeMap::from([("params".to_owned(), self.params(&model))]);
        Ok(Described { archid: format!("{:?}", genes.0), model, known })
    }
}

fn is_free(history: &History<'_>, genes: &Genes) -> bool {
    !history.seen.contains(genes) && history.known.known(genes).is_some()
}

/// Any candidate that is left.
fn left(history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
    let drawn = (0..8).map(|_| history.space.sample(dice)).find(|genes| is_free(history, genes));
    let genes = drawn.or_else(|| history.space.candidates().find(|genes| is_free(history, genes)))?;
    Some(Proposal { genes, parents: Vec::new() })
}

/// Random candidates until none is left.
#[derive(Debug)]
struct Draw;

impl Algorithm for Draw {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        left(history, dice)
    }
}

/// Mutants of the best result; what it does depends on how often it was asked, which only its state tells.
#[derive(Debug)]
struct Walk {
    asked: u64,
}

impl Algorithm for Walk {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        self.asked += 1;
        let newest = history.results.last().filter(|_| self.asked % 3 == 1);
        let best = || history.results.iter().max_by(|a, b| a.values[0].total_cmp(&b.values[0]));
        if let Some(parent) = newest.or_else(best) {
            let changes = 1 + history.pending.len() % 2;
            let genes = history.space.mutate(&parent.genes, changes, dice);
            if is_free(history, &genes) {
                return Some(Proposal { genes, parents: vec![parent.genes.clone()] });
            }
        }
        left(history, dice)
    }

    fn state(&self) -> Option<serde_json::Value> {
        (self.asked > 0).then(|| self.asked.into())
    }

    fn restore(&mut self, state: &serde_json::Value) -> bool {
        self.asked = state.as_u64().unwrap_or_default();
        true
    }
}

/// Does not look at what was tried or must not be tried.
#[derive(Debug)]
struct Careless;

impl Algorithm for Careless {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        Some(Proposal { genes: history.space.sample(dice), parents: Vec::new() })
    }
}
