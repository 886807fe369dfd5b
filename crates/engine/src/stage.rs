//! Makes a stage of a model compute the same bits as the whole model.
//!
//! A sum over several axes runs in memory order, and all views of one buffer share one sum of gradients. Both depend on
//! the operators before the cut. So these are lowered too (but not run), to find the layout of the values that enter
//! the stage.

use crate::error::CompileError;
use crate::lower::{Holdings, Lowered, lower};
use crate::program::ProgramKey;
use crate::tape::Storage;
use crate::view::View;
use phalanx_graph::{Graph, Op, ValueId, ValueKind};
use phalanx_types::DType;

/// The layout of an input of a program.
#[derive(Debug, Clone)]
pub(crate) struct StageInput {
    /// Its view where it was produced, if that covered its whole buffer; otherwise the layout that the graph declares.
    pub(crate) like: Option<View>,
    /// An earlier input that is a view of the same buffer.
    pub(crate) twin: Option<usize>,
    /// Whether its gradient is needed.
    pub(crate) varies: bool,
}

/// The position of a stage in its model.
#[derive(Debug)]
pub(crate) struct Surroundings {
    before: Option<Before>,
    /// Whether outputs go to another stage.
    pub(crate) goes_on: bool,
}

/// The part of the model before a stage.
#[derive(Debug)]
struct Before {
    graph: Graph,
    holdings: Holdings,
}

impl Surroundings {
    /// For a whole model.
    pub(crate) fn none() -> Self {
        Self { before: None, goes_on: false }
    }

    pub(crate) fn new(before: Option<Graph>, goes_on: bool) -> Self {
        let before = before.map(|graph| Before { holdings: shapes_only(&graph), graph });
        Self { before, goes_on }
    }

    /// Whether the stage is only a part of the model.
    pub(crate) fn part(&self) -> bool {
        self.before.is_some() || self.goes_on
    }

    /// The layouts of the inputs of this stage.
    pub(crate) fn entries(
        &self,
        graph: &Graph,
        purpose: ProgramKey,
    ) -> Result<Vec<StageInput>, CompileError> {
        let Some(Before { graph: before, holdings }) = &self.before else {
            return Ok(plain(graph, purpose));
        };
        let lowered = lower(before, holdings, purpose, &plain(before, purpose))?;
        let covers = |v: &View| v.covers(lowered.tape.len(v.base));
        let twins = twins(&lowered);
        let floats = graph.inputs.iter().map(|id| graph.value(*id).dtype == DType::F32);
        let entries = floats.enumerate().map(|(i, float)| {
            let view = lowered.output_views.get(i);
            StageInput {
                like: view.filter(|v| covers(v)).cloned(),
                twin: twins.get(i).copied().flatten(),
                varies: float && lowered.output_learned.get(i).is_some_and(|l| *l),
            }
        });
        Ok(entries.collect())
    }

    /// By output: whether its gradient is used. Of outputs that are views of one buffer only the first is.
    pub(crate) fn takes(&self, graph: &Graph, lowered: &Lowered) -> Vec<bool> {
        if !self.goes_on {
            return vec![true; graph.outputs.len()];
        }
        let float = |id: &ValueId| graph.value(*id).dtype == DType::F32;
        let alone = twins(lowered).into_iter().map(|t| t.is_none());
        let learned = graph.outputs.iter().zip(&lowered.output_learned);
        learned.zip(alone).map(|((id, learned), alone)| float(id) && *learned && alone).collect()
    }
}

/// The inputs of a whole model.
fn plain(graph: &Graph, purpose: ProgramKey) -> Vec<StageInput> {
    let varies = |id: &ValueId| purpose.input_gradients && graph.value(*id).dtype == DType::F32;
    graph.inputs.iter().map(|id| StageInput { like: None, twin: None, varies: varies(id) }).collect()
}

/// By output: the first one that is a view of the same whole buffer.
fn twins(lowered: &Lowered) -> Vec<Option<usize>> {
    let views = &lowered.output_views;
    let covers = |v: &View| v.covers(lowered.tape.len(v.base));
    let first = |i: usize| {
        let same = |j: &usize| views[*j].base == views[i].base && covers(&views[*j]);
        (0..i).find(same).filter(|_| covers(&views[i]))
    };
    (0..views.len()).map(first).collect()
}

/// Holdings for a graph that is lowered but never run.
fn shapes_only(graph: &Graph) -> Holdings {
    let mut holdings = Holdings::default();
    for (i, value) in graph.values.iter().enumerate() {
        holdings.orders.push(held_order(graph, ValueId(i as u32)));
        holdings.storage.push(match &value.kind {
            ValueKind::Parameter(_) => Some(Storage::Parameter(i)),
            ValueKind::Buffer(_) => Some(Storage::Buffer(i)),
            ValueKind::Constant(tensor) => {
                let single = tensor.shape().iter().product::<u64>() == 1;
                holdings.constants.push(if single { tensor.to_floats() } else { Vec::new() });
                Some(Storage::Constant(holdings.constants.len() - 1))
            }
            ValueKind::Input | ValueKind::Computed => None,
        });
    }
    holdings
}

/// Weights of convolutions are held with channels last.
pub(crate) fn held_order(graph: &Graph, id: ValueId) -> Option<Vec<usize>> {
    matches!(graph.value(id).kind, ValueKind::Parameter(_)).then_some(())?;
    let weight = |op: &Op| matches!(op, Op::Conv(_) | Op::ConvTranspose(_));
    let used = graph.nodes.iter().any(|n| weight(&n.op) && n.inputs.get(1) == Some(&id));
    let rank = graph.shape(id).rank();
    used.then(|| std::iter::once(0).chain(2..rank).chain(std::iter::once(1)).collect())
}
