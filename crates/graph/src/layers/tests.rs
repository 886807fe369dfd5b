use super::*;
use crate::{ValueKind, zoo};

const CNN: &str = r#"
name = "cnn"
input = [1, 8, 8]

[[layer]]
type = "conv2d"
name = "conv1"
out = 16
kernel = 3
padding = "same"
activation = "relu"

[[layer]]
type = "batch_norm"

[[layer]]
type = "conv2d"
out = 16
kernel = [3, 3]
padding = 1

[[layer]]
type = "residual"
from = "conv1"

[[layer]]
type = "max_pool"
kernel = 2

[[layer]]
type = "flatten"

[[layer]]
type = "linear"
name = "fc"
out = 10
activation = "softmax"
"#;

fn message(text: &str) -> String {
    let error = parse(text).unwrap_err();
    let cause = std::error::Error::source(&error).map(|s| format!(": {s}")).unwrap_or_default();
    format!("{error}{cause}")
}

#[test]
fn a_list_of_layers_is_a_graph() {
    let graph = parse(CNN).unwrap();
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×10]");
    let names: Vec<_> = graph.parameters().map(|(_, v)| v.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "conv1.weight",
            "conv1.bias",
            "batch_norm_1.weight",
            "batch_norm_1.bias",
            "conv2d_1.weight",
            "conv2d_1.bias",
            "fc.weight",
            "fc.bias",
        ]
    );
}

#[test]
fn sequences_are_layers_too() {
    let text = r#"
tokens = 12
layer = [
  { type = "embedding", rows = 50, width = 8 },
  { type = "attention", heads = 2, causal = true },
  { type = "layer_norm", eps = 1e-6 },
  { type = "lstm", hidden = 6, bidirectional = true, layers = 2, dropout = 0.1, last = true },
  { type = "dropout", ratio = 0.25 },
  { type = "linear", out = 3, bias = false },
  { type = "log_softmax" },
]
"#;
    let graph = parse(text).unwrap();
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×3]");
    assert!(graph.parameters().any(|(_, v)| v.name == "lstm_1.weight_ih_l1_reverse"));
}

#[test]
fn the_mlp_of_the_zoo_can_be_written() {
    let layer =
        |n: usize, out: usize, a: &str| format!("[[layer]]\ntype='linear'\nname='fc{n}'\nout={out}\n{a}\n");
    let relu = "activation='relu'";
    let text = format!("input=[784]\n{}{}{}", layer(1, 256, relu), layer(2, 128, relu), layer(3, 10, ""));
    let (mine, theirs) = (parse(&text).unwrap(), zoo::build("mlp", &zoo::ZooOptions::default()).unwrap());
    let kept =
        |g: &Graph| g.values.iter().filter(|v| v.kind != ValueKind::Computed).cloned().collect::<Vec<_>>();
    assert_eq!(kept(&mine), kept(&theirs));
}

#[test]
fn sizes_have_bounds() {
    let with = |layer: &str| format!("input = [1024, 1024]\n[[layer]]\n{layer}");
    assert_eq!(
        message(&with("type = \"linear\"\nout = 1000000000")),
        "line 4: `out` must be at most 134217728"
    );
    let large = "must be smaller: the layer is larger than anything that can be trained";
    assert_eq!(message(&with("type = \"linear\"\nout = 100000000")), format!("line 4: `out` {large}"));
    let table = "tokens = 8\n[[layer]]\ntype = \"embedding\"\nwidth = 1000000\nrows = 1000000";
    assert_eq!(message(table), format!("line 5: `rows` {large}"));
    let conv = "type = \"conv1d\"\nout = 1\nkernel = 3\npadding = 100000000\ndilation = 100000000";
    assert!(message(&with(conv)).contains("padding are at most"), "{}", message(&with(conv)));
    for kind in ["lstm", "gru"] {
        let deep = format!("type = \"{kind}\"\nhidden = 4\nlayers = 100");
        assert_eq!(message(&with(&deep)), "line 5: `layers` must be from 1 to 64");
    }
    let huge = "input = [100000000, 100000000]\n[[layer]]\ntype = \"flatten\"";
    assert!(message(huge).starts_with("line 1: `input` must be smaller"), "{}", message(huge));
}

#[test]
fn mistakes_are_told_with_their_line() {
    let with = |layer: &str| format!("input = [3, 8, 8]\n[[layer]]\n{layer}");
    assert_eq!(
        message(&with("type = \"conv2\"")),
        "line 3: there is no layer type `conv2`; did you mean `conv2d`?"
    );
    assert_eq!(
        message(&with("type = \"conv2d\"\nout = 4\nkernal = 3")),
        "line 5: there is no key `kernal` in a layer of type `conv2d`; did you mean `kernel`?"
    );
    assert_eq!(message(&with("type = \"linear\"")), "line 2: a layer of type `linear` needs the key `out`");
    assert_eq!(message(&with("type = \"linear\"\nout = \"many\"")), "line 4: `out` must be a whole number");
    assert_eq!(
        message(&with("type = \"flatten\"\nactivation = \"rellu\"")),
        "line 4: there is no activation `rellu`; did you mean `relu`?"
    );
    assert_eq!(
        message(&with("type = \"residual\"\nfrom = \"y\"")),
        "line 4: no layer before this one is called `y`; did you mean `x`?"
    );
    assert!(
        message(&with("type = \"max_pool\"\nkernel = 9"))
            .starts_with("line 2: this layer cannot be built: MaxPool")
    );
    assert!(message("input = [1").starts_with("line 1: "));
    assert_eq!(message("layer = []"), "line 1: the file needs the key `input`");
    assert_eq!(
        message("inputs = [1]"),
        "line 1: there is no key `inputs` in the file; did you mean `input`?"
    );
}
