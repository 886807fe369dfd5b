//! Layers with weights, and attention.

use super::{Attribute, Writer, ints};
use crate::onnx::error::OnnxError;
use crate::{Conv, Node, Op, Recurrent, Shape};
use phalanx_types::Tensor;

/// All paddings before, then all after.
pub(super) fn pads(pad: &[(usize, usize)]) -> Attribute {
    let (before, after) = (pad.iter().map(|p| p.0 as i64), pad.iter().map(|p| p.1 as i64));
    Attribute::Ints(before.chain(after).collect())
}

fn conv(c: &Conv) -> Vec<(&'static str, Attribute)> {
    vec![
        ("strides", ints(&c.stride)),
        ("dilations", ints(&c.dilation)),
        ("pads", pads(&c.pad)),
        ("group", Attribute::Int(c.groups as i64)),
    ]
}

impl Writer<'_> {
    pub(super) fn layer(&mut self, node: &Node, inputs: &[&str], out: &str) -> Result<(), OnnxError> {
        match &node.op {
            Op::Conv(c) => self.emit("Conv", inputs, out, conv(c)),
            Op::ConvTranspose(t) => {
                let mut attributes = conv(&t.conv);
                attributes.push(("output_padding", ints(&t.output_padding)));
                self.emit("ConvTranspose", inputs, out, attributes);
            }
            Op::Linear if self.shape(node.inputs[0]).rank() == 2 => {
                self.emit("Gemm", inputs, out, vec![("transB", Attribute::Int(1))]);
            }
            Op::Linear => {
                let weight = self.step(node, "Transpose", &[inputs[1]], vec![("perm", ints(&[1, 0]))]);
                match inputs.get(2) {
                    Some(bias) => {
                        let y = self.step(node, "MatMul", &[inputs[0], &weight], vec![]);
                        self.emit("Add", &[bias, &y], out, vec![]);
                    }
                    None => self.emit("MatMul", &[inputs[0], &weight], out, vec![]),
                }
            }
            Op::BatchNorm { eps, momentum } => {
                // ONNX counts what is kept, PyTorch what is new.
                let attributes =
                    vec![("epsilon", Attribute::Float(*eps)), ("momentum", Attribute::Float(1.0 - momentum))];
                self.emit("BatchNormalization", inputs, out, attributes);
            }
            Op::LayerNorm { axis, eps } => {
                let attributes =
                    vec![("axis", Attribute::Int(*axis as i64)), ("epsilon", Attribute::Float(*eps))];
                let mut inputs: Vec<String> = inputs.iter().map(|s| (*s).to_owned()).collect();
                if inputs.len() == 1 {
                    let tail = Shape::new(self.shape(node.inputs[0]).dims()[*axis..].to_vec());
                    let dims: Option<Vec<u64>> =
                        tail.as_fixed().map(|s| s.iter().map(|d| *d as u64).collect());
                    let count = tail.count().map_or(0, |c| c.factor);
                    let ones = dims.and_then(|d| Tensor::from_f32(d, &vec![1.0; count]).ok());
                    inputs.push(self.tensor(node, "ones", ones)?);
                }
                let refs: Vec<&str> = inputs.iter().map(String::as_str).collect();
                self.emit("LayerNormalization", &refs, out, attributes);
            }
            Op::GroupNorm { groups, eps } => return self.group_norm(node, inputs, out, *groups, *eps),
            Op::Attention { scale, causal } => return self.attention(node, inputs, out, *scale, *causal),
            _ => {}
        }
        Ok(())
    }

    fn group_norm(
        &mut self,
        node: &Node,
        inputs: &[&str],
        out: &str,
        groups: usize,
        eps: f32,
    ) -> Result<(), OnnxError> {
        let rank = self.shape(node.inputs[0]).rank();
        let split = self.integers(node, "groups", &[0, groups as i64, -1])?;
        let parted = self.step(node, "Reshape", &[inputs[0], &split], vec![]);
        let fill = |x: f32| Tensor::from_f32(vec![groups as u64], &vec![x; groups]).ok();
        let (ones, zeros) = (self.tensor(node, "ones", fill(1.0))?, self.tensor(node, "zeros", fill(0.0))?);
        let epsilon = vec![("epsilon", Attribute::Float(eps))];
        let mut y = self.step(node, "InstanceNormalization", &[&parted, &ones, &zeros], epsilon);
        let shape = self.step(node, "Shape", &[inputs[0]], vec![]);
        let steps: Vec<(&str, &str)> = ["Mul", "Add"].into_iter().zip(inputs[1..].iter().copied()).collect();
        if steps.is_empty() {
            self.emit("Reshape", &[&y, &shape], out, vec![]);
            return Ok(());
        }
        y = self.step(node, "Reshape", &[&y, &shape], vec![]);
        let mut per_channel = vec![1i64; rank.saturating_sub(1)];
        if let Some(first) = per_channel.first_mut() {
            *first = -1;
        }
        let per_channel = self.integers(node, "channels", &per_channel)?;
        for (i, (op, weight)) in steps.iter().enumerate() {
            let weight = self.step(node, "Reshape", &[weight, &per_channel], vec![]);
            if i + 1 == steps.len() {
                self.emit(op, &[&y, &weight], out, vec![]);
            } else {
                y = self.step(node, op, &[&y, &weight], vec![]);
            }
        }
        Ok(())
    }

    fn attention(
        &mut self,
        node: &Node,
        inputs: &[&str],
        out: &str,
        scale: f32,
        causal: bool,
    ) -> Result<(), OnnxError> {
        let (q, k) = (self.shape(node.inputs[0]), self.shape(node.inputs[1]));
        let rank = q.rank();
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 1, rank - 2);
        let keys = self.step(node, "Transpose", &[inputs[1]], vec![("perm", ints(&perm))]);
        let scale = self.number(node, "scale", scale)?;
        let scaled = self.step(node, "Mul", &[inputs[0], &scale], vec![]);
        let mut scores = self.step(node, "MatMul", &[&scaled, &keys], vec![]);
        if causal {
            let (Some(t), Some(s)) = (q[rank - 2].fixed(), k[rank - 2].fixed()) else {
                return Err(OnnxError::Export {
                    name: node.name.clone(),
                    why: "a causal mask over the batch",
                });
            };
            let cells = (0..t).flat_map(|r| (0..s).map(move |c| if c > r { f32::NEG_INFINITY } else { 0.0 }));
            let mask = Tensor::from_f32(vec![t as u64, s as u64], &cells.collect::<Vec<_>>()).ok();
            let mask = self.tensor(node, "mask", mask)?;
            scores = self.step(node, "Add", &[&scores, &mask], vec![]);
        }
        if let Some(mask) = inputs.get(3) {
            scores = self.step(node, "Add", &[&scores, mask], vec![]);
        }
        let weights = self.step(node, "Softmax", &[&scores], vec![("axis", Attribute::Int(-1))]);
        self.emit("MatMul", &[&weights, inputs[2]], out, vec![]);
        Ok(())
    }

    /// Reorders gates from PyTorch's order to ONNX's: `iofc` of input, forget, cell, output; `zrh` of reset, update,
    /// new.
    pub(super) fn recurrent(&mut self, node: &Node, r: &Recurrent, inputs: &[&str]) -> Result<(), OnnxError> {
        let (op, order): (&str, &[usize]) =
            if matches!(node.op, Op::Lstm(_)) { ("LSTM", &[0, 3, 1, 2]) } else { ("GRU", &[1, 0, 2]) };
        let swap = vec![("perm", ints(&[1, 0, 2]))];
        let (zero, one) = (self.integers(node, "axis_0", &[0])?, self.integers(node, "axis_1", &[1])?);
        let x = if r.batch_first {
            self.step(node, "Transpose", &[inputs[0]], swap.clone())
        } else {
            inputs[0].into()
        };
        let w = self.gates(node, &[inputs[1]], r.hidden, order, &zero)?;
        let h = self.gates(node, &[inputs[2]], r.hidden, order, &zero)?;
        let b = if r.bias { self.gates(node, &inputs[3..5], r.hidden, order, &zero)? } else { String::new() };
        let mut given = vec![x, w, h, b, String::new()];
        for state in &inputs[3 + 2 * usize::from(r.bias)..] {
            given.push(self.step(node, "Unsqueeze", &[state, &zero], vec![]));
        }
        let given: Vec<&str> = given.iter().map(String::as_str).collect();
        let raw: Vec<String> =
            node.outputs.iter().map(|v| self.unique(&format!("{}/raw", self.name(*v)))).collect();
        let mut attributes = vec![("hidden_size", Attribute::Int(r.hidden as i64))];
        if r.reverse {
            attributes.push(("direction", Attribute::Text("reverse")));
        }
        if op == "GRU" {
            attributes.push(("linear_before_reset", Attribute::Int(1)));
        }
        // Importers, including ours, take the module's name from the node's.
        let weight = &self.graph.value(node.inputs[1]).name;
        let module = weight.rsplit_once('.').map_or(weight.as_str(), |(m, _)| m);
        let name = self.unique(&format!("/{module}/{op}"));
        self.emit_named(op, &given, &raw.iter().map(String::as_str).collect::<Vec<_>>(), attributes, &name);
        for (i, v) in node.outputs.iter().enumerate() {
            let out = self.name(*v);
            match (i, r.batch_first) {
                (0, true) => {
                    let y = self.step(node, "Squeeze", &[&raw[0], &one], vec![]);
                    self.emit("Transpose", &[&y], &out, swap.clone());
                }
                (0, false) => self.emit("Squeeze", &[&raw[0], &one], &out, vec![]),
                _ => self.emit("Squeeze", &[&raw[i], &zero], &out, vec![]),
            }
        }
        Ok(())
    }

    /// Reorders the gates of weights, joins several, and adds the dimension for the direction.
    fn gates(
        &mut self,
        node: &Node,
        weights: &[&str],
        hidden: usize,
        order: &[usize],
        zero: &str,
    ) -> Result<String, OnnxError> {
        let rows: Vec<i64> =
            order.iter().flat_map(|g| g * hidden..(g + 1) * hidden).map(|i| i as i64).collect();
        let rows = self.integers(node, "gates", &rows)?;
        let axis = || vec![("axis", Attribute::Int(0))];
        let parts: Vec<String> =
            weights.iter().map(|w| self.step(node, "Gather", &[w, &rows], axis())).collect();
        let refs: Vec<&str> = parts.iter().map(String::as_str).collect();
        let all = self.step(node, "Concat", &refs, axis());
        Ok(self.step(node, "Unsqueeze", &[&all, zero], vec![]))
    }
}
