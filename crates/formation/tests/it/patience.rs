//! Plans for callers with limited time.

use crate::random::{Case, Random};
use crate::valid;
use phalanx_formation::{Method, PoolNode, exact, plan};
use std::time::{Duration, Instant};

/// A pool of a few nodes with more formations than any search can evaluate.
fn vast(nodes: usize, ops: usize) -> Case {
    let mut dice = Random::new(9);
    let mut case = dice.case(nodes, ops - 1);
    let whole = case.model.parameter_bytes() * 4;
    let node = |i: usize| {
        let memory = whole / 2 + whole / 10 * i as u64 + 4_000_000;
        PoolNode::new(format!("n{i}"), memory, 1.0 + 0.1 * i as f64)
    };
    case.pool.nodes = (0..nodes).map(node).collect();
    case.pool.links.clear();
    case.options = phalanx_formation::Options { batch: 64, ..Default::default() };
    case.options.effort.evaluations *= 1000;
    case.options.effort.exact_nodes = nodes;
    case
}

#[test]
fn who_says_no_gets_what_was_found_and_is_not_asked_again() {
    let case = vast(7, 30);
    let Case { model, pool, options } = &case;
    for patience in [0, 1, 30, 1000, 9_000, 20_000, 40_000] {
        let mut asked = 0;
        let plan = plan(model, pool, options, &mut || {
            asked += 1;
            asked <= patience
        });
        let plan = plan.unwrap();
        assert_eq!((plan.method, asked), (Method::Genetic, patience + 1));
        valid::check(&case, &plan);
    }
}

#[test]
fn a_budget_is_kept_however_many_formations_there_are() {
    for (nodes, ops) in [(6, 60), (8, 40), (12, 90)] {
        let mut case = vast(nodes, ops);
        for crowding in [1.0, 1.15] {
            case.options.crowding = crowding;
            let begin = Instant::now();
            let budget = Duration::from_millis(300);
            let plan =
                exact(&case.model, &case.pool, &case.options, &mut || begin.elapsed() < budget).unwrap();
            let took = begin.elapsed();
            assert_eq!(plan.method, Method::Genetic);
            // Much more than it takes beyond the budget, for busy machines.
            assert!(took < Duration::from_secs(3), "{took:?} for {nodes} nodes");
        }
    }
}
