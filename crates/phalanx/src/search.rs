//! Architecture search: candidates of a space are tried, and the best of several objectives found.
//!
//! | To | use |
//! |---|---|
//! | search with any function of the program as the objective | [`search`] |
//! | decide oneself where and when candidates are tried | [`SearchCore`]: results in, what to try next out |
//! | search on nodes, as a search file says | [`SearchPlan`], [`SearchDir`] and [`drive`]; `phalanx search run` is these |
//! | follow a search and read its results | [`SearchFollower`], [`SearchTable`], [`ResultsWriter`] |
//!
//! `examples/search.rs` searches with a function. Algorithms are chosen by [`AlgorithmKind`]; one of the program's own
//! is an [`Algorithm`].

pub use phalanx_search::core::algorithm::{
    Algorithm, AlgorithmKind, AlgorithmSettings, History, Observation, Proposal, make,
};
pub use phalanx_search::core::control::{
    Bound, Candidates, Described, Finish, SearchCommand, SearchConfig, SearchCore, SearchEvent, TrialState,
};
pub use phalanx_search::core::dice::Dice;
pub use phalanx_search::core::objective::{Goal, Known, NothingKnown, Objective};
pub use phalanx_search::core::pareto;
pub use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
pub use phalanx_search::core::space::{Activity, Choice, Gene, Genes, Need, Space, SpaceError};
pub use phalanx_search::core::template::{SearchFile, TemplateError};
pub use phalanx_search_driver::{
    CheckedModel, Exporter, Overrides, SearchDir, SearchError, SearchObserver, SearchPlan, drive, trial_path,
};
pub use phalanx_search_results::{
    EventLine, ResultsWriter, SearchAbout, SearchFollower, SearchTable, TrialRow,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Searches with a function of the program, one candidate after the other on this thread.
///
/// `evaluate` is given a candidate, and the budget to which it is to be tried: one of `config.rungs`. It gives a value
/// for every objective that is not cheap, or says why it cannot. What is known of candidates beforehand, `candidates`
/// say. The result has all trials and the front.
pub fn search(
    config: SearchConfig,
    space: Space,
    algorithm: Box<dyn Algorithm>,
    candidates: Box<dyn Candidates>,
    mut evaluate: impl FnMut(&Genes, f64) -> Result<BTreeMap<String, f64>, String>,
) -> SearchCore {
    let mut core = SearchCore::new(config, space, algorithm, candidates);
    let mut commands = VecDeque::from(core.on(SearchEvent::Capacity { slots: 1 }));
    while let Some(command) = commands.pop_front() {
        let SearchCommand::Run { trial, to, .. } = command else { continue };
        let Some(genes) = core.trials().get(&trial).map(|state| state.genes.clone()) else { continue };
        let began = Instant::now();
        let event = match evaluate(&genes, to) {
            Ok(values) => SearchEvent::TrialReached {
                trial,
                budget: to,
                values,
                seconds: began.elapsed().as_secs_f64(),
            },
            Err(why) => SearchEvent::TrialFailed { trial, why, retry: false },
        };
        commands.extend(core.on(event));
    }
    core
}
