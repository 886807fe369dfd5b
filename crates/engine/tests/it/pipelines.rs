//! What pipelines need of a model: parameters of earlier steps, memory known beforehand, the time of every node.

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Measurement, Model, ParameterSet, Pass, measure};
use phalanx_graph::Graph;
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_types::Seed;
use std::time::Duration;

const PASS: Pass = Pass { training: true, seed: 7 };

fn digits() -> Graph {
    zoo::build("digits-cnn", &ZooOptions::default()).unwrap()
}

fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect()
}

fn compiled(graph: &Graph) -> Box<dyn Model> {
    let mut model = CpuEngine::new(1).compile(graph, &CompileOptions::default()).unwrap();
    model.load(&graph.initialise(Seed(3))).unwrap();
    model
}

fn gradients(model: &mut dyn Model) -> Vec<Vec<f32>> {
    let mut all = Vec::new();
    model.update(&mut |_, _, gradient| all.push(gradient.to_vec()));
    all
}

#[test]
fn backward_can_use_the_parameters_its_forward_used() {
    let (graph, x, dy) = (digits(), [numbers(6 * 64, 1), numbers(6 * 64, 2)], numbers(60, 3));
    let train = |model: &mut dyn Model, batch: usize| {
        model.forward(0, 6, &[&x[batch]], PASS).unwrap();
        model.backward(0, &[&dy], &mut |_, _| ()).unwrap();
        gradients(model)
    };
    let change = |model: &mut dyn Model| {
        model.update(&mut |_, p, _| p.iter_mut().for_each(|p| *p = *p * 0.5 + 0.01));
    };
    let mut alone = compiled(&graph);
    let old = train(alone.as_mut(), 0);
    change(alone.as_mut());
    let new = train(alone.as_mut(), 1);

    let mut model = compiled(&graph);
    let mut other = ParameterSet::new();
    model.copy_parameters(&mut other);
    model.forward(0, 6, &[&x[0]], PASS).unwrap();
    change(model.as_mut());
    model.forward(1, 6, &[&x[1]], PASS).unwrap();
    model.swap_parameters(&mut other);
    model.backward(0, &[&dy], &mut |_, _| ()).unwrap();
    assert_eq!(gradients(model.as_mut()), old);
    model.swap_parameters(&mut other);
    model.backward(1, &[&dy], &mut |_, _| ()).unwrap();
    assert_eq!(gradients(model.as_mut()), new);
    assert_ne!(old, new);
}

#[test]
#[should_panic(expected = "parameters of another model")]
fn parameters_of_another_model_are_refused() {
    compiled(&digits()).swap_parameters(&mut ParameterSet::new());
}

#[test]
fn the_memory_of_a_slot_is_known_beforehand() {
    let graph = digits();
    for recompute in [false, true] {
        let options = CompileOptions { recompute, ..CompileOptions::default() };
        let mut model = CpuEngine::new(1).compile_stage(&graph, 4..12, &options).unwrap();
        let parameters: usize = model.parameters().iter().map(|p| p.elements()).sum();
        let x: Vec<f32> = numbers(9 * 16 * 16, 1);
        let (fixed, slot) = (model.memory(), model.slot_bytes(9).unwrap());
        assert!((8 * parameters..8 * parameters + 1024).contains(&fixed), "{fixed} for {parameters}");
        model.forward(2, 9, &[&x], PASS).unwrap();
        assert_eq!(model.memory(), fixed + slot, "slots 0 and 1 were not used");
        model.forward(0, 9, &[&x], PASS).unwrap();
        assert_eq!(model.memory(), fixed + 2 * slot);
        assert_eq!(model.slot_bytes(9).unwrap(), slot);
    }
}

#[test]
fn a_stage_keeps_no_weights_of_others() {
    let (graph, engine) = (digits(), CpuEngine::new(1));
    let all = graph.initialise(Seed(3));
    let mut kept = Vec::new();
    for nodes in [0..6, 6..12, 12..graph.nodes.len()] {
        let mut model = engine.compile_stage(&graph, nodes, &CompileOptions::default()).unwrap();
        model.load(&all).unwrap();
        kept.extend(model.weights());
    }
    let names = kept.len();
    assert_eq!(kept.into_iter().collect::<phalanx_graph::Weights>(), all);
    assert_eq!(names, all.len());
}

#[test]
fn every_node_has_its_time_whether_measured_at_once_or_in_pieces() {
    let sizes = [("digits-cnn", vec![1, 8, 8]), ("gpt-small", vec![8])];
    for (name, input) in sizes {
        let graph = zoo::build(name, &ZooOptions { input: Some(input), classes: Some(10) }).unwrap();
        let engine = CpuEngine::new(1);
        for parameter_bytes in [usize::MAX, 1 << 20, 0] {
            let how = Measurement { batch: 4, rounds: 2, time: Duration::ZERO, parameter_bytes };
            let times = measure(&engine, &graph, &how).unwrap();
            assert!(times.iter().map(|t| &t.node).eq(graph.nodes.iter().map(|n| &n.name)));
            let linear = graph.nodes.iter().zip(&times).filter(|(n, _)| n.op == phalanx_graph::Op::Linear);
            for (node, time) in linear {
                assert!(time.backward > 0.0, "{}", node.name);
            }
            assert!(times.iter().map(|t| t.forward).sum::<f64>() > 0.0);
        }
    }
}
