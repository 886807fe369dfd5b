//! A run file as pairs of key and value: `train.optimizer.lr` = `0.01`.

use toml::de::{DeTable, DeValue};

/// More values, or longer ones, are left out: data lists may be long.
const MOST_PARAMS: usize = 2_000;
const MOST_CHARS: usize = 4_000;

/// One value of a run file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) value: String,
    /// If it is a number.
    pub(crate) num: Option<f64>,
}

/// The values of a run file, sorted by key; nothing if it is not TOML.
pub(crate) fn flatten(text: &str) -> Vec<Param> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let mut found = Vec::new();
    flatten_table(table.get_ref(), "", &mut found);
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found.dedup_by(|a, b| a.name == b.name);
    found
}

fn flatten_table(table: &DeTable<'_>, prefix: &str, found: &mut Vec<Param>) {
    for (key, value) in table.iter() {
        let key = key.get_ref();
        let name = if prefix.is_empty() { key.to_string() } else { format!("{prefix}.{key}") };
        flatten_value(value.get_ref(), name, found);
    }
}

fn flatten_value(value: &DeValue<'_>, name: String, found: &mut Vec<Param>) {
    if found.len() == MOST_PARAMS {
        return;
    }
    match value {
        DeValue::Table(table) => flatten_table(table, &name, found),
        // Layers of a model and other lists of tables.
        DeValue::Array(items) if items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))) => {
            for (index, item) in items.iter().enumerate() {
                flatten_value(item.get_ref(), format!("{name}.{index}"), found);
            }
        }
        other => {
            let value: String = shown(other).chars().take(MOST_CHARS).collect();
            found.push(Param { num: number(other), name, value });
        }
    }
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(_) | DeValue::Float(_) => match number(value) {
            Some(number) if number.fract() == 0.0 && number.abs() < 1e15 => format!("{number:.0}"),
            Some(number) => number.to_string(),
            None => String::new(),
        },
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(value) => value.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(_) => String::new(),
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(whole) => {
            i64::from_str_radix(whole.as_str(), whole.radix()).ok().map(|whole| whole as f64)
        }
        DeValue::Float(float) => float.as_str().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_become_paths_and_values_text_with_numbers() {
        let text = "name = \"first\"\n[train]\nbatch = 0x40\noptimizer = { name = \"adam\", lr = 0.001 }\n\
                    shuffle = true\nsizes = [1, 2]\n[[model.layer]]\nout = 10\n";
        let found = flatten(text);
        let shown: Vec<(&str, &str, Option<f64>)> =
            found.iter().map(|param| (param.name.as_str(), param.value.as_str(), param.num)).collect();
        assert_eq!(
            shown,
            [
                ("model.layer.0.out", "10", Some(10.0)),
                ("name", "first", None),
                ("train.batch", "64", Some(64.0)),
                ("train.optimizer.lr", "0.001", Some(0.001)),
                ("train.optimizer.name", "adam", None),
                ("train.shuffle", "true", None),
                ("train.sizes", "[1, 2]", None),
            ]
        );
        assert_eq!(flatten("this is = = not toml"), []);
    }
}
