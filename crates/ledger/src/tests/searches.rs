//! Searches in the ledger: whatever dies when, it gives the table that the files tell.

use super::model::{Faults, Process, seeds};
use super::{Workplace, on_both};
use crate::shell::testing::connect;
use crate::{Feeder, Ledger, LedgerError, LedgerUrl};
use phalanx_search::core::objective::{Goal, Objective};
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use phalanx_search::core::space::{Genes, Space};
use phalanx_search_results::{EventLine, SearchAbout, SearchFollower, SearchTable};
use phalanx_types::Seed;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// A search that writes its files.
struct SearchFiles {
    path: PathBuf,
    events: File,
    at: u64,
    proposed: u64,
}

fn about(name: &str, started: u64) -> SearchAbout {
    let objective = Objective { name: "accuracy".into(), goal: Goal::Max, cheap: false };
    SearchAbout {
        id: name.into(),
        name: format!("search \u{0}{name}"),
        kind: "run".into(),
        algorithm: "guided".into(),
        seed: Seed(1),
        objectives: vec![objective],
        constraints: BTreeMap::new(),
        rungs: vec![1.0, 3.0],
        budget_unit: "epochs".into(),
        trials: 30,
        space: Space::new(Vec::new()).unwrap(),
        init: 8,
        per_iteration: 5,
        started,
        base: PathBuf::new(),
    }
}

impl SearchFiles {
    fn create(searches: &Path, name: &str, started: u64) -> Self {
        let path = searches.join(name);
        std::fs::create_dir_all(&path).unwrap();
        about(name, started).write(&path).unwrap();
        std::fs::write(path.join("search.toml"), "").unwrap();
        let events = File::options().append(true).create(true).open(path.join("events.jsonl")).unwrap();
        Self { path, events, at: started, proposed: 0 }
    }

    fn add(&mut self, record: SearchRecord) {
        self.at += 10;
        let mut line = serde_json::to_vec(&EventLine { at: self.at, record }).unwrap();
        line.push(b'\n');
        self.events.write_all(&line).unwrap();
    }

    fn propose(&mut self) {
        self.proposed += 1;
        let (trial, n) = (TrialId(self.proposed), self.proposed);
        let known = BTreeMap::from([("params".to_owned(), n as f64)]);
        let (archid, model) = (format!("({n}, \u{0})"), format!("m{}", n % 5));
        let genes = Genes(Vec::new());
        self.add(SearchRecord::TrialProposed {
            trial,
            genes,
            archid,
            model,
            parents: vec![],
            known,
            state: None,
        });
    }

    fn reach(&mut self, trial: u64, budget: f64, accuracy: f64) {
        let values = BTreeMap::from([("accuracy".to_owned(), accuracy)]);
        self.add(SearchRecord::TrialReached { trial: TrialId(trial), budget, values, seconds: 2.0 });
    }

    fn start(&mut self, trial: u64, rung: u32) {
        let trial = TrialId(trial);
        self.add(SearchRecord::TrialQueued { trial, rung, from: 0.0, to: [1.0, 3.0][rung as usize] });
        self.add(SearchRecord::TrialStarted { trial, node: "n1-00ff".into() });
    }

    fn fail(&mut self, trial: u64) {
        let end = TrialEnd::Failed { why: "out of \u{0} memory".into() };
        self.add(SearchRecord::TrialEnded { trial: TrialId(trial), end });
    }

    fn table(&self) -> SearchTable {
        SearchFollower::open(&self.path).unwrap().table().clone()
    }
}

/// The next record of a random life.
fn write(search: &mut SearchFiles, rng: &mut impl Rng) {
    let trial = rng.random_range(1..=search.proposed.max(1));
    match rng.random_range(0..7) {
        _ if search.proposed == 0 => search.propose(),
        0 | 1 => search.propose(),
        2 | 3 => search.start(trial, rng.random_range(0..2)),
        4 => search.reach(
            trial,
            [1.0, 3.0][rng.random_range(0..2)],
            f64::from(rng.random_range(0..100_i32)) / 100.0,
        ),
        5 => search.fail(trial),
        _ => {
            let end = if rng.random_bool(0.5) { SearchEnd::Stopped } else { SearchEnd::Finished };
            search.add(SearchRecord::SearchEnded { end });
        }
    }
}

fn searches_of(place: &Workplace) -> PathBuf {
    crate::searches_beside(&place.runs)
}

fn table_of(ledger: &Ledger, name: &str) -> SearchTable {
    ledger.search_table(&ledger.search(name).unwrap()).unwrap().unwrap()
}

fn live(place: &Workplace, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let dir = searches_of(place);
    let mut searches = ["a", "b"].map(|name| SearchFiles::create(&dir, name, 1000));
    let mut processes = [Process::new(&place.url), Process::new(&place.url)];
    for _ in 0..rng.random_range(10..60) {
        let (at, process) = (rng.random_range(0..2), rng.random_range(0..2));
        match rng.random_range(0..20) {
            0..=11 => write(&mut searches[at], &mut rng),
            12..=14 => processes[process].work(|ledger| ledger.feed_search(&searches[at].path).map(drop)),
            15 => processes[process].work(|ledger| ledger.catch_up_searches(&dir).map(drop)),
            16 => processes[process].work(|ledger| ledger.rebuild_searches(&dir).map(drop)),
            17 => processes[process].set(Faults { unreachable: true, ..Faults::default() }),
            // A process ends and another one takes its place.
            18 => processes[process] = Process::new(&place.url),
            _ => {
                let (left, reaches) = (Some(rng.random_range(0..40)), rng.random_bool(0.5));
                processes[process].set(Faults { left, reaches, ..Faults::default() });
            }
        }
    }
    drop(processes);
    let ledger = place.ledger();
    let caught = ledger.catch_up_searches(&dir).unwrap();
    assert_eq!((caught.searches, &caught.failed), (2, &vec![]), "seed {seed}");
    let check = |when: &str| {
        for search in &searches {
            let name = search.path.file_name().unwrap().to_str().unwrap();
            assert_eq!(table_of(&ledger, name), search.table(), "seed {seed}, {when}");
        }
    };
    check("after catching up");
    assert_eq!(ledger.catch_up_searches(&dir).unwrap().changed, 0, "seed {seed}: nothing is new");
    ledger.rebuild_searches(&dir).unwrap();
    check("made anew");
}

#[test]
fn in_the_end_the_ledger_has_the_table_that_the_files_tell() {
    (0..seeds(1000) / 5).for_each(|seed| live(&Workplace::sqlite(), seed));
}

#[test]
fn in_the_end_a_server_has_the_table_that_the_files_tell() {
    (0..seeds(1000) / 50).for_each(|seed| live(&Workplace::postgres(), seed));
}

#[test]
fn trials_can_be_asked_for_by_state_node_budget_value_and_error() {
    on_both(|place| {
        let mut search = SearchFiles::create(&searches_of(&place), "s1", 1000);
        (0..3).for_each(|_| search.propose());
        search.start(1, 0);
        search.reach(1, 1.0, 0.5);
        search.start(1, 1);
        search.reach(1, 3.0, 0.75);
        search.start(2, 0);
        search.fail(3);
        let ledger = place.ledger();
        assert_eq!(ledger.feed_search(&search.path).unwrap().entries, 12);
        let row = ledger.search("s1").unwrap();
        assert_eq!((row.state.as_str(), row.trials, row.of, row.here), ("not ended", 3, 30, true));
        assert_eq!(row.path.canonicalize().unwrap(), search.path.canonicalize().unwrap());

        let mut sql = connect(&place.url).unwrap();
        let mut rows = Vec::new();
        let find = "select trial.id, trial.state, node, priority, trial.budget, value.value, error from trial \
                    left join value on value.search = trial.search and value.trial = trial.id \
                    and value.name = 'accuracy' and value.budget = trial.budget order by trial.id";
        sql.query(find, &[], &mut |row| {
            rows.push((
                row.count(0),
                row.required_text(1),
                row.text(2),
                row.int(3),
                row.real(5),
                row.text(6),
            ));
        })
        .unwrap();
        let n1 = || Some("n1-00ff".to_owned());
        let why = Some("out of \u{fffd} memory".to_owned());
        assert_eq!(
            rows,
            [
                (1, "partial".to_owned(), n1(), Some(1), Some(0.75), None),
                (2, "running".to_owned(), n1(), Some(0), None, None),
                (3, "failed".to_owned(), None, None, None, why),
            ]
        );
        search.add(SearchRecord::SearchEnded { end: SearchEnd::Failed { why: "a reason".into() } });
        assert_eq!(ledger.feed_search(&search.path).unwrap().entries, 1);
        let row = ledger.search("s1").unwrap();
        assert_eq!((row.state.as_str(), row.reason.as_deref()), ("failed", Some("a reason")));
        let info = ledger.info().unwrap();
        assert_eq!((info.searches, info.trials, info.runs), (1, 3, 0));
    });
}

#[test]
fn a_search_that_is_gone_is_forgotten_and_one_in_its_place_is_another() {
    on_both(|place| {
        let dir = searches_of(&place);
        let mut first = SearchFiles::create(&dir, "s1", 1000);
        first.propose();
        let ledger = place.ledger();
        ledger.catch_up_searches(&dir).unwrap();
        std::fs::remove_dir_all(&first.path).unwrap();
        let second = SearchFiles::create(&dir, "s1", 2000);
        ledger.catch_up_searches(&dir).unwrap();
        let uids: Vec<String> = ledger.searches().unwrap().into_iter().map(|row| row.uid).collect();
        assert_eq!((uids, table_of(&ledger, "s1").rows().len()), (vec!["s1-2000".to_owned()], 0));

        // A search that is to go further is told so anew.
        let further = SearchAbout { trials: 99, ..about("s1", 2000) };
        further.write(&second.path).unwrap();
        ledger.catch_up_searches(&dir).unwrap();
        assert_eq!(ledger.search("s1").unwrap().of, 99);

        std::fs::remove_dir_all(&second.path).unwrap();
        assert_eq!(ledger.prune().unwrap().searches, 1);
        assert_eq!(ledger.catch_up_searches(&dir).unwrap().removed, 0);
        assert!(ledger.searches().unwrap().is_empty());
        let error = ledger.search("s1").unwrap_err();
        assert!(matches!(error, LedgerError::NoSearch { .. }), "{error:?}");
    });
}

#[test]
fn records_that_are_damaged_are_named_and_the_others_are_read() {
    on_both(|place| {
        let dir = searches_of(&place);
        let damaged = SearchFiles::create(&dir, "a", 1000);
        std::fs::write(damaged.path.join("events.jsonl"), "{}\n").unwrap();
        SearchFiles::create(&dir, "b", 1000).propose();
        let ledger = place.ledger();
        let caught = ledger.catch_up_searches(&dir).unwrap();
        assert_eq!((caught.failed.len(), caught.changed), (1, 1));
        assert!(caught.failed[0].1.contains("line 1"), "{:?}", caught.failed);
        assert_eq!(table_of(&ledger, "b").rows().len(), 1);
    });
}

#[test]
fn a_search_feeds_the_ledger_beside_it_as_it_goes_on() {
    let place = Workplace::sqlite();
    let LedgerUrl::Sqlite(file) = &place.url else { panic!("not a file") };
    std::fs::remove_dir_all(&place.runs).unwrap();
    let mut search = SearchFiles::create(&searches_of(&place), "s1", 1000);
    let feeder = Feeder::of_search(&search.path).unwrap();
    search.propose();
    feeder.wake();
    search.start(1, 0);
    assert!(feeder.finish_within(std::time::Duration::from_secs(60)));
    assert!(file.is_file(), "the ledger was made");
    assert_eq!(table_of(&place.ledger(), "s1"), search.table());
}
