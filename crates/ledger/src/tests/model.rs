//! Random lives of runs, of processes that feed the ledger and of the ledger itself. In the end it equals the files.

use super::files::{RunFiles, Truth};
use super::{Workplace, on_both};
use crate::core::filter::Dialect;
use crate::error::SqlError;
use crate::shell::testing::{PointRow, Sql, open_with};
use crate::value::{Row, Value};
use crate::{Ledger, LedgerError, LedgerUrl};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::sync::{Arc, Mutex};

/// When the process that feeds dies, or its database cannot be reached.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Faults {
    /// Calls until it dies.
    pub(super) left: Option<u32>,
    /// Whether the last call still reaches the database, so that only its answer is lost.
    pub(super) reaches: bool,
    pub(super) unreachable: bool,
    pub(super) dead: bool,
}

/// A connection of a process that dies.
struct Mortal {
    sql: Box<dyn Sql>,
    faults: Arc<Mutex<Faults>>,
}

impl Mortal {
    fn call<T>(&mut self, call: impl FnOnce(&mut dyn Sql) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let mut faults = self.faults.lock().unwrap();
        if faults.dead {
            return Err(SqlError::ConnectionGone);
        }
        if let Some(left) = &mut faults.left {
            if *left == 0 {
                faults.dead = true;
                let reaches = faults.reaches;
                drop(faults);
                if reaches {
                    let _lost = call(self.sql.as_mut());
                }
                return Err(SqlError::ConnectionGone);
            }
            *left -= 1;
        }
        drop(faults);
        call(self.sql.as_mut())
    }
}

impl Sql for Mortal {
    fn dialect(&self) -> Dialect {
        self.sql.dialect()
    }
    fn begin(&mut self, key: &str) -> Result<(), SqlError> {
        self.call(|sql| sql.begin(key))
    }
    fn commit(&mut self) -> Result<(), SqlError> {
        self.call(|sql| sql.commit())
    }
    fn rollback(&mut self) -> Result<(), SqlError> {
        self.call(|sql| sql.rollback())
    }
    fn execute(&mut self, text: &str, values: &[Value]) -> Result<u64, SqlError> {
        self.call(|sql| sql.execute(text, values))
    }
    fn query(&mut self, text: &str, values: &[Value], each: &mut dyn FnMut(&Row)) -> Result<(), SqlError> {
        self.call(|sql| sql.query(text, values, each))
    }
    fn script(&mut self, text: &str) -> Result<(), SqlError> {
        self.call(|sql| sql.script(text))
    }
    fn insert_points(&mut self, points: &[PointRow]) -> Result<(), SqlError> {
        self.call(|sql| sql.insert_points(points))
    }
}

/// A process that feeds the ledger.
pub(super) struct Process {
    url: LedgerUrl,
    ledger: Option<Ledger>,
    faults: Arc<Mutex<Faults>>,
}

impl Process {
    pub(super) fn new(url: &LedgerUrl) -> Self {
        Self { url: url.clone(), ledger: None, faults: Arc::default() }
    }

    pub(super) fn set(&self, faults: Faults) {
        *self.faults.lock().unwrap() = faults;
    }

    /// Looks at the runs; a process that dies comes again as another one.
    pub(super) fn work(&mut self, work: impl FnOnce(&Ledger) -> Result<(), LedgerError>) {
        let faults = self.faults.clone();
        let ledger = match self.ledger.take() {
            Some(ledger) => Ok(ledger),
            None => {
                let shared = faults.clone();
                open_with(&self.url, move |sql| {
                    if shared.lock().unwrap().unreachable {
                        return Err(SqlError::ConnectionGone);
                    }
                    Ok(Box::new(Mortal { sql, faults: shared.clone() }))
                })
            }
        };
        let result = ledger.and_then(|ledger| work(&ledger).map(|()| ledger));
        let dead = faults.lock().unwrap().dead;
        match result {
            Ok(ledger) if !dead => self.ledger = Some(ledger),
            Ok(_) | Err(LedgerError::Sql { .. } | LedgerError::Open { .. } | LedgerError::Migrate { .. }) => {
                self.set(Faults::default());
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// How far a run is between two writes; anything may die there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Dead,
    /// Metrics are cut, and no event says so yet.
    Cut,
    /// An event says so, and the state is still the old one.
    Opened,
    Running,
    /// The last state is written, its event is not.
    Ending,
}

/// The next write of a run.
fn write(run: &mut RunFiles, life: Life, rng: &mut impl Rng) -> Life {
    if life != Life::Dead && rng.random_bool(0.05) {
        run.die();
        return Life::Dead;
    }
    match life {
        Life::Dead => {
            run.lock();
            run.cut();
            Life::Cut
        }
        Life::Cut => {
            run.opened();
            Life::Opened
        }
        Life::Opened => {
            run.state("running");
            Life::Running
        }
        Life::Ending => {
            run.event("ended", json!({ "steps": run.step }));
            run.die();
            Life::Dead
        }
        Life::Running => record(run, rng),
    }
}

fn record(run: &mut RunFiles, rng: &mut impl Rng) -> Life {
    match rng.random_range(0..11) {
        0..=3 => run.steps(rng.random_range(1..6)),
        4 => run.valid(rng.random_range(0..100) as f64 / 100.0),
        5 => run.save(),
        6 => run.event("formed", json!({ "epoch": 1, "nodes": ["a", "b"], "step": run.step })),
        7 => run.annotate(&json!({ "unix_ms": 1, "set": { "owner": rng.random_range(0..3).to_string() } })),
        8 => run.annotate(&json!({ "unix_ms": 1, "remove": "owner" })),
        9 => run.annotate(&json!({ "unix_ms": 2, "note": format!("note {}", rng.random_range(0..9)) })),
        _ => {
            run.state(["finished", "failed", "interrupted"][rng.random_range(0..3)]);
            return Life::Ending;
        }
    }
    Life::Running
}

fn live(place: &Workplace, seed: u64) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut runs = vec![(place.run("first"), Life::Dead), (place.run("second"), Life::Dead)];
    let mut processes = [Process::new(&place.url), Process::new(&place.url)];
    for _ in 0..rng.random_range(10..60) {
        let at = rng.random_range(0..runs.len());
        let process = rng.random_range(0..2);
        match rng.random_range(0..20) {
            0..=11 => {
                let (run, life) = &mut runs[at];
                *life = write(run, *life, &mut rng);
            }
            12..=14 => processes[process].work(|ledger| ledger.feed(&runs[at].0.path).map(drop)),
            15 => processes[process].work(|ledger| ledger.catch_up(&place.runs).map(drop)),
            16 => processes[process].work(|ledger| ledger.rebuild(&place.runs).map(drop)),
            17 => processes[process].set(Faults { unreachable: true, ..Faults::default() }),
            // A process ends and another one takes its place.
            18 => processes[process] = Process::new(&place.url),
            _ => {
                let (left, reaches) = (Some(rng.random_range(0..40)), rng.random_bool(0.5));
                processes[process].set(Faults { left, reaches, ..Faults::default() });
            }
        }
    }
    for (run, life) in &mut runs {
        if *life == Life::Cut {
            run.opened();
        }
        run.die();
    }
    drop(processes);
    let ledger = place.ledger();
    let caught = ledger.catch_up(&place.runs).unwrap();
    assert_eq!((caught.runs, &caught.failed), (2, &vec![]));
    let check = |when: &str| {
        for (run, _) in &runs {
            let files = Truth::of_files(&run.path);
            assert_eq!(Truth::of_ledger(&ledger, &run.uid), files, "seed {seed}, {when}");
        }
    };
    check("after catching up");
    assert_eq!(ledger.catch_up(&place.runs).unwrap().changed, 0, "seed {seed}: nothing is new");
    ledger.rebuild(&place.runs).unwrap();
    check("made anew");
}

/// `PHALANX_LEDGER_SEEDS` asks for more.
pub(super) fn seeds(usual: u64) -> u64 {
    std::env::var("PHALANX_LEDGER_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn in_the_end_the_ledger_equals_the_files_whatever_dies_when() {
    let shard =
        |shard: u64| (shard..seeds(1000)).step_by(2).for_each(|seed| live(&Workplace::sqlite(), seed));
    std::thread::scope(|scope| {
        scope.spawn(|| shard(0));
        scope.spawn(|| shard(1));
    });
}

#[test]
fn in_the_end_the_ledger_equals_the_files_with_a_server_too() {
    (0..seeds(1000) / 25).for_each(|seed| live(&Workplace::postgres(), seed));
}

#[test]
fn several_feeders_at_once_bring_every_record_once() {
    on_both(|place| {
        let mut run = place.run("run");
        run.steps(500);
        let path = run.path.clone();
        std::thread::scope(|scope| {
            let feeders: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let ledger = place.ledger();
                        (0..20).for_each(|_| assert!(ledger.feed(&path).is_ok()));
                    })
                })
                .collect();
            for round in 0..40 {
                run.steps(25);
                run.event("note", json!(format!("round {round}")));
                if round % 10 == 5 {
                    run.save();
                    run.steps(3);
                    run.cut();
                    run.opened();
                }
            }
            feeders.into_iter().for_each(|feeder| feeder.join().unwrap());
        });
        let ledger = place.ledger();
        ledger.feed(&path).unwrap();
        assert_eq!(Truth::of_ledger(&ledger, &run.uid), Truth::of_files(&path));
    });
}
