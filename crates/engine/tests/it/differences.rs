//! Gradients of every operator against finite differences, over random shapes and memory layouts.

mod operators;

use crate::random::{Dice, Net};
use operators::OPERATORS;
use phalanx_engine::{CompileOptions, CpuEngine, Engine, Model, Pass};
use phalanx_graph::{Graph, ValueId};

/// Inputs and parameters are moved by this much.
const STEP: f32 = 1e-2;
/// How many elements of a tensor are moved.
const ELEMENTS: usize = 24;
const PASS: Pass = Pass { training: true, seed: 3 };

/// What is moved: an input, or a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moved {
    Input(usize, usize),
    Parameter(usize, usize),
}

struct Case {
    model: Box<dyn Model>,
    inputs: Vec<Vec<f32>>,
    /// Weights of the outputs in the differentiated sum.
    shares: Vec<Vec<f32>>,
    /// A description of the case, for failures.
    story: String,
}

impl Case {
    fn new(engine: &CpuEngine, net: Net) -> Self {
        let mut dice = Dice(net.inputs.len() as u64 + 99);
        let recompute = dice.flag();
        let (graph, inputs, weights) = net.finish();
        let options = CompileOptions { input_gradients: true, recompute, ..CompileOptions::default() };
        let mut model = engine.compile(&graph, &options).unwrap();
        model.load(&weights).unwrap();
        let mut case = Self { model, inputs, shares: Vec::new(), story: story(&graph) };
        case.forward();
        for i in 0..graph.outputs.len() {
            let share = (0..case.model.output(0, i).len()).map(|_| {
                let size = dice.float(0.3, 1.0);
                if dice.flag() { size } else { -size }
            });
            case.shares.push(share.collect());
        }
        case
    }

    fn forward(&mut self) {
        let inputs: Vec<&[f32]> = self.inputs.iter().map(|x| &x[..]).collect();
        self.model.forward(0, 1, &inputs, PASS).unwrap();
    }

    fn value(&mut self) -> f64 {
        self.forward();
        let products = |(i, share): (usize, &Vec<f32>)| {
            let pairs = self.model.output(0, i).iter().zip(share);
            pairs.map(|(y, s)| f64::from(*y) * f64::from(*s)).sum::<f64>()
        };
        self.shares.iter().enumerate().map(products).sum()
    }

    fn value_at(&mut self, what: Moved, to: f32) -> f64 {
        let here = self.set(what, to);
        let value = self.value();
        self.set(what, here);
        value
    }

    /// Replaces a number and returns the old one.
    fn set(&mut self, what: Moved, to: f32) -> f32 {
        match what {
            Moved::Input(i, at) => std::mem::replace(&mut self.inputs[i][at], to),
            Moved::Parameter(p, at) => {
                let mut before = 0.0;
                self.model.update(&mut |i, parameter, _| {
                    if i == p {
                        before = std::mem::replace(&mut parameter[at], to);
                    }
                });
                before
            }
        }
    }

    /// The slopes to the left and to the right.
    fn slopes(&mut self, what: Moved, step: f32) -> (f64, f64) {
        let at = self.set(what, 0.0);
        self.set(what, at);
        let (below, here, above) =
            (self.value_at(what, at - step), self.value(), self.value_at(what, at + step));
        ((here - below) / f64::from(step), (above - here) / f64::from(step))
    }

    /// The gradients of everything, by backward.
    fn gradients(&mut self) -> Vec<(Moved, Vec<f32>)> {
        self.forward();
        let shares: Vec<&[f32]> = self.shares.iter().map(|s| &s[..]).collect();
        self.model.backward(0, &shares, &mut |_, _| ()).unwrap();
        let mut all = Vec::new();
        for (i, x) in self.inputs.iter().enumerate() {
            let none = vec![0.0; x.len()];
            let gradient = self.model.input_gradient(0, i).map_or(none, <[f32]>::to_vec);
            all.push((Moved::Input(i, 0), gradient));
        }
        self.model.update(&mut |p, _, gradient| all.push((Moved::Parameter(p, 0), gradient.to_vec())));
        all
    }

    fn check(&mut self, dice: &mut Dice, integers: &[usize]) -> Result<(), String> {
        for (tensor, gradient) in self.gradients() {
            if gradient.is_empty() || matches!(tensor, Moved::Input(i, _) if integers.contains(&i)) {
                continue;
            }
            if gradient.iter().any(|g| !g.is_finite()) {
                return Err(format!("{tensor:?}: the gradient is not finite"));
            }
            let squares: f64 = gradient.iter().map(|g| f64::from(*g).powi(2)).sum();
            let usual = (squares / gradient.len() as f64).sqrt();
            let mut kinks = 0;
            for k in 0..ELEMENTS.min(gradient.len()) {
                let at = if gradient.len() <= ELEMENTS { k } else { dice.below(gradient.len()) };
                let moved = match tensor {
                    Moved::Input(i, _) => Moved::Input(i, at),
                    Moved::Parameter(p, _) => Moved::Parameter(p, at),
                };
                let got = f64::from(gradient[at]);
                let close = |slope: f64, wanted: f64| {
                    (slope - wanted).abs() <= 0.03 * wanted.abs() + 0.01 * usual + 3e-3
                };
                let (left, right) = self.slopes(moved, STEP);
                let slope = f64::midpoint(left, right);
                if close(slope, got) {
                    continue;
                }
                // At a kink differences say nothing.
                let (left, right) = self.slopes(moved, STEP / 8.0);
                if !close(left, right) || close(left, got) || close(right, got) {
                    kinks += 1;
                    continue;
                }
                return Err(format!("{moved:?}: the gradient is {got}, the slope {slope}"));
            }
            if kinks > 1 + ELEMENTS.min(gradient.len()) / 3 {
                return Err(format!("{tensor:?}: {kinks} kinks"));
            }
        }
        Ok(())
    }
}

fn story(graph: &Graph) -> String {
    let value = |v: &ValueId| format!("{} {}", graph.value(*v).name, graph.shape(*v));
    let list = |of: &[ValueId]| of.iter().map(value).collect::<Vec<_>>().join(", ");
    let node =
        |n: &phalanx_graph::Node| format!("    {} = {:?} of {}", list(&n.outputs), n.op, list(&n.inputs));
    graph.nodes.iter().map(node).collect::<Vec<_>>().join("\n")
}

fn check(name: &str, make: fn(&mut Net) -> Vec<usize>, count: u64) -> Vec<String> {
    let engine = CpuEngine::new(1);
    let one = |seed: u64| {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut net = Net::new(seed + 1);
            let integers = make(&mut net);
            let mut case = Case::new(&engine, net);
            case.check(&mut Dice(seed), &integers).map_err(|e| format!("{e}\n{}", case.story))
        });
        std::panic::catch_unwind(run).unwrap_or_else(|_| Err("panicked".into()))
    };
    (0..count).filter_map(|seed| one(seed).err().map(|e| format!("{name} {seed}: {e}"))).collect()
}

#[test]
fn gradients_are_the_slopes_of_results() {
    let mut wrong = Vec::new();
    for (name, make, count) in OPERATORS {
        wrong.extend(check(name, *make, *count));
    }
    assert!(wrong.is_empty(), "{} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
