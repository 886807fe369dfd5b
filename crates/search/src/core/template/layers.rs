//! The layers of a template: blocks, repeats, conditions, and the list of layers that a candidate has.
//!
//! Every copy that a repeat can have is written out once, each layer with the condition under which it is there.

use super::compile::{Candidate, Compiler, Templated};
use super::condition::Condition;
use super::error::{Checked, TemplateFault};
use super::expression::Written;
use super::tree::{Entry, Node, Value, get, only};
use phalanx_types::nearest;
use std::collections::{BTreeMap, BTreeSet};

const MOST_COPIES: i64 = 1_000;
/// Copies of all blocks together, counted for every copy of the blocks around them.
const MOST_COPIES_IN_ALL: usize = 10_000;
const MOST_LAYERS: usize = 10_000;
const BLOCK_KEYS: [&str; 5] = ["name", "when", "repeat", "each", "layer"];
/// The output of the layer before the block.
const BEFORE: &str = "before";
/// What layer files call the model's input.
const INPUT: &str = "x";

/// All layers that a candidate can have, in order.
#[derive(Debug, Default)]
pub(super) struct LayerTemplate {
    layers: Vec<LayerPattern>,
}

#[derive(Debug)]
struct LayerPattern {
    line: usize,
    condition: Condition,
    name: Option<String>,
    /// All keys but the name and those that refer to other layers.
    keys: Vec<(String, Templated)>,
    references: Vec<(String, Reference)>,
}

/// The layer that a key like `from` means.
#[derive(Debug, Clone)]
enum Reference {
    Input,
    Named(String),
    /// The last one before this index that the candidate has.
    Before(usize),
}

/// A layer of a candidate.
#[derive(Debug)]
pub(super) struct ExpandedLayer {
    pub(super) name: Option<String>,
    pub(super) keys: Vec<Entry>,
    /// Keys that refer to other layers, by index; `None` is the model's input.
    pub(super) references: Vec<(String, Option<usize>)>,
}

/// Reads blocks and layers.
struct Unroller<'c> {
    compiler: &'c mut Compiler,
    layers: Vec<LayerPattern>,
    /// Names of layers as they are written, innermost copy last, and what they are called outside.
    scopes: Vec<BTreeMap<String, String>>,
    /// All names of layers so far.
    names: BTreeSet<String>,
    copies: usize,
}

/// Where a list of layers stands.
struct Place<'a> {
    condition: &'a Condition,
    /// Of the copy: `cells.0.`
    prefix: &'a str,
    /// The index of the first layer of the block.
    start: usize,
}

impl LayerTemplate {
    pub(super) fn read(node: &Node, compiler: &mut Compiler) -> Checked<Self> {
        let mut unroller = Unroller {
            compiler,
            layers: Vec::new(),
            scopes: vec![BTreeMap::new()],
            names: BTreeSet::new(),
            copies: 0,
        };
        let place = Place { condition: &Condition::default(), prefix: "", start: 0 };
        unroller.list(node, &place)?;
        Ok(Self { layers: unroller.layers })
    }

    /// The layers that a candidate has.
    pub(super) fn expand(&self, candidate: &Candidate<'_>) -> Checked<Vec<ExpandedLayer>> {
        let mut expanded: Vec<ExpandedLayer> = Vec::new();
        let mut patterns: Vec<usize> = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            if !layer.condition.holds(candidate.choices) {
                continue;
            }
            let mut keys = Vec::new();
            for (key, value) in &layer.keys {
                if let Some(node) = candidate.resolve(value, key)? {
                    keys.push(Entry { key: key.clone(), line: node.line, node });
                }
            }
            let find = |(key, reference): &(String, Reference)| {
                let target = match reference {
                    Reference::Input => None,
                    Reference::Before(start) => {
                        patterns.partition_point(|pattern| pattern < start).checked_sub(1)
                    }
                    Reference::Named(name) => {
                        let found = expanded.iter().rposition(|layer| layer.name.as_ref() == Some(name));
                        Some(found.ok_or_else(|| {
                            TemplateFault::AbsentLayer { name: name.clone() }.at(layer.line)
                        })?)
                    }
                };
                Ok((key.clone(), target))
            };
            let references = layer.references.iter().map(find).collect::<Checked<_>>()?;
            patterns.push(index);
            expanded.push(ExpandedLayer { name: layer.name.clone(), keys, references });
        }
        name_referenced(&mut expanded);
        Ok(expanded)
    }
}

/// A layer that another one refers to needs a name.
fn name_referenced(layers: &mut [ExpandedLayer]) {
    let mut names: BTreeSet<String> = layers.iter().filter_map(|layer| layer.name.clone()).collect();
    let targets = layers.iter().flat_map(|layer| &layer.references).filter_map(|(_, target)| *target);
    for target in targets.collect::<BTreeSet<usize>>() {
        let named = layers[target].name.as_ref();
        // Of two layers with the same name, a reader would find the later one.
        if named.is_none_or(|name| {
            layers.iter().rposition(|layer| layer.name.as_ref() == Some(name)) != Some(target)
        }) {
            let fresh = (1..)
                .map(|number| format!("layer_{}_{number}", target + 1))
                .find(|name| !names.contains(name));
            names.extend(fresh.clone());
            layers[target].name = fresh;
        }
    }
}

impl Unroller<'_> {
    fn list(&mut self, node: &Node, place: &Place<'_>) -> Checked<()> {
        for (index, item) in node.items("layer")?.iter().enumerate() {
            let entries = item.entries("layer")?;
            let condition = self.compiler.when(get(entries, "when"), place.condition)?;
            let Some(condition) = condition else {
                let why = "possible: the block around it wants another choice";
                return Err(item.wrong("when", why, "this"));
            };
            let inside = Place { condition: &condition, ..*place };
            if ["layer", "repeat", "each"].iter().any(|key| get(entries, key).is_some()) {
                self.block(item, entries, index, &inside)?;
            } else {
                self.layer(item, entries, &inside)?;
            }
        }
        Ok(())
    }

    fn block(&mut self, node: &Node, entries: &[Entry], index: usize, place: &Place<'_>) -> Checked<()> {
        only(entries, "a block of layers", &BLOCK_KEYS)?;
        let missing = |key, example| {
            TemplateFault::Missing { key, place: "a block of layers".to_owned(), example }.at(node.line)
        };
        let layers = get(entries, "layer")
            .ok_or_else(|| missing("layer", "layer = [{ type = \"linear\", out = 10 }]"))?;
        let name = get(entries, "name").map(plain_name).transpose()?;
        let each = get(entries, "each");
        let Some(repeat) = get(entries, "repeat") else {
            if each.is_some() {
                return Err(missing("repeat", "repeat = 3, or \"$name\""));
            }
            return self.list(layers, &Place { start: self.layers.len(), ..*place });
        };
        if let (Some(each), None) = (each, &name) {
            let (place, example) = ("a block with `each`".to_owned(), "name = \"cells\"");
            return Err(TemplateFault::Missing { key: "name", place, example }.at(each.line));
        }
        let name = name.unwrap_or_else(|| format!("block{}", index + 1));
        let copies = self.copies(repeat, place.condition)?;
        self.copies += copies.len();
        if self.copies > MOST_COPIES_IN_ALL {
            let what = "copies of blocks";
            return Err(TemplateFault::TooMany { most: MOST_COPIES_IN_ALL, what }.at(node.line));
        }
        for (copy, condition) in copies.into_iter().enumerate() {
            let prefix = format!("{}{name}.{copy}.", place.prefix);
            if let Some(each) = each {
                self.compiler.declare(each.entries("each")?, &prefix)?;
            }
            self.scopes.push(BTreeMap::new());
            let start = self.layers.len();
            self.list(layers, &Place { condition: &condition, prefix: &prefix, start })?;
            self.scopes.pop();
            if each.is_some() {
                self.compiler.forget();
            }
        }
        Ok(())
    }

    /// The condition of each copy that there can be.
    fn copies(&mut self, repeat: &Node, place: &Condition) -> Checked<Vec<Condition>> {
        let wrong = |got: String| repeat.wrong("repeat", "a whole number from 0 to 1000, or \"$name\"", got);
        let check = |count: i64| {
            if (0..=MOST_COPIES).contains(&count) {
                Ok(count as usize)
            } else {
                Err(wrong(count.to_string()))
            }
        };
        let text = match &repeat.value {
            Value::Int(count) => return Ok(vec![place.clone(); check(*count)?]),
            Value::Text(text) => text,
            other => return Err(wrong(other.to_toml())),
        };
        let written = self.compiler.text(text, "repeat", repeat.line, place)?;
        let genes: BTreeSet<usize> = written.genes().into_iter().collect();
        let mut genes = genes.into_iter();
        let (Some(gene), None) = (genes.next(), genes.next()) else {
            return Err(wrong(format!("{text:?}: it must have one name")));
        };
        let mut counts = Vec::new();
        for value in &self.compiler.genes[gene].choices {
            let whole = |_| match value {
                Value::Int(count) => Ok(*count),
                other => Err(format!("the choice {} is not a whole number", other.to_toml())),
            };
            let count = match &written {
                Written::Sum(sum) => sum.compute(&whole),
                _ => whole(gene),
            };
            let arithmetic =
                |why| TemplateFault::Arithmetic { field: "repeat".into(), text: text.clone(), why };
            counts.push(check(count.map_err(|why| arithmetic(why).at(repeat.line))?)?);
        }
        let most = counts.iter().copied().max().unwrap_or(0);
        let with_copy =
            |copy: usize| counts.iter().zip(0_u16..).filter(move |(count, _)| **count > copy).map(|(_, c)| c);
        // A copy is impossible if an outer condition excludes all numbers that are large enough.
        Ok((0..most).map_while(|copy| place.and(gene, &with_copy(copy).collect())).collect())
    }

    fn layer(&mut self, node: &Node, entries: &[Entry], place: &Place<'_>) -> Checked<()> {
        if self.layers.len() >= MOST_LAYERS {
            return Err(TemplateFault::TooMany { most: MOST_LAYERS, what: "layers" }.at(node.line));
        }
        if get(entries, "type").is_none() {
            let (place, example) = ("a layer".to_owned(), "type = \"linear\"");
            return Err(TemplateFault::Missing { key: "type", place, example }.at(node.line));
        }
        let (mut keys, mut references, mut name) = (Vec::new(), Vec::new(), None);
        for Entry { key, node, .. } in entries {
            match key.as_str() {
                "when" => {}
                "name" => name = Some(plain_name(node)?),
                "input" | "from" => references.push((key.clone(), self.reference(node, key, place)?)),
                _ => keys.push((key.clone(), self.compiler.value(node, key, place.condition)?)),
            }
        }
        let full_name = name.as_ref().map(|name| format!("{}{name}", place.prefix));
        if let (Some(name), Some(full_name), Some(scope)) = (name, &full_name, self.scopes.last_mut()) {
            scope.insert(name, full_name.clone());
            self.names.insert(full_name.clone());
        }
        let (line, condition) = (node.line, place.condition.clone());
        self.layers.push(LayerPattern { line, condition, name: full_name, keys, references });
        Ok(())
    }

    fn reference(&self, node: &Node, key: &str, place: &Place<'_>) -> Checked<Reference> {
        let name = node.text(key)?;
        if let Some(full_name) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Ok(Reference::Named(full_name.clone()));
        }
        match name {
            BEFORE => Ok(Reference::Before(place.start)),
            INPUT => Ok(Reference::Input),
            _ if self.names.contains(name) => Ok(Reference::Named(name.to_owned())),
            _ => {
                let inner =
                    self.scopes.iter().flat_map(BTreeMap::keys).chain(&self.names).map(String::as_str);
                let nearest = nearest(name, inner.chain([BEFORE])).map(str::to_owned);
                Err(TemplateFault::UnknownLayer { name: name.to_owned(), nearest }.at(node.line))
            }
        }
    }
}

fn plain_name(node: &Node) -> Checked<String> {
    let name = node.text("name")?;
    if name.contains('$') || [BEFORE, INPUT].contains(&name) {
        return Err(node.wrong("name", "a name of its own: not `before`, not `x`, without `$`", name));
    }
    Ok(name.to_owned())
}
