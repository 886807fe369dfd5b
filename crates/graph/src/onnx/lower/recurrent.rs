//! LSTM and GRU: the weights are converted to PyTorch's layout and names.

use super::{Call, Lower, Val};
use crate::onnx::error::OnnxError;
use crate::onnx::lit::Lit;
use crate::{Dim, Op, Range, Recurrent, ValueId};
use phalanx_types::{DType, Tensor};

/// PyTorch's gate `i` is ONNX's gate `ORDER[i]`: input, forget, cell, output of iofc; reset, update, new of zrh.
const LSTM: [usize; 4] = [0, 2, 3, 1];
const GRU: [usize; 3] = [1, 0, 2];

struct Cells<'a> {
    gates: &'a [usize],
    hidden: usize,
    directions: usize,
    first_reverse: bool,
}

impl Lower<'_> {
    pub(super) fn lstm(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        if call.attributes.flag("input_forget") || call.optional(7).is_some() {
            return Err(call.unsupported("peepholes or coupled gates"));
        }
        self.recurrent(call, &LSTM)
    }

    pub(super) fn gru(&mut self, call: &Call) -> Result<Vec<Val>, OnnxError> {
        if !call.attributes.flag("linear_before_reset") {
            return Err(call.unsupported("linear_before_reset=0; PyTorch's GRU is the other one"));
        }
        self.recurrent(call, &GRU)
    }

    fn recurrent(&mut self, call: &Call, gates: &[usize]) -> Result<Vec<Val>, OnnxError> {
        for other in ["activations", "activation_alpha", "activation_beta", "clip"] {
            if call.attributes.has(other) {
                return Err(call.unsupported("activations or clipping other than PyTorch's"));
            }
        }
        if call.attributes.flag("layout") {
            return Err(call.unsupported("layout=1"));
        }
        if call.optional(4).is_some_and(|v| self.lit(v).is_none()) {
            return Err(call.unsupported("sequences of different lengths"));
        }
        let x = call.input(0)?.clone();
        let hidden = call.attributes.int("hidden_size").and_then(|h| usize::try_from(h).ok());
        let hidden =
            hidden.filter(|h| *h > 0 && *h < 1 << 24).ok_or_else(|| call.malformed("no hidden_size"))?;
        let (directions, first_reverse) = match call.attributes.text("direction").unwrap_or("forward") {
            "forward" => (1, false),
            "reverse" => (1, true),
            "bidirectional" => (2, false),
            _ => return Err(call.malformed("an unknown direction")),
        };
        let cells = Cells { gates, hidden, directions, first_reverse };
        let weights = self.cells(call, &cells)?;
        let mut made: Vec<Vec<Val>> = vec![Vec::new(); if gates.len() == 4 { 3 } else { 2 }];
        for (d, weights) in weights.iter().enumerate() {
            let reverse = first_reverse || d == 1;
            let states = self.states(call, &cells, d)?;
            let op = Recurrent {
                hidden,
                batch_first: false,
                reverse,
                bias: weights.len() == 4,
                initial: !states.is_empty(),
            };
            let op = if gates.len() == 4 { Op::Lstm(op) } else { Op::Gru(op) };
            let inputs: Vec<Val> = std::iter::once(x.clone())
                .chain(weights.iter().map(|w| Val::Graph(*w)))
                .chain(states)
                .collect();
            for (i, out) in self.add(call, op, &inputs)?.into_iter().enumerate() {
                let mut dims = self.shape(call, &out)?.dims().to_vec();
                dims.insert(usize::from(i == 0), Dim::Fixed(1));
                made[i].push(self.reshape_to(call, &out, dims)?);
            }
        }
        let join = |(i, parts): (usize, Vec<Val>)| self.concat_of(call, parts, i64::from(i == 0));
        made.into_iter().enumerate().map(join).collect()
    }

    /// The initial states of one direction; none if they are zero.
    fn states(&mut self, call: &Call, cells: &Cells<'_>, d: usize) -> Result<Vec<Val>, OnnxError> {
        let wanted: &[usize] = if cells.gates.len() == 4 { &[5, 6] } else { &[5] };
        let zero = |v: &Val| {
            let known =
                self.numbers(v, 0).and_then(|l| l.floats()).is_some_and(|f| f.iter().all(|x| *x == 0.0));
            known || self.filled_with(v) == Some(0.0)
        };
        if wanted.iter().all(|i| call.optional(*i).is_none_or(zero)) {
            return Ok(Vec::new());
        }
        let mut states = Vec::new();
        for i in wanted {
            let Some(s) = call.optional(*i).cloned() else {
                return Err(call.unsupported("only one of the initial states is given"));
            };
            let one = self.slice_of(call, &s, 0, Range { start: d, len: Some(1), step: 1 })?;
            let dims = self.shape(call, &one)?.dims()[1..].to_vec();
            states.push(self.reshape_to(call, &one, dims)?);
        }
        Ok(states)
    }

    /// The parameters of each direction: w_ih, w_hh, and both biases if there are any.
    fn cells(&mut self, call: &Call, cells: &Cells<'_>) -> Result<Vec<Vec<ValueId>>, OnnxError> {
        let data = |v: &Val| {
            self.numbers(v, 0).ok_or_else(|| call.unsupported("its weights are computed from data"))
        };
        let (w, r) = (data(call.input(1)?)?, data(call.input(2)?)?);
        let b = call.optional(3).map(data).transpose()?;
        let rows = cells.gates.len() * cells.hidden;
        let (d, h) = (cells.directions, cells.hidden);
        let input = w.shape.get(2).copied().unwrap_or(0);
        let fits = w.shape == [d, rows, input] && r.shape == [d, rows, h];
        if !fits || b.as_ref().is_some_and(|b| b.shape != [d, 2 * rows]) {
            return Err(call.malformed("its weights do not have the shapes they should"));
        }
        let module = call.scope.clone().unwrap_or_else(|| call.name.clone());
        let mut tensors = Vec::new();
        for i in 0..d {
            let tail = if cells.first_reverse || i == 1 { "_reverse" } else { "" };
            tensors.push(("weight_ih", tail, cells.reordered(&w, i * rows, rows, input)));
            tensors.push(("weight_hh", tail, cells.reordered(&r, i * rows, rows, h)));
            if let Some(b) = &b {
                tensors.push(("bias_ih", tail, cells.reordered(b, 2 * i * rows, rows, 1)));
                tensors.push(("bias_hh", tail, cells.reordered(b, (2 * i + 1) * rows, rows, 1)));
            }
        }
        let each = tensors.len() / d;
        let tensors: Option<Vec<(&str, &str, Tensor)>> =
            tensors.into_iter().map(|(what, tail, t)| Some((what, tail, t?))).collect();
        let tensors =
            tensors.ok_or_else(|| call.malformed("its weights do not have the shapes they should"))?;
        let ids = self.layer(&module, tensors);
        Ok(ids.chunks(each).map(<[ValueId]>::to_vec).collect())
    }

    /// The parameters of the module's next layer, or of a layer that already has the same weights.
    fn layer(&mut self, module: &str, tensors: Vec<(&str, &str, Tensor)>) -> Vec<ValueId> {
        let mut l = 0;
        loop {
            let name = |what: &str, tail: &str| format!("{module}.{what}_l{l}{tail}");
            let there: Vec<Option<ValueId>> =
                tensors.iter().map(|(what, tail, t)| self.parameter_like(&name(what, tail), t)).collect();
            if let Some(ids) = there.iter().copied().collect::<Option<Vec<_>>>() {
                return ids;
            }
            if tensors.iter().all(|(what, tail, _)| !self.parameters.contains_key(&name(what, tail))) {
                let add = |(what, tail, t): (&str, &str, Tensor)| self.add_parameter(name(what, tail), t);
                return tensors.into_iter().map(add).collect();
            }
            l += 1;
        }
    }
}

impl Cells<'_> {
    /// Rows `start..start + rows` of a matrix with `columns` columns, with the gates in PyTorch's order.
    fn reordered(&self, from: &Lit, start: usize, rows: usize, columns: usize) -> Option<Tensor> {
        let all = from.floats()?;
        let part = all.get(start * columns..(start + rows) * columns)?;
        let gate = self.hidden * columns;
        let values: Vec<f32> = self
            .gates
            .iter()
            .flat_map(|g| part[g * gate..(g + 1) * gate].iter().map(|x| *x as f32))
            .collect();
        let shape = if from.shape.len() == 2 { vec![rows as u64] } else { vec![rows as u64, columns as u64] };
        if from.dtype != DType::F32 {
            return None;
        }
        Tensor::from_f32(shape, &values).ok()
    }
}
