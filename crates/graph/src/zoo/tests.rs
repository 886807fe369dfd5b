use super::*;

fn parameters(graph: &Graph) -> usize {
    graph.parameters().map(|(_, v)| v.shape.count().unwrap().factor).sum()
}

#[test]
fn every_model_has_as_many_parameters_as_its_counterpart() {
    let counts = [16_426, 620_362, 3_504_872, 11_689_512, 3_704_320, 235_146];
    for (name, wanted) in NAMES.into_iter().zip(counts) {
        let graph = build(name, &ZooOptions::default()).unwrap();
        assert_eq!(parameters(&graph), wanted, "{name}");
        assert_eq!(graph.name, name);
    }
}

#[test]
fn options_change_input_and_classes() {
    let options = ZooOptions { input: Some(vec![3, 64, 64]), classes: Some(7) };
    for name in ["cifar-cnn", "mobilenet-v2", "resnet-18", "mlp"] {
        let graph = build(name, &options).unwrap();
        assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×7]", "{name}");
    }
    let options = ZooOptions { input: Some(vec![32]), classes: Some(50) };
    let graph = build("gpt-small", &options).unwrap();
    assert_eq!(graph.shape(graph.outputs[0]).to_string(), "[N×32×50]");
}

#[test]
fn wrong_names_and_inputs_are_explained() {
    let error = build("resnet18", &ZooOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "no model of the zoo is called `resnet18`; did you mean `resnet-18`?");
    for input in [vec![], vec![0], vec![3, 2, 2], vec![usize::MAX, usize::MAX, 9]] {
        for name in ["digits-cnn", "gpt-small"] {
            assert!(build(name, &ZooOptions { input: Some(input.clone()), classes: None }).is_err());
        }
    }
}
