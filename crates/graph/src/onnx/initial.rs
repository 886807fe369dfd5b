//! What the initializers of a file are: parameters, running statistics, or constants.
//!
//! A file does not say which of its tensors are trained. The new exporter of PyTorch writes down the signature of the
//! program, which does; without it, floats with more than one element are parameters unless they look like a mask,
//! are settings of an operator, or the user says otherwise. Weights of a layer are parameters whatever they look like.

use super::ImportOptions;
use super::lit::is_float;
use super::proto::{GraphProto, NodeProto, metadata};
use super::scope::{CONSTANT, MADE_UP, is_made_up};
use phalanx_types::{DType, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// What an initializer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Parameter,
    /// Changes while training, but not by gradients.
    Statistic,
    /// Never changes; `kept` if it is an entry of the `state_dict`.
    Constant {
        kept: bool,
    },
    /// An entry of the `state_dict` that nothing but its looks makes a constant.
    Mask,
}

/// Names with a role, from the signature of the program.
#[derive(Debug, Default)]
pub(super) struct Signature {
    /// In the order of the `state_dict`.
    pub parameters: Vec<String>,
    places: BTreeMap<String, usize>,
    pub buffers: BTreeMap<String, bool>,
    /// Whether the file has one at all.
    pub present: bool,
}

impl Signature {
    /// Lines such as `p_fc_weight: PARAMETER target='fc.weight'` and `b_mask: BUFFER target='mask' persistent=True`.
    pub(super) fn of(graph: &GraphProto) -> Self {
        let mut found = Self::default();
        let text = metadata(&graph.metadata_props, "pkg.torch.export.ExportedProgram.graph_signature");
        found.present = text.is_some();
        for line in text.unwrap_or_default().lines() {
            let Some((_, rest)) = line.split_once(": ") else { continue };
            let Some(target) =
                rest.split_once("target='").and_then(|(_, t)| t.split_once('\'')).map(|(t, _)| t)
            else {
                continue;
            };
            if rest.starts_with("PARAMETER") {
                found.places.entry(target.to_owned()).or_insert(found.parameters.len());
                found.parameters.push(target.to_owned());
            } else if rest.starts_with("BUFFER ") {
                found.buffers.insert(target.to_owned(), !rest.contains("persistent=False"));
            }
        }
        found
    }
}

impl Signature {
    /// Whether a name may be one; without a signature any may, and a bias may stand for a norm that was folded away.
    pub(super) fn allows(&self, name: &str) -> bool {
        let there = |n: &str| self.buffers.contains_key(n) || self.places.contains_key(n);
        let folded = || name.strip_suffix(".bias").is_some_and(|p| there(&format!("{p}.weight")));
        !self.present || there(name) || folded()
    }

    /// Where a parameter stands in the `state_dict`.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The name of a weight: the exporter's own are marked as such.
    pub(super) fn name(&self, name: &str) -> String {
        let known = self.buffers.contains_key(name) || self.places.contains_key(name);
        if !self.present || known || is_made_up(name) { name.to_owned() } else { format!("{MADE_UP}{name}") }
    }
}

/// Decides about all initializers of a file.
#[derive(Debug)]
pub(super) struct Roles<'a> {
    signature: &'a Signature,
    options: &'a ImportOptions,
    settings: BTreeSet<&'a str>,
    /// Weights and biases of layers.
    operands: BTreeSet<&'a str>,
    statistics: BTreeSet<&'a str>,
}

impl<'a> Roles<'a> {
    pub(super) fn new(graph: &'a GraphProto, signature: &'a Signature, options: &'a ImportOptions) -> Self {
        let (settings, operands, statistics) = Default::default();
        let mut roles = Self { signature, options, settings, operands, statistics };
        graph.node.iter().for_each(|n| roles.look_at(n));
        // From the end, because what comes first may be turned more than once before it is used.
        graph.node.iter().rev().for_each(|n| roles.look_for_operands(n));
        roles
    }

    fn look_at(&mut self, node: &'a NodeProto) {
        let from = match node.op_type.as_deref().unwrap_or_default() {
            "Resize" | "Upsample" | "Clip" | "Dropout" | "Reshape" | "Expand" | "Pad" | "Tile" => 1,
            "Range" | "ConstantOfShape" => 0,
            "OneHot" => 1,
            "BatchNormalization" => {
                self.statistics.extend(node.input.iter().skip(3).map(String::as_str));
                return;
            }
            _ => return,
        };
        self.settings.extend(node.input.iter().skip(from).map(String::as_str));
    }

    fn look_for_operands(&mut self, node: &'a NodeProto) {
        let places = match node.op_type.as_deref().unwrap_or_default() {
            "Conv" | "ConvTranspose" | "Gemm" | "MatMul" => 1..3,
            "BatchNormalization" | "LayerNormalization" | "GroupNormalization" | "InstanceNormalization" => {
                1..3
            }
            "LSTM" | "GRU" => 1..4,
            "Transpose" | "Identity" | "Cast"
                if node.output.iter().any(|o| self.operands.contains(o.as_str())) =>
            {
                0..1
            }
            _ => return,
        };
        let inputs = node.input.iter().skip(places.start).take(places.len());
        self.operands.extend(inputs.map(String::as_str));
    }

    pub(super) fn role(&self, name: &str, tensor: &Tensor) -> Role {
        let named = !is_made_up(&self.signature.name(name));
        let constant = |kept| Role::Constant { kept };
        if self.statistics.contains(name) {
            return Role::Statistic;
        }
        if name.starts_with(CONSTANT) {
            return constant(false);
        }
        if self.options.constants.contains(name) {
            return constant(named);
        }
        if let Some(kept) = self.signature.buffers.get(name) {
            return constant(*kept);
        }
        if self.signature.places.contains_key(name) {
            return Role::Parameter;
        }
        let elements = tensor.shape().iter().product::<u64>();
        if !is_float(tensor.dtype()) || self.settings.contains(name) || (elements <= 1 && !named) {
            return constant(named && !self.signature.present);
        }
        if !is_called_mask(name) && (self.operands.contains(name) || !looks_like_a_mask(tensor, named)) {
            return Role::Parameter;
        }
        if named && !self.signature.present { Role::Mask } else { constant(named) }
    }
}

fn is_called_mask(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(last, "mask" | "attn_mask" | "causal_mask" | "tril" | "pe" | "inv_freq" | "position_ids")
}

/// Masks are made of zeros and ones or of huge negative numbers; a table of positions counts.
fn looks_like_a_mask(tensor: &Tensor, named: bool) -> bool {
    if tensor.dtype() != DType::F32 {
        return false;
    }
    // Masks show what they are at once; weights of gigabytes need not be read twice.
    let (cells, _) = tensor.data().as_chunks::<4>();
    let values: Vec<f32> = cells.iter().take(4096).map(|b| f32::from_le_bytes(*b)).collect();
    if values.iter().any(|x| *x <= -1e4) {
        return true;
    }
    let matrix = tensor.shape().len() >= 2;
    let zeros_and_ones = values.iter().all(|x| *x == 0.0 || *x == 1.0);
    let varies = values.windows(2).any(|w| w[0] != w[1]);
    let whole = values.iter().all(|x| x.fract() == 0.0);
    varies && ((matrix && zeros_and_ones) || (whole && !named))
}
