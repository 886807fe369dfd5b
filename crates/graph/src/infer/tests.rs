use super::*;
use crate::{Graph, Init, ValueId, ValueKind};

fn graph(x: &[usize], weight: &[usize]) -> (Graph, [ValueId; 2]) {
    let mut graph = Graph::default();
    let mut add = |name: &str, shape: Shape, kind: ValueKind| {
        graph.add_value(Value { name: name.into(), dtype: DType::F32, shape, kind })
    };
    let x = add("x", Shape::batch_of(x), ValueKind::Input);
    let w = add("w", Shape::fixed(weight), ValueKind::Parameter(Init::Zeros));
    (graph, [x, w])
}

fn conv(stride: usize, dilation: usize, pad: (usize, usize)) -> Conv {
    Conv { stride: vec![stride], dilation: vec![dilation], pad: vec![pad], groups: 1 }
}

#[test]
fn settings_of_windows_are_bounded() {
    let huge = 1 << 60;
    for c in
        [conv(1, huge, (huge, huge)), conv(huge, 1, (0, 0)), conv(1, 1, (usize::MAX, 0)), conv(0, 1, (0, 0))]
    {
        let (mut g, [x, w]) = graph(&[1, 8], &[1, 1, 2]);
        let refused = g.add_node("conv", Op::Conv(c), vec![x, w]);
        assert!(matches!(refused, Err(InferError::Shape { .. })), "{refused:?}");
    }
    let (mut g, [x, w]) = graph(&[1, 8], &[1, 1, 2]);
    assert!(g.add_node("conv", Op::Conv(conv(1, 2, (1, 1))), vec![x, w]).is_ok());
}

#[test]
fn transposed_windows_are_bounded_too() {
    let cases = [
        (conv(0, 1, (0, 0)), 0, 2),
        (conv(1, 0, (0, 0)), 0, 2),
        (conv(1, 1, (0, 0)), 0, 0),
        (conv(1, 1, (0, 0)), 1 << 60, 2),
        (conv(1 << 60, 1, (0, 0)), 0, 2),
    ];
    for (conv, padding, kernel) in cases {
        let (mut g, [x, w]) = graph(&[1, 8], &[1, 1, kernel]);
        let op = Op::ConvTranspose(ConvTranspose { conv, output_padding: vec![padding] });
        let refused = g.add_node("up", op, vec![x, w]);
        assert!(matches!(refused, Err(InferError::Shape { .. })), "{refused:?}");
    }
}

#[test]
fn values_are_bounded_by_name() {
    let (mut g, [x, w]) = graph(&[1 << 20, 1], &[1, 1 << 30]);
    let refused = g.add_node("wide", Op::MatMul, vec![x, w]);
    let error = refused.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MatMul `wide` makes a value of [N×1048576×1073741824], more elements than can be computed"
    );
    let (mut g, [x, _]) = graph(&[usize::MAX, 0], &[]);
    assert!(g.add_node("joined", Op::Concat { axis: 1 }, vec![x, x]).is_err());
}
