//! A model cut into stages learns what the whole model learns, bit for bit, wherever it is cut.

mod pipeline;

use phalanx_engine::Loss;
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{Builder, ConvLayer, Graph, Reduce};
use pipeline::{Case, Pipeline};
use std::collections::BTreeMap;

type Bits = BTreeMap<String, Vec<u8>>;

const CLASSES: Loss = Loss::CrossEntropy { smoothing: 0.0 };

fn zoo_model(name: &str, input: &[usize], classes: usize) -> Graph {
    zoo::build(name, &ZooOptions { input: Some(input.to_vec()), classes: Some(classes) }).unwrap()
}

fn trained(case: &Case, cuts: &[usize], steps: u64, in_flight: bool) -> Bits {
    let mut pipeline = Pipeline::new(case, cuts);
    pipeline.check_gradients();
    pipeline.train(steps, in_flight);
    pipeline.learned()
}

fn assert_same(cut: &Bits, whole: &Bits, cuts: &[usize], graph: &Graph) {
    assert!(cut.keys().eq(whole.keys()), "{}: other names", graph.name);
    let differs = whole.iter().filter(|(name, tensor)| cut[*name] != **tensor);
    let names: Vec<&String> = differs.map(|(name, _)| name).collect();
    let places: Vec<&str> = cuts.iter().map(|at| graph.nodes[*at].name.as_str()).collect();
    assert!(names.is_empty(), "{} cut at {cuts:?} (before {places:?}): {names:?} differ", graph.name);
}

/// Two stages at every legal cut, three and five at some; alternately with two micro-batches in flight. One cut in
/// `one_of` is trained for all steps, the others for one step.
fn every_cut(case: &Case, steps: u64, one_of: usize) {
    let long = trained(case, &[], steps, false);
    let short = trained(case, &[], 1, false);
    assert_same(&trained(case, &[], steps, true), &long, &[], &case.graph);
    let legal: Vec<usize> = case.graph.legal_cuts().iter().map(|p| p.at).collect();
    let n = legal.len();
    let mut cuts: Vec<Vec<usize>> = legal.iter().map(|at| vec![*at]).collect();
    for k in [0, 1, 2] {
        cuts.push(vec![legal[n / 3 + k], legal[2 * n / 3 - k]]);
        cuts.push((1..5).map(|i| legal[(i * n / 5 + k).min(n - 1)]).collect());
    }
    for (i, cuts) in cuts.iter_mut().enumerate() {
        cuts.sort_unstable();
        cuts.dedup();
        let (steps, whole) = if i % one_of == 0 { (steps, &long) } else { (1, &short) };
        assert_same(&trained(case, cuts, steps, i % 2 == 0), whole, cuts, &case.graph);
    }
}

#[test]
fn digits_cnn_can_be_cut_anywhere() {
    let graph = zoo::build("digits-cnn", &ZooOptions::default()).unwrap();
    every_cut(&Case::new(graph, 6, Loss::Mse), 4, 1);
}

#[test]
fn mobilenet_can_be_cut_anywhere() {
    every_cut(&Case::new(zoo_model("mobilenet-v2", &[3, 36, 36], 5), 2, CLASSES), 3, 5);
}

#[test]
fn gpt_can_be_cut_anywhere() {
    every_cut(&Case::new(zoo_model("gpt-small", &[9], 11), 2, CLASSES), 3, 5);
}

#[test]
fn resnet_can_be_cut_at_its_blocks() {
    let case = Case::new(zoo_model("resnet-18", &[3, 32, 32], 5), 2, CLASSES);
    let whole = trained(&case, &[], 1, false);
    let legal: Vec<usize> = case.graph.legal_cuts().iter().map(|p| p.at).collect();
    let n = legal.len();
    for cuts in [vec![legal[n / 2]], vec![legal[4], legal[n / 3 + 1], legal[n / 2 + 1], legal[n - 2]]] {
        assert_same(&trained(&case, &cuts, 1, true), &whole, &cuts, &case.graph);
    }
}

/// Sums over axes that are in another order in memory than in the graph: a mean over the image scales its channels.
fn squeeze() -> Graph {
    let mut b = Builder::new("squeeze");
    let x = b.input("x", &[3, 7, 9]);
    let x = b.conv2d("conv1", x, ConvLayer::new(20, 3).pad(1));
    let pooled = b.reduce(x, Reduce::Mean, vec![2, 3], true);
    let gate = b.unary(pooled, phalanx_graph::Unary::Sigmoid);
    let y = b.mul(x, gate);
    let y = b.add(y, x);
    let rows = b.reduce(y, Reduce::Sum, vec![1, 2], true);
    let y = b.mul(rows, y);
    let y = b.relu(y);
    let y = b.global_average_pool(y);
    let y = b.linear("fc", y, 4);
    b.output(y);
    b.finish().unwrap()
}

/// The same values in two shapes, both used on both sides of many cuts; every sum of gradients has many parts.
fn shapes() -> Graph {
    let mut b = Builder::new("shapes");
    let x = b.input("x", &[4, 6]);
    let x = b.linear("fc1", x, 6);
    let x = b.layer_norm("ln", x);
    let flat = b.flatten(x);
    let turned = b.transpose(x, &[0, 2, 1]);
    let mut sum = b.linear("flat1", flat, 24);
    for i in 0..3 {
        let a = b.linear(&format!("a{i}"), x, 6);
        let a = b.flatten(a);
        let c = b.linear(&format!("c{i}"), flat, 24);
        let d = b.linear(&format!("d{i}"), turned, 6);
        let d = b.flatten(d);
        let d = b.linear(&format!("e{i}"), d, 24);
        let all = b.add(a, c);
        let all = b.mul(all, d);
        sum = b.add(sum, all);
    }
    let part = b.slice(sum, 1, 3, 8);
    let other = b.slice(sum, 1, 9, 8);
    let y = b.mul(part, other);
    let y = b.linear("out", y, 4);
    b.output(y);
    b.finish().unwrap()
}

/// Token ids are needed at both ends, so they pass through every stage, and have no gradient.
fn ids() -> Graph {
    let mut b = Builder::new("ids");
    let tokens = b.tokens("tokens", 6);
    let x = b.embedding("first", tokens, 11, 8);
    let y = b.self_attention("attention", x, 2, true);
    let y = b.dropout("dropout", y, 0.3);
    let x = b.add(x, y);
    let z = b.embedding("second", tokens, 11, 8);
    let x = b.mul(x, z);
    let x = b.linear("head", x, 11);
    b.output(x);
    b.finish().unwrap()
}

#[test]
fn sums_go_in_the_order_of_the_whole_model() {
    every_cut(&Case::new(squeeze(), 5, CLASSES), 3, 1);
}

#[test]
fn values_in_two_shapes_have_one_sum_of_gradients() {
    every_cut(&Case::new(shapes(), 5, CLASSES), 3, 1);
}

#[test]
fn token_ids_pass_through() {
    every_cut(&Case::new(ids(), 3, CLASSES), 3, 1);
}
