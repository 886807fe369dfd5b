//! A directory with so many runs that several threads look at it.

use super::on_both;
use serde_json::json;
use std::collections::BTreeSet;

const RUNS: usize = 1000;

#[test]
fn a_look_at_many_runs_misses_nothing_and_reads_nothing_again() {
    on_both(|place| {
        let mut runs: Vec<_> = (0..RUNS).map(|at| place.run(&format!("run{at:04}"))).collect();
        for run in &mut runs {
            run.steps(1);
            run.state("finished");
        }
        // A run of this kind has metrics without events.
        let logged = runs[7].path.join("state.json");
        let state = std::fs::read_to_string(&logged).unwrap().replacen('{', "{\"kind\":\"mlflow\",", 1);
        std::fs::write(&logged, state).unwrap();
        let ledger = place.ledger();
        let look = || ledger.catch_up(&place.runs).unwrap();
        let first = look();
        assert_eq!((first.runs, first.changed, first.removed), (RUNS as u64, RUNS as u64, 0));
        assert_eq!(look().changed, 0);
        for round in 0..3 {
            // All over the directory, a change of each kind.
            let at = |kind: usize| kind * 160 + round * 31 + 8;
            runs[at(0)].event("note", json!("late"));
            runs[at(1)].annotate(&json!({ "unix_ms": 1, "set": { "owner": "ada" } }));
            runs[at(2)].state("failed");
            // A process took it up, cut its metrics and was killed.
            std::fs::write(runs[at(3)].path.join("metrics.jsonl"), "").unwrap();
            runs[7].steps(1);
            std::fs::remove_dir_all(&runs[at(4)].path).unwrap();
            let name = format!("new{round}");
            runs.push(place.run(&name));
            let look = look();
            assert_eq!((look.changed, look.removed, &look.failed), (6, 1, &vec![]), "round {round}");
            assert_eq!(look.runs, RUNS as u64);
            assert_eq!(ledger.run(&runs[at(2)].uid).unwrap().state, "failed");
            assert_eq!(ledger.tags(&runs[at(1)].uid).unwrap()["owner"], "ada");
            assert_eq!(ledger.series(&runs[at(3)].uid).unwrap(), [], "its points are cut");
            assert_eq!(ledger.series(&runs[7].uid).unwrap()[0].points, round as u64 + 2);
            assert_eq!(ledger.events(&runs[at(0)].uid, None, 99).unwrap().last().unwrap().value, "late");
            assert_eq!(ledger.catch_up(&place.runs).unwrap().changed, 0, "round {round}");
        }
        // In the order of their names, as they began.
        let names: Vec<String> =
            ledger.runs(&crate::RunQuery::default()).unwrap().into_iter().map(|run| run.name).collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        assert_eq!((names.len(), distinct.len()), (RUNS, RUNS));
    });
}
