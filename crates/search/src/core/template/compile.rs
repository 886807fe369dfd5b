//! A template with its names resolved, and what it is for one candidate.
//!
//! ```text
//! tree (texts with names) ─► Templated (genes, conditions) ─► + a candidate's choices ─► tree without names
//! ```

use super::choices;
use super::condition::{Choices, Condition, Declared, missing_need};
use super::error::{Checked, TemplateFault};
use super::expression::{Part, Unreadable, Written, is_name, read};
use super::tree::{Entry, Node, Value, get, only};
use phalanx_types::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// The names that can be used at the place of the file that is being read, and all genes so far.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    pub(super) genes: Vec<Declared>,
    /// Names of choices, innermost last.
    scopes: Vec<BTreeMap<String, usize>>,
}

/// A value of a template.
#[derive(Debug)]
pub(super) struct Templated {
    line: usize,
    /// When it is there; `None` if never.
    condition: Option<Condition>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Plain(Value),
    Text {
        text: String,
        written: Written,
    },
    List(Vec<Templated>),
    /// The one of which the condition is met.
    OneOf(Vec<Templated>),
    Table(Vec<(String, Templated)>),
}

/// More genes than a search can make sense of.
const MOST_GENES: usize = 5_000;

impl Compiler {
    /// Declares the genes of a table: `[space]`, or `each` of a block. `prefix` is put before their names.
    pub(super) fn declare(&mut self, entries: &[Entry], prefix: &str) -> Checked<()> {
        let names: Vec<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
        self.scopes.push(BTreeMap::new());
        for (index, entry) in entries.iter().enumerate() {
            if !is_name(&entry.key) {
                let wanted = "a name of letters, digits and `_`";
                return Err(TemplateFault::value(&entry.key, wanted, "this").at(entry.line));
            }
            if self.genes.len() >= MOST_GENES {
                return Err(
                    TemplateFault::TooMany { most: MOST_GENES, what: "choices to make" }.at(entry.line)
                );
            }
            let (choices, when) = choices::read(entry)?;
            let condition = match when {
                None => Some(Condition::default()),
                Some(when) => {
                    self.refuse_later(when, &names[index..], &entry.key)?;
                    self.condition(when)?
                }
            };
            let Some(condition) = condition else {
                return Err(entry.node.wrong(
                    &format!("{}.when", entry.key),
                    "possible",
                    "two different choices",
                ));
            };
            let gene = self.genes.len();
            self.genes.push(Declared::new(format!("{prefix}{}", entry.key), entry.line, choices, condition));
            if let Some(scope) = self.scopes.last_mut() {
                scope.insert(entry.key.clone(), gene);
            }
        }
        Ok(())
    }

    /// Forgets the names that were declared last.
    pub(super) fn forget(&mut self) {
        self.scopes.pop();
    }

    fn refuse_later(&self, when: &Node, later: &[&str], name: &str) -> Checked<()> {
        let is_later = |entry: &&Entry| {
            later.contains(&entry.key.as_str())
                && self.scopes.iter().all(|scope| !scope.contains_key(&entry.key))
        };
        match when.entries("when")?.iter().find(is_later) {
            None => Ok(()),
            Some(entry) => {
                Err(TemplateFault::LaterName { name: name.to_owned(), on: entry.key.clone() }.at(entry.line))
            }
        }
    }

    fn find(&self, name: &str, line: usize) -> Checked<usize> {
        if let Some(gene) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Ok(*gene);
        }
        let known = self.scopes.iter().flat_map(BTreeMap::keys).map(String::as_str);
        let nearest = nearest(name, known).map(str::to_owned);
        Err(TemplateFault::UnknownName { name: name.to_owned(), nearest }.at(line))
    }

    /// Reads a `when`; `None` if it can never be met.
    fn condition(&self, when: &Node) -> Checked<Option<Condition>> {
        let mut condition = Some(Condition::default());
        for entry in when.entries("when")? {
            let gene = self.find(&entry.key, entry.line)?;
            let choices = self.wanted(gene, &entry.node)?;
            condition = condition.and_then(|condition| condition.and(gene, &choices));
        }
        Ok(condition)
    }

    /// The choices of a gene that a `when` names.
    fn wanted(&self, gene: usize, node: &Node) -> Checked<BTreeSet<u16>> {
        let declared = &self.genes[gene];
        let all = || declared.choices.iter().zip(0_u16..);
        match &node.value {
            Value::List(items) => {
                let wanted: Vec<BTreeSet<u16>> =
                    items.iter().map(|item| self.wanted(gene, item)).collect::<Checked<_>>()?;
                if wanted.is_empty() {
                    return Err(node.wrong("when", "a choice or several", "an empty list"));
                }
                Ok(wanted.into_iter().flatten().collect())
            }
            Value::Table(limits) => {
                only(limits, "`when`", &["at_least", "at_most"])?;
                let limit = |key: &str| get(limits, key).map(|node| node.number(key)).transpose();
                let (least, most) = (limit("at_least")?, limit("at_most")?);
                let meets = |value: &Value| {
                    value.as_number().is_some_and(|number| {
                        least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most)
                    })
                };
                let wanted: BTreeSet<u16> =
                    all().filter(|(value, _)| meets(value)).map(|(_, choice)| choice).collect();
                if wanted.is_empty() {
                    return Err(self.unknown_choice(declared, &node.value.to_toml()).at(node.line));
                }
                Ok(wanted)
            }
            wanted => {
                let equal = |value: &Value| match (value.as_number(), wanted.as_number()) {
                    (Some(a), Some(b)) => a == b,
                    _ => value == wanted,
                };
                let found = all().find(|(value, _)| equal(value)).map(|(_, choice)| BTreeSet::from([choice]));
                found.ok_or_else(|| self.unknown_choice(declared, &wanted.label()).at(node.line))
            }
        }
    }

    fn unknown_choice(&self, gene: &Declared, choice: &str) -> TemplateFault {
        let labels: Vec<String> = gene.choices.iter().map(Value::label).collect();
        let nearest = nearest(choice, labels.iter().map(String::as_str)).map(str::to_owned);
        TemplateFault::UnknownChoice { name: gene.name.clone(), choice: choice.to_owned(), nearest }
    }

    /// A condition with a `when` in a place that has one already; `None` if it can never be met.
    pub(super) fn when(&mut self, when: Option<&Node>, place: &Condition) -> Checked<Option<Condition>> {
        let Some(when) = when else { return Ok(Some(place.clone())) };
        let condition = self.condition(when)?;
        for entry in when.entries("when")? {
            let gene = self.find(&entry.key, entry.line)?;
            self.genes[gene].use_where(place);
        }
        Ok(condition.and_then(|condition| place.and_all(&condition)))
    }

    /// Reads a text, and notes that its genes are used in this place.
    pub(super) fn text(
        &mut self,
        text: &str,
        field: &str,
        line: usize,
        place: &Condition,
    ) -> Checked<Written> {
        let written =
            read(text, &mut |name| self.find(name, line)).map_err(|unreadable| match unreadable {
                Unreadable::Name(unknown) => unknown,
                Unreadable::Form(why) => {
                    TemplateFault::Expression { field: field.to_owned(), text: text.to_owned(), why }.at(line)
                }
            })?;
        for gene in written.genes() {
            if let Some((on, choices)) = missing_need(&self.genes, gene, place) {
                let labels: Vec<String> = choices
                    .iter()
                    .filter_map(|choice| on.choices.get(usize::from(*choice)))
                    .map(Value::to_toml)
                    .collect();
                let needs = match labels.as_slice() {
                    [label] => format!("{} = {label}", on.name),
                    _ => format!("{} = [{}]", on.name, labels.join(", ")),
                };
                let name = self.genes[gene].name.clone();
                return Err(TemplateFault::MayNotExist { name, needs }.at(line));
            }
            self.genes[gene].use_where(place);
        }
        Ok(written)
    }

    pub(super) fn value(&mut self, node: &Node, field: &str, place: &Condition) -> Checked<Templated> {
        let line = node.line;
        let templated = |form| Ok(Templated { line, condition: Some(place.clone()), form });
        match &node.value {
            Value::Text(text) => {
                let written = self.text(text, field, line, place)?;
                templated(Form::Text { text: text.clone(), written })
            }
            Value::List(items) => {
                let made: Vec<Templated> =
                    items.iter().map(|item| self.value(item, field, place)).collect::<Checked<_>>()?;
                let has_when =
                    |item: &Node| matches!(&item.value, Value::Table(keys) if get(keys, "when").is_some());
                let one_of = !items.is_empty() && items.iter().all(has_when);
                templated(if one_of { Form::OneOf(made) } else { Form::List(made) })
            }
            Value::Table(entries) => self.table(node, entries, field, place),
            plain => templated(Form::Plain(plain.clone())),
        }
    }

    fn table(
        &mut self,
        node: &Node,
        entries: &[Entry],
        field: &str,
        place: &Condition,
    ) -> Checked<Templated> {
        let condition = self.when(get(entries, "when"), place)?;
        let line = node.line;
        let Some(inside) = &condition else {
            return Ok(Templated { line, condition: None, form: Form::List(Vec::new()) });
        };
        if let ([_, _], Some(_), Some(value)) = (entries, get(entries, "when"), get(entries, "value")) {
            return self.value(value, field, inside);
        }
        let mut made = Vec::new();
        for entry in entries.iter().filter(|entry| entry.key != "when") {
            let field = format!("{field}.{}", entry.key);
            made.push((entry.key.clone(), self.value(&entry.node, field.trim_start_matches('.'), inside)?));
        }
        Ok(Templated { line, condition, form: Form::Table(made) })
    }
}

/// A candidate's choices, for the genes as they were declared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) genes: &'a [Declared],
    pub(super) choices: &'a Choices,
}

impl Candidate<'_> {
    fn gene(&self, gene: usize, line: usize) -> Checked<&Value> {
        let choice = self.choices.get(gene).copied().flatten();
        choice.and_then(|choice| self.genes[gene].choices.get(usize::from(choice))).ok_or_else(|| {
            let name = self.genes[gene].name.clone();
            TemplateFault::MayNotExist { name, needs: "another choice of an earlier gene".to_owned() }
                .at(line)
        })
    }

    /// What a value is for this candidate; `None` if it is not there.
    pub(super) fn resolve(&self, templated: &Templated, field: &str) -> Checked<Option<Node>> {
        let Templated { line, condition, form } = templated;
        if condition.as_ref().is_none_or(|condition| !condition.holds(self.choices)) {
            return Ok(None);
        }
        let value = match form {
            Form::Plain(value) => value.clone(),
            Form::Text { text, written } => self.written(text, written, field, *line)?,
            Form::List(items) => Value::List(self.present(items, field)?),
            Form::OneOf(items) => {
                let mut present = self.present(items, field)?;
                return match (present.pop(), present.len()) {
                    (Some(node), 0) => Ok(Some(node)),
                    (last, others) => {
                        let met = others + usize::from(last.is_some());
                        Err(TemplateFault::Alternatives { field: field.to_owned(), met }.at(*line))
                    }
                };
            }
            Form::Table(keys) => {
                let mut entries = Vec::new();
                for (key, value) in keys {
                    let field = format!("{field}.{key}");
                    if let Some(node) = self.resolve(value, field.trim_start_matches('.'))? {
                        entries.push(Entry { key: key.clone(), line: node.line, node });
                    }
                }
                Value::Table(entries)
            }
        };
        Ok(Some(Node { line: *line, value }))
    }

    fn present(&self, items: &[Templated], field: &str) -> Checked<Vec<Node>> {
        items.iter().filter_map(|item| self.resolve(item, field).transpose()).collect()
    }

    fn written(&self, text: &str, written: &Written, field: &str, line: usize) -> Checked<Value> {
        Ok(match written {
            Written::Plain(text) => Value::Text(text.clone()),
            Written::Gene(gene) => self.gene(*gene, line)?.clone(),
            Written::Inserted(parts) => {
                let label = |part: &Part| match part {
                    Part::Text(text) => Ok(text.clone()),
                    Part::Gene(gene) => self.gene(*gene, line).map(Value::label),
                };
                Value::Text(parts.iter().map(label).collect::<Checked<String>>()?)
            }
            Written::Sum(sum) => {
                let whole = |gene: usize| match self
                    .gene(gene, line)
                    .map_err(|placed| placed.fault.to_string())?
                {
                    Value::Int(number) => Ok(*number),
                    other => {
                        Err(format!("`{}` is {}, not a whole number", self.genes[gene].name, other.to_toml()))
                    }
                };
                let arithmetic = |why| {
                    TemplateFault::Arithmetic { field: field.to_owned(), text: text.to_owned(), why }.at(line)
                };
                Value::Int(sum.compute(&whole).map_err(arithmetic)?)
            }
        })
    }
}
