//! The front of the table equals the front of the search that wrote the records.

use crate::synthetic::{about, objective};
use phalanx_search::core::algorithm::{Algorithm, History, Proposal};
use phalanx_search::core::control::{
    Candidates, Described, Finish, SearchCommand, SearchConfig, SearchCore, SearchEvent,
};
use phalanx_search::core::dice::Dice;
use phalanx_search::core::record::TrialId;
use phalanx_search::core::space::Genes;
use phalanx_search_results::{EventLine, SearchAbout, SearchTable};
use phalanx_types::Seed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug)]
struct Anything;

impl Algorithm for Anything {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        let draws = (0..200).map(|_| history.space.sample(dice));
        let genes = draws.into_iter().find(|genes| !history.seen.contains(genes))?;
        Some(Proposal { genes, parents: Vec::new() })
    }
}

/// Networks without a head that differ in the kernel of one layer are equal.
struct Costs(SearchAbout);

impl Candidates for Costs {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        let number = genes.0.iter().fold(7_u64, |sum, gene| sum * 31 + u64::from(*gene));
        let known = [("latency (ms)", number % 13), ("params", number % 11)];
        Ok(Described {
            archid: self.0.space.archid(genes),
            model: format!("{}", number % 97),
            known: known.map(|(name, value)| (name.to_owned(), value as f64)).into(),
        })
    }
}

fn search(seed: u64) -> usize {
    let about = SearchAbout { objectives: about().objectives, ..about() };
    assert_eq!(
        about.objectives[1],
        objective("latency (ms)", phalanx_search::core::objective::Goal::Min, true)
    );
    let config = SearchConfig {
        seed: Seed(seed),
        trials: about.trials,
        objectives: about.objectives.clone(),
        rungs: about.rungs.clone(),
        finish: [Finish::Front, Finish::All, Finish::None][seed as usize % 3],
        ..SearchConfig::default()
    };
    let costs = Box::new(Costs(about.clone()));
    let mut core = SearchCore::new(config, about.space.clone(), Box::new(Anything), costs);
    let mut table = SearchTable::new(about);
    let mut dice = Dice::new(Seed(seed));
    let mut runs: VecDeque<(TrialId, f64)> = VecDeque::new();
    let mut event = SearchEvent::Capacity { slots: 3 };
    let mut fronts = BTreeSet::new();
    loop {
        for command in core.on(event) {
            match command {
                SearchCommand::Record(record) => {
                    let at = crate::synthetic::STARTED + table.events();
                    table.apply(&EventLine { at, record }).unwrap();
                }
                SearchCommand::Run { trial, to, .. } => runs.push_back((trial, to)),
                SearchCommand::Cancel { trial } => runs.retain(|(run, _)| *run != trial),
                SearchCommand::Ended(_) => {}
            }
        }
        let shown: BTreeSet<TrialId> = table.front().trials.into_iter().collect();
        assert_eq!(shown, core.front().into_iter().collect(), "seed {seed}, record {}", table.events());
        fronts.insert(shown);
        let Some((trial, budget)) = runs.pop_front() else { break };
        event = if dice.chance(0.08) {
            SearchEvent::TrialFailed { trial, why: "bad luck".into(), retry: false }
        } else {
            let values = BTreeMap::from([("accuracy".to_owned(), dice.below(20) as f64 / 20.0)]);
            SearchEvent::TrialReached { trial, budget, values, seconds: 1.0 }
        };
    }
    assert_eq!(table.rows().len(), core.trials().len());
    assert!(table.end().is_some(), "the search ended");
    fronts.len()
}

#[test]
fn the_table_has_the_front_of_the_search() {
    let fronts: usize = (0..60).map(search).sum();
    assert!(fronts > 600, "{fronts}");
}
