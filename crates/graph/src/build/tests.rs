use super::*;
use crate::Unary;

fn names(graph: &Graph) -> Vec<&str> {
    graph.values.iter().filter(|v| v.kind != ValueKind::Computed).map(|v| v.name.as_str()).collect()
}

#[test]
fn parameters_are_named_as_in_a_state_dict() {
    let mut b = Builder::new("net");
    let x = b.input("x", &[1, 8, 8]);
    let x = b.conv2d("conv", x, ConvLayer::new(4, 3).pad(1).stride(2).no_bias());
    let x = b.batch_norm("bn", x);
    let x = b.unary(x, Unary::Relu);
    let x = b.flatten(x);
    let x = b.linear("fc", x, 3);
    b.output(x);
    let graph = b.finish().unwrap();
    assert_eq!(
        names(&graph),
        [
            "x",
            "conv.weight",
            "bn.weight",
            "bn.bias",
            "bn.running_mean",
            "bn.running_var",
            "bn.num_batches_tracked",
            "fc.weight",
            "fc.bias",
        ]
    );
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×3]");
    let fan_in = graph.parameters().find(|(_, v)| v.name == "fc.weight").unwrap().1;
    assert_eq!(fan_in.kind, ValueKind::Parameter(Init::Uniform(1.0 / 8.0)));
}

#[test]
fn recurrent_layers_stack_in_both_directions() {
    let mut b = Builder::new("net");
    let x = b.input("x", &[5, 7]);
    let layer = RecurrentLayer { layers: 2, bidirectional: true, dropout: 0.1, ..RecurrentLayer::new(3) };
    let y = b.lstm("rnn", x, &layer);
    b.output(y);
    let graph = b.finish().unwrap();
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×5×6]");
    let shapes: Vec<_> = graph.parameters().map(|(_, v)| format!("{} {}", v.name, v.shape)).collect();
    assert_eq!(shapes[4], "rnn.weight_ih_l0_reverse [12×7]");
    assert_eq!(shapes[8], "rnn.weight_ih_l1 [12×6]");
    assert_eq!(shapes.len(), 16);
}

#[test]
fn the_first_mistake_is_reported() {
    let mut b = Builder::new("net");
    let x = b.input("x", &[6]);
    let x = b.self_attention("attn", x, 4, true);
    let x = b.linear("fc", x, 3);
    b.output(x);
    let shape = Shape::batch_of(&[6]);
    assert_eq!(b.finish(), Err(BuildError::Unknown { layer: "attn".into(), axis: 2, shape }));

    let mut b = Builder::new("net");
    let x = b.input("x", &[6]);
    let x = b.linear("fc", x, 3);
    b.linear("fc", x, 3);
    assert_eq!(b.finish(), Err(BuildError::Duplicate { name: "fc.weight".into() }));

    let mut b = Builder::new("net");
    let x = b.input("x", &[6]);
    b.linear("fc", x, usize::MAX);
    assert_eq!(b.finish(), Err(BuildError::TooLarge { layer: "fc".into() }));
}
