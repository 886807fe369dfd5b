//! Rewrites patterns of several nodes to one operator.
//!
//! A rule matches the last node of its pattern and returns its replacement. The result of that node keeps its id, and
//! nodes that are no longer read are removed. A pass finds all matches first and changes the graph once.

mod activation;
mod attention;
mod linear;
mod norm;
mod tidy;

use super::lit::Lit;
use crate::infer::infer;
use crate::{Binary, Graph, Node, Op, Unary, Value, ValueId, ValueKind};
use phalanx_types::Tensor;
use std::collections::BTreeMap;

/// An input of a new node: an existing value, or the result of an earlier step.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    Value(ValueId),
    Step(usize),
}

#[derive(Debug)]
pub(super) struct Step {
    pub op: Op,
    pub inputs: Vec<From>,
}

impl Step {
    fn new(op: Op, inputs: Vec<From>) -> Self {
        Self { op, inputs }
    }
}

/// The replacement of a node.
#[derive(Debug)]
pub(super) enum Change {
    Steps {
        /// The node whose name (and module) the last step gets; by default the replaced node.
        named: Option<String>,
        steps: Vec<Step>,
    },
    /// All readers use this value instead.
    Alias(ValueId),
}

/// A graph with the makers and readers of its values.
#[derive(Debug)]
pub(super) struct View<'g> {
    pub graph: &'g Graph,
    makers: Vec<Option<usize>>,
    readers: Vec<u32>,
}

impl<'g> View<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        let mut makers = vec![None; graph.values.len()];
        let mut readers = vec![0; graph.values.len()];
        for (i, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|o| makers[o.index()] = Some(i));
            node.inputs.iter().for_each(|v| readers[v.index()] += 1);
        }
        graph.outputs.iter().for_each(|o| readers[o.index()] += 1);
        Self { graph, makers, readers }
    }

    pub(super) fn maker(&self, v: ValueId) -> Option<&'g Node> {
        self.makers[v.index()].map(|i| &self.graph.nodes[i])
    }

    /// How many times a value is read.
    fn readers(&self, v: ValueId) -> u32 {
        self.readers[v.index()]
    }

    /// The inputs of the binary operation that makes a value.
    fn binary(&self, v: ValueId, op: Binary) -> Option<(ValueId, ValueId)> {
        let node = self.maker(v).filter(|n| n.op == Op::Binary(op))?;
        Some((node.inputs[0], node.inputs[1]))
    }

    /// The input of the unary operation that makes a value.
    fn unary(&self, v: ValueId, op: Unary) -> Option<ValueId> {
        self.maker(v).filter(|n| n.op == Op::Unary(op)).map(|n| n.inputs[0])
    }

    /// A constant of one element.
    fn number(&self, v: ValueId) -> Option<f64> {
        match &self.graph.value(v).kind {
            ValueKind::Constant(t) if t.shape().iter().all(|d| *d == 1) => Lit::from_tensor(t)?.single(),
            _ => None,
        }
    }

    /// A constant, whatever its size.
    fn constant(&self, v: ValueId) -> Option<Lit> {
        match &self.graph.value(v).kind {
            ValueKind::Constant(t) => Lit::from_tensor(t),
            _ => None,
        }
    }

    /// `x × c`, `c × x` or `x / c`: x and the factor.
    fn scaled(&self, v: ValueId) -> Option<(ValueId, f64)> {
        if let Some((a, b)) = self.binary(v, Binary::Mul) {
            return match (self.number(a), self.number(b)) {
                (None, Some(c)) => Some((a, c)),
                (Some(c), None) => Some((b, c)),
                _ => None,
            };
        }
        let (a, b) = self.binary(v, Binary::Div)?;
        self.number(b).map(|c| (a, 1.0 / c))
    }

    /// `x + c` or `c + x`: x and the summand.
    fn shifted(&self, v: ValueId) -> Option<(ValueId, f64)> {
        let (a, b) = self.binary(v, Binary::Add)?;
        match (self.number(a), self.number(b)) {
            (None, Some(c)) => Some((a, c)),
            (Some(c), None) => Some((b, c)),
            _ => None,
        }
    }

    fn rank(&self, v: ValueId) -> usize {
        self.graph.shape(v).rank()
    }

    fn is_parameter(&self, v: ValueId) -> bool {
        matches!(self.graph.value(v).kind, ValueKind::Parameter(_))
    }
}

type Rule = fn(&View<'_>, &Node) -> Option<Change>;

/// Runs all rules; twice, since one may enable another.
pub(super) fn rewrite(graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) {
    let rules: [Rule; 11] = [
        tidy::nested,
        tidy::sandwich,
        tidy::neutral,
        linear::product,
        linear::bias,
        activation::gelu,
        activation::gated,
        norm::layer,
        norm::affine,
        norm::group,
        attention::attention,
    ];
    for _ in 0..2 {
        for rule in rules {
            pass(graph, rule);
            sweep(graph);
        }
    }
    tidy::settle(graph, tensors);
    sweep(graph);
}

fn pass(graph: &mut Graph, rule: Rule) {
    let view = View::new(graph);
    let mut changes: BTreeMap<usize, Change> = BTreeMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        if node.outputs.len() == 1
            && let Some(change) = rule(&view, node)
        {
            changes.insert(i, change);
        }
    }
    if changes.is_empty() {
        return;
    }
    let mut aliases: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let nodes = std::mem::take(&mut graph.nodes);
    for (i, mut node) in nodes.into_iter().enumerate() {
        let renamed = |v: &ValueId| *aliases.get(v).unwrap_or(v);
        node.inputs.iter_mut().for_each(|v| *v = renamed(v));
        match changes.remove(&i) {
            Some(Change::Alias(v)) => {
                let v = renamed(&v);
                aliases.insert(node.outputs[0], v);
            }
            Some(Change::Steps { named, mut steps }) => {
                for input in steps.iter_mut().flat_map(|s| &mut s.inputs) {
                    if let From::Value(v) = input {
                        *v = renamed(v);
                    }
                }
                if let Some(node) = place(graph, node, named, steps) {
                    graph.nodes.push(node);
                }
            }
            None => graph.nodes.push(node),
        }
    }
    for output in &mut graph.outputs {
        *output = *aliases.get(output).unwrap_or(output);
    }
}

/// Adds the steps; returns the node unchanged if they do not fit.
fn place(graph: &mut Graph, node: Node, named: Option<String>, steps: Vec<Step>) -> Option<Node> {
    let last = steps.len().saturating_sub(1);
    let (first_value, first_node) = (graph.values.len(), graph.nodes.len());
    let mut made: Vec<ValueId> = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        let inputs: Vec<ValueId> = step
            .inputs
            .iter()
            .map(|f| match f {
                From::Value(v) => *v,
                From::Step(s) => made[*s],
            })
            .collect();
        let args: Vec<&Value> = inputs.iter().map(|v| graph.value(*v)).collect();
        let name = if i == last {
            named.clone().unwrap_or_else(|| node.name.clone())
        } else {
            format!("{}.{i}", node.name)
        };
        let fits = infer(&name, &step.op, &args).ok().filter(|m| m.len() == 1).map(|mut m| m.swap_remove(0));
        let out = node.outputs[0];
        let wanted = (graph.value(out).dtype, graph.shape(out).clone());
        let Some((dtype, shape)) = fits.filter(|m| i != last || *m == wanted) else {
            graph.values.truncate(first_value);
            graph.nodes.truncate(first_node);
            return Some(node);
        };
        let id = if i == last {
            out
        } else {
            graph.add_value(Value { name: name.clone(), dtype, shape, kind: ValueKind::Computed })
        };
        made.push(id);
        graph.nodes.push(Node { name, op: step.op, inputs, outputs: vec![id] });
    }
    None
}

/// Drops nodes whose results are not read.
pub(super) fn sweep(graph: &mut Graph) {
    let mut live = vec![false; graph.values.len()];
    graph.outputs.iter().for_each(|o| live[o.index()] = true);
    let mut keep = vec![false; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        keep[i] = node.outputs.iter().any(|o| live[o.index()]);
        if keep[i] {
            node.inputs.iter().for_each(|v| live[v.index()] = true);
        }
    }
    let mut keep = keep.into_iter();
    graph.nodes.retain(|_| keep.next().unwrap_or(true));
}
