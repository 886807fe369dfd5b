//! Drivers and nodes of searches are killed at random moments, and what came of it is counted.

use super::disturbed::node_of;
use super::{events, proposed, reached, search_file};
use crate::sandbox;
use phalanx_testkit::{Process, Sandbox, chaos_seed, eventually, signal};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const DRIVER_KILLS: usize = 20;

/// A search whose processes are killed.
struct Disturbed<'a> {
    sandbox: &'a Sandbox,
    search: PathBuf,
    /// Which nodes it has.
    nodes: &'a [&'a str],
    dice: Pcg64,
    /// The most lines that are recorded between two kills of the driver.
    lines: usize,
    /// How often a node dies in the life of a driver, on average.
    nodes_die: f64,
    node_kills: usize,
}

impl<'a> Disturbed<'a> {
    fn new(sandbox: &'a Sandbox, nodes: &'a [&'a str], lines: usize, nodes_die: f64) -> Self {
        let dice = Pcg64::seed_from_u64(chaos_seed().0);
        let search = sandbox.path().join("searches/killed");
        Self { sandbox, search, nodes, dice, lines, nodes_die, node_kills: 0 }
    }

    /// Searches to the end; on the way the driver is killed so often, each time after a drawn number of further records.
    fn run(&mut self) {
        for kill in 0..DRIVER_KILLS {
            let mut driver = self.start(kill);
            let until = self.moment();
            let node = self.dice.random_bool(self.nodes_die).then(|| self.dice.random_range(0..=until));
            self.live(&mut driver, node, Some(until));
            driver.signal(Signal::KILL);
            driver.finish();
        }
        let mut driver = self.start(DRIVER_KILLS);
        let node = (self.nodes_die > 0.0).then(|| self.moment());
        self.live(&mut driver, node, None);
        let (status, _) = driver.finish();
        assert!(status.success(), "{}", driver.stderr());
    }

    fn start(&self, life: usize) -> Process {
        let how: &[&str] = match life {
            0 => &["search", "run", "search.toml", "--dir", "searches/killed", "--output", "json"],
            _ => &["search", "resume", "killed", "--output", "json"],
        };
        self.sandbox.start(&[how, self.nodes].concat())
    }

    /// A number of records that is reached soon.
    fn moment(&mut self) -> usize {
        self.recorded() + self.dice.random_range(1..=self.lines)
    }

    fn recorded(&self) -> usize {
        let text = std::fs::read_to_string(self.search.join("events.jsonl")).unwrap_or_default();
        text.lines().count()
    }

    /// Waits until so many records are there, or for the end of the driver; kills a node on the way.
    fn live(&mut self, driver: &mut Process, mut node: Option<usize>, until: Option<usize>) {
        eventually("the driver ends or has recorded more", || {
            let recorded = self.recorded();
            if node.is_some_and(|at| recorded >= at)
                && let Some(id) = node_of(driver)
            {
                signal(id, Signal::KILL);
                self.node_kills += 1;
                node = None;
            }
            if !driver.is_running() {
                assert!(
                    until.is_none(),
                    "the search ended before its driver was killed: {}",
                    driver.stderr()
                );
                return Some(());
            }
            let is_due = node.is_none() && until.is_some_and(|until| recorded >= until);
            is_due.then_some(())
        });
    }
}

/// Every trial is there once and has ended well once, every stretch was recorded once, and the search has one end.
fn assert_counts(search: &Path, trials: usize) {
    let events = events(search);
    let of = |name: &str| -> Vec<u64> {
        let named = events.iter().filter(|event| event["event"] == name);
        named.map(|event| event["value"]["trial"].as_u64().unwrap_or(0)).collect()
    };
    assert_eq!(of("trial_proposed"), (1..=trials as u64).collect::<Vec<_>>());
    let candidates: BTreeSet<String> = proposed(search).into_iter().collect();
    assert_eq!(candidates.len(), trials, "no candidate twice");
    let mut ended = of("trial_ended");
    ended.sort_unstable();
    assert_eq!(ended, of("trial_proposed"), "every trial ends once");
    let state = |event: &Value| event["value"]["end"]["state"].as_str().unwrap_or("").to_owned();
    let ends = events.iter().filter(|event| event["event"] == "trial_ended");
    assert!(ends.map(state).all(|state| state == "completed" || state == "partial"));
    assert!(reached(search).values().all(|count| *count == 1), "no stretch is recorded twice");
    assert_eq!(of("search_ended").len(), 1);
    assert_eq!(state(events.last().unwrap()), "finished");
}

/// The core makes the recorded decisions again from the recorded order of results.
fn assert_replays(sandbox: &Sandbox, trials: usize) {
    let report = sandbox.json(&["search", "replay", "killed", "--output", "json"]);
    assert_eq!(report["differences"], serde_json::json!([]), "{report}");
    assert_eq!(report["candidates"].as_u64(), Some(trials as u64));
    assert!(report["decisions"].as_u64() >= Some(3 * trials as u64), "{report}");
}

#[test]
fn a_search_whose_driver_is_killed_twenty_times_is_the_undisturbed_one() {
    let sandbox = sandbox();
    search_file(&sandbox, "trials = 14");
    let nodes = ["--local", "1", "--workers", "1"];
    let run = ["search", "run", "search.toml", "--dir", "searches/whole", "--output", "json"];
    sandbox.json(&[&run[..], &nodes].concat());
    let mut disturbed = Disturbed::new(&sandbox, &nodes, 3, 0.0);
    disturbed.run();
    let (whole, killed) = (sandbox.path().join("searches/whole"), &disturbed.search);
    assert_counts(killed, 14);
    assert_replays(&sandbox, 14);
    assert_eq!(reached(killed), reached(&whole));
    assert_eq!(proposed(killed), proposed(&whole));
    let values = |search: &Path| -> Vec<Value> {
        let value = |event: &Value| event["value"]["values"]["accuracy"].clone();
        events(search).iter().filter(|event| event["event"] == "trial_reached").map(value).collect()
    };
    assert_eq!(values(killed), values(&whole), "trials that go on come to the same");
}

/// A program that says when it trained what, and that its checkpoint has what was trained before.
const PROGRAM: &str = r#"
trial=$(sed -n 's/^ *"trial": \([0-9]*\).*/\1/p' "$PHALANX_TRIAL")
echo "$(date +%s%3N) $trial $PHALANX_BUDGET" >> STARTED
at=$(cat "$PHALANX_CHECKPOINT_DIR/at" 2>/dev/null || echo 0)
case "$at" in
  "$PHALANX_FROM"|"$PHALANX_BUDGET") ;;
  *) echo "the checkpoint is of $at, not of $PHALANX_FROM" >&2; exit 3 ;;
esac
echo "{\"epoch\": 1, \"near\": 900, \"far\": 0}"
echo "$PHALANX_BUDGET" > "$PHALANX_CHECKPOINT_DIR/at"
echo "{\"near\": $(( $1 * $1 + $2 )), \"far\": $(( $1 + $2 )) }"
"#;

const SEARCH: &str = r#"
[space]
x = { from = 0, to = 9 }
y = { from = 0, to = 9 }
[trial]
command = ["sh", "PROGRAM", "$x", "$y"]
epochs = 4
[search]
trials = 60
algorithm = "nsga2"
rungs = { first = "1 epochs", factor = 2 }
[objective.near]
goal = "min"
[objective.far]
goal = "max"
"#;

/// The first moment after which a stretch must not begin again: when its result was recorded.
fn recorded_at(search: &Path) -> BTreeMap<(u64, u64), u64> {
    let events = events(search);
    let reached = events.iter().filter(|event| event["event"] == "trial_reached");
    let stretch = |event: &Value| {
        let value = &event["value"];
        (
            (value["trial"].as_u64().unwrap(), value["budget"].as_f64().unwrap() as u64),
            event["at"].as_u64().unwrap(),
        )
    };
    reached.map(stretch).collect()
}

#[test]
fn drivers_and_nodes_that_are_killed_at_random_moments_leave_every_trial_once() {
    let sandbox = sandbox();
    let path = |name: &str| sandbox.path().join(name);
    let started = path("started");
    let program = PROGRAM.replace("STARTED", &started.display().to_string());
    std::fs::write(path("program.sh"), program).unwrap();
    let text = SEARCH.replace("PROGRAM", &path("program.sh").display().to_string());
    std::fs::write(path("search.toml"), text).unwrap();
    let mut disturbed = Disturbed::new(&sandbox, &["--local", "2", "--allow-exec"], 6, 0.7);
    disturbed.run();
    let (search, node_kills) = (disturbed.search.clone(), disturbed.node_kills);
    assert!(node_kills >= 6, "{node_kills} nodes were killed");
    assert_counts(&search, 60);
    assert_replays(&sandbox, 60);

    let recorded = recorded_at(&search);
    let mut stretches = BTreeSet::new();
    for line in std::fs::read_to_string(&started).unwrap().lines() {
        let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
        let (at, trial, to) = (numbers.next().unwrap(), numbers.next().unwrap(), numbers.next().unwrap());
        stretches.insert((trial, to));
        assert!(at <= recorded[&(trial, to)], "t{trial} was trained to {to} again after that was recorded");
    }
    assert_eq!(stretches, recorded.keys().copied().collect(), "what was recorded was trained");
    another_candidate_in_the_records_is_found(&sandbox, &search);
}

fn another_candidate_in_the_records_is_found(sandbox: &Sandbox, search: &Path) {
    let file = search.join("events.jsonl");
    let mut lines: Vec<String> = std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
    let last = lines.iter().rposition(|line| line.contains("trial_proposed")).unwrap();
    let mut event: Value = serde_json::from_str(&lines[last]).unwrap();
    event["value"]["archid"] = "(another)".into();
    lines[last] = event.to_string();
    std::fs::write(&file, lines.join("\n") + "\n").unwrap();
    let output = sandbox.run(&["search", "replay", "killed", "--output", "json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 of") && said.contains("differ"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["differences"][0]["line"].as_u64(), Some(last as u64 + 1), "{report}");
    assert_ne!(report["differences"][0]["decided"]["value"]["archid"], "(another)");
    let table = sandbox.run(&["search", "replay", "killed"]);
    assert!(String::from_utf8_lossy(&table.stdout).contains(&format!("line {}", last + 1)));
    let nothing = sandbox.run(&["search", "replay", "nowhere"]);
    assert_eq!(nothing.status.code(), Some(2));
}
