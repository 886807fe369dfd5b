//! The part of JSON schema that the description uses.

use serde_json::Value;

/// Whether a value has the form of a schema; else where and why not.
pub(crate) fn check(description: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.strip_prefix('#').unwrap();
        let target = description.pointer(pointer).ok_or(format!("no schema {name}"))?;
        return check(description, target, value).map_err(|wrong| format!("{name}: {wrong}"));
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    if !kinds.iter().any(|kind| is(kind, value)) {
        return Err(format!("{value} is none of {kinds:?}"));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        items.iter().try_for_each(|item| check(description, schema, item))?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, field) in fields {
        let known = schema["properties"].get(name).or(schema.get("additionalProperties"));
        match known {
            Some(Value::Bool(false)) => return Err(format!("{name} is not described")),
            Some(schema) => check(description, schema, field).map_err(|wrong| format!("{name}: {wrong}"))?,
            None => {}
        }
    }
    Ok(())
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    }
}
