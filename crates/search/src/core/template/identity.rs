//! When two candidates are the same network, and when two trainings give the same result.
//!
//! A layer is normalised: no names, references as distances, an activation as a layer of its own, and no key that says
//! what holds anyway. The hash covers the layers as they follow one another.

use super::layers::ExpandedLayer;
use super::tree::{Entry, Node, Value};
use ring::digest::{SHA256, digest};
use std::fmt::Write;

/// Values that hold anyway, by the type of the layer; empty: any type.
const DEFAULTS: [(&str, &str, Value); 13] = [
    ("conv", "stride", Value::Int(1)),
    ("conv", "padding", Value::Int(0)),
    ("conv", "dilation", Value::Int(1)),
    ("conv", "groups", Value::Int(1)),
    ("conv", "bias", Value::Bool(true)),
    ("linear", "bias", Value::Bool(true)),
    ("max_pool", "padding", Value::Int(0)),
    ("avg_pool", "padding", Value::Int(0)),
    ("attention", "causal", Value::Bool(false)),
    ("", "bidirectional", Value::Bool(false)),
    ("", "last", Value::Bool(false)),
    ("lstm", "layers", Value::Int(1)),
    ("gru", "layers", Value::Int(1)),
];

/// The SHA-256 of parts, in hexadecimal.
pub(super) fn hash(parts: &[String]) -> String {
    let mut text = String::new();
    for part in parts {
        // With its length, so that no two lists of parts are one text.
        text.push_str(&part.len().to_string());
        text.push(':');
        text.push_str(part);
    }
    digest(&SHA256, text.as_bytes()).as_ref().iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _infallible = write!(hex, "{byte:02x}");
        hex
    })
}

/// `input`: the keys of the model that say what a sample is.
pub(super) fn of_layers(input: &[Entry], layers: &[ExpandedLayer]) -> String {
    let mut parts = vec![sorted(input.iter().map(Entry::to_toml))];
    // The part whose output is a layer's. The first is the model's input.
    let mut outputs: Vec<usize> = Vec::with_capacity(layers.len());
    for layer in layers {
        let own = parts.len();
        let before = own - 1;
        let mut words = Vec::new();
        for (key, target) in &layer.references {
            let target = target.map_or(0, |target| outputs[target]);
            if key != "input" || target != before {
                words.push(format!("{key} = {}", own - target));
            }
        }
        let kind = layer.text("type").unwrap_or_default();
        let mut activation = None;
        for Entry { key, node, .. } in &layer.keys {
            let value = layer.normal(kind, key, &node.value);
            let holds_anyway = |(of, default_key, default): &(&str, &str, Value)| {
                kind.starts_with(of) && key == default_key && value == *default
            };
            if key == "activation" {
                activation = Some(node.value.label());
            } else if !DEFAULTS.iter().any(holds_anyway) {
                let node = Node { line: 0, value };
                words.push(Entry { key: key.clone(), line: 0, node }.to_toml());
            }
        }
        parts.push(sorted(words.into_iter()));
        if let Some(activation) = activation {
            parts.push(format!("type = {}", Value::Text(activation).to_toml()));
        }
        outputs.push(parts.len() - 1);
    }
    hash(&parts)
}

fn sorted(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    words.sort();
    words.join("\n")
}

impl ExpandedLayer {
    fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|entry| entry.key == key).map(|entry| &entry.node.value)
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn normal(&self, kind: &str, key: &str, value: &Value) -> Value {
        let is_conv = kind.starts_with("conv");
        match value {
            Value::Text(same) if is_conv && key == "padding" && same == "same" => self.same_padding(),
            Value::List(items) if is_conv => equal_numbers(items).unwrap_or_else(|| value.clone()),
            Value::Int(number) if ["eps", "momentum", "ratio", "dropout"].contains(&key) => {
                Value::Float(*number as f64)
            }
            _ => value.clone(),
        }
    }

    /// The number that `same` means, if it is the same on all sides.
    fn same_padding(&self) -> Value {
        let number = |key: &str, default: Option<i64>| match self.get(key) {
            None => default,
            Some(Value::Int(number)) => Some(*number),
            Some(Value::List(items)) => match equal_numbers(items) {
                Some(Value::Int(number)) => Some(number),
                _ => None,
            },
            Some(_) => None,
        };
        let total = match (number("kernel", None), number("dilation", Some(1))) {
            (Some(kernel), Some(dilation)) => {
                kernel.checked_sub(1).and_then(|more| more.checked_mul(dilation))
            }
            _ => None,
        };
        match total {
            Some(total) if total % 2 == 0 => Value::Int(total / 2),
            _ => Value::Text("same".to_owned()),
        }
    }
}

/// `[3, 3]` is 3.
fn equal_numbers(items: &[Node]) -> Option<Value> {
    let (first, others) = items.split_first()?;
    let equal = matches!(first.value, Value::Int(_)) && others.iter().all(|other| other.value == first.value);
    equal.then(|| first.value.clone())
}
