//! Malicious files: each is refused for the right reason, quickly, and without reading foreign files.

use phalanx_graph::onnx::{self, BadTensor, ImportOptions, Imported, OnnxError};

/// Protobuf by hand: fields are appended to a message.
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn int(mut self, field: u64, n: i64) -> Self {
        self.varint(field << 3);
        self.varint(n as u64);
        self
    }

    fn bytes(mut self, field: u64, data: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(data.len() as u64);
        self.0.extend_from_slice(data);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> Message {
    let node = inputs.iter().fold(Message::default(), |m, i| m.text(1, i));
    outputs.iter().fold(node, |m, o| m.text(2, o)).text(3, "here").text(4, op)
}

fn input(name: &str, dims: &[i64]) -> Message {
    let shape = dims.iter().fold(Message::default(), |m, d| m.message(1, &Message::default().int(1, *d)));
    let tensor = Message::default().int(1, 1).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}

fn tensor(name: &str, kind: i64, dims: &[i64], raw: &[u8]) -> Message {
    dims.iter().fold(Message::default(), |m, d| m.int(1, *d)).int(2, kind).text(8, name).bytes(9, raw)
}

fn graph(nodes: &[Message]) -> Message {
    let graph = nodes.iter().fold(Message::default(), |m, n| m.message(1, n));
    graph.message(11, &input("x", &[2, 3])).message(12, &Message::default().text(1, "y"))
}

fn model(graph: &Message) -> Message {
    Message::default().int(1, 8).message(8, &Message::default().text(1, "").int(2, 17)).message(7, graph)
}

fn read(model: Message) -> Result<Imported, OnnxError> {
    onnx::import_bytes(model.0.into(), &ImportOptions::default())
}

macro_rules! refused {
    ($model:expr, $pattern:pat) => {
        let result = read($model);
        assert!(matches!(result, Err($pattern)), "{result:?}");
    };
}

#[test]
fn a_whole_file_is_read() {
    let imported = read(model(&graph(&[node("Relu", &["x"], &["y"])]))).unwrap();
    assert_eq!(imported.graph.nodes.len(), 1);
}

fn floats(all: &[f32]) -> Vec<u8> {
    all.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn what_looks_like_a_mask_is_told_and_weights_of_layers_are_none() {
    let eye = floats(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    let nodes = [
        node("Transpose", &["fc.weight"], &["turned"]),
        node("MatMul", &["x", "turned"], &["a"]),
        node("Gemm", &["a", "out.weight"], &["b"]),
        node("Add", &["b", "keep"], &["y"]),
    ];
    let whole = graph(&nodes)
        .message(5, &tensor("fc.weight", 1, &[3, 3], &eye))
        .message(5, &tensor("out.weight", 1, &[3, 3], &eye))
        .message(5, &tensor("keep", 1, &[1, 3], &floats(&[1.0, 0.0, 1.0])));
    let imported = read(model(&whole)).unwrap();
    let learned: Vec<&str> = imported.graph.parameters().map(|(_, v)| v.name.as_str()).collect();
    assert_eq!(learned, ["fc.weight", "out.weight"]);
    assert_eq!(imported.notes, ["`keep` looks like a mask or a table, so it is not trained"]);
}

#[test]
fn files_that_are_none() {
    refused!(Message::default(), OnnxError::Absent { .. });
    refused!(Message(b"not protobuf at all".to_vec()), OnnxError::Decode(_));
    let whole = model(&graph(&[node("Relu", &["x"], &["y"])]));
    for n in 0..whole.0.len() {
        assert!(read(Message(whole.0[..n].to_vec())).is_err());
    }
    let old = Message::default().message(8, &Message::default().int(2, 3)).message(7, &graph(&[]));
    refused!(old, OnnxError::Opset { version: 3, .. });
}

#[test]
fn graphs_that_are_none() {
    let circle =
        [node("Add", &["x", "b"], &["a"]), node("Relu", &["a"], &["b"]), node("Relu", &["b"], &["y"])];
    refused!(model(&graph(&circle)), OnnxError::Undefined { .. });
    let twice = [node("Relu", &["x"], &["y"]), node("Relu", &["x"], &["y"])];
    refused!(model(&graph(&twice)), OnnxError::Redefined { .. });
    refused!(model(&graph(&[node("Relu", &["x"], &["z"])])), OnnxError::Undefined { .. });
    refused!(model(&graph(&[node("Relu", &[], &["y"])])), OnnxError::Malformed { .. });
    refused!(model(&graph(&[node("Launch", &["x"], &["y"])])), OnnxError::Unsupported { .. });
    let foreign = node("Relu", &["x"], &["y"]).text(7, "com.example");
    let error = read(model(&graph(&[foreign]))).unwrap_err();
    assert!(error.to_string().starts_with("com.example::Relu `here` (node 0) is not supported"), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn tensors_that_are_none() {
    let with = |t: &Message| model(&graph(&[node("Add", &["x", "w"], &["y"])]).message(5, t));
    let why = |t: Message| match read(with(&t)).unwrap_err() {
        OnnxError::Tensor { why, .. } => why,
        other => panic!("{other}"),
    };
    assert_eq!(why(tensor("w", 99, &[1], &[0; 4])), BadTensor::Type { code: 99 });
    assert!(matches!(why(tensor("w", 1, &[1 << 62, 1 << 62], &[])), BadTensor::Shape { .. }));
    assert!(matches!(why(tensor("w", 1, &[-1], &[])), BadTensor::Shape { .. }));
    assert!(matches!(why(tensor("w", 1, &[1; 100], &[0; 4])), BadTensor::Shape { .. }));
    assert_eq!(why(tensor("w", 1, &[1 << 40], &[0; 4])), BadTensor::Length { needed: 1 << 42, got: 4 });
    refused!(with(&tensor("", 1, &[1], &[0; 4])), OnnxError::Absent { .. });
}

#[test]
fn little_files_do_not_become_large() {
    let size = |n: i64| tensor("n", 7, &[2], &[n.to_le_bytes(), n.to_le_bytes()].concat());
    let nodes = [node("ConstantOfShape", &["n"], &["c"]), node("Add", &["x", "c"], &["y"])];
    let large = |n: i64| model(&graph(&nodes).message(5, &size(n)));
    refused!(large(1 << 19), OnnxError::Large { .. });
    assert!(read(large(1 << 40)).is_err());
    let numbers = [0i64, 1 << 40, 1].iter().enumerate();
    let range = numbers.fold(graph(&[node("Range", &["n0", "n1", "n2"], &["y"])]), |g, (i, n)| {
        g.message(5, &tensor(&format!("n{i}"), 7, &[], &n.to_le_bytes()))
    });
    refused!(model(&range), OnnxError::Malformed { .. });
    let wide = graph(&[node("Relu", &["x"], &["y"])]);
    let wide = Message(wide.0.clone()).message(11, &input("z", &[1 << 30, 1 << 30, 1 << 30]));
    refused!(model(&wide), OnnxError::Input { .. });
}

#[test]
fn little_files_do_not_compute_much() {
    // Every value is within the limit, but not all of them together.
    let size = tensor("n", 7, &[1], &(1i64 << 22).to_le_bytes());
    let values: Vec<Message> = (0..8).map(|i| node("ConstantOfShape", &["n"], &[&format!("c{i}")])).collect();
    let result = [values, vec![node("Relu", &["x"], &["y"])]].concat();
    refused!(model(&graph(&result).message(5, &size)), OnnxError::Limit { .. });
    // One value becomes a constant of the graph for every node that reads it.
    let readers = (0..8).map(|i| node("Add", &["x", "c"], &[&format!("d{i}")]));
    let nodes = [node("ConstantOfShape", &["n"], &["c"])].into_iter().chain(readers);
    let nodes: Vec<Message> = nodes.chain([node("Relu", &["x"], &["y"])]).collect();
    let sizes = [1i64 << 20, 2, 3].map(i64::to_le_bytes).concat();
    refused!(model(&graph(&nodes).message(5, &tensor("n", 7, &[3], &sizes))), OnnxError::Limit { .. });
}

#[test]
fn files_with_too_many_nodes() {
    let nodes = vec![Message::default(); (1 << 17) + 1];
    refused!(model(&graph(&nodes)), OnnxError::Limit { what: "nodes", .. });
}

#[test]
fn names_are_not_multiplied() {
    let long = "a".repeat(1 << 16);
    let relus = (0..64).map(|i| {
        let from = if i == 0 { "a".to_owned() } else { format!("v{i}") };
        let to = if i == 63 { "b".to_owned() } else { format!("v{}", i + 1) };
        Message::default().text(1, &from).text(2, &to).text(3, &long).text(4, "Relu")
    });
    let f = Message::default().text(1, "f").text(4, "a").text(5, "b").text(10, "local");
    let function = relus.fold(f, |f, n| f.message(7, &n));
    let calls: Vec<Message> = (0..64)
        .map(|i| {
            let from = if i == 0 { "x".to_owned() } else { format!("w{i}") };
            let to = if i == 63 { "y".to_owned() } else { format!("w{}", i + 1) };
            node("f", &[&from], &[&to]).text(7, "local")
        })
        .collect();
    refused!(model(&graph(&calls)).message(25, &function), OnnxError::Limit { .. });
}

#[test]
fn functions_that_never_end() {
    let function = |name: &str, nodes: &[Message]| {
        let f = Message::default().text(1, name).text(4, "a").text(5, "b").text(10, "local");
        nodes.iter().fold(f, |f, n| f.message(7, n))
    };
    let call = |name: &str, from: &str, to: &str| node(name, &[from], &[to]).text(7, "local");
    let main = model(&graph(&[call("f0", "x", "y")]));
    refused!(main.clone().message(25, &function("f0", &[call("f0", "a", "b")])), OnnxError::Limit { .. });
    // Each of twenty calls the next one four times.
    let tower = (0..20).fold(main, |m, i| {
        let next = format!("f{}", i + 1);
        let nodes: Vec<Message> = ["a", "c", "d", "e"]
            .iter()
            .zip(["c", "d", "e", "b"])
            .map(|(from, to)| if i == 19 { node("Relu", &[from], &[to]) } else { call(&next, from, to) })
            .collect();
        m.message(25, &function(&format!("f{i}"), &nodes))
    });
    refused!(tower, OnnxError::Limit { .. });
}

#[test]
fn nested_branches_are_bounded() {
    let mut inner = Message::default().message(12, &Message::default().text(1, "x"));
    for _ in 0..200 {
        let branch = Message::default().text(1, "then_branch").message(6, &inner);
        let choice = node("If", &["x"], &["y"]).message(5, &branch);
        inner = Message::default().message(1, &choice).message(12, &Message::default().text(1, "y"));
    }
    refused!(model(&inner), OnnxError::Decode(_));
}

#[test]
fn other_files_stay_closed() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(outer.path().join("secret"), [0; 12]).unwrap();
    std::fs::write(folder.join("weights"), [0; 12]).unwrap();
    std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).unwrap();
    let absolute = outer.path().join("secret").display().to_string();
    let entry = |key: &str, value: &str| Message::default().text(1, key).text(2, value);
    let external = |location: &str, offset: &str| {
        let tensor = Message::default().int(1, 3).int(2, 1).text(8, "w").int(14, 1);
        let tensor = tensor.message(13, &entry("location", location)).message(13, &entry("offset", offset));
        model(&graph(&[node("Add", &["x", "w"], &["y"])]).message(5, &tensor))
    };
    let import = |location: &str, offset: &str| {
        let path = folder.join("model.onnx");
        std::fs::write(&path, external(location, offset).0).unwrap();
        onnx::import(&path, &ImportOptions::default())
    };
    assert!(import("weights", "0").is_ok());
    for location in ["../secret", "./../secret", absolute.as_str(), "link", "", ".", "a\0b"] {
        let error = import(location, "0").unwrap_err();
        assert!(
            matches!(error, OnnxError::Tensor { why: BadTensor::Outside { .. }, .. }),
            "{location}: {error}"
        );
    }
    let why = |location: &str, offset: &str| match import(location, offset).unwrap_err() {
        OnnxError::Tensor { why, .. } => why,
        other => panic!("{other}"),
    };
    assert!(matches!(why("missing", "0"), BadTensor::Read { .. }));
    let path = folder.join("many.onnx");
    let many = (0..20).fold(graph(&[node("Relu", &["x"], &["y"])]), |g, i| {
        let tensor = Message::default().int(1, 3).int(2, 1).text(8, &format!("w{i}")).int(14, 1);
        g.message(5, &tensor.message(13, &entry("location", "weights")))
    });
    std::fs::write(&path, model(&many).0).unwrap();
    let error = onnx::import(&path, &ImportOptions::default()).unwrap_err();
    assert!(matches!(error, OnnxError::Tensor { why: BadTensor::Repeated { .. }, .. }), "{error}");
    assert_eq!(why("weights", "4"), BadTensor::Length { needed: 12, got: 8 });
    assert_eq!(why("weights", "18446744073709551615"), BadTensor::Length { needed: 12, got: 0 });
    assert!(matches!(why("weights", "-1"), BadTensor::Reference { .. }));
    refused!(external("weights", "0"), OnnxError::Tensor { why: BadTensor::NoFolder, .. });
}

#[test]
fn messages_that_take_far_more_memory_than_bytes_are_refused_before_they_are_decoded() {
    // Two bytes each in the file, hundreds in memory.
    let nodes = Message([0x0a, 0].repeat(1 << 20));
    refused!(model(&nodes), OnnxError::Limit { what: "nodes", .. });
    let limited = |model: Message| {
        let options = ImportOptions { limit: Some(phalanx_types::ByteSize(16 << 20)), ..Default::default() };
        onnx::import_bytes(model.0.into(), &options)
    };
    let mut names = node("Relu", &["x"], &["y"]);
    names.0.extend([0x0a, 0].repeat(1 << 20));
    let attribute = Message::default().text(1, "a").bytes(8, &vec![0; 4 << 20]);
    let values = graph(&[node("Relu", &["x"], &["y"])]);
    for bomb in [
        model(&graph(&[names])),
        model(&graph(&[node("Relu", &["x"], &["y"]).message(5, &attribute)])),
        model(&Message([values.0, [0x6a, 0].repeat(1 << 20)].concat())),
    ] {
        let error = limited(bomb).unwrap_err();
        assert!(matches!(error, OnnxError::Memory { .. }), "{error}");
        assert!(error.hint().unwrap().contains("limit"));
    }
    assert!(limited(model(&graph(&[node("Relu", &["x"], &["y"])]))).is_ok());
}

#[cfg(unix)]
#[test]
fn a_model_is_a_regular_file() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("model.onnx");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let graph = read(model(&graph(&[node("Relu", &["x"], &["y"])]))).unwrap().graph;
    for path in [pipe.as_path(), std::path::Path::new("/dev/zero")] {
        let (done, result) = std::sync::mpsc::channel();
        let (path, graph) = (path.to_owned(), graph.clone());
        std::thread::spawn(move || {
            let weights = phalanx_graph::weights::load(&path, &graph).map(|_| ());
            done.send((onnx::import(&path, &ImportOptions::default()).map(|_| ()), weights))
        });
        let both = result.recv_timeout(std::time::Duration::from_secs(60)).expect("opening hangs");
        assert!(matches!(both.0, Err(OnnxError::Read { .. })), "{both:?}");
        assert!(both.1.is_err());
    }
}
