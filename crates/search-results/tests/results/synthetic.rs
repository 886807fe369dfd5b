//! A search of 30 trials as its records tell it: three rungs, failures, equal networks, records that come twice, an
//! interruption.

use phalanx_search::core::dice::Dice;
use phalanx_search::core::objective::{Goal, Objective};
use phalanx_search::core::record::{SearchEnd, SearchRecord, TrialEnd, TrialId};
use phalanx_search::core::space::{Activity, Choice, Gene, Need, Space};
use phalanx_search_results::{EventLine, Limits, SearchAbout, SearchTable};
use phalanx_types::Seed;
use std::collections::BTreeMap;

pub(crate) const STARTED: u64 = 1_790_000_000_000;
pub(crate) const HOUR: u64 = 3_600_000;

fn gene(name: &str, labels: &[&str], activity: Activity) -> Gene {
    let choice = |label: &&str| Choice { label: (*label).to_owned(), number: label.parse().ok() };
    Gene { name: name.to_owned(), choices: labels.iter().map(choice).collect(), activity }
}

pub(crate) fn objective(name: &str, goal: Goal, cheap: bool) -> Objective {
    Objective { name: name.to_owned(), goal, cheap }
}

/// `width` exists only with a dense head.
pub(crate) fn about() -> SearchAbout {
    let with_dense = Activity::AnyOf(vec![vec![Need { gene: 2, choices: vec![1] }]]);
    let genes = vec![
        gene("nb_layers", &["1", "2", "3", "4"], Activity::Always),
        gene("kernel_size", &["1", "3", "5", "7"], Activity::Always),
        gene("head", &["pool", "dense"], Activity::Always),
        gene("width", &["32", "64"], with_dense),
    ];
    SearchAbout {
        id: "s7f3".into(),
        name: "digits, \"small\"".into(),
        kind: "run".into(),
        algorithm: "guided".into(),
        seed: Seed(1),
        objectives: vec![
            objective("accuracy", Goal::Max, false),
            objective("latency (ms)", Goal::Min, true),
            objective("params", Goal::Min, true),
        ],
        constraints: BTreeMap::from([("params".into(), Limits { at_least: None, at_most: Some(1e6) })]),
        rungs: vec![1.0, 3.0, 9.0],
        budget_unit: "epochs".into(),
        trials: 30,
        space: Space::new(genes).unwrap(),
        init: 8,
        per_iteration: 5,
        started: STARTED,
        base: std::path::PathBuf::new(),
    }
}

struct Script {
    lines: Vec<EventLine>,
    dice: Dice,
}

impl Script {
    fn add(&mut self, record: SearchRecord) {
        let at = STARTED + 20_000 * (self.lines.len() as u64 + 1);
        self.lines.push(EventLine { at, record });
    }

    fn propose(&mut self, space: &Space, trial: u64) {
        let genes = space.sample(&mut self.dice);
        let parents: Vec<TrialId> = match trial {
            0..=8 => vec![],
            n if n % 3 == 0 => vec![TrialId(1 + n % 7)],
            n => vec![TrialId(1 + n % 5), TrialId(1 + n % 8)],
        };
        let known = [("latency (ms)", 1.0), ("params", 5e4)];
        let known =
            known.map(|(name, most)| (name.to_owned(), (self.dice.unit() * most * 8.0).round() / 8.0));
        // Some networks are equal.
        let model = format!("{:064x}", genes.0.iter().fold(0_u64, |sum, gene| sum * 8 + u64::from(*gene)));
        let (trial, archid) = (TrialId(trial), space.archid(&genes));
        let known = BTreeMap::from(known);
        self.add(SearchRecord::TrialProposed { trial, genes, archid, model, parents, known, state: None });
    }

    /// Trains a trial to a rung; the result comes twice now and then.
    fn train(&mut self, trial: u64, rung: u32, rungs: &[f64]) {
        let to = rungs[rung as usize];
        let from = if rung == 0 { 0.0 } else { rungs[rung as usize - 1] };
        let trial = TrialId(trial);
        self.add(SearchRecord::TrialQueued { trial, rung, from, to });
        let node = format!("n{}", 1 + self.dice.below(4));
        self.add(SearchRecord::TrialStarted { trial, node });
        let accuracy = ((0.5 + 0.1 * f64::from(rung) + 0.3 * self.dice.unit()) * 50.0).round() / 50.0;
        let values =
            BTreeMap::from([("accuracy".to_owned(), accuracy), ("valid.loss".to_owned(), 1.0 - accuracy)]);
        let reached = SearchRecord::TrialReached { trial, budget: to, values, seconds: 30.0 * (to - from) };
        self.add(reached.clone());
        if self.dice.chance(0.2) {
            self.add(reached);
        }
    }

    fn end(&mut self, trial: u64, end: TrialEnd) {
        self.add(SearchRecord::TrialEnded { trial: TrialId(trial), end });
    }
}

/// The records of the whole search.
pub(crate) fn events() -> Vec<EventLine> {
    let about = about();
    let mut script = Script { lines: Vec::new(), dice: Dice::new(Seed(11)) };
    for trial in 1..=30 {
        script.propose(&about.space, trial);
        match trial {
            // Fails before it has a result; its error has signs that a table must quote.
            5 => {
                script.add(SearchRecord::TrialQueued { trial: TrialId(5), rung: 0, from: 0.0, to: 1.0 });
                script.add(SearchRecord::TrialStarted { trial: TrialId(5), node: "n1".into() });
                script.end(5, TrialEnd::Failed { why: "=out of memory, \"n1\" had\n2 GiB".into() });
            }
            _ => script.train(trial, 0, &about.rungs),
        }
        match trial {
            6 => script.end(6, TrialEnd::Infeasible { why: "latency above 0.9".into() }),
            9 => script.end(9, TrialEnd::Stopped { why: "hopeless".into() }),
            n if n % 4 == 0 => script.train(n - 1, 1, &about.rungs),
            _ => {}
        }
        if trial == 16 {
            script.train(15, 2, &about.rungs);
            script.end(15, TrialEnd::Completed);
            script.end(3, TrialEnd::Failed { why: "was lost".into() });
        }
        if trial == 20 {
            script.add(SearchRecord::SearchEnded { end: SearchEnd::Stopped });
        }
    }
    for trial in [11, 19, 23, 27] {
        script.train(trial, 2, &about.rungs);
        script.end(trial, TrialEnd::Completed);
    }
    script.end(30, TrialEnd::Partial);
    script.add(SearchRecord::SearchEnded { end: SearchEnd::Finished });
    let stop =
        |line: &EventLine| matches!(line.record, SearchRecord::SearchEnded { end: SearchEnd::Stopped });
    let stopped = script.lines.iter().position(stop).unwrap();
    // Somebody went to lunch before the search was resumed.
    script.lines[stopped + 1..].iter_mut().for_each(|line| line.at += HOUR);
    script.lines
}

pub(crate) fn table(events: &[EventLine]) -> SearchTable {
    let mut table = SearchTable::new(about());
    events.iter().for_each(|event| table.apply(event).unwrap());
    table
}

/// The lines of `events.jsonl`.
pub(crate) fn as_text(events: &[EventLine]) -> String {
    events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect()
}
