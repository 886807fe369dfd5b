//! Models of the zoo with small inputs.

use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass};
use phalanx_graph::zoo::{self, ZooOptions};
use phalanx_graph::{Graph, Init, Value, ValueKind, Weights};
use phalanx_types::{DType, Tensor};

/// Dropout is on.
pub(crate) const PASS: Pass = Pass { training: true, seed: 11 };

/// A model and a batch for it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) graph: Graph,
    pub(crate) weights: Weights,
    pub(crate) batch: usize,
    pub(crate) x: Vec<f32>,
}

impl Case {
    pub(crate) fn new(name: &str, batch: usize) -> Self {
        let input = match name {
            "mobilenet-v2" | "resnet-18" => Some(vec![3, 32, 32]),
            "gpt-small" => Some(vec![16]),
            _ => None,
        };
        let graph = zoo::build(name, &ZooOptions { input, classes: None }).unwrap();
        let weights = weights(&graph);
        let tokens = graph.value(graph.inputs[0]).dtype != DType::F32;
        let count: usize = graph.shape(graph.inputs[0]).at(batch).iter().product();
        let x = noise(1, count).into_iter().map(|x| if tokens { (x.abs() * 999.0).floor() } else { x });
        Self { x: x.collect(), graph, weights, batch }
    }

    pub(crate) fn compile(&self, engine: &CpuEngine, options: CompileOptions) -> Box<dyn Model> {
        let mut model = engine.compile(&self.graph, &options).unwrap();
        model.load(&self.weights).unwrap();
        model
    }
}

/// Weights about as large as the first ones are.
fn weights(graph: &Graph) -> Weights {
    let make = |(i, (_, value)): (usize, (_, &Value))| {
        let (shape, count) = (value.shape.at(1), value.shape.at(1).iter().product());
        let shape: Vec<u64> = shape.into_iter().map(|d| d as u64).collect();
        let (ValueKind::Parameter(init) | ValueKind::Buffer(init)) = value.kind else { unreachable!() };
        let (middle, reach) = match init {
            Init::Ones => (1.0, 0.1),
            Init::Uniform(bound) => (0.0, bound),
            Init::Normal { std } => (0.0, 1.7 * std),
            Init::Zeros | Init::Given => (0.0, 0.01),
        };
        let values: Vec<f32> = noise(i as u64, count).into_iter().map(|x| middle + reach * x).collect();
        let tensor = match value.dtype {
            DType::F32 => Tensor::from_f32(shape, &values),
            other => Tensor::new(other, shape, vec![0; count * other.size()].into()),
        };
        (value.name.clone(), tensor.unwrap())
    };
    graph.parameters().chain(graph.buffers()).enumerate().map(make).collect()
}

/// Numbers in [-1, 1).
pub(crate) fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
