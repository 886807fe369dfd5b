//! Pool files: `[[node]]` and `[[link]]` in TOML.

use crate::pool::fields::{FieldValue, Fields};
use crate::pool::units::{bandwidth_text, duration_text, shifted, size_text};
use crate::{Link, Pool, PoolError, PoolNode};
use phalanx_types::nearest;
use std::collections::BTreeMap;
use std::fmt::Write;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The speed of a node whose file does not give it.
pub(crate) const DEFAULT_SPEED: f64 = 10e9;
const NODE: [&str; 8] = ["name", "memory", "speed", "host", "cores", "threads", "bandwidth", "latency"];
const LINK: [&str; 4] = ["from", "to", "bandwidth", "latency"];

impl Pool {
    /// Reads a pool file.
    ///
    /// ```toml
    /// [network]                 # between hosts, where nothing else is known
    /// bandwidth = "1Gbit"
    /// latency = "0.2ms"
    ///
    /// [[node]]
    /// name = "n1"
    /// memory = "8GiB"
    /// speed = 50.0              # GFLOP/s; 10 where it is missing
    /// host = "h1"               # nodes of one host share its cores; otherwise a host of its own
    /// cores = 2                 # of the host
    /// threads = 1               # cores that this node keeps busy
    /// bandwidth = "100Mbit"     # to other hosts
    /// latency = "1ms"
    ///
    /// [[link]]
    /// from = "n1"
    /// to = "n2"
    /// bandwidth = "1Gbit"
    /// latency = "0.2ms"
    /// ```
    ///
    /// # Errors
    /// It is not TOML, or a field is missing, unknown or invalid; the error names the field and the node.
    pub fn from_toml(text: &str) -> Result<Self, PoolError> {
        let table = DeTable::parse(text).map_err(|error| syntax(text, &error))?;
        let mut pool = Self::default();
        let (mut nodes, mut links) = (Vec::new(), Vec::new());
        for (key, value) in table.get_ref() {
            match key.get_ref().as_ref() {
                "network" => pool.default_link = linked(value, "[network]", pool.default_link)?,
                "local" => pool.local_link = linked(value, "[local]", pool.local_link)?,
                "node" => nodes = tables(value, "node")?,
                "link" => links = tables(value, "link")?,
                other => return Err(unknown_section(other)),
            }
        }
        pool.nodes = nodes_of(nodes, pool.default_link)?;
        for fields in links {
            let (pair, link) = link_of(&pool, &fields)?;
            pool.links.insert(pair, link);
        }
        Ok(pool)
    }

    /// A pool file that [`Pool::from_toml`] reads.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for (of, name, link) in
            [("hosts", "network", self.default_link), ("nodes of one host", "local", self.local_link)]
        {
            // Writing into a string cannot fail.
            _ = writeln!(text, "# Assumed of links between {of} that are not named below.");
            _ = write!(text, "[{name}]\n{}\n", link_text(link));
        }
        for node in &self.nodes {
            _ = writeln!(text, "[[node]]\nname = {:?}\nmemory = \"{}\"", node.name, size_text(node.memory));
            _ = writeln!(text, "speed = {:?}\nhost = {:?}", shifted(node.speed, -9), node.host);
            _ = writeln!(text, "cores = {:?}\nthreads = {:?}", node.cores, node.threads);
            _ = writeln!(text, "{}", node.uplink.map(link_text).unwrap_or_default());
        }
        for ((from, to), link) in &self.links {
            let name = |n: &usize| self.nodes.get(*n).map_or("", |node| &node.name);
            _ = writeln!(
                text,
                "[[link]]\nfrom = {:?}\nto = {:?}\n{}",
                name(from),
                name(to),
                link_text(*link)
            );
        }
        text
    }
}

fn link_text(link: Link) -> String {
    let (bandwidth, latency) = (bandwidth_text(link.bytes_per_s), duration_text(link.latency_s));
    format!("bandwidth = \"{bandwidth}\"\nlatency = \"{latency}\"\n")
}

fn syntax(text: &str, error: &toml::de::Error) -> PoolError {
    let at = error.span().map_or(0, |span| span.start);
    let line = 1 + text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count();
    PoolError::Toml { line, message: error.message().to_owned() }
}

fn unknown_section(key: &str) -> PoolError {
    let nearest = nearest(key, ["network", "local", "node", "link"]).map(str::to_owned);
    PoolError::UnknownKey { of: "the file".into(), key: key.chars().take(64).collect(), nearest }
}

fn linked(value: &Spanned<DeValue<'_>>, of: &str, otherwise: Link) -> Result<Link, PoolError> {
    let table = value.get_ref().as_table().ok_or_else(|| not_tables(of))?;
    let fields = fields(of.to_owned(), table);
    fields.only(&["bandwidth", "latency"])?;
    Ok(fields.link(otherwise)?.unwrap_or(otherwise))
}

fn not_tables(of: &str) -> PoolError {
    PoolError::Value { of: of.to_owned(), key: "node", expected: "a table", found: "something else".into() }
}

/// The tables of an array, each with the name of its owner: its name, otherwise its number.
fn tables(value: &Spanned<DeValue<'_>>, kind: &str) -> Result<Vec<Fields>, PoolError> {
    let array = value.get_ref().as_array().ok_or_else(|| not_tables(&format!("[[{kind}]]")))?;
    let one = |(i, value): (usize, &Spanned<DeValue<'_>>)| {
        let table = value.get_ref().as_table().ok_or_else(|| not_tables(&format!("[[{kind}]]")))?;
        let mut fields = fields(format!("{kind} {}", i + 1), table);
        if let Some(FieldValue::Text(name)) = fields.values.get("name") {
            fields.of = format!("{kind} {}", name.chars().take(64).collect::<String>());
        }
        Ok(fields)
    };
    array.iter().enumerate().map(one).collect()
}

fn fields(of: String, table: &DeTable<'_>) -> Fields {
    let entry = |(key, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
        (key.get_ref().to_string(), value_of(value.get_ref()))
    };
    Fields { of, values: table.iter().map(entry).collect() }
}

fn value_of(value: &DeValue<'_>) -> FieldValue {
    let number =
        |text: &str| text.replace('_', "").parse().map_or(FieldValue::Other("no number"), FieldValue::Number);
    match value {
        DeValue::String(text) => FieldValue::Text(text.to_string()),
        DeValue::Integer(n) => number(n.as_str()),
        DeValue::Float(n) => number(n.as_str()),
        DeValue::Boolean(_) => FieldValue::Other("true or false"),
        DeValue::Datetime(_) => FieldValue::Other("a date"),
        DeValue::Array(_) => FieldValue::Other("a list"),
        DeValue::Table(_) => FieldValue::Other("a table"),
    }
}

fn nodes_of(all: Vec<Fields>, network: Link) -> Result<Vec<PoolNode>, PoolError> {
    let mut nodes: Vec<(PoolNode, Option<f64>)> = Vec::with_capacity(all.len());
    for fields in &all {
        fields.only(&NODE)?;
        let name = fields.text("name")?.ok_or_else(|| fields.missing("name"))?;
        if nodes.iter().any(|(node, _)| node.name == name) {
            return Err(PoolError::SameName { name });
        }
        let memory = fields.size("memory")?.ok_or_else(|| fields.missing("memory"))?;
        let speed = fields.positive("speed")?.map_or(DEFAULT_SPEED, |giga| shifted(giga, 9));
        let node = PoolNode {
            host: fields.text("host")?.unwrap_or_else(|| name.clone()),
            cores: 1.0,
            threads: fields.positive("threads")?.unwrap_or(1.0),
            uplink: fields.link(network)?,
            ..PoolNode::new(name, memory, speed)
        };
        nodes.push((node, fields.positive("cores")?));
    }
    with_cores(nodes)
}

/// Nodes without a given number of cores get as many as the nodes of their host need.
pub(crate) fn with_cores(nodes: Vec<(PoolNode, Option<f64>)>) -> Result<Vec<PoolNode>, PoolError> {
    if nodes.is_empty() {
        return Err(PoolError::Empty);
    }
    let (mut said, mut needed): (BTreeMap<String, f64>, BTreeMap<String, f64>) = Default::default();
    for (node, cores) in &nodes {
        *needed.entry(node.host.clone()).or_default() += node.threads;
        if let Some(cores) = cores {
            let most = said.entry(node.host.clone()).or_default();
            *most = most.max(*cores);
        }
    }
    let cores = |host: &str| said.get(host).or_else(|| needed.get(host)).copied().unwrap_or(1.0);
    Ok(nodes.into_iter().map(|(node, _)| PoolNode { cores: cores(&node.host), ..node }).collect())
}

fn link_of(pool: &Pool, fields: &Fields) -> Result<((usize, usize), Link), PoolError> {
    fields.only(&LINK)?;
    let node = |key: &'static str| {
        let name = fields.text(key)?.ok_or_else(|| fields.missing(key))?;
        let known = || pool.nodes.iter().map(|n| n.name.as_str());
        let found = known().position(|n| n == name);
        let nearest = nearest(&name, known()).map(str::to_owned);
        found.ok_or(PoolError::UnknownNode { of: fields.of.clone(), key, name, nearest })
    };
    let pair = (node("from")?, node("to")?);
    let link = fields.link(pool.default_link)?.ok_or_else(|| fields.missing("bandwidth"))?;
    Ok((pair, link))
}
