//! Operators that move elements.

use super::{Attribute, Writer, ints};
use crate::onnx::error::OnnxError;
use crate::{Coordinates, Dim, Node, Op, PadMode, Resize, ResizeMode, Shape, ValueId};
use phalanx_types::Tensor;

impl Writer<'_> {
    pub(super) fn arrange(&mut self, node: &Node, inputs: &[&str], out: &str) -> Result<(), OnnxError> {
        match &node.op {
            Op::Gather { axis } => {
                self.emit("Gather", inputs, out, vec![("axis", Attribute::Int(*axis as i64))])
            }
            Op::Concat { axis } => {
                self.emit("Concat", inputs, out, vec![("axis", Attribute::Int(*axis as i64))])
            }
            Op::Transpose { perm } => self.emit("Transpose", inputs, out, vec![("perm", ints(perm))]),
            Op::Reshape { to } => {
                let shape = self.target(node, to)?;
                self.emit("Reshape", &[inputs[0], &shape], out, vec![]);
            }
            Op::Expand { to } => {
                let shape = self.grown(node, to)?;
                self.emit("Expand", &[inputs[0], &shape], out, vec![]);
            }
            Op::Slice { ranges } => {
                let part: Vec<(usize, _)> =
                    ranges.iter().enumerate().filter_map(|(i, r)| Some((i, (r, r.len?)))).collect();
                let starts: Vec<i64> = part.iter().map(|(_, (r, _))| r.start as i64).collect();
                let end = |r: &crate::Range, len: usize| match (r.start as i64)
                    .saturating_add(r.step * len as i64)
                {
                    // Counting down past the first element: the end is before everything.
                    e if e < 0 => i64::MIN + 1,
                    e => e,
                };
                let ends: Vec<i64> = part.iter().map(|(_, (r, len))| end(r, *len)).collect();
                let axes: Vec<i64> = part.iter().map(|(i, _)| *i as i64).collect();
                let steps: Vec<i64> = part.iter().map(|(_, (r, _))| r.step).collect();
                let settings = [("starts", starts), ("ends", ends), ("axes", axes), ("steps", steps)];
                let mut names = vec![inputs[0].to_owned()];
                for (what, all) in settings {
                    names.push(self.integers(node, what, &all)?);
                }
                self.emit("Slice", &names.iter().map(String::as_str).collect::<Vec<_>>(), out, vec![]);
            }
            Op::Pad { before, after, mode } => {
                let pads = self.integers(node, "pads", &[&before[..], &after[..]].concat())?;
                let (word, value) = match mode {
                    PadMode::Constant(x) => ("constant", *x),
                    PadMode::Reflect => ("reflect", 0.0),
                    PadMode::Edge => ("edge", 0.0),
                };
                let value = self.number(node, "value", value)?;
                self.emit("Pad", &[inputs[0], &pads, &value], out, vec![("mode", Attribute::Text(word))]);
            }
            Op::Resize(r) => return self.resize(node, r, inputs[0], out),
            _ => {}
        }
        Ok(())
    }

    /// A shape with at most one dimension that depends on the batch.
    fn target(&mut self, node: &Node, to: &Shape) -> Result<String, OnnxError> {
        let open = to.dims().iter().filter(|d| d.fixed().is_none()).count();
        let empty = to.dims().contains(&Dim::Fixed(0));
        if open > 1 || empty {
            return self.grown(node, to);
        }
        let dims: Vec<i64> = to.dims().iter().map(|d| d.fixed().map_or(-1, |n| n as i64)).collect();
        self.integers(node, "shape", &dims)
    }

    /// A shape computed from the size of the batch.
    fn grown(&mut self, node: &Node, to: &Shape) -> Result<String, OnnxError> {
        if let Some(dims) = to.as_fixed() {
            let dims: Vec<i64> = dims.iter().map(|d| *d as i64).collect();
            return self.integers(node, "shape", &dims);
        }
        let batch = self.batch(node)?;
        let mut parts = Vec::new();
        for dim in to.dims() {
            parts.push(match dim {
                Dim::Fixed(n) => self.integers(node, "size", &[*n as i64])?,
                Dim::Batch(1) => batch.clone(),
                Dim::Batch(k) => {
                    let k = self.integers(node, "times", &[*k as i64])?;
                    self.step(node, "Mul", &[&batch, &k], vec![])
                }
            });
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.step(node, "Concat", &parts, vec![("axis", Attribute::Int(0))]))
    }

    /// The size of the batch, from an input that has it.
    fn batch(&mut self, node: &Node) -> Result<String, OnnxError> {
        let has = |v: &ValueId| {
            self.shape(*v).dims().iter().position(|d| *d == Dim::Batch(1)).map(|axis| (*v, axis))
        };
        let Some((v, axis)) = self.graph.inputs.iter().find_map(has) else {
            return Err(OnnxError::Export {
                name: node.name.clone(),
                why: "no input has the size of the batch",
            });
        };
        let name = self.name(v);
        let shape = self.step(node, "Shape", &[&name], vec![]);
        let at = self.integers(node, "axis", &[axis as i64])?;
        Ok(self.step(node, "Gather", &[&shape, &at], vec![("axis", Attribute::Int(0))]))
    }

    fn resize(&mut self, node: &Node, r: &Resize, x: &str, out: &str) -> Result<(), OnnxError> {
        let spatial: Vec<usize> =
            self.shape(node.inputs[0]).dims()[2..].iter().map(|d| d.fixed().unwrap_or(0)).collect();
        let (mode, nearest) = match r.mode {
            ResizeMode::Nearest => ("nearest", "floor"),
            ResizeMode::Linear => ("linear", "round_prefer_floor"),
        };
        let coordinates = match r.coordinates {
            Coordinates::HalfPixel => "half_pixel",
            Coordinates::AlignCorners => "align_corners",
            Coordinates::Asymmetric => "asymmetric",
        };
        let attributes = vec![
            ("mode", Attribute::Text(mode)),
            ("nearest_mode", Attribute::Text(nearest)),
            ("coordinate_transformation_mode", Attribute::Text(coordinates)),
        ];
        // Runtimes multiply in either precision.
        let comes_to = |n: usize, s: f32| [(n as f32 * s) as usize, (n as f64 * f64::from(s)) as usize];
        let exact =
            spatial.iter().zip(&r.scale).zip(&r.size).all(|((n, s), size)| comes_to(*n, *s) == [*size; 2]);
        if exact {
            let scales: Vec<f32> = [1.0, 1.0].into_iter().chain(r.scale.iter().copied()).collect();
            let scales =
                self.tensor(node, "scales", Tensor::from_f32(vec![scales.len() as u64], &scales).ok())?;
            self.emit("Resize", &[x, "", &scales], out, attributes);
            return Ok(());
        }
        let to = [
            &self.shape(node.inputs[0]).dims()[..2],
            &r.size.iter().map(|n| Dim::Fixed(*n)).collect::<Vec<_>>(),
        ];
        let sizes = self.grown(node, &Shape::new(to.concat()))?;
        self.emit("Resize", &[x, "", "", &sizes], out, attributes);
        Ok(())
    }
}
