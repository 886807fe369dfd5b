//! How plans use unequal nodes.

use crate::large;
use crate::layers;
use crate::layers::{MIB, model, options, pool};
use crate::random::{Case, Random};
use crate::valid::check;
use phalanx_formation::{
    Effort, Exchange, Held, Link, Method, Mode, Options, Pool, Shape, ShapeStage, WhyLeftOut, exact, genetic,
    greedy, plan, predict,
};

#[test]
fn a_model_that_fits_nowhere_whole_is_cut_where_machines_are_faster() {
    let plan = plan(&model(9), &pool(&[(75, 2.0), (75, 1.0)]), &options(), &mut || true).unwrap();
    assert_eq!(plan.method, Method::Exact);
    let [replica] = &plan.replicas[..] else { panic!("{plan:?}") };
    let mut held: Vec<_> = replica.stages.iter().map(|s| (s.node, s.ops.len())).collect();
    held.sort_unstable();
    assert_eq!(held, [(0, 6), (1, 3)]);
    assert!(plan.why.iter().any(|w| w.to_string().contains("1 would not fit into memory")), "{:?}", plan.why);
}

#[test]
fn shares_follow_speed_and_slow_nodes_are_left_out_with_a_reason() {
    let pool = pool(&[(200, 3.0), (200, 1.0), (5, 1.0), (200, 1e-4)]);
    let plan = plan(
        &model(4),
        &pool,
        &Options {
            batch: 64,
            exchange: Exchange { every: 1000, bytes_per_parameter_byte: 1.0 },
            ..options()
        },
        &mut || true,
    )
    .unwrap();
    let shares: Vec<_> = plan.replicas.iter().map(|r| (r.stages[0].node, r.samples)).collect();
    assert_eq!(shares, [(0, 48), (1, 16)]);
    let reasons: Vec<_> = plan.left_out.iter().map(|l| (l.node, &l.why)).collect();
    assert!(
        matches!(reasons[..], [(2, WhyLeftOut::TooSmall { .. }), (3, WhyLeftOut::Slower { .. })]),
        "{reasons:?}"
    );
    assert_eq!(reasons[0].1.to_string(), "5 MiB is less than the 10 MiB of the smallest stage");
}

#[test]
fn nodes_of_one_host_share_its_cores() {
    let mut pool = pool(&[(200, 1.0), (200, 1.0)]);
    let apart = plan(&model(4), &pool, &options(), &mut || true).unwrap();
    pool.nodes[1].host = "n1".into();
    let together = plan(&model(4), &pool, &options(), &mut || true).unwrap();
    let ratio = together.predicted.step_s / apart.predicted.step_s;
    assert!((ratio - 2.0).abs() < 0.2, "{ratio}");
}

#[test]
fn a_new_plan_moves_little_when_moving_is_dear() {
    let pool = pool(&[(60, 1.0), (60, 1.02)]);
    let held = vec![Held { node: 0, ops: 0..5 }, Held { node: 1, ops: 5..10 }];
    let still = Options { held, move_horizon: 1.0, ..options() };
    let plan = plan(&model(10), &pool, &still, &mut || true).unwrap();
    assert_eq!(plan.predicted.moving_s, 0.0);
    assert_eq!(plan.replicas[0].stages[0].ops, 0..5);
}

#[test]
fn a_given_formation_is_looked_at_and_mistakes_in_it_are_named() {
    let (model, pool) = (model(4), pool(&[(60, 1.0), (60, 1.0)]));
    let stage = |node, ops| ShapeStage { node, ops };
    let look = |stages: Vec<ShapeStage>| {
        let shape = Shape { replicas: vec![stages], micro_batches: 4 };
        predict(&model, &pool, &options(), &shape).map_err(|e| e.to_string())
    };
    let plan = look(vec![stage(0, 0..2), stage(1, 2..4)]).unwrap();
    assert_eq!((plan.method, plan.micro_batches), (Method::Given, 4));
    let begin = "replica 0 of the formation given does not hold the model once from end to end: ";
    for (stages, why) in [
        (vec![stage(0, 0..2), stage(1, 3..4)], "its stages do not follow each other"),
        (vec![stage(0, 0..2), stage(0, 2..4)], "it has a node that holds another stage already"),
        (vec![stage(0, 0..2)], "its end is missing"),
        (vec![stage(7, 0..4)], "it names a node that is not in the pool"),
        (vec![stage(0, 0..9)], "it is cut where it cannot be"),
    ] {
        assert_eq!(look(stages).unwrap_err(), format!("{begin}{why}"));
    }
}

#[test]
fn a_pipeline_that_stays_full_is_faster_but_bound_by_round_trips() {
    // Parameters of batches in flight are kept, too.
    let mut pool = pool(&[(500, 1.0), (500, 1.0)]);
    let filled = |in_flight| Options {
        mode: Mode::Asynchronous { in_flight: Some(in_flight) },
        stages: Some(2),
        replicas: Some(1),
        ..options()
    };
    let time = |pool: &Pool, options: &Options| {
        plan(&model(10), pool, options, &mut || true).unwrap().predicted.step_s
    };
    let exact_mode = Options { stages: Some(2), replicas: Some(1), ..options() };
    assert!(time(&pool, &filled(4)) < time(&pool, &exact_mode));
    pool.default_link = Link::new(1e9, 1.0);
    assert!(time(&pool, &filled(1)) > 2.0 && time(&pool, &filled(8)) < 0.6);
}

#[test]
fn random_plans_hold_the_model_once_fit_and_are_the_same_for_a_seed() {
    let mut dice = Random::new(11);
    for _ in 0..25 {
        let nodes = dice.number(1, 10);
        let mut case = dice.case(nodes, 10);
        case.options.effort = Effort { evaluations: 200, exact_nodes: 4 };
        let Case { model, pool, options } = &case;
        for method in [plan, genetic, exact, greedy] {
            let Ok(plan) = method(model, pool, options, &mut || true) else { continue };
            check(&case, &plan);
            assert_eq!(method(model, pool, options, &mut || true).as_ref(), Ok(&plan));
        }
    }
}

#[test]
fn a_hundred_nodes_are_planned_better_than_plainly_also_in_little_time() {
    let mut dice = Random::new(3);
    let model = dice.model(60, 59);
    let pool = large::pool(&mut dice, 100, &model);
    let options =
        Options { batch: 400, effort: Effort { evaluations: 300, exact_nodes: 7 }, ..Options::default() };
    let plain = greedy(&model, &pool, &options, &mut || true).unwrap();
    let found = plan(&model, &pool, &options, &mut || true).unwrap();
    assert!(found.predicted.score < plain.predicted.score * 0.9);
    let hurried = plan(&model, &pool, &options, &mut || false).unwrap();
    assert!(hurried.predicted.score <= plain.predicted.score);
}

#[test]
fn a_model_is_fitted_into_memory_where_only_one_order_of_nodes_holds_it() {
    // Twenty layers of 10 MiB in nodes that hold 1 to 5 of them, without a byte to spare: a large layer in the middle
    // fits only into the largest node.
    let mut model = model(20);
    model.ops[10].parameter_bytes = 60 * MIB;
    let sizes = [30, 70, 40, 20, 50, 10, 30].map(|mib| (mib, 1.0));
    let nodes = pool(&sizes);
    let options = Options { replicas: Some(1), ..options() };
    let found = genetic(&model, &nodes, &options, &mut || true).unwrap();
    let stages = &found.shape().replicas[0];
    let holds_large = stages.iter().find(|stage| stage.ops.contains(&10)).unwrap();
    assert_eq!(holds_large.node, 1, "{found:?}");
    // One replica of which each node holds little, beside two that are whole.
    let sizes = [200, 250, 120, 140].map(|mib| (mib, 1.0));
    let (model, nodes) = (layers::model(20), pool(&sizes));
    let options = Options { replicas: Some(3), ..options };
    let found = genetic(&model, &nodes, &options, &mut || true).unwrap();
    let mut counts: Vec<usize> = found.shape().replicas.iter().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 1, 2]);
}
