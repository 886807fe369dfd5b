//! The table of a synthetic search: rows, front, hypervolume, iterations, from any part of its records.

use crate::synthetic::{HOUR, STARTED, about, as_text, events, table};
use phalanx_search::core::pareto::dominates;
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialId};
use phalanx_search_results::{
    EventLine, FrontBasis, Progress, SearchFollower, SearchTable, TrialRow, TrialStatus,
    events::ReadEventsError, follow,
};
use std::collections::BTreeSet;
use std::io::Write;

/// The objectives of the newest result, less is better; straight from the row.
fn costs(row: &TrialRow, budget: f64) -> Option<[f64; 3]> {
    let result = row.results.iter().find(|result| result.budget == budget)?;
    Some([-result.values["accuracy"], row.known["latency (ms)"], row.known["params"]])
}

/// The front by its definition: each pair at the largest budget of both, full trainings only when the search has finished.
fn front_by_force(table: &SearchTable) -> BTreeSet<TrialId> {
    let sound = |row: &&TrialRow| {
        !row.results.is_empty() && !matches!(row.status, TrialStatus::Failed | TrialStatus::Infeasible)
    };
    let mut rows: Vec<&TrialRow> = table.rows().filter(sound).collect();
    if table.end() == Some(&SearchEnd::Finished) {
        rows.retain(|row| costs(row, 9.0).is_some());
    }
    let beats = |a: &TrialRow, b: &TrialRow| {
        let common = [9.0, 3.0, 1.0].into_iter().find_map(|budget| costs(a, budget).zip(costs(b, budget)));
        common.is_some_and(|(a, b)| dominates(&a, &b))
    };
    let front: Vec<_> = rows.iter().filter(|row| !rows.iter().any(|other| beats(other, row))).collect();
    let first =
        |row: &TrialRow| !front.iter().any(|other| other.model == row.model && other.trial < row.trial);
    front.iter().filter(|row| first(row)).map(|row| row.trial).collect()
}

#[test]
fn rows_tell_what_became_of_each_trial() {
    let table = table(&events());
    let status = |trial| table.row(TrialId(trial)).unwrap().status;
    assert_eq!(
        [5, 3, 6, 9].map(status),
        [TrialStatus::Failed, TrialStatus::Failed, TrialStatus::Infeasible, TrialStatus::Stopped]
    );
    assert_eq!(
        [15, 11, 30, 1].map(status),
        [TrialStatus::Completed, TrialStatus::Completed, TrialStatus::Partial, TrialStatus::Partial]
    );
    let row = table.row(TrialId(15)).unwrap();
    assert_eq!(row.results.iter().map(|result| result.budget).collect::<Vec<_>>(), [1.0, 3.0, 9.0]);
    assert_eq!((row.rung, row.target, row.starts, row.budget()), (Some(2), Some(9.0), 3, 9.0));
    assert_eq!(row.seconds(), 9.0 * 30.0, "results that came twice count once");
    assert_eq!(row.value("accuracy"), row.results[2].values.get("accuracy").copied());
    assert_eq!(row.value_at(&row.results[0], "accuracy"), row.results[0].values.get("accuracy").copied());
    assert_eq!(row.value("params"), row.known.get("params").copied());
    assert_eq!(row.value("nothing"), None);
    let failed = table.row(TrialId(5)).unwrap();
    assert!(failed.why.as_ref().unwrap().contains("out of memory") && failed.results.is_empty());
    assert!(failed.ended.unwrap() > failed.started.unwrap() && failed.started > failed.queued);
    assert_eq!(table.counts().values().sum::<usize>(), 30);
    assert_eq!(table.rows_with_results().len(), 29);
}

#[test]
fn a_trial_goes_through_its_states() {
    let mut table = SearchTable::new(about());
    let mut seen = Vec::new();
    for event in events().iter().filter(|event| trial_of(event) == Some(TrialId(15))) {
        table.apply(event).unwrap();
        seen.push(table.row(TrialId(15)).unwrap().status);
    }
    seen.dedup();
    use TrialStatus::{Completed, Partial, Proposed, Queued, Running};
    let leg = [Queued, Running, Partial];
    let expected: Vec<_> =
        [Proposed].into_iter().chain(leg).chain(leg).chain(leg).chain([Completed]).collect();
    assert_eq!(seen, expected);
}

fn trial_of(event: &EventLine) -> Option<TrialId> {
    let value = serde_json::to_value(event).unwrap();
    value["value"]["trial"].as_u64().map(TrialId)
}

#[test]
fn a_fold_in_parts_equals_the_fold_at_once_at_every_cut() {
    let events = events();
    let dir = tempfile::tempdir().unwrap();
    about().write(dir.path()).unwrap();
    let text = as_text(&events);
    let mut file = std::fs::File::create(dir.path().join("events.jsonl")).unwrap();
    let mut follower = SearchFollower::open(dir.path()).unwrap();
    let mut taken = 0;
    // Cuts in the middle of lines, too.
    for part in text.as_bytes().chunks(97) {
        file.write_all(part).unwrap();
        taken += follower.refresh().unwrap();
        assert_eq!(follower.table(), &table(&events[..taken]), "{taken}");
    }
    assert_eq!(taken, events.len());
    for cut in 0..=events.len() {
        let mut resumed = table(&events[..cut]);
        events[cut..].iter().for_each(|event| resumed.apply(event).unwrap());
        assert_eq!(&resumed, follower.table());
    }
}

#[test]
fn the_front_equals_brute_force_after_every_record() {
    let events = events();
    let mut table = SearchTable::new(about());
    let mut sizes = BTreeSet::new();
    for event in &events {
        table.apply(event).unwrap();
        let front = table.front();
        let members: BTreeSet<TrialId> = front.trials.iter().copied().collect();
        assert_eq!(members, front_by_force(&table), "{event:?}");
        assert_eq!(members.len(), front.trials.len());
        let accuracies: Vec<f64> =
            front.trials.iter().map(|trial| table.row(*trial).unwrap().value("accuracy").unwrap()).collect();
        assert!(accuracies.is_sorted(), "{accuracies:?}");
        sizes.insert(members.len());
        let is_full = matches!(front.basis, FrontBasis::Full { budget: 9.0, .. });
        assert_eq!(is_full, table.end() == Some(&SearchEnd::Finished));
    }
    assert!(sizes.len() > 4, "{sizes:?}");
    assert!(table.front().trials.len() > 1);
    assert_eq!(table.front().basis.to_string(), "of the 5 trials trained in full");
}

#[test]
fn an_earlier_front_is_the_one_of_that_time() {
    let events = events();
    let whole = table(&events);
    for cut in 0..=events.len() {
        let then = table(&events[..cut]);
        assert_eq!(whole.front_at(cut as u64), then.front(), "{cut}");
    }
}

#[test]
fn the_hypervolume_never_falls() {
    let events = events();
    for cut in (0..=events.len()).step_by(7).chain([events.len()]) {
        let table = table(&events[..cut]);
        let curve = table.hypervolume();
        assert!(
            curve.is_sorted_by(|a, b| a.hypervolume <= b.hypervolume
                && a.full <= b.full
                && a.hours <= b.hours)
        );
        assert!(
            curve
                .iter()
                .all(|point| (0.0..=1.0).contains(&point.hypervolume) && point.full <= point.hypervolume)
        );
        let sound = table.rows().filter(|row| row.status.counts());
        assert_eq!(curve.len(), sound.map(|row| row.results.len()).sum::<usize>());
    }
    let curve = table(&events).hypervolume();
    let last = curve.last().unwrap();
    assert!(last.full > 0.0 && last.hypervolume > curve[0].hypervolume, "{last:?}");
}

#[test]
fn iterations_have_the_configured_sizes() {
    let table = table(&events());
    let iterations = table.iterations();
    assert_eq!(iterations.iter().map(|i| i.trials.len()).collect::<Vec<_>>(), [8, 5, 5, 5, 5, 1]);
    assert_eq!(iterations.iter().map(|i| i.number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert!(!iterations[0].trials.contains(&TrialId(5)), "a trial without results");
    assert_eq!(iterations.last().unwrap().last_event, u64::MAX);
}

#[test]
fn time_between_an_end_and_a_resumption_is_not_counted() {
    let events = events();
    let table = table(&events);
    let last = events.last().unwrap().at;
    let worked = (last - STARTED - HOUR - 20_000) as f64 / HOUR as f64;
    assert!((table.hours_at(last) - worked).abs() < 1e-9, "{} {worked}", table.hours_at(last));
}

#[test]
fn a_lost_node_and_values_on_the_way_are_shown() {
    let mut events = events();
    events.truncate(3);
    let trial = TrialId(1);
    let add = |events: &mut Vec<EventLine>, record| events.push(EventLine { at: STARTED + 100_000, record });
    let values = std::collections::BTreeMap::from([("accuracy".to_owned(), 0.25)]);
    add(&mut events, SearchRecord::TrialProgressed { trial, budget: 0.5, values: values.clone() });
    assert_eq!(
        table(&events).row(trial).unwrap().progress,
        Some(Progress { budget: 0.5, values: values.clone() })
    );
    assert_eq!(table(&events).row(trial).unwrap().value("accuracy"), None, "not a result");
    add(&mut events, SearchRecord::TrialRetried { trial, why: "n1 was lost".into() });
    let table_now = table(&events);
    let row = table_now.row(trial).unwrap();
    assert_eq!((row.status, row.retries, row.why.as_deref()), (TrialStatus::Queued, 1, Some("n1 was lost")));
    add(&mut events, SearchRecord::TrialStarted { trial, node: "n2".into() });
    assert_eq!(table(&events).row(trial).unwrap().retries, 1, "counted when it was queued again");
    add(&mut events, SearchRecord::TrialStarted { trial, node: "n3".into() });
    assert_eq!(table(&events).row(trial).unwrap().retries, 2, "another node goes on with it");
    add(&mut events, SearchRecord::TrialReached { trial, budget: 1.0, values, seconds: 1.0 });
    let table_now = table(&events);
    let row = table_now.row(trial).unwrap();
    assert_eq!((row.status, row.starts, row.why.as_deref()), (TrialStatus::Partial, 3, None));
    assert_eq!((row.progress.clone(), row.value("accuracy")), (None, Some(0.25)));
}

#[test]
fn a_record_of_an_unknown_trial_is_an_error_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    about().write(dir.path()).unwrap();
    let mut events = events();
    events.truncate(6);
    let record = SearchRecord::TrialStarted { trial: TrialId(77), node: "n1".into() };
    events.push(EventLine { at: 0, record });
    std::fs::write(dir.path().join("events.jsonl"), as_text(&events)).unwrap();
    let error = SearchFollower::open(dir.path()).unwrap_err();
    assert!(
        matches!(&error, follow::FollowError::Events(ReadEventsError::UnknownTrial { line: 7, .. })),
        "{error}"
    );
}

#[test]
fn names_of_trials_are_unique_and_stay() {
    let table = table(&events());
    let names: BTreeSet<String> = table.rows().map(|row| row.unique_name("s7f3")).collect();
    assert_eq!(names.len(), 30);
    for name in &names {
        let parts: Vec<&str> = name.strip_prefix("id_").unwrap().split('_').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']), "{name}");
    }
    let row = table.row(TrialId(1)).unwrap();
    assert_ne!(row.unique_name("s7f3"), row.unique_name("other"));
}
