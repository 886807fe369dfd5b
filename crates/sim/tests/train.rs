//! Simulated training: the same run for the same seed, nothing wrong under many faults, and predictions that move the
//! way they must.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_sim::train::{Faults, Link, Options, Report, Slow, Speed, Sync, Work, run};
use std::time::Duration;

fn work(model: &str) -> Work {
    Work::new(model, &zoo::build(model, &ZooOptions::default()).unwrap())
}

/// A small cluster in which somebody dies every few steps, until the last have died.
fn troubled(seed: u64) -> Options {
    let replicas = 2 + seed as usize % 8;
    let mtbf = Duration::from_secs(5 + seed % 40) * replicas as u32;
    Options {
        replicas,
        host_ranks: 1 + seed as usize % 3,
        min: 1 + seed as usize % replicas,
        batch: 64,
        steps: 300,
        link: Link { bytes_per_sec: 125e6, latency: Duration::from_millis(1 + seed % 50) },
        speed: Speed::Step(Duration::from_millis(120)),
        slow: seed.is_multiple_of(2).then_some(Slow { part: 0.5, times: 3.0 }),
        faults: Some(Faults { mtbf, mttr: Duration::from_secs(2 + seed % 9), most: 60 }),
        sync: if seed.is_multiple_of(3) { Sync::Outer { every: 5 } } else { Sync::Gradients },
        checkpoint_every: (!seed.is_multiple_of(4)).then_some(20),
        ..Options::default()
    }
}

#[test]
fn whatever_dies_the_run_ends_and_nothing_is_violated() {
    // The state of the large one takes a second to hand over, in which others die.
    let works = [work("digits-cnn"), work("resnet-18")];
    let (mut deaths, mut groups, mut lost) = (0, 0, 0);
    for seed in 0..100 {
        let report = run(&works[seed as usize / 2 % 2], &troubled(seed), seed);
        assert_eq!(report.violation, None, "seed {seed}");
        assert!(!report.gave_up && report.steps_done == 300, "seed {seed}: {report:?}");
        deaths += report.deaths;
        groups += report.reformations;
        lost += report.steps_lost;
    }
    // The faults were there: groups formed anew, and some runs lost everybody at once.
    assert!(deaths > 1000 && groups > 1000 && lost > 50, "{deaths} {groups} {lost}");
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let work = work("digits-cnn");
    for seed in [1, 6, 11] {
        let traced = Options { trace: true, ..troubled(seed) };
        let (first, second) = (run(&work, &traced, seed), run(&work, &traced, seed));
        assert_eq!(first, second, "seed {seed}");
        assert!(first.trace.is_some_and(|text| text.lines().count() > 50), "seed {seed} has a trace");
        assert_eq!(
            run(&work, &troubled(seed), seed).trace_hash,
            second.trace_hash,
            "seed {seed} without text"
        );
        assert_ne!(
            run(&work, &troubled(seed), seed + 1).trace_hash,
            second.trace_hash,
            "seed {seed} and the next"
        );
    }
}

fn steady(change: impl FnOnce(&mut Options)) -> Report {
    let mut options = Options { replicas: 16, batch: 256, steps: 40, ..Options::default() };
    change(&mut options);
    let report = run(&work("resnet-18"), &options, 1);
    assert_eq!((&report.violation, report.steps_done, report.reformations), (&None, 40, 0));
    report
}

#[test]
fn slower_links_make_less_of_the_replicas_and_more_computing_makes_more() {
    let usual = steady(|_| ());
    assert!((0.2..1.0).contains(&usual.efficiency), "{usual:?}");
    let slower = steady(|o| o.link.bytes_per_sec /= 8.0);
    assert!(slower.efficiency < usual.efficiency * 0.7, "{} {}", slower.efficiency, usual.efficiency);
    let farther = steady(|o| o.link.latency *= 100);
    assert!(farther.efficiency < usual.efficiency, "{} {}", farther.efficiency, usual.efficiency);
    let more = steady(|o| o.batch *= 8);
    assert!(more.efficiency > usual.efficiency, "{} {}", more.efficiency, usual.efficiency);
    let fewer = steady(|o| o.compression = "int8".parse().unwrap());
    let ratio = usual.bytes_per_step / fewer.bytes_per_step;
    assert!((3.8..4.0).contains(&ratio), "{ratio}");
    assert!(fewer.exchange < usual.exchange / 3.0, "{} {}", fewer.exchange, usual.exchange);
}

#[test]
fn one_replica_alone_is_as_fast_as_one_replica_alone() {
    let alone = steady(|o| (o.replicas, o.batch, o.jitter) = (1, 16, 0.0));
    assert!((alone.efficiency - 1.0).abs() < 1e-3, "{alone:?}");
    assert_eq!((alone.exchange, alone.bytes_per_step), (0.0, 0.0));
}

#[test]
fn exchange_hides_behind_computing_when_there_is_enough_of_it() {
    let much = steady(|o| o.batch *= 16);
    let little = steady(|o| o.link.bytes_per_sec /= 16.0);
    assert!(much.hidden() > 0.6, "{}", much.hidden());
    // Only backward can hide anything: two thirds of computing.
    let hidden = little.exchange - little.exposed;
    assert!(hidden < little.compute * 0.67 && little.hidden() < 0.3, "{little:?}");
    let sum = much.compute + much.exposed + much.vote + much.update;
    assert!((sum - much.step_median).abs() < 0.02 * sum, "{sum} {}", much.step_median);
}

#[test]
fn exchanging_every_twentieth_step_takes_a_twentieth_of_the_bytes() {
    let each = steady(|_| ());
    for sync in [Sync::Outer { every: 20 }, Sync::Parameters { every: 20 }] {
        let seldom = steady(|o| o.sync = sync);
        let ratio = each.bytes_per_step / seldom.bytes_per_step;
        assert!((19.9..20.1).contains(&ratio), "{ratio}");
        assert!(seldom.efficiency > each.efficiency, "{} {}", seldom.efficiency, each.efficiency);
    }
}

#[test]
fn slow_nodes_get_less_to_do() {
    let report = steady(|o| {
        o.batch = 16 * 64;
        o.slow = Some(Slow { part: 0.25, times: 4.0 });
        o.link.bytes_per_sec = 12.5e9;
    });
    // At first everybody waits for the slow ones; then all are done at the same time.
    assert!(report.step_p95 > report.step_median * 2.5, "{report:?}");
    assert!(report.efficiency_of_ideal > report.efficiency * 1.2, "{report:?}");
    assert!(report.efficiency_of_ideal > 0.6, "{report:?}");
}

#[test]
fn deaths_cost_work_and_checkpoints_save_it_when_all_die() {
    let options = |checkpoint_every| Options {
        replicas: 2,
        min: 1,
        batch: 64,
        steps: 400,
        speed: Speed::Step(Duration::from_millis(200)),
        faults: Some(Faults { mtbf: Duration::from_secs(25), mttr: Duration::from_secs(15), most: 40 }),
        checkpoint_every,
        ..Options::default()
    };
    let (mut with, mut without) = (0, 0);
    for seed in 0..20 {
        let report = run(&work("digits-cnn"), &options(Some(10)), seed);
        assert_eq!(report.violation, None, "seed {seed}");
        assert!(report.lost_work > 0.0 && report.reforming > 0.0, "{report:?}");
        with += report.steps_lost;
        without += run(&work("digits-cnn"), &options(None), seed).steps_lost;
    }
    assert!(with * 2 < without, "{with} {without}");
}

#[test]
fn ranks_of_one_host_share_its_link() {
    let apart = steady(|o| o.replicas = 32);
    let together = steady(|o| (o.replicas, o.host_ranks) = (32, 8));
    assert!(together.exchange < apart.exchange, "{} {}", together.exchange, apart.exchange);
}

#[test]
fn thousands_of_replicas_lose_some_and_go_on() {
    let options = Options {
        replicas: 4096,
        host_ranks: 8,
        min: 2048,
        batch: 65_536,
        steps: 200,
        link: Link { bytes_per_sec: 1.25e9, latency: Duration::from_micros(100) },
        slow: Some(Slow { part: 0.1, times: 4.0 }),
        faults: Some(Faults {
            mtbf: Duration::from_hours(100),
            mttr: Duration::from_mins(10),
            most: u64::MAX,
        }),
        ..Options::default()
    };
    let report = run(&work("resnet-18"), &options, 1);
    assert_eq!((&report.violation, report.steps_done, report.gave_up), (&None, 200, false));
    assert!(report.deaths > 3 && report.reformations >= report.deaths, "{report:?}");
    assert!((0.1..1.0).contains(&report.efficiency_of_ideal), "{report:?}");
}
