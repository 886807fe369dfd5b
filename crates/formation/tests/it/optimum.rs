//! Planners against exhaustive search.

use crate::brute;
use crate::random::{Case, Random};
use phalanx_formation::{Effort, Method, Work, exact, genetic, greedy};

/// How large cases are: nodes, cuts, and how many.
const SIZES: [(usize, usize, usize); 8] =
    [(1, 12, 10), (2, 12, 50), (3, 5, 70), (3, 12, 40), (4, 4, 50), (4, 7, 12), (5, 4, 12), (6, 3, 3)];

fn cases() -> impl Iterator<Item = Case> {
    let mut dice = Random::new(7);
    SIZES.into_iter().flat_map(|(nodes, cuts, count)| vec![(nodes, cuts); count]).map(move |(nodes, cuts)| {
        let mut case = dice.case(nodes, cuts);
        case.options.effort = Effort { evaluations: 3000, exact_nodes: 7 };
        if nodes > 4 {
            // Every formation is tried for every number of micro-batches.
            case.options.micro_batches.get_or_insert(4);
        }
        case
    })
}

#[test]
fn exact_is_the_optimum_and_genetic_is_near_it() {
    let (mut all, mut near, mut impossible) = (0, 0, 0);
    for (number, case) in cases().enumerate() {
        let Case { model, pool, options } = &case;
        let best = brute::best(&case);
        let plan = exact(model, pool, options, &mut || true);
        let Some(best) = best else {
            assert!(plan.is_err(), "case {number}: a plan where there is none: {plan:?}");
            impossible += 1;
            continue;
        };
        let plan = plan.unwrap_or_else(|e| panic!("case {number}: {e}, but there is one of {best}"));
        assert_eq!(plan.method, Method::Exact, "case {number}");
        let again = phalanx_formation::predict(model, pool, options, &plan.shape());
        let again = again.unwrap_or_else(|e| panic!("case {number}: {e}")).predicted;
        assert!((again.score / plan.predicted.score - 1.0).abs() < 1e-9, "case {number}: {again:?} {plan:?}");
        let ratio = plan.predicted.score / best;
        assert!((ratio - 1.0).abs() < 1e-9, "case {number}: {ratio} of the optimum: {plan:?}");
        all += 1;
        let found = genetic(model, pool, options, &mut || true);
        let score = found.as_ref().map_or(f64::INFINITY, |p| p.predicted.score);
        near += usize::from(score <= best * 1.02);
        if let Ok(plain) = greedy(model, pool, options, &mut || true) {
            assert!(score <= plain.predicted.score, "case {number}: worse than greedy");
        }
    }
    println!("{all} pools, {impossible} impossible, genetic within 2 % in {near}");
    assert!(all >= 200 && near * 100 >= all * 95, "{near} of {all} within 2 %, {impossible} impossible");
}

/// One replica whose nodes are all on one host, with operators that take next to no time: a node that holds only such
/// operators still waits for a core like the others.
fn crowded(dice: &mut Random, number: usize) -> Case {
    let nodes = dice.number(2, 4);
    let mut case = alone(dice.case(nodes, [12, 12, 12, 8, 6][nodes]));
    for node in &mut case.pool.nodes {
        (node.host, node.cores, node.threads) = ("h".into(), 1.0 + (number % 3) as f64 * 0.5, 1.0);
    }
    for op in case.model.ops.iter_mut().skip(number % 3).step_by(3) {
        for work in [&mut op.forward, &mut op.backward] {
            *work = Work { per_sample: work.per_sample * 0.003, per_batch: work.per_batch * 0.003 };
        }
    }
    case.options.crowding = 1.3;
    case
}

/// One replica whose nodes would each use more cores than their hosts have.
fn busy(dice: &mut Random) -> Case {
    let nodes = dice.number(4, 5);
    let mut case = alone(dice.case(nodes, 6));
    for node in &mut case.pool.nodes {
        (node.host, node.cores, node.threads) = (node.name.clone(), 1.0, dice.between(1.1, 6.0));
    }
    (case.options.crowding, case.options.stages) = (1.0, Some(nodes));
    case.options.micro_batches.get_or_insert(4);
    case
}

/// With so little effort before the exact search that it has to find the best formation itself.
fn alone(mut case: Case) -> Case {
    case.pool.nodes.iter_mut().for_each(|node| node.memory = node.memory.max(1 << 20));
    case.options.held.clear();
    (case.options.replicas, case.options.stages) = (Some(1), None);
    case.options.effort = Effort { evaluations: 300, exact_nodes: 7 };
    case
}

#[test]
fn exact_is_the_optimum_where_nodes_crowd_their_hosts() {
    let mut dice = Random::new(5);
    for number in 0..400 {
        let case = if number < 300 { crowded(&mut dice, number) } else { busy(&mut dice) };
        let Some(best) = brute::best(&case) else { continue };
        let plan = exact(&case.model, &case.pool, &case.options, &mut || true).unwrap();
        assert_eq!(plan.method, Method::Exact, "case {number}");
        let ratio = plan.predicted.score / best;
        assert!((ratio - 1.0).abs() < 1e-9, "case {number}: {ratio} of the optimum: {plan:?}");
    }
}
