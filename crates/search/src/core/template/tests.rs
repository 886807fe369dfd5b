mod errors;

use super::*;
use crate::core::algorithm::AlgorithmKind;
use crate::core::dice::Dice;
use crate::core::objective::Goal;
use crate::core::space::Genes;
use crate::core::space::{Activity, Need};
use phalanx_types::{ByteSize, Seed};
use std::time::Duration;

/// The rest of a file whose space and layers are given.
const REST: &str = r#"
[data]
train = { file = "a.npz" }
[train]
loss = "mse"
epochs = 10
[objective.accuracy]
goal = "max"
from = "valid.accuracy"
"#;

const EXAMPLE: &str = r#"
name = "example"
[space]
nb_layers   = { from = 1, to = 12 }
kernel_size = [1, 3, 5, 7]
hidden_dim  = [16, 32, 64, 128]
lr          = { from = 1e-4, to = 1e-2, log = true, points = 9 }
head        = ["pool", "dense"]
width       = { choose = [32, 64], when = { head = "dense" } }

[model]
input = [1, 28, 28]
[[model.layer]]
repeat = "$nb_layers"
layer = [
  { type = "conv2d", out = "$hidden_dim", kernel = "$kernel_size", padding = "same" },
  { type = "batch_norm", activation = "relu" },
]
[[model.layer]]
repeat = 3
name = "cells"
each = { op = ["conv3", "conv1", "skip"] }
layer = [
  { when = { op = "conv3" }, type = "conv2d", out = "$hidden_dim * 2", kernel = 3, padding = "same" },
  { when = { op = "conv1" }, type = "conv2d", out = "$hidden_dim * 2", kernel = 1 },
]
[[model.layer]]
type = "global_avg_pool"
[[model.layer]]
when = { head = "dense" }
type = "linear"
out = "$width"
[[model.layer]]
type = "linear"
out = 10

[data]
train = { file = "mnist.npz", x = "x_train", y = "y_train" }
[train]
loss = "cross_entropy"
optimizer = { name = "adam", lr = "$lr" }
epochs = 10

[search]
algorithm = "nsga2"
trials = 30
workers = 8
seed = 7
rungs = { first = "0.1 epochs", factor = 4 }
[objective.accuracy]
goal = "max"
from = "valid.accuracy"
[objective.latency]
goal = "min"
trials = 3
cheap = true
[constraint]
params = { at_most = 1e6 }
flops  = { at_most = 1e9 }
"#;

fn parse(text: &str) -> SearchFile {
    SearchFile::parse(Path::new("/searches/search.toml"), text).unwrap()
}

fn error(text: &str) -> String {
    SearchFile::parse(Path::new("s.toml"), text).unwrap_err().to_string()
}

/// A file of a space, written as `[space]`, and layers, written as a list.
fn with_layers(space: &str, layers: &str) -> String {
    format!("[space]\n{space}\n[model]\ninput = [4]\nlayer = [{layers}]\n{REST}")
}

/// The candidate whose genes have these labels; the others have their first choice.
fn candidate(file: &SearchFile, labels: &[(&str, &str)]) -> Genes {
    let space = file.space();
    let choice = |gene: &super::super::space::Gene| {
        let wanted = labels.iter().find(|(name, _)| *name == gene.name);
        wanted.map_or(0, |(_, label)| {
            gene.choices.iter().position(|choice| choice.label == *label).unwrap() as u16
        })
    };
    space.fold(Genes(space.genes.iter().map(choice).collect()))
}

fn expand(file: &SearchFile, labels: &[(&str, &str)]) -> Expanded {
    file.expand(&candidate(file, labels)).unwrap()
}

/// When a gene exists: names and labels.
fn activity(file: &SearchFile, name: &str) -> String {
    let genes = &file.space().genes;
    let gene = genes.iter().find(|gene| gene.name == name).unwrap();
    let need = |need: &Need| {
        let labels =
            need.choices.iter().map(|choice| genes[need.gene].choices[usize::from(*choice)].label.as_str());
        format!("{} {}", genes[need.gene].name, labels.collect::<Vec<_>>().join("|"))
    };
    match &gene.activity {
        Activity::Always => "always".to_owned(),
        Activity::AnyOf(alternatives) => {
            let all = |needs: &Vec<Need>| needs.iter().map(need).collect::<Vec<_>>().join(" and ");
            alternatives.iter().map(all).collect::<Vec<_>>().join(" or ")
        }
    }
}

#[test]
fn a_candidate_is_an_ordinary_run_file_and_layer_file() {
    let file = parse(EXAMPLE);
    let labels = [
        ("nb_layers", "2"),
        ("kernel_size", "5"),
        ("hidden_dim", "32"),
        ("lr", "0.001"),
        ("head", "dense"),
        ("width", "64"),
        ("cells.0.op", "conv3"),
        ("cells.1.op", "skip"),
        ("cells.2.op", "conv1"),
    ];
    let expanded = expand(&file, &labels);
    let conv = "\n[[layer]]\ntype = \"conv2d\"\nout = 32\nkernel = 5\npadding = \"same\"\n";
    let norm = "\n[[layer]]\ntype = \"batch_norm\"\nactivation = \"relu\"\n";
    let expected = [
        "input = [1, 28, 28]\n",
        conv,
        norm,
        conv,
        norm,
        "\n[[layer]]\ntype = \"conv2d\"\nout = 64\nkernel = 3\npadding = \"same\"\n",
        "\n[[layer]]\ntype = \"conv2d\"\nout = 64\nkernel = 1\n",
        "\n[[layer]]\ntype = \"global_avg_pool\"\n",
        "\n[[layer]]\ntype = \"linear\"\nout = 64\n",
        "\n[[layer]]\ntype = \"linear\"\nout = 10\n",
    ];
    assert_eq!(expanded.model.as_deref(), Some(expected.concat().as_str()));
    let run = r#"[model]
toml = "model.toml"

[data]
train = { file = "/searches/mnist.npz", x = "x_train", y = "y_train" }

[train]
loss = "cross_entropy"
optimizer = { name = "adam", lr = 0.001 }
epochs = 10
seed = 7
"#;
    assert_eq!(expanded.run, run);
    assert_eq!(expanded.argv, None);
    let expected: BTreeMap<String, String> =
        labels.map(|(name, label)| (name.to_owned(), label.to_owned())).into();
    assert_eq!(expanded.genes, expected);
    // 12 * 4 * 4 * 9 * (1 + 2) * 3³.
    assert_eq!(file.space().count(), Some(139_968));
}

#[test]
fn settings_and_objectives_are_read() {
    let file = parse(EXAMPLE);
    assert_eq!((file.name(), file.is_program()), (Some("example"), false));
    let settings = file.settings();
    assert_eq!((settings.algorithm, settings.trials, settings.workers), (AlgorithmKind::Nsga2, 30, Some(8)));
    let config = file.config();
    assert_eq!((config.seed, config.eta, config.trials), (Seed(7), 4, 30));
    assert_eq!(config.rungs, [0.1, 0.4, 1.6, 6.4, 10.0]);
    let bounds: Vec<_> = config.bounds.iter().map(|bound| (bound.name.as_str(), bound.at_most)).collect();
    assert_eq!(bounds, [("flops", Some(1e9)), ("params", Some(1e6))]);
    let objectives: Vec<_> = (file.objectives().iter())
        .map(|spec| {
            let objective = &spec.objective;
            (objective.name.as_str(), objective.goal, objective.cheap, spec.from.as_str(), spec.trials)
        })
        .collect();
    let expected =
        [("accuracy", Goal::Max, false, "valid.accuracy", 1), ("latency", Goal::Min, true, "latency", 3)];
    assert_eq!(objectives, expected);

    let algorithm =
        "[search]\nalgorithm = { name = 'nsga2', population = 20, crossover_rate = 0.5 }\nfinish = 'none'\n";
    let file =
        parse(&with_layers("", "{ type = 'relu' }").replace("[train]", &format!("{algorithm}[train]")));
    assert_eq!(file.settings().algorithm_settings.population, Some(20));
    assert_eq!((file.settings().memory, file.settings().deadline), (None, None));
    let limits = "[search]\nmemory = '2GiB'\ndeadline = '10m'\n";
    let limited =
        parse(&with_layers("", "{ type = 'relu' }").replace("[train]", &format!("{limits}[train]")));
    let settings = limited.settings();
    assert_eq!(
        (settings.memory, settings.deadline),
        (Some(ByteSize(2 << 30)), Some(Duration::from_secs(600)))
    );
    assert_eq!(file.config().rungs, [10.0]);
    assert_eq!(file.space().count(), Some(1));
}

#[test]
fn a_gene_exists_where_it_is_used() {
    let file = parse(EXAMPLE);
    assert_eq!(activity(&file, "hidden_dim"), "always");
    assert_eq!(activity(&file, "width"), "head dense");
    let space = "
inner = [1, 2]
act_on = [true, false]
act = { choose = ['relu', 'gelu'], when = { act_on = true } }
shared = [3, 4]
head = ['a', 'b', 'c']
nb = { from = 0, to = 3 }";
    let layers = "
{ when = { head = 'a' }, layer = [
  { type = 'linear', out = '$inner' },
  { when = { act_on = true }, type = '$act' },
  { when = { act_on = false }, type = 'linear', out = '$shared' },
] },
{ name = 'cell', repeat = '$nb', when = { head = ['b', 'c'] }, each = { w = [1, 2], v = { choose = [5, 6], when = { w = 2 } } }, layer = [
  { type = 'linear', out = '$w' },
  { when = { w = 2 }, type = 'linear', out = '$v' },
  { type = 'linear', out = '$shared' },
] }";
    let file = parse(&with_layers(space, layers));
    let names: Vec<&str> = file.space().genes.iter().map(|gene| gene.name.as_str()).collect();
    // After the genes that decide about them.
    let expected = [
        "head", "inner", "act_on", "act", "nb", "shared", "cell.0.w", "cell.0.v", "cell.1.w", "cell.1.v",
        "cell.2.w",
    ];
    assert_eq!(names[..expected.len()], expected);
    for (gene, when) in [
        ("inner", "head a"),
        ("act_on", "head a"),
        ("act", "head a and act_on true"),
        ("nb", "head b|c"),
        ("shared", "head a and act_on false or head b|c and nb 1|2|3"),
        ("cell.1.w", "head b|c and nb 2|3"),
        ("cell.2.v", "head b|c and nb 3 and cell.2.w 2"),
    ] {
        assert_eq!(activity(&file, gene), when, "{gene}");
    }
    let none = expand(&file, &[("head", "b"), ("nb", "0")]);
    assert_eq!(none.genes.len(), 2);
    // a: 2 inner * (2 act + 2 shared). b and c each: no copy, or shared and 1 to 3 copies with (1 + 2) choices each.
    assert_eq!(file.space().count(), Some(2 * 4 + 2 * (1 + 2 * (3 + 9 + 27))));
}

#[test]
fn every_candidate_differs_from_every_other_in_its_files() {
    let space = "kind = ['a', 'b']\nn = { from = 0, to = 3 }\nw = [2, 3]";
    let layers = "
{ when = { kind = 'a' }, type = 'linear', out = '$w * 10' },
{ when = { kind = 'b' }, repeat = '$n', name = 'c', each = { op = ['relu', 'linear'] }, layer = [
  { when = { op = 'relu' }, type = 'relu' },
  { when = { op = 'linear' }, type = 'linear', out = '$w' },
] }";
    let file = parse(&with_layers(space, layers));
    let all: Vec<Genes> = file.space().candidates().collect();
    let files: std::collections::BTreeSet<_> =
        all.iter().map(|genes| file.expand(genes).unwrap().model).collect();
    // `w` exists as soon as one of the copies has a linear layer.
    assert_eq!(files.len(), all.len());
    assert_eq!(file.space().count(), Some(all.len() as u128));
}

#[test]
fn layers_refer_to_layers_of_their_own_copy() {
    let layers = "
{ type = 'linear', out = 4 },
{ name = 'b', repeat = 2, layer = [
  { type = 'linear', name = 'fc', out = 4 },
  { type = 'relu', input = 'before' },
  { type = 'residual', from = 'fc' },
  { type = 'residual', from = 'before' },
] },
{ type = 'residual', from = 'b.0.fc' },
{ type = 'residual', from = 'x' }";
    let model = expand(&parse(&with_layers("", layers)), &[]).model.unwrap();
    let compact = model.replace("\n\n[[layer]]\n", " | ").replace('\n', " ").replace('"', "");
    let expected = "input = [4] | type = linear out = 4 name = layer_1_1 \
        | type = linear out = 4 name = b.0.fc | type = relu input = layer_1_1 | type = residual from = b.0.fc \
        | type = residual name = layer_5_1 from = layer_1_1 \
        | type = linear out = 4 name = b.1.fc | type = relu input = layer_5_1 | type = residual from = b.1.fc \
        | type = residual from = layer_5_1 \
        | type = residual from = b.0.fc | type = residual from = x ";
    assert_eq!(compact, expected);
}

#[test]
fn equal_networks_share_an_id_however_they_are_written() {
    let id = |layers: &str| expand(&parse(&with_layers("", layers)), &[]).model_id;
    let expected = id(
        "{ type = 'conv2d', out = 4, kernel = 3, padding = 1 }, { type = 'relu' }, { type = 'residual', from = 'x' }",
    );
    assert_eq!(expected.len(), 64);
    for same in [
        "{ type = 'conv2d', out = 4, kernel = 3, padding = 'same', activation = 'relu' }, { type = 'residual', from = 'x' }",
        "{ kernel = [3, 3], type = 'conv2d', stride = 1, name = 'c', out = 4, padding = [1, 1], bias = true }, { type = 'relu', input = 'c' }, { type = 'residual', from = 'x' }",
        "{ repeat = 1, layer = [{ type = 'conv2d', out = 4, kernel = 3, padding = 1 }, { type = 'relu' }, { type = 'residual', from = 'before' }] }",
    ] {
        assert_eq!(id(same), expected, "{same}");
    }
    for other in [
        "{ type = 'conv2d', out = 4, kernel = 3, padding = 1 }, { type = 'relu' }, { type = 'residual', from = 'c' }"
            .replace("'conv2d'", "'conv2d', name = 'c'"),
        "{ type = 'conv2d', out = 5, kernel = 3, padding = 1 }, { type = 'relu' }, { type = 'residual', from = 'x' }".to_owned(),
        "{ type = 'conv2d', out = 4, kernel = 3, stride = 2, padding = 1 }, { type = 'relu' }, { type = 'residual', from = 'x' }".to_owned(),
    ] {
        assert_ne!(id(&other), expected, "{other}");
    }
}

#[test]
fn different_genes_of_one_network_share_its_id() {
    let layers = "
{ name = 'c', repeat = 2, each = { op = ['relu', 'skip'] }, layer = [{ when = { op = 'relu' }, type = 'relu' }] }";
    let file = parse(&with_layers("", layers));
    let id = |a, b| expand(&file, &[("c.0.op", a), ("c.1.op", b)]).model_id;
    assert_eq!(id("relu", "skip"), id("skip", "relu"));
    assert_ne!(id("relu", "skip"), id("relu", "relu"));
}

#[test]
fn a_training_has_an_id_of_what_changes_its_result() {
    let text =
        with_layers("lr = [0.1, 0.2]", "{ type = 'relu' }").replace("loss", "optimizer.lr = '$lr'\nloss");
    let id = |text: &str| expand(&parse(text), &[]).training_id;
    let expected = id(&text);
    let search = |key: &str| text.replace("[train]", &format!("[search]\n{key}\n[train]"));
    for same in [search("trials = 3"), search("workers = 3"), text.replace("epochs", "keep = 5\nepochs")] {
        assert_eq!(id(&same), expected, "{same}");
    }
    let formation = |keys: &str| format!("{text}\n[formation]\n{keys}");
    assert_eq!(id(&formation("local = 2")), expected);
    for other in [
        search("seed = 3"),
        text.replace("epochs", "batch = 5\nepochs"),
        text.replace("a.npz", "b.npz"),
        formation("replicas = 2"),
    ] {
        assert_ne!(id(&other), expected, "{other}");
    }
    let file = parse(&text);
    let (slow, fast) = (expand(&file, &[]), expand(&file, &[("lr", "0.2")]));
    assert_ne!(slow.training_id, fast.training_id);
    assert_eq!(slow.model_id, fast.model_id);
}

#[test]
fn values_can_depend_on_choices_and_stand_in_texts() {
    let text = r#"
[space]
opt = ["sgd", "adam"]
momentum = [0.0, 0.9]
size = [28, 32]
[model]
zoo = "mlp"
input = ["$size", "$size", "$size / 4"]
[data]
train = { file = "mnist-${size}.npz", x = "$$x" }
[train]
loss = "mse"
optimizer = [
  { when = { opt = "sgd" }, name = "sgd", momentum = "$momentum" },
  { when = { opt = "adam" }, name = "adam" },
]
clip_norm = { when = { size = { at_least = 30 } }, value = 1.5 }
epochs = 1
[objective.accuracy]
goal = "max"
from = "valid.accuracy"
"#;
    let file = parse(text);
    assert_eq!(activity(&file, "momentum"), "opt sgd");
    let run = expand(&file, &[("opt", "adam"), ("size", "32")]).run;
    for line in [
        "[model]\nzoo = \"mlp\"\ninput = [32, 32, 8]\n",
        "train = { file = \"/searches/mnist-32.npz\", x = \"$x\" }",
        "optimizer = { name = \"adam\" }",
        "clip_norm = 1.5",
    ] {
        assert!(run.contains(line), "{run}");
    }
    let sgd = expand(&file, &[("momentum", "0.9")]);
    assert!(
        sgd.run.contains("optimizer = { name = \"sgd\", momentum = 0.9 }") && !sgd.run.contains("clip_norm")
    );
    assert_eq!(sgd.model, None);
    assert_ne!(sgd.model_id, expand(&file, &[("size", "32")]).model_id);
}

#[test]
fn a_program_gets_its_choices_as_arguments() {
    let text = r#"
[space]
layers = [1, 2]
lr = [0.1, 0.01]
hidden = [8, 16]
[trial]
command = ["python3", "train.py", "--layers", "$layers", "--lr=${lr}", "$layers * 2", "$$HOME"]
epochs = 5
[search]
rungs = { first = 1, factor = 2 }
[objective.score]
goal = "max"
"#;
    let file = parse(text);
    assert!(file.is_program());
    assert_eq!(file.config().rungs, [1.0, 2.0, 4.0, 5.0]);
    assert_eq!((file.objectives()[0].from.as_str(), file.objectives()[0].objective.cheap), ("score", false));
    let expanded = expand(&file, &[("layers", "2")]);
    let argv = ["python3", "train.py", "--layers", "2", "--lr=0.1", "4", "$HOME"];
    assert_eq!(expanded.argv.unwrap(), argv);
    assert_eq!((expanded.run.as_str(), expanded.model), ("", None));
    // In the environment of the program, so it may be used.
    let other = expand(&file, &[("layers", "2"), ("hidden", "16")]);
    assert_ne!(expanded.model_id, other.model_id);
}

#[test]
fn random_candidates_of_the_example_expand() {
    let file = parse(EXAMPLE);
    let mut dice = Dice::new(Seed(3));
    for _ in 0..200 {
        let genes = file.space().sample(&mut dice);
        let expanded = file.expand(&genes).unwrap();
        let (run, model) = (tree::parse(&expanded.run), tree::parse(&expanded.model.unwrap()));
        assert!(run.is_ok() && model.is_ok());
        assert_eq!(expanded.genes.len(), file.space().active(&genes).len());
    }
}
