//! Exported models are imported with the same weights under the same names.

use phalanx_graph::onnx::{self, ImportOptions};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{Graph, RecurrentLayer, Weights};
use phalanx_types::Seed;

fn there_and_back(graph: &Graph) -> Graph {
    let weights = graph.initialise(Seed(5));
    let data = onnx::export_bytes(graph, &weights).expect("it can be exported");
    let imported = onnx::import_bytes(data.into(), &ImportOptions::default()).expect("it can be imported");
    let learned = |g: &Graph, w: &Weights| {
        let names = g.parameters().map(|(_, v)| v.name.clone());
        names.map(|n| (n.clone(), w[&n].clone())).collect::<Weights>()
    };
    assert_eq!(learned(&imported.graph, &imported.weights), learned(graph, &weights), "{}", graph.name);
    let shapes = |g: &Graph| g.outputs.iter().map(|v| g.shape(*v).clone()).collect::<Vec<_>>();
    assert_eq!(shapes(&imported.graph), shapes(graph));
    assert_eq!(imported.notes, Vec::<String>::new());
    imported.graph
}

fn count(graph: &Graph, word: &str) -> usize {
    graph.nodes.iter().filter(|n| n.op.word() == word).count()
}

#[test]
fn models_of_the_zoo() {
    for name in ["digits-cnn", "cifar-cnn", "mlp", "gpt-small"] {
        let graph = zoo::build(name, &ZooOptions::default()).unwrap();
        let back = there_and_back(&graph);
        for word in ["Conv", "Linear", "BatchNorm", "LayerNorm", "Attention", "Gelu", "Softmax"] {
            assert_eq!(count(&back, word), count(&graph, word), "{name}: {word}");
        }
    }
}

#[test]
fn a_file_for_training_keeps_dropout_with_its_name_and_the_momentum_of_norms() {
    let mut b = phalanx_graph::Builder::new("drops");
    let x = b.input("x", &[2, 4, 4]);
    let normed = b.batch_norm_with("norm", x, 1e-5, 0.25);
    let dropped = b.dropout("drop", normed, 0.3);
    let again = b.dropout("again", dropped, 0.5);
    b.output(again);
    let graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(5));
    let data = onnx::export_training_bytes(&graph, &weights).expect("it can be exported");
    let back = onnx::import_bytes(data.into(), &ImportOptions::default()).expect("it can be imported").graph;
    let ops = |graph: &Graph| graph.nodes.iter().map(|n| (n.name.clone(), n.op.clone())).collect::<Vec<_>>();
    assert_eq!(ops(&back), ops(&graph));
    assert_eq!(count(&there_and_back(&graph), "Dropout"), 0);
}

#[test]
fn a_file_for_training_keeps_frozen_weights_that_no_node_reads() {
    let mut b = phalanx_graph::Builder::new("frozen");
    let x = b.input("x", &[4]);
    let y = b.linear("fc", x, 3);
    b.output(y);
    let graph = b.finish().unwrap();
    let weights = graph.initialise(Seed(5));
    let constants = ["fc.weight".to_owned(), "fc.bias".to_owned()].into();
    let data = onnx::export_bytes(&graph, &weights).expect("it can be exported");
    let options = ImportOptions { constants, ..Default::default() };
    let frozen = onnx::import_bytes(data.into(), &options).expect("it can be imported");
    assert_eq!(frozen.weights, weights);
    let data = onnx::export_training_bytes(&frozen.graph, &frozen.weights).expect("it can be exported");
    let back = onnx::import_bytes(data.into(), &ImportOptions::default()).expect("it can be imported");
    assert_eq!(back.weights, weights);
    assert_eq!(back.graph.parameters().count(), 0);
}

#[test]
fn outputs_keep_the_names_of_the_user() {
    let mut b = phalanx_graph::Builder::new("two");
    let x = b.input("pixels", &[4]);
    let y = b.linear("fc", x, 3);
    let z = b.relu(y);
    [y, z, y, x].into_iter().for_each(|v| b.output(v));
    let mut graph = b.finish().unwrap();
    graph.output_names = ["logits", "scores", "again", "same"].map(str::to_owned).to_vec();
    let back = there_and_back(&graph);
    assert_eq!(back.output_names, graph.output_names);
    assert_eq!(back.value(back.inputs[0]).name, "pixels");
    let twice = there_and_back(&Graph { output_names: vec!["pixels".into(); 4], ..graph });
    assert_eq!(twice.output_names, ["pixels_1", "pixels_2", "pixels_3", "pixels_4"]);
    assert_eq!(twice.value(twice.inputs[0]).name, "pixels");
}

#[test]
fn recurrent_layers_and_group_norms() {
    let layer = RecurrentLayer { layers: 2, bidirectional: true, ..RecurrentLayer::new(4) };
    for gru in [false, true] {
        let mut b = phalanx_graph::Builder::new("sequence");
        let x = b.input("x", &[6, 8]);
        let x = b.group_norm("norm", x, 2, 1e-5);
        let x = if gru { b.gru("rnn", x, &layer) } else { b.lstm("rnn", x, &layer) };
        b.output(x);
        let back = there_and_back(&b.finish().unwrap());
        assert_eq!(count(&back, if gru { "GRU" } else { "LSTM" }), 4);
        assert_eq!(count(&back, "GroupNorm"), 1);
    }
}
