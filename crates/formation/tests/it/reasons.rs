//! Reasons for plans and for unused nodes.

use crate::layers::{model, options, pool};
use crate::random::{Case, Random};
use phalanx_formation::{
    Because, Choice, Effort, Exchange, Options, Plan, WhyLeftOut, exact, genetic, greedy, plan,
};

#[test]
fn replicas_that_there_are_no_nodes_for_are_not_called_slower() {
    let three = Options { stages: Some(3), ..options() };
    let replicas = |nodes: &[(u64, f64)]| {
        plan(&model(6), &pool(nodes), &three, &mut || true).unwrap().why[0].to_string()
    };
    assert_eq!(replicas(&[(100, 1.0); 3]), "1 replica: there are nodes for one only");
    assert_eq!(replicas(&[(100, 1.0); 5]), "1 replica: there are nodes for one only");
    assert!(!replicas(&[(100, 1.0); 6]).contains("there are nodes for"));
}

#[test]
fn nodes_that_are_alike_are_left_out_for_one_reason() {
    // Two fast nodes, and more slow ones than the planner can try.
    let mut nodes = vec![(200, 3.0), (200, 3.0)];
    nodes.extend([(200, 1e-4)].repeat(500));
    nodes.extend([(15, 1e-4)].repeat(500));
    let rarely = Exchange { every: 1000, bytes_per_parameter_byte: 1.0 };
    let options =
        Options { exchange: rarely, effort: Effort { evaluations: 100, exact_nodes: 7 }, ..options() };
    let plan = genetic(&model(4), &pool(&nodes), &options, &mut || true).unwrap();
    assert!(plan.left_out.len() >= 990, "{}", plan.left_out.len());
    for left in &plan.left_out {
        assert!(matches!(left.why, WhyLeftOut::Slower { .. } | WhyLeftOut::NoGain), "{left:?}");
    }
}

#[test]
fn nodes_that_are_too_few_for_another_replica_are_left_out_for_that() {
    let three = Options { stages: Some(3), ..options() };
    let left = |nodes: &[(u64, f64)], wish: &Options| -> Vec<String> {
        let plan = plan(&model(6), &pool(nodes), wish, &mut || true).unwrap();
        plan.left_out.iter().map(|left| left.why.to_string()).collect()
    };
    let why = "2 nodes are left, another replica of 3 stages needs 3";
    assert_eq!(left(&[(100, 1.0); 5], &three), [why; 2]);
    assert_eq!(left(&[(100, 1.0); 4], &three), ["1 node is left, another replica of 3 stages needs 3"]);
    // Nodes that could hold nothing do not count.
    let small = [(100, 1.0), (100, 1.0), (100, 1.0), (5, 1.0), (100, 1.0), (100, 1.0)];
    assert_eq!(
        left(&small, &three),
        ["5 MiB is less than the 10 MiB of the smallest stage".to_owned(), why.into(), why.into()]
    );
}

#[test]
fn nodes_that_are_enough_for_another_replica_are_tried_as_one() {
    let nodes = [(100, 1.0), (100, 1.0), (100, 1e-3), (100, 1e-3), (100, 1e-3)];
    let two = Options { stages: Some(2), ..options() };
    let plan = plan(&model(6), &pool(&nodes), &two, &mut || true).unwrap();
    assert_eq!(plan.replicas.len(), 1);
    let left: Vec<_> = plan.left_out.iter().map(|left| (left.node, &left.why)).collect();
    assert!(
        matches!(&left[..], [(2, WhyLeftOut::Slower { percent }), (3, _), (4, _)] if *percent > 10.0),
        "{left:?}"
    );
}

#[test]
fn untried_alternatives_give_no_reasons() {
    let nodes = pool(&[(200, 3.0), (5, 1.0), (200, 1e-4), (200, 1e-3)]);
    let hurried = genetic(&model(4), &nodes, &options(), &mut || false).unwrap();
    let why = |node: usize| hurried.left_out.iter().find(|left| left.node == node).map(|left| &left.why);
    assert!(matches!(why(1), Some(WhyLeftOut::TooSmall { .. })), "{hurried:?}");
    for node in [2, 3] {
        assert!(matches!(why(node), None | Some(WhyLeftOut::NotTried)), "{hurried:?}");
    }
    let micro_batches = hurried.why.iter().find(|why| matches!(why, Choice::MicroBatches { .. })).unwrap();
    assert!(matches!(micro_batches, Choice::MicroBatches { why: Because::NotTried, .. }), "{hurried:?}");
}

/// Whether a reason says that something else would be faster.
fn says_better(plan: &Plan) -> bool {
    let faster = |why: &Because| match why {
        Because::Faster { percent, .. } => *percent < -0.1,
        Because::Overlooked { .. } => true,
        _ => false,
    };
    let chosen = |choice: &Choice| match choice {
        Choice::Replicas { why, .. } | Choice::Stages { why, .. } | Choice::MicroBatches { why, .. } => {
            faster(why)
        }
        _ => false,
    };
    plan.why.iter().any(chosen)
        || plan.left_out.iter().any(|left| matches!(left.why, WhyLeftOut::Overlooked { .. }))
}

#[test]
fn what_is_found_to_be_better_while_looking_for_reasons_is_taken() {
    let mut dice = Random::new(17);
    let mut plainly = 0;
    for number in 0..20 {
        let nodes = dice.number(3, 8);
        let mut case = dice.case(nodes, 9);
        // So little effort that much is overlooked.
        case.options.effort = Effort { evaluations: 1, exact_nodes: 0 };
        let Case { model, pool, options } = &case;
        for method in [genetic, exact, plan] {
            let Ok(plan) = method(model, pool, options, &mut || true) else { continue };
            assert!(!says_better(&plan), "case {number}: {plan:?}");
        }
        plainly += usize::from(greedy(model, pool, options, &mut || true).is_ok_and(|p| says_better(&p)));
    }
    assert!(plainly > 3, "{plainly} plain formations could be better, and say so");
}

#[test]
fn an_order_that_would_not_fit_the_other_way_round_says_so_without_a_number() {
    let order =
        |percent_slower_reversed| Choice::Order { replica: 0, first: "n1".into(), percent_slower_reversed };
    let begin = "n1 is first in replica 0: the other way round";
    assert_eq!(order(Some(12.3)).to_string(), format!("{begin} a step would be 12 % slower"));
    assert_eq!(order(None).to_string(), format!("{begin} the model would not fit"));
}
