use super::exact;
use crate::cuts::{self, Lane};
use crate::evaluate::Problem;
use crate::search::{Builder, Patience};
use crate::{CutCost, Effort, ModelCost, OpCost, Options, Pool, PoolNode, Work};

fn model(ops: usize) -> ModelCost {
    let op = |i: usize| OpCost {
        name: format!("op{i}"),
        parameter_bytes: 1000,
        forward: Work { per_sample: 1e-3, per_batch: 1e-5 * i as f64 },
        ..OpCost::default()
    };
    let cut = |at| CutCost { at, forward_bytes: 100, backward_bytes: 100 };
    ModelCost { ops: (0..ops).map(op).collect(), cuts: (1..ops).map(cut).collect() }
}

fn pool(nodes: usize) -> Pool {
    Pool::new((0..nodes).map(|i| PoolNode::new(format!("n{i}"), 1 << 30, 1.0 + i as f64)).collect())
}

#[test]
fn more_cuts_than_can_be_kept_are_not_proved() {
    let effort = Effort { evaluations: 1 << 40, exact_nodes: 12 };
    let options = Options { replicas: Some(2), stages: Some(5), effort, ..Options::default() };
    let (model, pool) = (model(50), pool(10));
    let problem = Problem::new(&model, &pool, &options).unwrap();
    // With no good formation known, there are 200,000 ways to cut each list, and none is skipped.
    let (best, proved) = exact(&mut Builder::new(&problem), None, &mut Patience::new(&mut || true));
    assert!(best.is_none() && !proved);
}

#[test]
fn cuts_end_soon_after_patience_does() {
    let (model, pool, options) = (model(50), pool(5), Options::default());
    let problem = Problem::new(&model, &pool, &options).unwrap();
    let lane = Lane { nodes: &[0, 1, 2, 3, 4], micro_batches: 4, m: 8 };
    // Also if none is fast enough to be visited.
    let fastest = cuts::best(&problem, lane, f64::INFINITY).map_or(0.0, |(time, _)| time);
    for limit in [f64::INFINITY, fastest] {
        let (mut asked, mut visited) = (0, 0);
        let mut few = || {
            asked += 1;
            asked < 10
        };
        let mut patience = Patience::new(&mut few);
        let complete = cuts::all(&problem, lane, limit, &mut patience, &mut |_| {
            visited += 1;
            true
        });
        assert!(!complete && visited < 1000, "{visited}");
        assert!(cuts::candidates(&problem, lane, limit, &mut patience).is_empty());
        assert_eq!(asked, 10);
    }
}

#[test]
fn combinations_of_cuts_end_soon_after_patience_does() {
    let effort = Effort { evaluations: 1 << 40, exact_nodes: 12 };
    let options =
        Options { replicas: Some(2), stages: Some(3), micro_batches: Some(4), effort, ..Options::default() };
    let (model, pool) = (model(20), pool(6));
    let problem = Problem::new(&model, &pool, &options).unwrap();
    let evaluations = |questions: usize| {
        let mut asked = 0;
        let mut some = || {
            asked += 1;
            asked < questions
        };
        let mut builder = Builder::new(&problem);
        assert!(!exact(&mut builder, None, &mut Patience::new(&mut some)).1);
        builder.evaluations
    };
    // The first lists alone have 29,000 combinations.
    let counts: Vec<u64> = (0..8).map(|n| evaluations(20 * n)).collect();
    let most = counts.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(most.is_some_and(|most| most < 3000) && counts[7] > 1000, "{counts:?}");
}
