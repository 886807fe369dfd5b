//! The choices of a gene: a list, or a range.

use super::error::{Checked, TemplateFault};
use super::tree::{Entry, Node, Value, get, only};
use std::collections::BTreeSet;

/// More choices than a gene can have are refused before they are listed.
const MOST: usize = 65_535;
const KEYS: [&str; 7] = ["choose", "from", "to", "step", "log", "points", "when"];

/// The choices of a gene, and its `when`.
pub(super) fn read(entry: &Entry) -> Checked<(Vec<Value>, Option<&Node>)> {
    let field = entry.key.as_str();
    match &entry.node.value {
        Value::List(_) => Ok((list(&entry.node, field)?, None)),
        Value::Table(keys) => {
            only(keys, &format!("`{field}`"), &KEYS)?;
            let choices = match get(keys, "choose") {
                Some(choose) => {
                    if let Some(other) =
                        keys.iter().find(|entry| !["choose", "when"].contains(&entry.key.as_str()))
                    {
                        let other = KEYS.into_iter().find(|key| *key == other.key).unwrap_or("from");
                        return Err(TemplateFault::Conflict { key: "choose", other }.at(entry.line));
                    }
                    list(choose, &format!("{field}.choose"))?
                }
                None => range(keys, entry)?,
            };
            Ok((choices, get(keys, "when")))
        }
        other => {
            let wanted = "a list of choices, or { from = 1, to = 12 }";
            Err(entry.node.wrong(field, wanted, other.to_toml()))
        }
    }
}

fn list(node: &Node, field: &str) -> Checked<Vec<Value>> {
    let items = node.items(field)?;
    if items.is_empty() || items.len() > MOST {
        return Err(node.wrong(field, "a list of 1 to 65535 choices", format!("one of {}", items.len())));
    }
    let (mut labels, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    let mut choices: Vec<Value> = Vec::new();
    for item in items {
        match &item.value {
            Value::Float(number) if !number.is_finite() => {
                return Err(item.wrong(field, "finite numbers, texts, true or false", item.value.to_toml()));
            }
            Value::List(_) | Value::Table(_) => {
                return Err(item.wrong(field, "numbers, texts, true or false", item.value.kind()));
            }
            _ => {}
        }
        // 1 and 1.0 are one choice, and so are 1 and "1".
        let number = item.value.as_number().map(|number| (number + 0.0).to_bits());
        if !labels.insert(item.value.label()) || number.is_some_and(|number| !numbers.insert(number)) {
            return Err(TemplateFault::Twice { name: item.value.label() }.at(item.line));
        }
        choices.push(item.value.clone());
    }
    Ok(choices)
}

struct Range {
    from: f64,
    to: f64,
    /// Both ends are whole numbers, so all between are.
    whole: bool,
}

fn range(keys: &[Entry], entry: &Entry) -> Checked<Vec<Value>> {
    let field = |key: &str| format!("{}.{key}", entry.key);
    let place = || format!("`{}`", entry.key);
    let end = |key: &'static str| -> Checked<(&Node, f64)> {
        let missing = || TemplateFault::Missing { key, place: place(), example: "{ from = 1, to = 12 }" };
        let node = get(keys, key).ok_or_else(|| missing().at(entry.line))?;
        Ok((node, node.number(&field(key))?))
    };
    let ((from_node, from), (to_node, to)) = (end("from")?, end("to")?);
    if to < from {
        return Err(to_node.wrong(&field("to"), &format!("{from} or more"), to));
    }
    let ends = [&from_node.value, &to_node.value];
    let range = Range { from, to, whole: ends.iter().all(|value| matches!(value, Value::Int(_))) };
    let log = get(keys, "log").map_or(Ok(false), |log| log.flag(&field("log")))?;
    let points = get(keys, "points").map(|node| node.whole(&field("points"), 2)).transpose()?;
    if log && from <= 0.0 {
        return Err(from_node.wrong(&field("from"), "above 0 if `log = true`", from));
    }
    let choices = match (points, get(keys, "step")) {
        (Some(_), Some(step)) => {
            return Err(TemplateFault::Conflict { key: "points", other: "step" }.at(step.line));
        }
        (Some(points), None) if points > MOST as u64 => {
            return Err(TemplateFault::value(&field("points"), "at most 65535", points).at(entry.line));
        }
        (Some(points), None) => range.spread(points as usize, log),
        (None, step) => {
            if log || (step.is_none() && !range.whole) {
                let example = "{ from = 1e-4, to = 1e-2, log = true, points = 9 }";
                return Err(TemplateFault::Missing { key: "points", place: place(), example }.at(entry.line));
            }
            range.stepped(step, &field("step"))?
        }
    };
    if choices.is_empty() || choices.len() > MOST {
        let wanted = "a range of at most 65535 choices";
        return Err(TemplateFault::value(&entry.key, wanted, "a larger one").at(entry.line));
    }
    Ok(choices)
}

impl Range {
    /// With so few digits that a choice reads well and is the same on every machine.
    fn value(&self, number: f64, digits: usize) -> Value {
        if self.whole {
            return Value::Int(number.round() as i64);
        }
        let rounded = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
        // Zero has no sign here.
        Value::Float(rounded + 0.0)
    }

    fn spread(&self, points: usize, log: bool) -> Vec<Value> {
        let at = |point: usize| {
            let share = point as f64 / (points - 1) as f64;
            match point {
                0 => self.from,
                _ if point + 1 == points => self.to,
                _ if log => self.from * (self.to / self.from).powf(share),
                _ => self.from + (self.to - self.from) * share,
            }
        };
        let mut choices: Vec<Value> = (0..points).map(|point| self.value(at(point), 6)).collect();
        // Few numbers, many points.
        choices.dedup();
        choices
    }

    fn stepped(&self, step: Option<&Node>, field: &str) -> Checked<Vec<Value>> {
        let size = match step {
            None => 1.0,
            Some(node) => {
                let size = node.number(field)?;
                if size <= 0.0 {
                    return Err(node.wrong(field, "above 0", size));
                }
                size
            }
        };
        let whole = self.whole && step.is_none_or(|step| matches!(step.value, Value::Int(_)));
        // A little more than the range: the last step is not lost to rounding.
        let steps = ((self.to - self.from) / size + 1e-9).floor();
        if steps >= MOST as f64 {
            return Ok(Vec::new());
        }
        let range = Self { whole, ..*self };
        let mut choices: Vec<Value> =
            (0..=steps as usize).map(|step| range.value(self.from + step as f64 * size, 12)).collect();
        choices.dedup();
        Ok(choices)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::parse;
    use super::*;

    fn of(text: &str) -> Result<String, String> {
        let entries = parse(text).unwrap();
        let choices = read(&entries[0]).map_err(|placed| placed.fault.to_string())?;
        Ok(choices.0.iter().map(Value::to_toml).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn lists_and_ranges_are_choices() {
        for (text, choices) in [
            ("a = [1, 2.5, 'x', true]", r#"1 2.5 "x" true"#),
            ("a = { from = 1, to = 4 }", "1 2 3 4"),
            ("a = { from = 3, to = 8, step = 2 }", "3 5 7"),
            ("a = { from = 0, to = 1, step = 0.25 }", "0.0 0.25 0.5 0.75 1.0"),
            ("a = { from = 0.1, to = 0.5, step = 0.1 }", "0.1 0.2 0.3 0.4 0.5"),
            ("a = { from = 0.0, to = 1.0, points = 3 }", "0.0 0.5 1.0"),
            ("a = { from = 16, to = 256, log = true, points = 5 }", "16 32 64 128 256"),
            ("a = { from = 1, to = 3, log = true, points = 9 }", "1 2 3"),
            (
                "a = { from = 1e-4, to = 1e-2, log = true, points = 5 }",
                "0.0001 0.000316228 0.001 0.00316228 0.01",
            ),
            ("a = { choose = [1, 2], when = {} }", "1 2"),
            ("a = { from = 2, to = 2 }", "2"),
        ] {
            assert_eq!(of(text).as_deref(), Ok(choices), "{text}");
        }
    }

    #[test]
    fn choices_that_make_no_sense_say_why() {
        for (text, why) in [
            ("a = 3", "`a` must be a list of choices, or { from = 1, to = 12 }, not 3"),
            ("a = []", "`a` must be a list of 1 to 65535 choices, not one of 0"),
            ("a = [1, 1.0]", "`1.0` stands twice"),
            ("a = [[1]]", "`a` must be numbers, texts, true or false, not a list"),
            ("a = [inf]", "`a` must be finite numbers, texts, true or false, not inf"),
            ("a = { form = 1 }", "there is no key `form` in `a`; did you mean `from`?"),
            ("a = { from = 1 }", "`a` needs the key `to`, as in { from = 1, to = 12 }"),
            ("a = { from = 2, to = 1 }", "`a.to` must be 2 or more, not 1"),
            ("a = { from = 1, to = 2, step = 0 }", "`a.step` must be above 0, not 0"),
            (
                "a = { from = 0, to = 2, log = true, points = 3 }",
                "`a.from` must be above 0 if `log = true`, not 0",
            ),
            ("a = { from = 1, to = 2, points = 3, step = 1 }", "`points` and `step` exclude each other"),
            ("a = { choose = [1], to = 2 }", "`choose` and `to` exclude each other"),
            (
                "a = { from = 0.0, to = 2.0 }",
                "`a` needs the key `points`, as in { from = 1e-4, to = 1e-2, log = true, points = 9 }",
            ),
            (
                "a = { from = 0, to = 70000 }",
                "`a` must be a range of at most 65535 choices, not a larger one",
            ),
            ("a = { from = 0, to = 2, points = 70000 }", "`a.points` must be at most 65535, not 70000"),
        ] {
            assert_eq!(of(text), Err(why.to_owned()), "{text}");
        }
    }
}
