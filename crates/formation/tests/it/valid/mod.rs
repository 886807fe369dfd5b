//! Invariants of every plan.

use crate::random::Case;
use phalanx_formation::{Plan, predict};

pub(crate) fn check(case: &Case, plan: &Plan) {
    let Case { model, pool, options } = case;
    let mut used = vec![false; pool.nodes.len()];
    for replica in &plan.replicas {
        let mut at = 0;
        for stage in &replica.stages {
            assert_eq!(stage.ops.start, at);
            assert!(stage.memory <= pool.nodes[stage.node].memory && stage.utilisation <= 1.0);
            assert!(!std::mem::replace(&mut used[stage.node], true));
            at = stage.ops.end;
        }
        assert_eq!(at, model.ops.len());
        assert!(replica.samples > 0 && replica.micro_batches <= replica.samples);
        assert!(options.stages.is_none_or(|s| s == replica.stages.len()));
    }
    assert_eq!(plan.replicas.iter().map(|r| r.samples).sum::<usize>(), options.batch);
    assert!(options.replicas.is_none_or(|r| r == plan.replicas.len()));
    let left: Vec<usize> = plan.left_out.iter().map(|l| l.node).collect();
    assert_eq!(left, (0..used.len()).filter(|n| !used[*n]).collect::<Vec<_>>());
    let again = predict(model, pool, options, &plan.shape()).expect("a plan is a formation");
    assert!((again.predicted.score / plan.predicted.score - 1.0).abs() < 1e-9);
    assert!(plan.why.iter().all(|why| !why.to_string().is_empty()));
}
