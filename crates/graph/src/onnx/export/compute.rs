//! Operators on elements, reductions and pools.

use super::{Attribute, Purpose, Writer, ints};
use crate::onnx::error::OnnxError;
use crate::onnx::tensor::code_of;
use crate::{Compare, Node, Op, Pool, Reduce, Unary};
use phalanx_types::{DType, Tensor};

impl Writer<'_> {
    pub(super) fn compute(&mut self, node: &Node, inputs: &[&str], out: &str) -> Result<(), OnnxError> {
        let axis = |a: usize| vec![("axis", Attribute::Int(a as i64))];
        match &node.op {
            Op::Unary(u) => return self.unary(node, *u, inputs[0], out),
            Op::MatMul => self.emit("MatMul", inputs, out, vec![]),
            Op::Binary(b) => self.emit(b.word(), inputs, out, vec![]),
            Op::Compare(c) => {
                let op = match c {
                    Compare::Equal => "Equal",
                    Compare::Less => "Less",
                    Compare::LessOrEqual => "LessOrEqual",
                    Compare::Greater => "Greater",
                    Compare::GreaterOrEqual => "GreaterOrEqual",
                };
                self.emit(op, inputs, out, vec![]);
            }
            Op::Where => self.emit("Where", inputs, out, vec![]),
            Op::Softmax { axis: a } => self.emit("Softmax", inputs, out, axis(*a)),
            Op::LogSoftmax { axis: a } => self.emit("LogSoftmax", inputs, out, axis(*a)),
            Op::MaxPool(p) => {
                let mut attributes = pool(p);
                attributes.push(("dilations", ints(&p.dilation)));
                self.emit("MaxPool", inputs, out, attributes);
            }
            Op::AveragePool { pool: p, count_padding } => {
                if p.dilation.iter().any(|d| *d != 1) {
                    return Err(OnnxError::Export {
                        name: node.name.clone(),
                        why: "an average over dilated windows",
                    });
                }
                let mut attributes = pool(p);
                attributes.push(("count_include_pad", Attribute::Int(i64::from(*count_padding))));
                self.emit("AveragePool", inputs, out, attributes);
            }
            Op::Reduce { kind, axes, keep } => {
                let mut attributes = vec![("keepdims", Attribute::Int(i64::from(*keep)))];
                if *kind == Reduce::Sum {
                    let axes: Vec<i64> = axes.iter().map(|a| *a as i64).collect();
                    let axes = self.integers(node, "axes", &axes)?;
                    self.emit("ReduceSum", &[inputs[0], &axes], out, attributes);
                } else {
                    attributes.push(("axes", ints(axes)));
                    self.emit(node.op.word(), inputs, out, attributes);
                }
            }
            Op::Dropout { ratio } if self.purpose == Purpose::Training => {
                self.dropout(node, *ratio, inputs, out)?;
            }
            Op::Dropout { .. } => self.emit("Identity", inputs, out, vec![]),
            Op::Cast { to } => {
                self.emit("Cast", inputs, out, vec![("to", Attribute::Int(i64::from(code_of(*to))))]);
            }
            _ => {
                return Err(OnnxError::Export {
                    name: node.name.clone(),
                    why: "there is no operator for it",
                });
            }
        }
        Ok(())
    }

    /// Keeps the name of the node, from which dropout draws.
    fn dropout(&mut self, node: &Node, ratio: f32, inputs: &[&str], out: &str) -> Result<(), OnnxError> {
        let ratio = self.number(node, "ratio", ratio)?;
        let training = Tensor::new(DType::Bool, vec![], vec![1].into()).ok();
        let training = self.tensor(node, "training", training)?;
        let all: Vec<&str> = inputs.iter().copied().chain([&*ratio, &*training]).collect();
        self.emit_named("Dropout", &all, &[out], vec![], &node.name);
        Ok(())
    }

    fn unary(&mut self, node: &Node, op: Unary, x: &str, out: &str) -> Result<(), OnnxError> {
        let float = |name, v| (name, Attribute::Float(v));
        match op {
            Unary::LeakyRelu { slope } => self.emit("LeakyRelu", &[x], out, vec![float("alpha", slope)]),
            Unary::Elu { alpha } => self.emit("Elu", &[x], out, vec![float("alpha", alpha)]),
            Unary::HardSigmoid { alpha, beta } => {
                self.emit("HardSigmoid", &[x], out, vec![float("alpha", alpha), float("beta", beta)]);
            }
            Unary::Silu => {
                let gate = self.step(node, "Sigmoid", &[x], vec![]);
                self.emit("Mul", &[x, &gate], out, vec![]);
            }
            Unary::Clip { min, max } => {
                let (min, max) = (self.number(node, "min", min)?, self.number(node, "max", max)?);
                self.emit("Clip", &[x, &min, &max], out, vec![]);
            }
            Unary::Gelu { tanh } => {
                let inner = if tanh {
                    let (k, c) = (self.number(node, "cubic", 0.044715)?, self.number(node, "three", 3.0)?);
                    let scale = self.number(node, "scale", (2.0 / std::f32::consts::PI).sqrt())?;
                    let cube = self.step(node, "Pow", &[x, &c], vec![]);
                    let cube = self.step(node, "Mul", &[&cube, &k], vec![]);
                    let sum = self.step(node, "Add", &[x, &cube], vec![]);
                    let scaled = self.step(node, "Mul", &[&sum, &scale], vec![]);
                    self.step(node, "Tanh", &[&scaled], vec![])
                } else {
                    let root = self.number(node, "root", std::f32::consts::SQRT_2)?;
                    let scaled = self.step(node, "Div", &[x, &root], vec![]);
                    self.step(node, "Erf", &[&scaled], vec![])
                };
                let (one, half) = (self.number(node, "one", 1.0)?, self.number(node, "half", 0.5)?);
                let gate = self.step(node, "Add", &[&inner, &one], vec![]);
                let twice = self.step(node, "Mul", &[x, &gate], vec![]);
                self.emit("Mul", &[&twice, &half], out, vec![]);
            }
            plain => self.emit(plain.word(), &[x], out, vec![]),
        }
        Ok(())
    }
}

fn pool(p: &Pool) -> Vec<(&'static str, Attribute)> {
    vec![
        ("kernel_shape", ints(&p.kernel)),
        ("strides", ints(&p.stride)),
        ("pads", super::layer::pads(&p.pad)),
        ("ceil_mode", Attribute::Int(i64::from(p.ceil))),
    ]
}
