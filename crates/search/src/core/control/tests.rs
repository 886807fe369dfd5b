use super::*;
use crate::core::algorithm::{History, Proposal};
use crate::core::dice::Dice;
use crate::core::objective::Goal;
use crate::core::record::TrialEnd;
use crate::core::space::{Activity, Choice, Gene, Genes};

/// Candidates in order.
#[derive(Debug)]
struct InOrder;

impl Algorithm for InOrder {
    fn ask(&mut self, history: &History<'_>, _dice: &mut Dice) -> Option<Proposal> {
        let is_free = |genes: &Genes| !history.seen.contains(genes) && history.known.known(genes).is_some();
        history.space.candidates().find(is_free).map(|genes| Proposal { genes, parents: Vec::new() })
    }
}

/// The n-th candidate has n parameters, and its network is called by n modulo `models`.
struct Numbered {
    models: u16,
    builds: bool,
}

impl Candidates for Numbered {
    fn describe(&self, genes: &Genes) -> Result<Described, String> {
        if !self.builds {
            return Err("no input".to_owned());
        }
        let number = genes.0[0];
        let known = BTreeMap::from([("params".to_owned(), f64::from(number))]);
        Ok(Described { archid: format!("({number})"), model: format!("m{}", number % self.models), known })
    }
}

const ALL_DIFFERENT: Numbered = Numbered { models: u16::MAX, builds: true };

fn config(trials: u64, rungs: &[f64]) -> SearchConfig {
    let objective = |name: &str, goal, cheap| Objective { name: name.to_owned(), goal, cheap };
    let objectives = vec![objective("accuracy", Goal::Max, false), objective("params", Goal::Min, true)];
    SearchConfig { trials, objectives, rungs: rungs.to_vec(), eta: 2, retries: 1, ..SearchConfig::default() }
}

fn space() -> Space {
    let choice = |number: usize| Choice { label: number.to_string(), number: Some(number as f64) };
    let choices = (0..100).map(choice).collect();
    Space::new(vec![Gene { name: "n".to_owned(), choices, activity: Activity::Always }]).unwrap()
}

fn search(config: SearchConfig, candidates: Numbered, slots: usize) -> (SearchCore, Vec<SearchCommand>) {
    let mut core = SearchCore::new(config, space(), Box::new(InOrder), Box::new(candidates));
    let commands = core.on(SearchEvent::Capacity { slots });
    core.check_invariants().unwrap();
    (core, commands)
}

fn t(trial: u64) -> TrialId {
    TrialId(trial)
}

fn accuracy(value: f64) -> BTreeMap<String, f64> {
    BTreeMap::from([("accuracy".to_owned(), value)])
}

fn reached(core: &mut SearchCore, trial: u64, budget: f64, value: f64) -> Vec<SearchCommand> {
    let event = SearchEvent::TrialReached { trial: t(trial), budget, values: accuracy(value), seconds: 1.0 };
    let commands = core.on(event);
    core.check_invariants().unwrap();
    commands
}

fn proposed(trial: u64) -> SearchCommand {
    let number = trial - 1;
    SearchCommand::Record(SearchRecord::TrialProposed {
        trial: t(trial),
        genes: Genes(vec![number as u16]),
        archid: format!("({number})"),
        model: format!("m{number}"),
        parents: Vec::new(),
        known: BTreeMap::from([("params".to_owned(), number as f64)]),
        state: None,
    })
}

fn queued(trial: u64, rung: u32, from: f64, to: f64) -> SearchCommand {
    SearchCommand::Record(SearchRecord::TrialQueued { trial: t(trial), rung, from, to })
}

fn run(trial: u64, from: f64, to: f64, priority: i32) -> SearchCommand {
    SearchCommand::Run { trial: t(trial), from, to, priority }
}

fn at(trial: u64, budget: f64, value: f64) -> SearchCommand {
    let (values, seconds) = (accuracy(value), 1.0);
    SearchCommand::Record(SearchRecord::TrialReached { trial: t(trial), budget, values, seconds })
}

fn ended(trial: u64, end: TrialEnd) -> SearchCommand {
    SearchCommand::Record(SearchRecord::TrialEnded { trial: t(trial), end })
}

fn over(end: SearchEnd) -> [SearchCommand; 2] {
    [SearchCommand::Record(SearchRecord::SearchEnded { end: end.clone() }), SearchCommand::Ended(end)]
}

fn records(commands: &[SearchCommand]) -> Vec<SearchRecord> {
    let record = |command: &SearchCommand| match command {
        SearchCommand::Record(record) => Some(record.clone()),
        _ => None,
    };
    commands.iter().filter_map(record).collect()
}

#[test]
fn a_free_slot_gets_the_next_candidate_at_once_and_the_last_result_ends_the_search() {
    let (mut core, first) = search(config(2, &[1.0]), ALL_DIFFERENT, 1);
    assert_eq!(first, [proposed(1), queued(1, 0, 0.0, 1.0), run(1, 0.0, 1.0, 0)]);
    assert_eq!(core.reason(), None);
    let next = reached(&mut core, 1, 1.0, 0.9);
    let complete = ended(1, TrialEnd::Completed);
    assert_eq!(next, [at(1, 1.0, 0.9), complete, proposed(2), queued(2, 0, 0.0, 1.0), run(2, 0.0, 1.0, 0)]);
    let last = reached(&mut core, 2, 1.0, 0.8);
    let [record, end] = over(SearchEnd::Finished);
    assert_eq!(last, [at(2, 1.0, 0.8), ended(2, TrialEnd::Completed), record, end]);
    assert_eq!(core.front(), [t(1)], "the second is larger and worse");
}

#[test]
fn events_that_are_late_double_or_unknown_change_nothing() {
    let (mut core, _) = search(config(9, &[1.0, 2.0]), ALL_DIFFERENT, 1);
    let fails = |trial| SearchEvent::TrialFailed { trial: t(trial), why: String::new(), retry: true };
    assert_eq!(reached(&mut core, 1, 2.0, 0.5), [], "another budget than it was queued to");
    assert_eq!(reached(&mut core, 7, 1.0, 0.5), [], "unknown");
    assert_ne!(reached(&mut core, 1, 1.0, 0.5), []);
    assert_eq!(reached(&mut core, 1, 1.0, 0.7), [], "a second time");
    assert_eq!(core.on(fails(1)), [], "it has a result");
    assert_eq!(core.on(SearchEvent::TrialStarted { trial: t(1), node: "n1".to_owned() }), []);
    assert_eq!(core.on(SearchEvent::Capacity { slots: 1 }), []);
}

#[test]
fn an_equal_network_takes_over_the_result_and_is_not_trained() {
    let (mut core, first) = search(config(3, &[1.0]), Numbered { models: 2, builds: true }, 3);
    let runs = first.iter().filter(|command| matches!(command, SearchCommand::Run { .. })).count();
    assert_eq!(runs, 2, "the third is the first network: {first:?}");
    reached(&mut core, 2, 1.0, 0.4);
    let last = records(&reached(&mut core, 1, 1.0, 0.6));
    let (values, seconds) = (accuracy(0.6), 0.0);
    assert_eq!(last[2], SearchRecord::TrialReached { trial: t(3), budget: 1.0, values, seconds });
    assert_eq!(last[3], SearchRecord::TrialEnded { trial: t(3), end: TrialEnd::Completed });
    assert_eq!((core.trials()[&t(3)].same_as, core.front()), (Some(t(1)), vec![t(1)]));
}

#[test]
fn the_best_of_a_rung_go_on_and_the_front_is_trained_in_full() {
    let (mut core, _) = search(config(4, &[1.0, 2.0, 8.0]), ALL_DIFFERENT, 4);
    for (trial, value) in [(4, 0.5), (3, 0.9), (2, 0.6)] {
        reached(&mut core, trial, 1.0, value);
    }
    let trial = |core: &SearchCore, trial| core.trials()[&t(trial)].stage.clone();
    // Of the first two, the better. Of three still one: of two that are equally good, the earlier.
    assert_eq!(trial(&core, 3), Stage::Queued { rung: 1, from: 1.0, to: 2.0 });
    assert_eq!(trial(&core, 2), Stage::Queued { rung: 1, from: 1.0, to: 2.0 });
    // With four, two go on: of the members of the front, the extremes are crowded least.
    let last = reached(&mut core, 1, 1.0, 0.1);
    assert!(last.contains(&run(1, 1.0, 2.0, 1)), "{last:?}");
    reached(&mut core, 1, 2.0, 0.2);
    reached(&mut core, 3, 2.0, 0.95);
    reached(&mut core, 2, 2.0, 0.65);
    for id in [1, 2, 3] {
        let Stage::Queued { to, .. } = trial(&core, id) else { panic!("{id} is on the front") };
        assert_eq!(to, 8.0);
    }
    assert_eq!(trial(&core, 4), Stage::Waiting, "the third is smaller and better");
    for (trial, value) in [(1, 0.3), (2, 0.7), (3, 0.97)] {
        reached(&mut core, trial, 8.0, value);
    }
    assert_eq!(trial(&core, 4), Stage::Ended(TrialEnd::Partial));
    assert_eq!((core.ended(), core.front()), (Some(&SearchEnd::Finished), vec![t(1), t(2), t(3)]));
}

#[test]
fn a_lost_node_costs_the_way_since_the_last_budget_and_not_more_often_than_allowed() {
    let (mut core, _) = search(config(2, &[1.0, 2.0, 8.0]), ALL_DIFFERENT, 2);
    reached(&mut core, 1, 1.0, 0.5);
    reached(&mut core, 2, 1.0, 0.1);
    let why = || "n1 was lost".to_owned();
    let fail = SearchEvent::TrialFailed { trial: t(1), why: why(), retry: true };
    let retried = SearchCommand::Record(SearchRecord::TrialRetried { trial: t(1), why: why() });
    assert_eq!(core.on(fail.clone()), [retried, run(1, 1.0, 2.0, 1)]);
    let again = core.on(fail);
    assert_eq!(again[0], ended(1, TrialEnd::Failed { why: why() }), "one retry is allowed");
}

#[test]
fn a_search_whose_first_trials_all_fail_says_why_and_can_be_resumed() {
    let (mut core, mut all) = search(config(50, &[1.0]), ALL_DIFFERENT, 2);
    for trial in 1..=5 {
        all.extend(reached(&mut core, trial, 1.0, f64::NAN));
    }
    let Some(SearchEnd::Failed { why }) = core.ended() else { panic!("it goes on") };
    let expected =
        "the first 5 trials all failed: 5 × the objective `accuracy` is missing or not a finite number";
    assert_eq!(why, expected);
    assert_eq!(all[all.len() - 2], SearchCommand::Cancel { trial: t(6) }, "{all:?}");
    let records = records(&all);
    let mut again = SearchCore::restore(
        config(50, &[1.0]),
        space(),
        Box::new(InOrder),
        Box::new(ALL_DIFFERENT),
        &records,
    )
    .unwrap();
    assert_eq!(again.resume(), [run(6, 0.0, 1.0, 0)]);
    reached(&mut again, 6, 1.0, 0.5);
    assert_eq!(again.ended(), None);
}

#[test]
fn candidates_that_are_all_refused_end_the_search_with_the_reasons() {
    let bound = |at_most| Bound { name: "params".to_owned(), at_least: None, at_most: Some(at_most) };
    let why = |config, candidates| match search(config, candidates, 1).1.pop() {
        Some(SearchCommand::Ended(SearchEnd::Failed { why })) => why,
        other => panic!("{other:?}"),
    };
    let refused = why(SearchConfig { bounds: vec![bound(-1.5)], ..config(9, &[1.0]) }, ALL_DIFFERENT);
    let reasons = "of 100 candidates that were refused, 100 have `params` above -1.5 (the nearest 0)";
    assert_eq!(refused, format!("no candidate can be tried: {reasons}"));
    let refused = why(config(9, &[1.0]), Numbered { models: 1, builds: false });
    assert!(refused.ends_with("100 cannot be built: no input"), "{refused}");
    let (core, _) = search(SearchConfig { bounds: vec![bound(1.0)], ..config(9, &[1.0]) }, ALL_DIFFERENT, 4);
    assert_eq!(core.trials().len(), 2, "only two candidates are within the bound");
    assert!(core.reason().unwrap().contains("no further candidate"), "{:?}", core.reason());
}

#[test]
fn measured_bounds_make_a_trial_infeasible_and_those_on_objectives_only_in_the_end() {
    let bound = |name: &str, least| Bound { name: name.to_owned(), at_least: Some(least), at_most: None };
    let bounds = vec![bound("accuracy", 0.5), bound("speed", 10.0)];
    let (mut core, _) = search(SearchConfig { bounds, ..config(2, &[1.0, 4.0]) }, ALL_DIFFERENT, 2);
    let mut result = |trial, budget, accuracy: f64, speed| {
        let values = BTreeMap::from([("accuracy".to_owned(), accuracy), ("speed".to_owned(), speed)]);
        core.on(SearchEvent::TrialReached { trial: t(trial), budget, values, seconds: 1.0 });
        core.check_invariants().unwrap();
        core.trials()[&t(trial)].stage.clone()
    };
    let why = |why: &str| Stage::Ended(TrialEnd::Infeasible { why: why.to_owned() });
    assert_eq!(result(1, 1.0, 0.3, 9.0), why("`speed` below 10: 9"));
    assert!(matches!(result(2, 1.0, 0.3, 11.0), Stage::Queued { rung: 1, .. }), "it may still improve");
    assert_eq!(result(2, 4.0, 0.4, 11.0), why("`accuracy` below 0.5: 0.4"));
    let Some(SearchEnd::Failed { why }) = core.ended() else { panic!("nothing meets the bounds") };
    assert!(why.starts_with("none of 2 trials has a result that counts"), "{why}");
}

#[test]
fn a_stopped_search_cancels_what_runs_and_goes_on_with_it() {
    let (mut core, mut all) = search(config(5, &[1.0]), ALL_DIFFERENT, 2);
    let stop = core.on(SearchEvent::StopAsked);
    let [record, end] = over(SearchEnd::Stopped);
    let cancel = |trial| SearchCommand::Cancel { trial: t(trial) };
    assert_eq!(stop, [record, cancel(1), cancel(2), end]);
    assert_eq!(reached(&mut core, 1, 1.0, 0.5), [], "late");
    all.extend(stop);
    let all = records(&all);
    let restore = |records: &[SearchRecord]| {
        SearchCore::restore(config(5, &[1.0]), space(), Box::new(InOrder), Box::new(ALL_DIFFERENT), records)
    };
    let mut again = restore(&all).unwrap();
    assert_eq!(again.resume(), [run(1, 0.0, 1.0, 0), run(2, 0.0, 1.0, 0)]);
    assert_eq!(again.reason().unwrap(), "no node is free to train on; 2 trials wait");
    let mut jumbled = all.clone();
    jumbled.remove(0);
    let error = restore(&jumbled).unwrap_err();
    assert_eq!((error.index, error.what), (0, Mismatch::Unknown(t(1))));
}

/// Candidates in order, whose rungs wait.
#[derive(Debug)]
struct InOrderTogether;

impl Algorithm for InOrderTogether {
    fn ask(&mut self, history: &History<'_>, dice: &mut Dice) -> Option<Proposal> {
        InOrder.ask(history, dice)
    }

    fn waits_for_rungs(&self) -> bool {
        true
    }
}

#[test]
fn in_successive_halving_a_rung_is_full_before_its_best_go_on() {
    let config = config(8, &[1.0, 2.0, 4.0, 8.0]);
    let mut core = SearchCore::new(config, space(), Box::new(InOrderTogether), Box::new(ALL_DIFFERENT));
    let mut all = core.on(SearchEvent::Capacity { slots: 2 });
    let mut at = 0;
    let mut order = Vec::new();
    while at < all.len() {
        if let SearchCommand::Run { trial, from, to, .. } = all[at] {
            order.push((from, to));
            all.extend(reached(&mut core, trial.0, to, 0.5));
        }
        at += 1;
    }
    assert_eq!(core.ended(), Some(&SearchEnd::Finished));
    let count = |budget: f64| order.iter().filter(|(_, to)| *to == budget).count();
    assert_eq!([count(1.0), count(2.0), count(4.0)], [8, 4, 2]);
    assert!(
        order.is_sorted_by_key(|(_, to)| *to),
        "no trial goes on before all have reached its rung: {order:?}"
    );
}

/// Tells the search what every trial reaches that it orders, until it orders none; gives all its commands.
fn carry_on(core: &mut SearchCore, first: Vec<SearchCommand>) -> Vec<SearchCommand> {
    let mut all = first;
    let mut at = 0;
    while at < all.len() {
        if let SearchCommand::Run { trial, to, .. } = all[at] {
            let value = 1.0 - 0.5 / (to + trial.0 as f64);
            all.extend(reached(core, trial.0, to, value));
        }
        at += 1;
    }
    all
}

#[test]
fn a_finished_search_goes_further_when_more_candidates_are_wanted() {
    let (mut core, first) = search(config(4, &[1.0, 8.0]), ALL_DIFFERENT, 1);
    let all = carry_on(&mut core, first);
    assert_eq!(core.ended(), Some(&SearchEnd::Finished));
    let mut past = records(&all);
    let restore = |trials: u64, records: &[SearchRecord]| {
        let config = config(trials, &[1.0, 8.0]);
        SearchCore::restore(config, space(), Box::new(InOrder), Box::new(ALL_DIFFERENT), records).unwrap()
    };
    let finished = [SearchCommand::Ended(SearchEnd::Finished)];
    assert_eq!(restore(4, &past).resume(), finished, "nothing more is wanted");
    for trials in [9, 12] {
        let mut core = restore(trials, &past);
        let mut more = core.resume();
        more.extend(core.on(SearchEvent::Capacity { slots: 1 }));
        let more = carry_on(&mut core, more);
        assert_eq!((core.ended(), core.trials().len()), (Some(&SearchEnd::Finished), trials as usize));
        past.extend(records(&more));
    }
    let mut budgets = std::collections::BTreeSet::new();
    for record in &past {
        if let SearchRecord::TrialReached { trial, budget, .. } = record {
            assert!(budgets.insert((*trial, budget.to_bits())), "{trial} was trained to {budget} twice");
        }
    }
    // Every prefix of what was written down can be gone on with.
    for end in 0..=past.len() {
        let mut core = restore(12, &past[..end]);
        core.resume();
        core.check_invariants().unwrap();
    }
    assert_eq!(restore(12, &past).resume(), finished);
}

#[test]
fn a_search_that_was_stopped_in_its_finish_goes_further_when_more_candidates_are_wanted() {
    let (mut core, first) = search(config(2, &[1.0, 8.0]), ALL_DIFFERENT, 1);
    let mut all = first;
    for trial in [1, 2] {
        all.extend(reached(&mut core, trial, 1.0, 0.5));
    }
    let is_full = |command: &SearchCommand| matches!(command, SearchCommand::Run { to, .. } if *to == 8.0);
    assert!(all.iter().any(is_full), "{all:?}");
    all.extend(core.on(SearchEvent::StopAsked));
    let (config, records) = (config(5, &[1.0, 8.0]), records(&all));
    let restored = SearchCore::restore(config, space(), Box::new(InOrder), Box::new(ALL_DIFFERENT), &records);
    let mut core = restored.unwrap();
    let mut more = core.resume();
    more.extend(core.on(SearchEvent::Capacity { slots: 1 }));
    carry_on(&mut core, more);
    assert_eq!(core.trials().len(), 5);
}

#[test]
fn a_trial_clearly_behind_the_median_is_stopped_on_its_way() {
    let config = SearchConfig { stop_hopeless: true, ..config(7, &[4.0]) };
    let (mut core, _) = search(config, ALL_DIFFERENT, 7);
    let mut progress = |trial, value| {
        core.on(SearchEvent::TrialProgress { trial: t(trial), budget: 1.0, values: accuracy(value) })
    };
    for (trial, value) in [(1, 0.5), (2, 0.6), (3, 0.7), (4, 0.8), (5, 0.6)] {
        assert_eq!(progress(trial, value).len(), 1, "too few to compare with");
    }
    assert_eq!(progress(6, 0.55).len(), 1, "behind, and not clearly");
    let stopped = progress(7, 0.2);
    assert!(matches!(
        &stopped[1],
        SearchCommand::Record(SearchRecord::TrialEnded { end: TrialEnd::Stopped { .. }, .. })
    ));
    assert_eq!(stopped[2], SearchCommand::Cancel { trial: t(7) });
}

#[test]
fn the_algorithm_sees_one_budget_and_a_generation_waits_for_its_last_trial() {
    let (mut core, _) = search(config(90, &[1.0, 2.0, 4.0]), ALL_DIFFERENT, 1);
    let next = |core: &SearchCore| {
        let queued = core.trials().iter().find_map(|(id, trial)| match trial.stage {
            Stage::Queued { to, .. } => Some((id.0, to)),
            _ => None,
        });
        queued.unwrap()
    };
    let on_second =
        |core: &SearchCore| core.trials().values().filter(|trial| trial.results.len() > 1).count();
    while on_second(&core) < COMPARABLE {
        let budgets = core.state.observations(core.config()).0.iter().map(|seen| seen.values[0]).sum::<f64>();
        let seen = core.state.observations(core.config()).0.len();
        assert_eq!(budgets, seen as f64, "results of the first budget");
        let (trial, budget) = next(&core);
        reached(&mut core, trial, budget, budget);
    }
    let (results, pending) = core.state.observations(core.config());
    assert!(results.iter().all(|result| result.values[0] == 2.0) && results.len() == COMPARABLE);
    assert_eq!(pending.len(), 1);

    let generations = SearchConfig { generation: Some(3), ..config(6, &[1.0]) };
    let (mut core, first) = search(generations, ALL_DIFFERENT, 2);
    let runs = first.iter().filter(|command| matches!(command, SearchCommand::Run { .. })).count();
    assert_eq!((core.trials().len(), runs), (3, 2));
    reached(&mut core, 1, 1.0, 0.1);
    reached(&mut core, 2, 1.0, 0.1);
    assert_eq!(core.trials().len(), 3);
    assert!(core.reason().unwrap().contains("1 of 2 slots"), "{:?}", core.reason());
    reached(&mut core, 3, 1.0, 0.1);
    assert_eq!(core.trials().len(), 6);
}
