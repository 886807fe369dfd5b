//! Pools in the JSON of other tools: a map or list of nodes with address, memory and bandwidth.

use crate::pool::fields::{FieldValue, Fields};
use crate::pool::file::{DEFAULT_SPEED, with_cores};
use crate::pool::units::shifted;
use crate::{Link, Pool, PoolError, PoolNode};
use serde_json::{Map, Value as Json};

const KNOWN: [&str; 6] = ["IP", "ram", "bandwidth", "speed", "cores", "benchmarks"];

impl Pool {
    /// Reads nodes from JSON: `{"0": {"IP": "10.0.0.1:8080", "benchmarks": {"ram": 8, "bandwidth": 10}}}`, the
    /// same without `benchmarks`, or a list of such nodes. Memory is in GB, bandwidth in Mbit per second; `speed` in
    /// GFLOP/s and `cores` are optional.
    ///
    /// # Errors
    /// It is not JSON, or a field is missing, unknown or invalid; the error names the field and the node.
    pub fn from_json(text: &str) -> Result<Self, PoolError> {
        let parsed: Json =
            serde_json::from_str(text).map_err(|e| PoolError::Json { message: e.to_string() })?;
        let named: Vec<(String, Json)> = match parsed {
            Json::Object(map) => map.into_iter().collect(),
            Json::Array(list) => {
                list.into_iter().enumerate().map(|(i, node)| (i.to_string(), node)).collect()
            }
            _ => return Err(PoolError::Json { message: "neither a map nor a list of nodes".into() }),
        };
        let mut pool = Self::default();
        let latency = pool.default_link.latency_s;
        let mut nodes = Vec::with_capacity(named.len());
        for (key, node) in in_order(named) {
            nodes.push(node_of(&key, &node, latency)?);
        }
        pool.nodes = with_cores(nodes)?;
        Ok(pool)
    }
}

/// Sorts numeric keys as numbers: 2 comes before 10.
fn in_order(mut named: Vec<(String, Json)>) -> Vec<(String, Json)> {
    named.sort_by_cached_key(|(key, _)| (key.parse::<u64>().unwrap_or(u64::MAX), key.clone()));
    named
}

fn node_of(key: &str, node: &Json, latency: f64) -> Result<(PoolNode, Option<f64>), PoolError> {
    let of = format!("node {}", key.chars().take(64).collect::<String>());
    let wrong =
        |key, expected| PoolError::Value { of: of.clone(), key, expected, found: "something else".into() };
    let table = node.as_object().ok_or_else(|| wrong("IP", "in a map of fields"))?;
    let mut fields = fields(&of, table);
    fields.only(&KNOWN)?;
    if let Some(inner) = table.get("benchmarks") {
        let inner = inner.as_object().ok_or_else(|| wrong("benchmarks", "a map of fields"))?;
        let measured = self::fields(&of, inner);
        measured.only(&["ram", "bandwidth", "speed", "cores"])?;
        fields.values.extend(measured.values);
    }
    let address = fields.text("IP")?.ok_or_else(|| fields.missing("IP"))?;
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let ram = fields.positive("ram")?.ok_or_else(|| fields.missing("ram"))?;
    let speed = fields.positive("speed")?.map_or(DEFAULT_SPEED, |giga| shifted(giga, 9));
    let link = fields.positive("bandwidth")?.map(|mbit| Link::new(shifted(mbit, 6) / 8.0, latency));
    let node =
        PoolNode { host: host.to_owned(), uplink: link, ..PoolNode::new(key, (ram * 1e9) as u64, speed) };
    Ok((node, fields.positive("cores")?))
}

fn fields(of: &str, table: &Map<String, Json>) -> Fields {
    let value = |value: &Json| match value {
        Json::String(text) => FieldValue::Text(text.clone()),
        Json::Number(n) => n.as_f64().map_or(FieldValue::Other("no number"), FieldValue::Number),
        Json::Bool(_) => FieldValue::Other("true or false"),
        Json::Null => FieldValue::Other("nothing"),
        Json::Array(_) => FieldValue::Other("a list"),
        Json::Object(_) => FieldValue::Other("a map"),
    };
    Fields { of: of.to_owned(), values: table.iter().map(|(k, v)| (k.clone(), value(v))).collect() }
}
