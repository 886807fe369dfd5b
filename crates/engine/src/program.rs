//! A graph compiled for one batch size and one mode.

use crate::error::CompileError;
use crate::fuse::{fuse, fuse_norms};
use crate::grad::{GradientRequest, derive};
use crate::lower::{Holdings, lower};
use crate::memory_plan::{MemoryPlan, plan};
use crate::stage::Surroundings;
use crate::tape::{Storage, Tape, V};
use phalanx_graph::Graph;

/// The batch size and mode that a program is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProgramKey {
    pub(crate) batch: usize,
    pub(crate) training: bool,
    /// Dense layers of few rows are computed without packing: sums have another order than in training.
    pub(crate) few_rows: bool,
    pub(crate) input_gradients: bool,
    pub(crate) recompute: bool,
}

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) tape: Tape,
    pub(crate) plan: MemoryPlan,
    pub(crate) outputs: Vec<V>,
    pub(crate) output_shapes: Vec<Vec<usize>>,
    pub(crate) input_gradients: Vec<Option<V>>,
    /// By parameter: the last call that uses its gradient; 0 if there is none.
    pub(crate) final_after: Vec<usize>,
    /// By output: whether its gradient is used.
    pub(crate) takes: Vec<bool>,
}

/// The inputs of compilation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramSource<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) holdings: &'a Holdings,
    pub(crate) surroundings: &'a Surroundings,
    pub(crate) parameters: usize,
}

impl Program {
    pub(crate) fn compile(source: ProgramSource<'_>, purpose: ProgramKey) -> Result<Self, CompileError> {
        Self::compile_with(source, purpose, true)
    }

    /// As [`Program::compile`], with or without fusion.
    pub(crate) fn compile_with(
        source: ProgramSource<'_>,
        purpose: ProgramKey,
        merged: bool,
    ) -> Result<Self, CompileError> {
        let ProgramSource { graph, holdings, surroundings, parameters } = source;
        let entries = surroundings.entries(graph, purpose)?;
        let lowered = lower(graph, holdings, purpose, &entries)?;
        let takes = surroundings.takes(graph, &lowered);
        let output_shapes = lowered.output_views.into_iter().map(|v| v.shape).collect();
        let (mut tape, outputs) = (lowered.tape, lowered.outputs);
        let mut input_gradients = vec![None; lowered.inputs.len()];
        if purpose.training {
            fuse_norms(&mut tape, &outputs);
            let varies: Vec<bool> = entries.iter().map(|e| e.varies).collect();
            let wish = GradientRequest { inputs: &varies, outputs: &takes, recompute: purpose.recompute };
            input_gradients = derive(&mut tape, &lowered.inputs, &outputs, parameters, wish).inputs;
        }
        let kept: Vec<V> = outputs.iter().copied().chain(input_gradients.iter().flatten().copied()).collect();
        fuse(&mut tape, &kept, merged);
        let plan = plan(&tape, &kept);
        let final_after = final_after(&tape, parameters);
        Ok(Self { tape, plan, outputs, output_shapes, input_gradients, final_after, takes })
    }
}

fn final_after(tape: &Tape, parameters: usize) -> Vec<usize> {
    let mut after = vec![0; parameters];
    for (i, instr) in tape.instrs.iter().enumerate() {
        // Reads count too: the callback may change the gradient (add other replicas' gradients) while another gradient
        // still depends on its value.
        for v in instr.ins.iter().chain(&instr.outs) {
            if let Storage::Gradient(p) = tape.storage(*v) {
                after[p] = i;
            }
        }
    }
    after
}
