//! Fuses calls so that each tensor is read and written as few times as possible.
//!
//! An elementwise call absorbs the elementwise calls that only it reads. The result becomes the epilogue of the
//! convolution or product that it reads, computed block by block while the block is in cache.

use crate::kernels::map::{Code, Map, Src, common_dims};
use crate::tape::{Instr, Kernel, Norm, Storage, Tape, V};
use crate::view::dense_strides;
use phalanx_graph::Unary;

/// Keeps the registers of a program within the L1 cache.
const MOST_CODE: usize = 40;
const MOST_OPERANDS: usize = 12;

/// Lets batch norms clip their own results. Runs before backward is derived, because then less is derived.
pub(crate) fn fuse_norms(tape: &mut Tape, outputs: &[V]) {
    let uses = uses(tape, outputs);
    for i in 0..tape.instrs.len() {
        let Kernel::Map(map) = &tape.instrs[i].kernel else { continue };
        let [Code::Unary(kind, Src::Operand(0))] = map.code[..] else { continue };
        let clip = match kind {
            Unary::Relu => (0.0, f32::INFINITY),
            Unary::Clip { min, max } => (min, max),
            _ => continue,
        };
        let (x, y) = (tape.instrs[i].ins[0], tape.instrs[i].outs[0]);
        let maker = tape.instrs[..i].iter().rposition(|m| m.outs.first() == Some(&x));
        let Some(maker) = maker.filter(|_| uses[x.index()] == 1) else { continue };
        let node = tape.instrs[i].node;
        if let Kernel::Norm(norm @ Norm { clip: None, .. }) = &mut tape.instrs[maker].kernel {
            norm.clip = Some(clip);
            tape.instrs[maker].outs[0] = y;
            // The result of the map is not read any more.
            tape.instrs[i] = Instr { kernel: Kernel::Fill(0.0), ins: vec![], outs: vec![x], node };
        }
    }
    drop_unused(tape, outputs);
}

/// Drops calls whose results are not read, then fuses the rest if `merged`.
pub(crate) fn fuse(tape: &mut Tape, kept: &[V], merged: bool) {
    drop_unused(tape, kept);
    let mut f = Fusing::new(tape, kept);
    let count = if merged { f.instrs.len() } else { 0 };
    for i in 0..count {
        f.take_in_maps(i);
    }
    for i in 0..count {
        f.become_epilogue(i);
    }
    let Fusing { instrs, forward, .. } = f;
    tape.forward = instrs[..forward].iter().flatten().count();
    tape.instrs = instrs.into_iter().flatten().collect();
    for instr in &mut tape.instrs {
        match &mut instr.kernel {
            Kernel::Map(m)
            | Kernel::Linear { epilogue: Some(m), .. }
            | Kernel::Conv { epilogue: Some(m), .. } => m.collapse(),
            _ => {}
        }
    }
}

/// How often each buffer is read; kept buffers count one more.
fn uses(tape: &Tape, kept: &[V]) -> Vec<usize> {
    let mut uses = vec![0; tape.slabs.len()];
    let read = tape.instrs.iter().flat_map(|i| &i.ins).chain(kept);
    read.for_each(|v| uses[v.index()] += 1);
    uses
}

fn drop_unused(tape: &mut Tape, kept: &[V]) {
    let mut needed = vec![false; tape.slabs.len()];
    kept.iter().for_each(|v| needed[v.index()] = true);
    let keep: Vec<bool> = (tape.instrs.iter().rev())
        .map(|i| {
            let gradient = |v: &V| matches!(tape.slabs[v.index()].storage, Storage::Gradient(_));
            let effect = matches!(i.kernel, Kernel::Norm(Norm { track: true, .. }));
            let keep = effect || i.outs.iter().any(|v| needed[v.index()] || gradient(v));
            if keep {
                i.ins.iter().for_each(|v| needed[v.index()] = true);
            }
            keep
        })
        .collect();
    let forward = tape.forward;
    tape.forward = keep.iter().rev().take(forward).filter(|k| **k).count();
    let mut keep = keep.into_iter().rev();
    tape.instrs.retain(|_| keep.next().unwrap_or(true));
}

struct Fusing {
    instrs: Vec<Option<Instr>>,
    forward: usize,
    uses: Vec<usize>,
    /// By buffer: the call that makes it.
    maker: Vec<Option<usize>>,
    temporary: Vec<bool>,
}

impl Fusing {
    fn new(tape: &mut Tape, kept: &[V]) -> Self {
        for instr in &mut tape.instrs {
            if let Kernel::Map(m) = &mut instr.kernel {
                m.prune(&mut instr.ins);
            }
        }
        let uses = uses(tape, kept);
        let mut maker = vec![None; tape.slabs.len()];
        for (i, instr) in tape.instrs.iter().enumerate() {
            instr.outs.iter().for_each(|v| maker[v.index()] = Some(i));
        }
        let temporary = tape.slabs.iter().map(|s| s.storage == Storage::Temporary).collect();
        let instrs = std::mem::take(&mut tape.instrs).into_iter().map(Some).collect();
        Self { instrs, forward: tape.forward, uses, maker, temporary }
    }

    /// The call that makes `v`, if only the call `reader` reads it and both are in the same part of the tape.
    fn only_for(&self, v: V, reader: usize) -> Option<usize> {
        let maker = self.maker[v.index()]?;
        let same_part = (maker < self.forward) == (reader < self.forward);
        (self.uses[v.index()] == 1 && self.temporary[v.index()] && same_part).then_some(maker)
    }

    fn take_in_maps(&mut self, i: usize) {
        while let Some((maker, operand)) = self.map_to_take_in(i) {
            let (Some(inner), Some(outer)) = (&self.instrs[maker], &self.instrs[i]) else { return };
            let Some(merged) = merge(inner, outer, operand) else { return };
            self.instrs[i] = Some(merged);
            self.instrs[maker] = None;
        }
    }

    fn map_to_take_in(&self, i: usize) -> Option<(usize, usize)> {
        let outer = self.instrs[i].as_ref()?;
        let Kernel::Map(map) = &outer.kernel else { return None };
        (0..map.operands.len()).find_map(|k| {
            let v = outer.ins[map.operands[k].input?];
            let maker = self.only_for(v, i)?;
            let inner = self.instrs[maker].as_ref()?;
            let Kernel::Map(inner_map) = &inner.kernel else { return None };
            let small = inner_map.code.len() + map.code.len() <= MOST_CODE
                && inner_map.operands.len() + map.operands.len() <= MOST_OPERANDS;
            let fits = small && inner_map.results.len() == 1 && reads_in_order(map, k);
            (fits && merge(inner, outer, k).is_some()).then_some((maker, k))
        })
    }

    /// Makes an elementwise call the epilogue of the convolution or product whose result it alone reads.
    fn become_epilogue(&mut self, i: usize) {
        let Some(instr) = self.instrs[i].clone() else { return };
        let Kernel::Map(map) = &instr.kernel else { return };
        if map.results.len() != 1 {
            return;
        }
        let host = (0..map.operands.len()).find_map(|k| {
            let input = map.operands[k].input?;
            let maker = self.only_for(instr.ins[input], i)?;
            let takes = matches!(
                self.instrs[maker].as_ref()?.kernel,
                Kernel::Linear { epilogue: None, .. } | Kernel::Conv { epilogue: None, .. }
            );
            (takes && reads_in_order(map, k)).then_some((maker, k))
        });
        let Some((maker, k)) = host else { return };
        let Some(mut host) = self.instrs[maker].take() else { return };
        let (map, mut others) = first_operand(map, k, &instr.ins);
        if let Kernel::Linear { epilogue, .. } | Kernel::Conv { epilogue, .. } = &mut host.kernel {
            *epilogue = Some(map);
        }
        host.ins.append(&mut others);
        host.outs = instr.outs;
        self.instrs[i] = Some(host);
    }
}

/// Whether the map reads this operand in the order of its results.
fn reads_in_order(map: &Map, k: usize) -> bool {
    let full = dense_strides(&map.dims);
    let runs = map.operands[k].strides.iter().zip(&full).zip(&map.dims);
    let only = map.operands.iter().filter(|o| o.input == map.operands[k].input).count() == 1;
    only && runs.into_iter().all(|((s, f), n)| *n == 1 || s == f)
}

/// Merges two maps: `outer` reads the result of `inner` as its operand `k`.
fn merge(inner: &Instr, outer: &Instr, k: usize) -> Option<Instr> {
    let (Kernel::Map(a), Kernel::Map(b)) = (&inner.kernel, &outer.kernel) else { return None };
    let dims = common_dims(&a.dims, &b.dims)?;
    let (a, b) = (a.refined(&dims)?, b.refined(&dims)?);
    let (operands_a, steps_a, inputs_a) = (a.operands.len(), a.code.len(), inner.ins.len());
    let mut operands = a.operands;
    operands.extend(b.operands.into_iter().map(|mut o| {
        o.input = o.input.map(|i| i + inputs_a);
        o
    }));
    let mut code = a.code;
    code.extend(b.code.into_iter().map(|c| {
        c.map_sources(|s| match s {
            Src::Operand(j) if j == k => Src::Step(a.results[0]),
            Src::Operand(j) => Src::Operand(j + operands_a),
            Src::Step(s) => Src::Step(s + steps_a),
            Src::Const(c) => Src::Const(c),
        })
    }));
    let results = b.results.into_iter().map(|r| r + steps_a).collect();
    let mut map = Map { dims, operands, code, results };
    let mut ins = [inner.ins.clone(), outer.ins.clone()].concat();
    map.prune(&mut ins);
    Some(Instr { kernel: Kernel::Map(map), ins, outs: outer.outs.clone(), node: outer.node })
}

/// The map with operand `k` first, and the buffers of the others.
fn first_operand(map: &Map, k: usize, ins: &[V]) -> (Map, Vec<V>) {
    let mut map = map.clone();
    let hosted = map.operands[k].input.unwrap_or(0);
    map.operands.swap(0, k);
    for c in &mut map.code {
        *c = c.map_sources(|s| match s {
            Src::Operand(j) if j == k => Src::Operand(0),
            Src::Operand(0) => Src::Operand(k),
            s => s,
        });
    }
    // Buffers are numbered anew: the hosted one is 0, the others follow.
    for o in &mut map.operands {
        o.input = o.input.map(|i| match i.cmp(&hosted) {
            std::cmp::Ordering::Less => i + 1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => i,
        });
    }
    let others = (ins.iter().enumerate()).filter(|(i, _)| *i != hosted).map(|(_, v)| *v).collect();
    (map, others)
}
