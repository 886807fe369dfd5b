//! Errors when no formation is possible.

use crate::layers::{MIB, model, options, pool};
use phalanx_formation::{LeftOut, ModelCost, Options, Pool, Shortfall, exact, genetic, greedy, plan};

fn message(model: &ModelCost, pool: &Pool, options: &Options) -> String {
    plan(model, pool, options, &mut || true).expect_err("there is no formation").to_string()
}

#[test]
fn a_shortfall_says_what_is_missing() {
    let small = pool(&[(40, 1.0), (40, 1.0), (40, 1.0)]);
    assert_eq!(
        message(&model(15), &small, &options()),
        "the model needs 150 MiB in training, these 3 nodes have 120 MiB in all"
    );
    let mut heavy = model(3);
    heavy.ops[0].parameter_bytes = 80 * MIB;
    assert_eq!(
        message(&heavy, &pool(&[(20, 1.0), (64, 1.0), (60, 1.0)]), &options()),
        "operator fc1 alone needs 80 MiB, the largest node (n2) has 64 MiB"
    );
    let wish = Options { replicas: Some(2), stages: Some(2), ..options() };
    assert_eq!(message(&model(4), &small, &wish), "2 replicas of 2 stages need 4 nodes, the pool has 3");
    let wish = Options { stages: Some(3), ..options() };
    assert_eq!(message(&model(2), &small, &wish), "the model can be cut into 2 stages at most, not 3");
    let wish = Options { batch: 0, ..options() };
    assert_eq!(message(&model(2), &small, &wish), "batch of a step is 0, which nothing can be planned with");
    // Enough memory in all, but in pieces that the layers do not fit into.
    let pieces = pool(&[(15, 1.0), (15, 1.0), (15, 1.0)]);
    assert_eq!(
        message(&model(4), &pieces, &options()),
        "no way was found to fit the model, which needs 40 MiB at least, into memory, of which these 3 nodes have \
         45 MiB in all; about 5.0 MiB more on each would be enough"
    );
    assert_eq!(pieces.too_small(&model(4), &options()), []);
    let wish = Options { stages: Some(4), ..options() };
    assert_eq!(message(&model(4), &small, &wish), "1 replica of 4 stages needs 4 nodes, the pool has 3");
    let one = pool(&[(5, 1.0)]);
    assert_eq!(
        message(&model(2), &one, &options()),
        "the model needs 20 MiB in training, this node has 5 MiB in all"
    );
    // A node that no part of the model fits into.
    let mut small = pool(&[(40, 1.0), (40, 1.0), (1, 1.0)]);
    small.nodes[2].memory = 1024;
    let said: Vec<_> = small.too_small(&model(4), &options());
    let [LeftOut { node: 2, why }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(why.to_string(), "1 KiB is less than the 10 MiB of the smallest stage");
}

#[test]
fn memory_that_cannot_be_used_is_not_counted() {
    // Two layers go to two nodes at most, however many there are.
    let many = pool(&[(9, 1.0); 5]);
    assert_eq!(
        message(&model(2), &many, &options()),
        "the model needs 20 MiB in training, the 2 largest of 5 nodes have 18 MiB in all, and it cannot be \
         spread over more"
    );
    let wish = Options { stages: Some(1), ..options() };
    assert_eq!(
        message(&model(3), &pool(&[(20, 1.0), (25, 1.0)]), &wish),
        "the model needs 30 MiB in training, the largest of 2 nodes has 25 MiB in all, and it cannot be spread \
         over more"
    );
    // What processes need for themselves counts on both sides.
    let wish = Options { base_bytes: 8 * MIB, ..options() };
    for nodes in 1..12 {
        let error = plan(&model(3), &pool(&vec![(13, 1.0); nodes]), &wish, &mut || true).unwrap_err();
        let Shortfall::Memory { needs, has, nodes: counted, of } = error else { panic!("{error}") };
        assert!(needs > has && counted == nodes.min(3) && of == nodes, "{needs} {has} {counted} {of}");
    }
}

#[test]
fn what_is_enough_for_a_formation_is_enough() {
    let with = |more: u64| pool(&[(24, 1.0), (26, 1.0), (12, 1.0)].map(|(mib, speed)| (mib + more, speed)));
    let error = plan(&model(6), &with(0), &options(), &mut || true).unwrap_err();
    let Shortfall::NoFit { lacks: Some(lacks), needs, has, .. } = error else { panic!("{error}") };
    assert!(needs <= has);
    let least = (0..20).find(|more| plan(&model(6), &with(*more), &options(), &mut || true).is_ok()).unwrap();
    assert!(lacks.abs_diff(least * MIB) <= least * MIB / 50, "{lacks} {least}");
    // The caller does not wait.
    let error = plan(&model(6), &with(0), &options(), &mut || false).unwrap_err();
    assert!(matches!(error, Shortfall::NoFit { lacks: None, .. }), "{error}");
}

#[test]
fn no_stages_and_no_replicas_are_refused() {
    let nodes = pool(&[(100, 1.0); 3]);
    for method in [plan, exact, genetic, greedy] {
        let said = |wish: Options| method(&model(4), &nodes, &wish, &mut || true).unwrap_err().to_string();
        assert_eq!(
            said(Options { stages: Some(0), ..options() }),
            "number of stages is 0, which nothing can be planned with"
        );
        assert_eq!(
            said(Options { replicas: Some(0), ..options() }),
            "number of replicas is 0, which nothing can be planned with"
        );
    }
}
