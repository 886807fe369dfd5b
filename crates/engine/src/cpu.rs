//! The CPU engine.

use crate::buffer::Buffer;
use crate::engine::{CompileOptions, Engine, Model, OpTime, Parameter, Pass, Slot, SumOver, Visit};
use crate::error::{CompileError, DiagnoseReport, RunError, StageError, WeightsError};
use crate::lower::Holdings;
use crate::parameters::ParameterSet;
use crate::permute::permuted;
use crate::program::{Program, ProgramKey, ProgramSource};
use crate::run::{CallError, ModelTensors, Runner, Workspace};
use crate::stage::{Surroundings, held_order};
use crate::tape::{Kernel, Norm, Storage};
use crate::threads::Threads;
use phalanx_graph::{Graph, ValueId, ValueKind, Weights};
use phalanx_types::{DType, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// An engine that computes on the CPU.
#[derive(Debug, Clone)]
pub struct CpuEngine {
    threads: Arc<Threads>,
}

impl CpuEngine {
    /// Creates an engine with this many compute threads, including the caller's.
    pub fn new(threads: usize) -> Self {
        Self { threads: Arc::new(Threads::new(threads)) }
    }

    /// The compute threads, for losses and optimizers to share.
    pub fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }
}

impl Engine for CpuEngine {
    fn compile(&self, graph: &Graph, options: &CompileOptions) -> Result<Box<dyn Model>, CompileError> {
        let surroundings = Surroundings::none();
        Ok(Box::new(CpuModel::new(self.threads.clone(), graph.clone(), surroundings, *options)?))
    }

    fn compile_stage(
        &self,
        whole: &Graph,
        nodes: Range<usize>,
        options: &CompileOptions,
    ) -> Result<Box<dyn Model>, StageError> {
        let stage = whole.stage(nodes.clone())?;
        let before = if nodes.start == 0 { None } else { Some(whole.stage(0..nodes.start)?) };
        let surroundings = Surroundings::new(before, nodes.end < whole.nodes.len());
        Ok(Box::new(CpuModel::new(self.threads.clone(), stage, surroundings, *options)?))
    }
}

/// How a parameter or buffer is held.
#[derive(Debug)]
struct HeldTensor {
    name: String,
    shape: Vec<usize>,
    /// The order of axes in memory, if it differs from the user's.
    order: Option<Vec<usize>>,
}

#[derive(Debug)]
struct CpuModel {
    threads: Arc<Threads>,
    graph: Graph,
    surroundings: Surroundings,
    options: CompileOptions,
    holdings: Holdings,
    parameters: Vec<Parameter>,
    held: Vec<HeldTensor>,
    buffers: Vec<HeldTensor>,
    /// Entries of the state_dict that no computation uses, such as batch counters.
    idle: Weights,
    state: ModelTensors,
    programs: BTreeMap<ProgramKey, Arc<Program>>,
    slots: Vec<InFlight>,
    /// Seconds and calls, by node, kernel and whether it was in backward.
    times: BTreeMap<(usize, &'static str, bool), (f64, u64)>,
    /// Sums batch-norm statistics over all replicas.
    together: Option<Together>,
    /// By output and by input: whether it has a gradient.
    takes: Vec<bool>,
    gives: Vec<bool>,
    /// Used in place of gradients that are not given.
    zeros: Vec<f32>,
}

struct Together(Box<SumOver>);

impl std::fmt::Debug for Together {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Together")
    }
}

/// What a slot holds between forward and backward.
#[derive(Debug, Default)]
struct InFlight {
    workspace: Workspace,
    program: Option<Arc<Program>>,
    pass: Option<Pass>,
}

impl CpuModel {
    fn new(
        threads: Arc<Threads>,
        graph: Graph,
        surroundings: Surroundings,
        options: CompileOptions,
    ) -> Result<Self, CompileError> {
        let mut holdings = Holdings { storage: vec![None; graph.values.len()], ..Holdings::default() };
        holdings.orders = (0..graph.values.len()).map(|i| held_order(&graph, ValueId(i as u32))).collect();
        let mut model = Self {
            threads,
            graph,
            surroundings,
            options,
            holdings,
            parameters: Vec::new(),
            held: Vec::new(),
            buffers: Vec::new(),
            idle: Weights::new(),
            state: ModelTensors::default(),
            programs: BTreeMap::new(),
            slots: Vec::new(),
            times: BTreeMap::new(),
            together: None,
            takes: Vec::new(),
            gives: Vec::new(),
            zeros: Vec::new(),
        };
        let order = model.declare();
        if !options.forward_only {
            model.order_by_finality(order)?;
        }
        Ok(model)
    }

    /// Assigns storage to every parameter, buffer and constant, in graph order.
    fn declare(&mut self) -> Vec<ValueId> {
        let mut order = Vec::new();
        for i in 0..self.graph.values.len() {
            let (id, value) = (ValueId(i as u32), &self.graph.values[i]);
            let shape = value.shape.at(1);
            let held = HeldTensor {
                name: value.name.clone(),
                shape: shape.clone(),
                order: self.holdings.orders[i].clone(),
            };
            let len = shape.iter().product();
            let storage = match &value.kind {
                ValueKind::Parameter(_) => {
                    self.held.push(held);
                    self.parameters.push(Parameter { name: value.name.clone(), shape });
                    self.state.parameters.push(Buffer::new(len));
                    self.state.gradients.push(Buffer::new(if self.options.forward_only { 0 } else { len }));
                    order.push(id);
                    Storage::Parameter(self.held.len() - 1)
                }
                ValueKind::Buffer(_) if value.dtype == DType::F32 => {
                    self.buffers.push(held);
                    self.state.buffers.push(Buffer::new(len));
                    Storage::Buffer(self.buffers.len() - 1)
                }
                ValueKind::Constant(tensor) => {
                    self.state.constants.push(as_floats(tensor));
                    Storage::Constant(self.state.constants.len() - 1)
                }
                ValueKind::Buffer(_) | ValueKind::Input | ValueKind::Computed => continue,
            };
            self.holdings.storage[id.index()] = Some(storage);
        }
        self.holdings.constants = self.state.constants.clone();
        order
    }

    /// Numbers the parameters in the order in which backward makes their gradients final.
    fn order_by_finality(&mut self, ids: Vec<ValueId>) -> Result<(), CompileError> {
        let purpose = ProgramKey { batch: 2, ..self.purpose(2, true) };
        let program = Program::compile(self.source(), purpose)?;
        self.gives = program.input_gradients.iter().map(Option::is_some).collect();
        self.takes.clone_from(&program.takes);
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|p| (program.final_after[*p], *p));
        for (new, old) in order.iter().enumerate() {
            self.holdings.storage[ids[*old].index()] = Some(Storage::Parameter(new));
        }
        fn permuted<T>(items: &mut Vec<T>, order: &[usize]) {
            let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
            items.extend(order.iter().filter_map(|i| taken[*i].take()));
        }
        permuted(&mut self.parameters, &order);
        permuted(&mut self.held, &order);
        permuted(&mut self.state.parameters, &order);
        permuted(&mut self.state.gradients, &order);
        Ok(())
    }

    fn source(&self) -> ProgramSource<'_> {
        ProgramSource {
            graph: &self.graph,
            holdings: &self.holdings,
            surroundings: &self.surroundings,
            parameters: self.parameters.len(),
        }
    }

    fn purpose(&self, batch: usize, training: bool) -> ProgramKey {
        let training = training && !self.options.forward_only;
        ProgramKey {
            batch,
            training,
            few_rows: self.options.forward_only && self.options.few_rows,
            input_gradients: self.options.input_gradients,
            recompute: self.options.recompute,
        }
    }

    fn program(&mut self, purpose: ProgramKey) -> Result<Arc<Program>, CompileError> {
        if let Some(program) = self.programs.get(&purpose) {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::compile(self.source(), purpose)?);
        self.programs.insert(purpose, program.clone());
        Ok(program)
    }

    fn check_inputs(&self, batch: usize, inputs: &[&[f32]]) -> Result<(), RunError> {
        let wanted = self.graph.inputs.len();
        if inputs.len() != wanted {
            return Err(RunError::Inputs { wanted, got: inputs.len() });
        }
        for (id, input) in self.graph.inputs.iter().zip(inputs) {
            let wanted = self.graph.shape(*id).dims().iter().map(|d| d.at(batch)).product();
            if input.len() != wanted {
                let input_name = self.graph.value(*id).name.clone();
                return Err(RunError::InputSize { input: input_name, got: input.len(), wanted, batch });
            }
        }
        Ok(())
    }

    /// One value per channel has no variance; PyTorch refuses it too.
    fn check_statistics(&self, program: &Program) -> Result<(), RunError> {
        if self.together.is_some() {
            return Ok(());
        }
        let single = |k: &Kernel| matches!(k, Kernel::Norm(Norm { rows: 0 | 1, momentum: Some(_), .. }));
        match program.tape.instrs.iter().find(|i| single(&i.kernel)) {
            None => Ok(()),
            Some(i) => {
                let node = &self.graph.nodes[i.node];
                Err(RunError::BatchTooSmall { node: node.name.clone(), op: node.op.word() })
            }
        }
    }

    fn prepare(&mut self, slot: Slot, program: &Program, inputs: &[&[f32]]) {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, InFlight::default);
        }
        let workspace = &mut self.slots[slot].workspace;
        workspace.arena.grow(program.plan.size);
        workspace.inputs.resize_with(inputs.len(), Buffer::default);
        for (buffer, input) in workspace.inputs.iter_mut().zip(inputs) {
            buffer.grow(input.len());
            buffer.as_mut()[..input.len()].copy_from_slice(input);
        }
    }

    /// Runs calls of the slot's program and calls `after` for each.
    fn run(
        &mut self,
        slot: Slot,
        calls: std::ops::Range<usize>,
        output_gradients: &[&[f32]],
        after: &mut dyn FnMut(&mut Runner<'_>, usize) -> bool,
    ) -> Result<(), RunError> {
        let flight = &mut self.slots[slot];
        let (Some(program), Some(pass)) = (flight.program.clone(), flight.pass) else {
            return Err(RunError::NoForward { slot });
        };
        let mut runner = Runner {
            threads: &self.threads,
            program: &program,
            state: &mut self.state,
            workspace: &mut flight.workspace,
            output_gradients,
            seed: pass.seed,
            together: self.together.as_mut().map(|Together(sum)| &mut **sum),
        };
        for i in calls {
            let begun = self.options.profile.then(Instant::now);
            let called = runner.call(i);
            if let Some(begun) = begun {
                let instr = &program.tape.instrs[i];
                let key = (instr.node, instr.kernel.word(), i >= program.tape.forward);
                let entry = self.times.entry(key).or_default();
                *entry = (entry.0 + begun.elapsed().as_secs_f64(), entry.1 + 1);
            }
            if let Err(error) = called {
                let node = &self.graph.nodes[program.tape.instrs[i].node];
                let (node, op) = (node.name.clone(), node.op.word());
                return Err(match error {
                    CallError::Index { index, size } => RunError::Index { node, op, index, size },
                    CallError::Together { reason } => RunError::Together { node, op, reason },
                });
            }
            if !after(&mut runner, i) {
                break;
            }
        }
        Ok(())
    }

    fn check_gradients(&self, slot: Slot, gradients: &[&[f32]]) -> Result<Arc<Program>, RunError> {
        if self.options.forward_only {
            return Err(RunError::ForwardOnly);
        }
        let flight = self.slots.get(slot).filter(|f| f.pass.is_some_and(|p| p.training));
        let program = flight.and_then(|f| f.program.clone()).ok_or(RunError::NoForward { slot })?;
        for (output, v) in program.outputs.iter().enumerate() {
            let (got, wanted) = (gradients.get(output).map_or(0, |g| g.len()), program.tape.len(*v));
            if got != wanted && !gradients.get(output).is_some_and(|g| g.is_empty()) {
                return Err(RunError::GradientSize { output, got, wanted });
            }
        }
        Ok(program)
    }

    /// Runs the backward calls when some output gradients are not given.
    fn run_with_zeros(
        &mut self,
        slot: Slot,
        program: &Program,
        given: &[&[f32]],
        after: &mut dyn FnMut(&mut Runner<'_>, usize) -> bool,
    ) -> Result<(), RunError> {
        let mut zeros = std::mem::take(&mut self.zeros);
        zeros.resize(program.outputs.iter().map(|v| program.tape.len(*v)).fold(zeros.len(), usize::max), 0.0);
        let all = given.iter().map(|g| if g.is_empty() { &zeros[..] } else { g });
        let all: Vec<&[f32]> = all.collect();
        let result = self.run(slot, program.tape.forward..program.tape.instrs.len(), &all, after);
        self.zeros = zeros;
        result
    }
}

impl Model for CpuModel {
    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    fn load(&mut self, weights: &Weights) -> Result<(), WeightsError> {
        let mut loaded = Vec::new();
        for held in self.held.iter().chain(&self.buffers) {
            let tensor =
                weights.get(&held.name).ok_or_else(|| WeightsError::Missing { name: held.name.clone() })?;
            let got = tensor.shape().to_vec();
            if !got.iter().map(|d| *d as usize).eq(held.shape.iter().copied()) {
                return Err(WeightsError::Shape { name: held.name.clone(), got, wanted: held.shape.clone() });
            }
            let values =
                tensor.to_f32().map_err(|_source| WeightsError::DType { name: held.name.clone() })?;
            loaded.push(into_order(&values, held));
        }
        let targets = self.state.parameters.iter_mut().chain(&mut self.state.buffers);
        for (target, values) in targets.zip(loaded) {
            target.as_mut()[..values.len()].copy_from_slice(&values);
        }
        // A stage keeps no tensors of other stages.
        let foreign =
            |name: &String| self.surroundings.part() && self.graph.buffers().all(|(_, v)| v.name != *name);
        let known =
            |name: &String| self.held.iter().chain(&self.buffers).any(|h| h.name == *name) || foreign(name);
        self.idle = weights.iter().filter(|(n, _)| !known(n)).map(|(n, t)| (n.clone(), t.clone())).collect();
        Ok(())
    }

    fn weights_of(&self, wanted: &dyn Fn(&str) -> bool) -> Weights {
        let mut weights = self.idle.clone();
        weights.retain(|name, _| wanted(name));
        let values = self.state.parameters.iter().chain(&self.state.buffers);
        let all = self.held.iter().chain(&self.buffers).zip(values);
        for (held, buffer) in all.filter(|(held, _)| wanted(&held.name)) {
            let shape = held.shape.iter().map(|d| *d as u64).collect();
            if let Ok(tensor) = Tensor::from_f32(shape, &from_order(buffer.as_slice(), held)) {
                weights.insert(held.name.clone(), tensor);
            }
        }
        weights
    }

    fn forward(&mut self, slot: Slot, batch: usize, inputs: &[&[f32]], pass: Pass) -> Result<(), RunError> {
        self.check_inputs(batch, inputs)?;
        let program = self.program(self.purpose(batch, pass.training))?;
        self.check_statistics(&program)?;
        self.prepare(slot, &program, inputs);
        let forward = program.tape.forward;
        self.slots[slot].program = Some(program);
        self.slots[slot].pass = Some(pass);
        let run = self.run(slot, 0..forward, &[], &mut |_, _| true);
        if run.is_err() {
            self.slots[slot].pass = None;
        }
        run
    }

    fn output(&self, slot: Slot, index: usize) -> &[f32] {
        let Some(flight) = self.slots.get(slot) else { return &[] };
        let Some(program) = &flight.program else { return &[] };
        let v = program.outputs[index];
        &flight.workspace.arena.as_slice()[program.plan.offsets[v.index()]..][..program.tape.len(v)]
    }

    fn output_shape(&self, slot: Slot, index: usize) -> Vec<usize> {
        let program = self.slots.get(slot).and_then(|f| f.program.as_ref());
        program.map(|p| p.output_shapes[index].clone()).unwrap_or_default()
    }

    fn backward(
        &mut self,
        slot: Slot,
        output_gradients: &[&[f32]],
        ready: &mut dyn FnMut(usize, &mut [f32]),
    ) -> Result<(), RunError> {
        let program = self.check_gradients(slot, output_gradients)?;
        let calls = program.tape.forward..program.tape.instrs.len();
        let mut next = 0;
        let mut announce = |runner: &mut Runner<'_>, i: usize| {
            while next < program.final_after.len() && program.final_after[next] <= i {
                ready(next, runner.state.gradients[next].as_mut());
                next += 1;
            }
            true
        };
        let run = match output_gradients.iter().any(|g| g.is_empty()) {
            true => self.run_with_zeros(slot, &program, output_gradients, &mut announce),
            false => self.run(slot, calls, output_gradients, &mut announce),
        };
        // Backward has overwritten forward's buffers, so it cannot run again.
        self.slots[slot].pass = None;
        run
    }

    fn input_gradient(&self, slot: Slot, index: usize) -> Option<&[f32]> {
        let flight = self.slots.get(slot)?;
        let program = flight.program.as_ref()?;
        let v = (*program.input_gradients.get(index)?)?;
        let from = flight.workspace.arena.as_slice().get(program.plan.offsets[v.index()]..)?;
        from.get(..program.tape.len(v))
    }

    fn takes_gradient(&self, output: usize) -> bool {
        self.takes.get(output).is_some_and(|t| *t)
    }

    fn gives_gradient(&self, input: usize) -> bool {
        self.gives.get(input).is_some_and(|g| *g)
    }

    fn copy_parameters(&self, into: &mut ParameterSet) {
        into.copy(&self.state.parameters);
    }

    fn swap_parameters(&mut self, with: &mut ParameterSet) {
        with.swap(&mut self.state.parameters);
    }

    fn share_statistics(&mut self, with: Option<Box<SumOver>>) {
        self.together = with.map(Together);
    }

    fn update(&mut self, visit: &mut Visit<'_>) {
        let pairs = self.state.parameters.iter_mut().zip(&mut self.state.gradients);
        for (i, (parameter, gradient)) in pairs.enumerate() {
            visit(i, parameter.as_mut(), gradient.as_mut());
        }
    }

    fn to_user(&self, parameter: usize, flat: &[f32]) -> Vec<f32> {
        from_order(flat, &self.held[parameter])
    }

    fn to_engine(&self, parameter: usize, user: &[f32]) -> Vec<f32> {
        into_order(user, &self.held[parameter])
    }

    fn diagnose(
        &mut self,
        batch: usize,
        inputs: &[&[f32]],
        pass: Pass,
        output_gradients: &dyn Fn(&[f32]) -> Vec<Vec<f32>>,
    ) -> Result<Option<DiagnoseReport>, RunError> {
        self.check_inputs(batch, inputs)?;
        let purpose = self.purpose(batch, pass.training);
        // Without fusion, so that every operator can be checked by itself.
        let program = Arc::new(Program::compile_with(self.source(), purpose, false)?);
        self.check_statistics(&program)?;
        // A separate slot, so that batches in flight are kept.
        let slot = self.slots.len();
        self.prepare(slot, &program, inputs);
        self.slots[slot].program = Some(program.clone());
        self.slots[slot].pass = Some(pass);
        // The other replicas do not take part in the diagnosis.
        let together = self.together.take();
        let statistics: Vec<Vec<f32>> = self.state.buffers.iter().map(|b| b.as_slice().to_vec()).collect();
        let mut suspects = Suspects::default();
        let mut look = |runner: &mut Runner<'_>, i: usize| suspects.look(runner, i, batch);
        let mut result = self.run(slot, 0..program.tape.forward, &[], &mut look);
        if result.is_ok() && suspects.sure.is_none() && pass.training {
            let mut gradients = output_gradients(self.output(slot, 0));
            let left_out = program.outputs.iter().skip(gradients.len());
            gradients.extend(left_out.map(|value| vec![0.0; program.tape.len(*value)]));
            let wrong =
                program.outputs.iter().zip(&gradients).enumerate().find_map(|(output, (value, given))| {
                    let (got, wanted) = (given.len(), program.tape.len(*value));
                    (got != wanted).then_some(RunError::GradientSize { output, got, wanted })
                });
            let calls = program.tape.forward..program.tape.instrs.len();
            let mut look = |runner: &mut Runner<'_>, i: usize| suspects.look(runner, i, batch);
            let given: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
            result = match wrong {
                None => self.run(slot, calls, &given, &mut look),
                Some(wrong) => Err(wrong),
            };
        }
        self.slots.truncate(slot);
        self.together = together;
        for (buffer, before) in self.state.buffers.iter_mut().zip(statistics) {
            buffer.as_mut().copy_from_slice(&before);
        }
        result?;
        Ok(suspects.sure.or(suspects.maybe).map(|(i, found, sample)| {
            let node = &self.graph.nodes[program.tape.instrs[i].node];
            let backward = i >= program.tape.forward;
            DiagnoseReport { node: node.name.clone(), op: node.op.word().into(), backward, found, sample }
        }))
    }

    fn take_profile(&mut self) -> Vec<OpTime> {
        let times = std::mem::take(&mut self.times);
        let name = |node: usize| self.graph.nodes.get(node).map(|n| n.name.clone()).unwrap_or_default();
        let time = |((node, kernel, backward), (seconds, calls))| OpTime {
            node: name(node),
            kernel,
            backward,
            seconds,
            calls,
        };
        times.into_iter().map(time).collect()
    }

    fn memory(&self) -> usize {
        let state = self.state.parameters.iter().chain(&self.state.gradients).chain(&self.state.buffers);
        let flights =
            self.slots.iter().flat_map(|f| std::iter::once(&f.workspace.arena).chain(&f.workspace.inputs));
        state.chain(flights).map(|b| b.len() * 4).sum()
    }

    fn slot_bytes(&self, batch: usize) -> Result<usize, CompileError> {
        let purpose = self.purpose(batch, true);
        let elements = match self.programs.get(&purpose) {
            Some(program) => program.plan.size,
            None => Program::compile(self.source(), purpose)?.plan.size,
        };
        let inputs = self.graph.inputs.iter().map(|id| self.graph.shape(*id).at(batch));
        Ok(4 * (elements + inputs.map(|shape| shape.iter().product::<usize>()).sum::<usize>()))
    }
}

/// A call, the non-finite value in its result, and its sample.
type Suspect = (usize, &'static str, Option<usize>);

/// The first calls whose results are not finite.
#[derive(Debug, Default)]
struct Suspects {
    /// NaN, or an infinity that no operator writes on purpose.
    sure: Option<Suspect>,
    /// Minus infinity, which attention masks contain.
    maybe: Option<Suspect>,
}

impl Suspects {
    /// Checks a call's result; returns false when there is no need to go on.
    fn look(&mut self, runner: &Runner<'_>, i: usize, batch: usize) -> bool {
        let instr = &runner.program.tape.instrs[i];
        // Besides their results these keep statistics or the index of the maximum.
        let keeps = matches!(
            instr.kernel,
            Kernel::MaxPool(_) | Kernel::Attention(_) | Kernel::Norm(_) | Kernel::LayerNorm { .. }
        );
        for v in &instr.outs[..if keeps { 1 } else { instr.outs.len() }] {
            let values = runner.read(*v);
            let per_sample = values.len() / batch.max(1);
            let evenly = values.len().is_multiple_of(batch.max(1)) && per_sample > 0;
            let suspect = |at: usize, found| (i, found, evenly.then(|| at / per_sample));
            if let Some(at) = values.iter().position(|x| x.is_nan() || *x == f32::INFINITY) {
                self.sure = Some(suspect(at, if values[at].is_nan() { "NaN" } else { "inf" }));
                return false;
            }
            if self.maybe.is_none() {
                self.maybe =
                    values.iter().position(|x| *x == f32::NEG_INFINITY).map(|at| suspect(at, "-inf"));
            }
        }
        true
    }
}

fn into_order(values: &[f32], held: &HeldTensor) -> Vec<f32> {
    match &held.order {
        None => values.to_vec(),
        Some(order) => permuted(values, &held.shape, order),
    }
}

fn from_order(values: &[f32], held: &HeldTensor) -> Vec<f32> {
    let n = held.shape.iter().product();
    match &held.order {
        None => values[..n].to_vec(),
        Some(order) => {
            let shape: Vec<usize> = order.iter().map(|a| held.shape[*a]).collect();
            permuted(&values[..n], &shape, &crate::lower::inverse(order))
        }
    }
}

/// The elements of a constant as the engine holds them.
fn as_floats(tensor: &Tensor) -> Vec<f32> {
    tensor.to_floats()
}
