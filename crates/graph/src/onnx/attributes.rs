//! The attributes of a node.

use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// The attributes of one node; attributes in a function's body may refer to attributes of the call.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes(Vec<AttributeProto>);

impl Attributes {
    /// Resolves references by the attributes of the call, or the function's defaults.
    pub(super) fn of(node: &NodeProto, call: Option<&Attributes>, defaults: &[AttributeProto]) -> Self {
        let resolve = |a: &AttributeProto| {
            let Some(wanted) = a.ref_attr_name.as_deref().filter(|n| !n.is_empty()) else {
                return Some(a.clone());
            };
            let given = call.and_then(|c| c.get(wanted));
            let found = given.or_else(|| defaults.iter().find(|d| d.name.as_deref() == Some(wanted)))?;
            Some(AttributeProto { name: a.name.clone(), ..found.clone() })
        };
        Self(node.attribute.iter().filter_map(resolve).collect())
    }

    /// Their size in numbers and bytes of text; raw bytes are shared and do not count.
    pub(super) fn size(&self) -> usize {
        size_of_all(&self.0)
    }

    fn get(&self, name: &str) -> Option<&AttributeProto> {
        self.0.iter().find(|a| a.name.as_deref() == Some(name))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.get(name).map(|a| a.i.unwrap_or(0))
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.int(name).unwrap_or(0) != 0
    }

    pub(super) fn float(&self, name: &str) -> Option<f32> {
        self.get(name).map(|a| a.f.unwrap_or(0.0))
    }

    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.get(name).map(|a| a.ints.as_slice())
    }

    pub(super) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.get(name).map(|a| a.floats.as_slice())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?.s.as_ref()?).ok()
    }

    pub(super) fn tensor(&self, name: &str) -> Option<&TensorProto> {
        self.get(name)?.t.as_deref()
    }

    pub(super) fn graph(&self, name: &str) -> Option<&GraphProto> {
        self.get(name)?.g.as_deref()
    }
}

fn size_of_all(all: &[AttributeProto]) -> usize {
    let name = |a: &AttributeProto| a.name.as_ref().map_or(0, String::len);
    let tensor = |a: &AttributeProto| a.t.as_deref().map_or(0, size_of_tensor);
    let graph = |a: &AttributeProto| a.g.as_deref().map_or(0, size_of_graph);
    all.iter().map(|a| a.ints.len() + a.floats.len() + name(a) + tensor(a) + graph(a)).sum()
}

fn size_of_tensor(t: &TensorProto) -> usize {
    let floats = t.float_data.len() + t.double_data.len();
    floats + t.int32_data.len() + t.int64_data.len() + t.uint64_data.len() + t.dims.len()
}

fn size_of_graph(graph: &GraphProto) -> usize {
    let node = |n: &NodeProto| 8 + n.input.len() + n.output.len() + size_of_all(&n.attribute);
    let nodes: usize = graph.node.iter().map(node).sum();
    nodes + graph.initializer.iter().map(size_of_tensor).sum::<usize>()
}
