//! A model cut into stages, run on one thread: outputs are copied to the next stage, gradients back.

use phalanx_engine::{
    CompileOptions, CpuEngine, Engine, Loss, Model, Optimizer, OptimizerSpec, ParameterSet, Pass, Sgd,
    Target, accumulate,
};
use phalanx_graph::Graph;
use phalanx_types::{DType, Seed};
use std::collections::{BTreeMap, BTreeSet};

/// A model, what it is trained with, and on how many samples at a time.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) graph: Graph,
    pub(crate) batch: usize,
    pub(crate) loss: Loss,
    /// Parameters to begin with, as the engine holds them.
    first: BTreeMap<String, Vec<f32>>,
}

impl Case {
    pub(crate) fn new(graph: Graph, batch: usize, loss: Loss) -> Self {
        let mut model = CpuEngine::new(1).compile(&graph, &CompileOptions::default()).unwrap();
        model.load(&graph.initialise(Seed(5))).unwrap();
        Self { first: parameters(model.as_ref()), graph, batch, loss }
    }
}

/// The parameters by name, as the engine holds them.
fn parameters(model: &dyn Model) -> BTreeMap<String, Vec<f32>> {
    let mut set = ParameterSet::new();
    model.copy_parameters(&mut set);
    let names = model.parameters().iter().map(|p| p.name.clone());
    names.zip(set.iter().map(<[f32]>::to_vec)).collect()
}

#[derive(Debug)]
struct Stage {
    graph: Graph,
    model: Box<dyn Model>,
    optimizer: Optimizer,
    /// Gradients of the micro-batches so far.
    sums: Vec<Vec<f32>>,
}

#[derive(Debug)]
pub(crate) struct Pipeline {
    engine: CpuEngine,
    stages: Vec<Stage>,
    batch: usize,
    loss: Loss,
    /// Names of parameters.
    first: BTreeSet<String>,
}

impl Pipeline {
    /// The whole model, or its stages between these cuts.
    pub(crate) fn new(case: &Case, cuts: &[usize]) -> Self {
        let (engine, nodes) = (CpuEngine::new(1), case.graph.nodes.len());
        let bounds: Vec<usize> = [0].into_iter().chain(cuts.iter().copied()).chain([nodes]).collect();
        let options = CompileOptions::default();
        let stages = bounds.windows(2).map(|w| {
            let graph = case.graph.stage(w[0]..w[1]).unwrap();
            let mut model = match cuts.is_empty() {
                true => engine.compile(&case.graph, &options).unwrap(),
                false => engine.compile_stage(&case.graph, w[0]..w[1], &options).unwrap(),
            };
            let names: Vec<String> = model.parameters().iter().map(|p| p.name.clone()).collect();
            model.update(&mut |i, p, _| p.copy_from_slice(&case.first[&names[i]]));
            let sizes: Vec<usize> = model.parameters().iter().map(|p| p.elements()).collect();
            let optimizer =
                Optimizer::new(OptimizerSpec::Sgd(Sgd { momentum: 0.9, ..Sgd::default() }), &sizes);
            Stage { graph, model, optimizer, sums: sizes.iter().map(|n| vec![0.0; *n]).collect() }
        });
        let stages = stages.collect();
        let first = case.first.keys().cloned().collect();
        Self { engine, stages, batch: case.batch, loss: case.loss, first }
    }

    /// Steps of two micro-batches each; with `in_flight` both run forward before the first runs backward.
    pub(crate) fn train(&mut self, steps: u64, in_flight: bool) {
        for step in 0..steps {
            self.stages.iter_mut().flat_map(|s| &mut s.sums).for_each(|s| s.fill(0.0));
            let micro = [(0, 2 * step), (1, 2 * step + 1)];
            if in_flight {
                micro.into_iter().for_each(|(slot, seed)| self.forward(slot, seed));
                micro.into_iter().for_each(|(slot, seed)| self.backward(slot, seed));
            } else {
                for (_, seed) in micro {
                    self.forward(0, seed);
                    self.backward(0, seed);
                }
            }
            self.update();
        }
    }

    pub(crate) fn forward(&mut self, slot: usize, seed: u64) {
        let first = &self.stages[0].graph;
        let mut values: Vec<Vec<f32>> =
            first.inputs.iter().map(|id| samples(first, id.index(), self.batch, seed)).collect();
        for stage in &mut self.stages {
            let inputs: Vec<&[f32]> = values.iter().map(Vec::as_slice).collect();
            stage.model.forward(slot, self.batch, &inputs, Pass { training: true, seed }).unwrap();
            let outputs = 0..stage.graph.outputs.len();
            values = outputs.map(|o| stage.model.output(slot, o).to_vec()).collect();
        }
    }

    pub(crate) fn backward(&mut self, slot: usize, seed: u64) {
        let mut gradients = vec![self.loss_gradient(slot, seed)];
        for stage in self.stages.iter_mut().rev() {
            let given: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
            let mut ready = 0;
            stage.model.backward(slot, &given, &mut |_, _| ready += 1).unwrap();
            assert_eq!(ready, stage.sums.len(), "every gradient is announced");
            gradients = (0..stage.graph.inputs.len())
                .map(|i| stage.model.input_gradient(slot, i).map(<[f32]>::to_vec).unwrap_or_default())
                .collect();
            let (sums, threads) = (&mut stage.sums, self.engine.threads());
            stage.model.update(&mut |i, _, gradient| accumulate(threads, &mut sums[i], gradient));
        }
    }

    fn loss_gradient(&self, slot: usize, seed: u64) -> Vec<f32> {
        let last = &self.stages[self.stages.len() - 1].model;
        let (output, shape) = (last.output(slot, 0), last.output_shape(slot, 0));
        let classes = shape[shape.len() - 1];
        let dense = matches!(self.loss, Loss::Mse);
        let target_shape = if dense { &shape[..] } else { &shape[..shape.len() - 1] };
        let n: usize = target_shape.iter().product();
        let target =
            |i: usize| if dense { (i % 3) as f32 / 2.0 } else { ((i * 5 + seed as usize) % classes) as f32 };
        let data: Vec<f32> = (0..n).map(target).collect();
        let mut gradient = vec![0.0; output.len()];
        let target = Target { data: &data, shape: target_shape };
        self.loss.evaluate(self.engine.threads(), output, &shape, target, 0.5, Some(&mut gradient)).unwrap();
        gradient
    }

    fn update(&mut self) {
        for Stage { model, optimizer, sums, .. } in &mut self.stages {
            optimizer.begin_step();
            model.update(&mut |i, p, _| optimizer.update(self.engine.threads(), i, 0.05, p, &sums[i]));
        }
    }

    /// The bits of parameters, their last gradients, and buffers of all stages.
    pub(crate) fn learned(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        for stage in &self.stages {
            let buffers = stage.model.weights_of(&|name| !self.first.contains(name));
            let buffers = buffers.into_iter().map(|(name, tensor)| (name, tensor.to_floats()));
            let names = stage.model.parameters().iter().map(|p| format!("gradient of {}", p.name));
            let gradients = names.zip(stage.sums.iter().cloned());
            let parameters = parameters(stage.model.as_ref()).into_iter();
            for (name, values) in parameters.chain(gradients).chain(buffers) {
                assert!(all.insert(name, bytemuck::cast_slice(&values).to_vec()).is_none(), "in two stages");
            }
        }
        all
    }

    /// Checks for every cut that both sides agree about gradients: a gradient is given exactly if it is taken.
    pub(crate) fn check_gradients(&self) {
        for pair in self.stages.windows(2) {
            for i in 0..pair[1].graph.inputs.len() {
                let (gives, takes) = (pair[1].model.gives_gradient(i), pair[0].model.takes_gradient(i));
                assert!(takes || !gives, "{}", pair[1].graph.value(pair[1].graph.inputs[i]).name);
            }
        }
    }
}

fn samples(graph: &Graph, value: usize, batch: usize, seed: u64) -> Vec<f32> {
    let value = &graph.values[value];
    let n: usize = value.shape.at(batch).iter().product();
    let number = |i: usize| (i * 7919 + seed as usize * 104_729) % 2003;
    match value.dtype {
        DType::F32 => (0..n).map(|i| number(i) as f32 / 1000.0 - 1.0).collect(),
        _ => (0..n).map(|i| (number(i) % 11) as f32).collect(),
    }
}
