use super::*;
use crate::zoo::{self, ZooOptions};
use crate::{Builder, weights};
use phalanx_types::Seed;

fn names(graph: &Graph, ids: &[ValueId]) -> Vec<String> {
    ids.iter().map(|v| graph.value(*v).name.clone()).collect()
}

/// Every node comes after what it reads.
fn runs_in_order(graph: &Graph) {
    let mut made: BTreeSet<ValueId> = graph.inputs.iter().copied().collect();
    for node in &graph.nodes {
        for v in &node.inputs {
            assert!(made.contains(v) || graph.value(*v).kind != ValueKind::Computed, "{}", node.name);
        }
        made.extend(&node.outputs);
    }
    graph.outputs.iter().for_each(|v| assert!(made.contains(v)));
}

#[test]
fn stages_of_every_model_hold_together_and_are_the_whole() {
    for model in zoo::NAMES {
        let graph = zoo::build(model, &ZooOptions::default()).unwrap();
        let n = graph.nodes.len();
        for cuts in [vec![n / 2], vec![n / 3, 2 * n / 3], vec![1, n - 1]] {
            let bounds: Vec<usize> = [0].into_iter().chain(cuts).chain([n]).collect();
            let stages: Vec<Graph> = bounds.windows(2).map(|w| graph.stage(w[0]..w[1]).unwrap()).collect();
            stages.iter().for_each(runs_in_order);
            for pair in stages.windows(2) {
                assert_eq!(names(&pair[0], &pair[0].outputs), names(&pair[1], &pair[1].inputs), "{model}");
            }
            let kept = |g: &Graph| {
                g.parameters().chain(g.buffers()).map(|(_, v)| v.name.clone()).collect::<Vec<_>>()
            };
            let (mut parts, mut whole): (Vec<_>, Vec<_>) =
                (stages.iter().flat_map(kept).collect(), kept(&graph));
            parts.sort();
            whole.sort();
            assert_eq!(parts, whole, "{model}");
        }
    }
}

#[test]
fn stages_begin_with_the_weights_of_the_whole() {
    let graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    let mut parts = crate::Weights::new();
    for range in [0..6, 6..12, 12..graph.nodes.len()] {
        let stage = graph.stage(range).unwrap();
        let own = stage.initialise(Seed(3));
        weights::check(&stage, &own).unwrap();
        own.into_iter().for_each(|(k, v)| assert!(parts.insert(k, v).is_none()));
    }
    assert_eq!(parts, graph.initialise(Seed(3)));
}

#[test]
fn a_residual_passes_through() {
    let mut b = Builder::new("residual");
    let x = b.input("x", &[4]);
    let y = b.linear("fc1", x, 4);
    let y = b.linear("fc2", y, 4);
    let y = b.linear("fc3", y, 4);
    let y = b.add(x, y);
    b.output(y);
    let graph = b.finish().unwrap();
    let middle = graph.stage(1..2).unwrap();
    assert_eq!(names(&middle, &middle.inputs), ["x", "fc1"]);
    assert_eq!(names(&middle, &middle.outputs), ["x", "fc2"]);
    let points = graph.cut_points();
    assert_eq!(points.iter().map(|p| (p.at, p.bytes)).collect::<Vec<_>>(), [(1, 32), (2, 32), (3, 32)]);
    assert_eq!(names(&graph, &points[1].alive), ["x", "fc2"]);
}

#[test]
fn cut_points_of_a_chain_send_one_value() {
    let graph = zoo::build("cifar-cnn", &ZooOptions::default()).unwrap();
    let points = graph.cut_points();
    assert_eq!(points.len(), graph.nodes.len() - 1);
    assert!(points.iter().all(|p| p.alive.len() == 1));
    assert_eq!(points[0].bytes, 4 * 32 * 32 * 32);
}

#[test]
fn shared_parameters_and_empty_stages_are_refused() {
    let mut b = Builder::new("tied");
    let x = b.input("x", &[4]);
    let w = b.parameter("w", &[4, 4], crate::Init::Zeros);
    let y = b.op("first", crate::Op::Linear, &[x, w]);
    let y = b.op("second", crate::Op::Linear, &[y, w]);
    b.output(y);
    let graph = b.finish().unwrap();
    let shared = CutError::Shared { name: "w".into(), inside: "first".into(), outside: "second".into() };
    assert_eq!(graph.stage(0..1), Err(shared));
    assert_eq!(graph.stage(1..1), Err(CutError::Range { start: 1, end: 1, nodes: 2 }));
    assert!(graph.stage(0..2).is_ok());
}

#[test]
fn tied_weights_are_cut_around_but_not_between() {
    let mut b = Builder::new("tied");
    let x = b.input("x", &[4]);
    let w = b.parameter("w", &[4, 4], crate::Init::Zeros);
    let y = b.relu(x);
    let y = b.op("first", crate::Op::Linear, &[y, w]);
    let y = b.relu(y);
    let y = b.op("second", crate::Op::Linear, &[y, w]);
    let y = b.relu(y);
    b.output(y);
    let graph = b.finish().unwrap();
    assert_eq!(graph.legal_cuts().iter().map(|p| p.at).collect::<Vec<_>>(), [1, 4]);
    for p in graph.cut_points() {
        let fits = graph.stage(0..p.at).is_ok() && graph.stage(p.at..5).is_ok();
        assert_eq!(fits, graph.legal_cuts().contains(&p), "{}", p.at);
    }
}

#[test]
fn constants_are_in_every_stage_that_uses_them_and_travel_to_none() {
    let mut b = Builder::new("constants");
    let x = b.input("x", &[4]);
    let two = phalanx_types::Tensor::from_f32(vec![4], &[2.0; 4]).unwrap();
    let c = b.constant("two", two);
    let y = b.add(x, c);
    let y = b.add(y, c);
    b.output(y);
    let graph = b.finish().unwrap();
    let [point] = &graph.legal_cuts()[..] else { panic!("one place to cut") };
    assert_eq!(point.alive.len(), 1);
    for range in [0..1, 1..2] {
        let stage = graph.stage(range).unwrap();
        assert_eq!(stage.inputs.len(), 1);
        assert!(stage.values.iter().any(|v| v.name == "two" && matches!(v.kind, ValueKind::Constant(_))));
    }
}
