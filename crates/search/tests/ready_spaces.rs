//! The ready search files: their candidates are networks that can be built.

use phalanx_graph::layers;
use phalanx_search::core::dice::Dice;
use phalanx_search::core::space::Genes;
use phalanx_search::core::template::{Expanded, READY, SearchFile, ready};
use phalanx_types::Seed;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn file(name: &str) -> SearchFile {
    let text = ready(name).expect("a ready space");
    SearchFile::parse(Path::new("/data/search.toml"), text).expect("a search file")
}

fn build(expanded: &Expanded) -> phalanx_graph::Graph {
    let model = expanded.model.as_ref().expect("layers");
    layers::parse(model).unwrap_or_else(|error| panic!("{error}:\n{model}"))
}

#[test]
fn candidates_of_each_space_are_networks_with_ten_classes() {
    for name in READY {
        let file = file(name);
        let space = file.space();
        let mut dice = Dice::new(Seed(15));
        for _ in 0..200 {
            let genes = space.sample(&mut dice);
            let expanded = file.expand(&genes).unwrap();
            let graph = build(&expanded);
            assert_eq!(
                graph.shape(graph.outputs[0]).to_string(),
                "[N×10]",
                "{name} {}",
                space.archid(&genes)
            );
            assert!(expanded.run.contains("toml = \"model.toml\""));
            assert!(expanded.run.contains("file = \"/data/train-images-idx3-ubyte.gz\""));
        }
    }
    assert_eq!(ready("nothing"), None);
}

#[test]
fn the_convolutional_space_has_192_different_networks() {
    let file = file("cnn");
    assert_eq!(file.space().count(), Some(192));
    let ids: BTreeSet<String> =
        file.space().candidates().map(|genes| file.expand(&genes).unwrap().model_id).collect();
    assert_eq!(ids.len(), 192);
    assert_eq!(file.space().archid(&Genes(vec![0, 1, 1])), "(1, 3, 32)");
    // Two convolutions of width 16 and kernel 3, their norms, and the last layer.
    let expanded = file.expand(&Genes(vec![1, 1, 0])).unwrap();
    let graph = build(&expanded);
    let size = |dims: Vec<usize>| dims.into_iter().product::<usize>();
    let parameters: usize = (graph.parameters())
        .map(|(id, _)| size(graph.shape(id).dims().iter().filter_map(|dim| dim.fixed()).collect()))
        .sum();
    assert_eq!(parameters, (9 * 16 + 16 + 32) + (9 * 16 * 16 + 16 + 32) + (16 * 10 + 10));
    assert_eq!(
        expanded.genes,
        BTreeMap::from(
            [("hidden_dim", "16"), ("kernel_size", "3"), ("nb_layers", "2")]
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
        )
    );
}

#[test]
fn the_other_spaces_are_counted() {
    let choices_of_a_stage: u128 = 4 * 3 * 2 * 3;
    assert_eq!(file("mobilenet").space().count(), Some(3 * 2 * 3 * 2 * 9 * choices_of_a_stage.pow(3)));
    assert_eq!(file("transformer").space().count(), Some(3 * 3 * 6 * 3 * 3 * 2 * 2 * 9));
}

#[test]
fn an_id_is_equal_only_for_equal_networks() {
    for name in READY {
        let file = file(name);
        let mut dice = Dice::new(Seed(16));
        let mut models: BTreeMap<String, String> = BTreeMap::new();
        for _ in 0..200 {
            let expanded = file.expand(&file.space().sample(&mut dice)).unwrap();
            let model = expanded.model.unwrap();
            let earlier = models.entry(expanded.model_id).or_insert_with(|| model.clone());
            assert_eq!(*earlier, model);
        }
        assert!(models.len() > 50, "{name}: {}", models.len());
    }
}

/// The blocks of TOML of the documentation, each with the text that follows it.
fn documented() -> impl Iterator<Item = &'static str> {
    include_str!("../../../docs/search-spaces.md")
        .split("```toml\n")
        .skip(1)
        .filter_map(|block| block.split("```").next())
}

#[test]
fn the_documentation_tells_the_truth() {
    let parse = |text: &str| SearchFile::parse(Path::new("s.toml"), text);
    let example = documented().next().unwrap();
    assert_eq!(parse(example).unwrap().space().count(), Some(192));
    let program = documented().find(|block| block.contains("[trial]")).unwrap();
    assert!(parse(program).unwrap().is_program());
    for (right, wrong) in
        [("\"$hidden_dim\"", "\"$hiden_dim\""), ("trials = 50", "trials = 0"), ("trials = 50", "trails = 50")]
    {
        let error = parse(&example.replace(right, wrong)).unwrap_err();
        let message = error.fault.to_string();
        assert!(include_str!("../../../docs/search-spaces.md").contains(&message), "{message}");
    }
}
