//! Restores the names that weights have in the user's `state_dict`.

use super::initial::Signature;
use super::scope::is_made_up;
use crate::{Graph, Op, ValueId, ValueKind};
use phalanx_types::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// What is known about the origin of weights.
#[derive(Debug)]
pub(super) struct Names<'a> {
    pub scopes: &'a BTreeMap<String, String>,
    pub signature: &'a Signature,
    pub notes: &'a mut BTreeSet<String>,
}

impl Names<'_> {
    pub(super) fn restore(&mut self, graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) {
        tie(graph, tensors);
        self.untie(graph, tensors);
        let mut taken: BTreeSet<String> = kept(graph).map(|v| graph.value(v).name.clone()).collect();
        for i in 0..graph.nodes.len() {
            for (v, wanted) in self.wanted(graph, i) {
                let name = &graph.value(v).name;
                if is_made_up(name) && self.signature.allows(&wanted) && taken.insert(wanted.clone()) {
                    taken.remove(name);
                    graph.values[v.index()].name = wanted;
                }
            }
        }
        self.second_names(graph, &mut taken);
        self.leftovers(graph, tensors, &mut taken);
        self.name_nodes(graph);
    }

    /// A weight that two modules use has two names: the first is kept, the other becomes an alias.
    fn second_names(&self, graph: &mut Graph, taken: &mut BTreeSet<String>) {
        let modules: BTreeSet<&str> = self.scopes.values().map(String::as_str).collect();
        for i in 0..graph.nodes.len() {
            let Some(scope) = self.scopes.get(&graph.nodes[i].name) else { continue };
            let scope = &first_call(scope, &modules);
            for (at, what) in parts(&graph.nodes[i].op) {
                let Some(v) = graph.nodes[i].inputs.get(*at).copied() else { break };
                let (value, scoped) = (graph.value(v), format!("{scope}.{what}"));
                if !is_kept(&value.kind) || !self.is_second(&value.name, &scoped, scope, what) {
                    continue;
                }
                if !taken.insert(scoped.clone()) {
                    continue;
                }
                let earlier = self.signature.place(&scoped) < self.signature.place(&value.name);
                let name = if earlier {
                    std::mem::replace(&mut graph.values[v.index()].name, scoped)
                } else {
                    scoped
                };
                graph.aliases.push((name, v));
            }
        }
    }

    /// Whether `scoped` is another name of the weight `own`. Without a signature it is, if a module of its own reads
    /// the weight; a module that reads the weight of its own submodule does so by hand.
    fn is_second(&self, own: &str, scoped: &str, scope: &str, what: &str) -> bool {
        if own == scoped || is_made_up(own) {
            return false;
        }
        if self.signature.present {
            return self.signature.place(own).is_some() && self.signature.place(scoped).is_some();
        }
        let part = |n: &str, of: &str| n.strip_prefix(of).is_some_and(|r| r.starts_with('.'));
        own.strip_suffix(what).is_some_and(|o| o.ends_with('.')) && !part(own, scope)
    }

    /// Names for the weights of a node, from its other weights or its module.
    fn wanted(&self, graph: &Graph, i: usize) -> Vec<(ValueId, String)> {
        let node = &graph.nodes[i];
        let inputs = || parts(&node.op).iter().filter_map(|(i, what)| Some((*node.inputs.get(*i)?, *what)));
        let prefix = inputs().find_map(|(v, what)| {
            let name = &graph.value(v).name;
            let kept = is_kept(&graph.value(v).kind);
            name.strip_suffix(what).filter(|p| kept && p.ends_with(['.', '_'])).map(str::to_owned)
        });
        let module = || self.scopes.get(&node.name).map(|s| format!("{s}."));
        let Some(prefix) = prefix.or_else(module) else { return Vec::new() };
        let named = inputs().filter(|(v, _)| is_kept(&graph.value(*v).kind));
        named.map(|(v, what)| (v, format!("{prefix}{what}"))).collect()
    }

    /// The new exporter stores equal tensors once; norms that were never trained are then one parameter.
    fn untie(&self, graph: &mut Graph, tensors: &mut BTreeMap<ValueId, Tensor>) {
        let mut first: BTreeMap<ValueId, String> = BTreeMap::new();
        let mut made: BTreeMap<String, ValueId> = BTreeMap::new();
        for i in 0..graph.nodes.len() {
            let norm = matches!(
                graph.nodes[i].op,
                Op::LayerNorm { .. } | Op::GroupNorm { .. } | Op::BatchNorm { .. }
            );
            let Some(scope) = self.scopes.get(&graph.nodes[i].name).filter(|_| norm) else { continue };
            for (at, what) in [(1, "weight"), (2, "bias"), (3, "running_mean"), (4, "running_var")] {
                let Some(v) = graph.nodes[i].inputs.get(at).copied() else { break };
                let Some(tensor) = tensors.get(&v).cloned() else { continue };
                let name = format!("{scope}.{what}");
                let owner = first.entry(v).or_insert_with(|| name.clone());
                let same = tensor.data().chunks(tensor.dtype().size()).all(|c| tensor.data().starts_with(c));
                if *owner == name || !same || !self.signature.allows(&name) {
                    continue;
                }
                let id = *made.entry(name.clone()).or_insert_with(|| {
                    let mut value = graph.value(v).clone();
                    value.name = name;
                    let id = graph.add_value(value);
                    tensors.insert(id, tensor);
                    id
                });
                graph.nodes[i].inputs[at] = id;
            }
        }
    }

    /// Names the remaining weights by the remaining names of the signature, if the numbers match. If no names remain,
    /// the weights were made of constants.
    fn leftovers(
        &mut self,
        graph: &mut Graph,
        tensors: &mut BTreeMap<ValueId, Tensor>,
        taken: &mut BTreeSet<String>,
    ) {
        let read: BTreeSet<ValueId> = graph.nodes.iter().flat_map(|n| n.inputs.iter().copied()).collect();
        let unnamed: Vec<ValueId> =
            kept(graph).filter(|v| read.contains(v) && is_made_up(&graph.value(*v).name)).collect();
        let unused: Vec<&String> = self.signature.parameters.iter().filter(|n| !taken.contains(*n)).collect();
        if unnamed.len() == unused.len() && !unnamed.is_empty() {
            for (v, name) in unnamed.iter().zip(unused) {
                taken.insert(name.clone());
                graph.values[v.index()].name = name.clone();
            }
            return;
        }
        for v in unnamed {
            if unused.is_empty()
                && self.signature.present
                && let Some(tensor) = tensors.remove(&v)
            {
                graph.values[v.index()].kind = ValueKind::Constant(tensor);
                continue;
            }
            let name = &graph.value(v).name;
            self.notes.insert(format!("`{name}` is trained, but its name in the module is not known"));
        }
    }

    /// Names a layer by its module, as the zoo does.
    fn name_nodes(&self, graph: &mut Graph) {
        let mut taken: BTreeSet<String> = graph.nodes.iter().map(|n| n.name.clone()).collect();
        for i in 0..graph.nodes.len() {
            let node = &graph.nodes[i];
            let at = usize::from(!matches!(node.op, Op::Gather { .. }));
            let Some(weight) = node.inputs.get(at).map(|v| graph.value(*v)) else { continue };
            let layer = matches!(weight.kind, ValueKind::Parameter(_))
                .then(|| weight.name.strip_suffix(".weight"))
                .flatten()
                .or_else(|| match node.op {
                    Op::Dropout { .. } => self.scopes.get(&node.name).map(String::as_str),
                    _ => None,
                });
            let Some(layer) = layer.map(str::to_owned) else { continue };
            if taken.insert(layer.clone()) {
                for out in graph.nodes[i].outputs.clone() {
                    graph.values[out.index()].name.clone_from(&layer);
                }
                graph.nodes[i].name = layer;
            }
        }
    }
}

/// A copy that an exporter made of a named weight (the transposed table of a tied head) becomes that weight.
fn tie(graph: &mut Graph, tensors: &BTreeMap<ValueId, Tensor>) {
    let key = |t: &Tensor| (t.shape().to_vec(), t.data().len(), t.data().get(..64).map(<[u8]>::to_vec));
    let mut named: BTreeMap<_, ValueId> = BTreeMap::new();
    for (v, tensor) in tensors.iter().filter(|(_, t)| t.shape().len() >= 2) {
        if !is_made_up(&graph.value(*v).name) && matches!(graph.value(*v).kind, ValueKind::Parameter(_)) {
            named.entry(key(tensor)).or_insert(*v);
        }
    }
    for input in graph.nodes.iter_mut().flat_map(|n| &mut n.inputs) {
        let Some(tensor) = tensors.get(input).filter(|_| is_made_up(&graph.values[input.index()].name))
        else {
            continue;
        };
        let varies = tensor.data().chunks(tensor.dtype().size()).any(|c| !tensor.data().starts_with(c));
        if let Some(original) = named.get(&key(tensor)).filter(|v| varies && tensors[*v] == *tensor) {
            *input = *original;
        }
    }
}

/// The module of a scope: the old exporter names a repeated call `fc_1`, which is `fc` if there is one.
fn first_call(scope: &str, modules: &BTreeSet<&str>) -> String {
    let first = |part: &str| match part.rsplit_once('_') {
        Some((name, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => name.to_owned(),
        _ => part.to_owned(),
    };
    let parts: Vec<&str> = scope.split('.').collect();
    let one = |i: usize| {
        let part = |(j, p): (usize, &&str)| if i == j { first(p) } else { (*p).to_owned() };
        parts.iter().enumerate().map(part).collect::<Vec<_>>().join(".")
    };
    let all = parts.iter().map(|p| first(p)).collect::<Vec<_>>().join(".");
    let mut candidates = std::iter::once(all).chain((0..parts.len()).map(one));
    candidates.find(|c| c != scope && modules.contains(c.as_str())).unwrap_or_else(|| scope.to_owned())
}

/// Which inputs of an operator are weights, and their names in modules.
fn parts(op: &Op) -> &'static [(usize, &'static str)] {
    match op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::Linear | Op::LayerNorm { .. } | Op::GroupNorm { .. } => {
            &[(1, "weight"), (2, "bias")]
        }
        Op::BatchNorm { .. } => &[(1, "weight"), (2, "bias"), (3, "running_mean"), (4, "running_var")],
        Op::Gather { .. } => &[(0, "weight")],
        _ => &[],
    }
}

fn is_kept(kind: &ValueKind) -> bool {
    matches!(kind, ValueKind::Parameter(_) | ValueKind::Buffer(_))
}

fn kept(graph: &Graph) -> impl Iterator<Item = ValueId> {
    graph.values.iter().enumerate().filter(|(_, v)| is_kept(&v.kind)).map(|(i, _)| ValueId(i as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_is_called_again_is_the_same() {
        let modules = BTreeSet::from(["fc", "fc_1", "block.fc", "block_1.fc", "layer_1.up", "conv_2"]);
        for (scope, module) in [
            ("fc_1", "fc"),
            ("block_1.fc", "block.fc"),
            ("block_2.fc_3", "block.fc"),
            ("layer_1.up_1", "layer_1.up"),
            ("conv_2", "conv_2"),
            ("head", "head"),
        ] {
            assert_eq!(first_call(scope, &modules), module);
        }
    }
}
