//! The attributes of a node.

use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto};

/// The attributes of one node; those of a function's body refer to what the function was called with.
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
