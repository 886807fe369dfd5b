//! The pool file: what a planner has to know of nodes and links.
//!
//! ```toml
//! [[node]]
//! name = "n1-4f3a"
//! memory = "8192MiB"
//! speed = 12.5            # GFLOP/s
//! host = "rack7"
//! cores = 2               # of the host; its nodes share them
//! threads = 1             # that the node computes with
//!
//! [[link]]                # counts in both directions
//! from = "n1-4f3a"
//! to = "n2-9c01"
//! bandwidth = "940.0MiB/s"
//! latency = "0.050ms"
//! ```

use phalanx_types::{ByteSize, Host, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

const MIB: f64 = (1u64 << 20) as f64;

/// A node that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolNode {
    pub name: NodeId,
    pub memory: ByteSize,
    pub gflops: f32,
    /// One of those that [`host_names`] gives.
    pub host: Option<String>,
    /// Of the host; its nodes share them.
    pub cores: u32,
    /// That it computes with.
    pub threads: u32,
}

/// A link that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolLink {
    pub from: NodeId,
    pub to: NodeId,
    pub bytes_per_s: f64,
    pub latency_s: f64,
}

/// Nodes and links as a pool file has them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool {
    pub nodes: Vec<PoolNode>,
    pub links: Vec<PoolLink>,
}

impl Pool {
    /// The text of the file.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        // Writing into a string does not fail.
        let _written = self.write(&mut out);
        out
    }

    /// Names have no character that would need an escape.
    fn write(&self, out: &mut String) -> fmt::Result {
        for (i, node) in self.nodes.iter().enumerate() {
            let PoolNode { name, memory, gflops, host, cores, threads } = node;
            let gap = if i > 0 { "\n" } else { "" };
            writeln!(out, "{gap}[[node]]\nname = \"{name}\"\nmemory = \"{}MiB\"", memory.0 >> 20)?;
            writeln!(out, "speed = {gflops:.3}")?;
            if let Some(host) = host {
                writeln!(out, "host = \"{host}\"")?;
            }
            writeln!(out, "cores = {cores}\nthreads = {threads}")?;
        }
        for PoolLink { from, to, bytes_per_s, latency_s } in &self.links {
            writeln!(out, "\n[[link]]\nfrom = \"{from}\"\nto = \"{to}\"")?;
            writeln!(out, "bandwidth = \"{}MiB/s\"", short(bytes_per_s / MIB))?;
            writeln!(out, "latency = \"{}ms\"", short(latency_s * 1e3))?;
        }
        Ok(())
    }
}

/// A number with four digits that count, however small it is.
fn short(x: f64) -> String {
    let decimals = if x > 0.0 { (3.0 - x.log10().floor()).clamp(0.0, 9.0) as usize } else { 0 };
    format!("{x:.decimals$}")
}

/// What to call each machine, by the number of its start: its name, and more where two have the same.
pub fn host_names<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> BTreeMap<u64, String> {
    let mut named: BTreeMap<u64, &Host> = BTreeMap::new();
    for host in hosts {
        // Containers of one machine may call it by different names.
        let first = named.entry(host.boot).or_insert(host);
        if host.name < first.name {
            *first = host;
        }
    }
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<_> =
        named.values().map(|host| &host.name).filter(|name| !seen.insert(*name)).collect();
    let name = |(boot, host): (&u64, &&Host)| {
        let (name, boot) = (&host.name, *boot);
        (boot, if twice.contains(name) { format!("{name}-{boot:016x}") } else { name.to_string() })
    };
    named.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    fn host(name: &str, boot: u64) -> Host {
        Host { name: name.parse().unwrap(), boot, cores: 4 }
    }

    #[test]
    fn a_pool_reads_as_documented() {
        let node = |name, host: Option<&str>| PoolNode {
            name: id(name),
            memory: ByteSize::gib(8),
            gflops: 12.5,
            host: host.map(str::to_owned),
            cores: 2,
            threads: 1,
        };
        let link = PoolLink { from: id("a"), to: id("b"), bytes_per_s: 940.0 * MIB, latency_s: 5e-5 };
        let text =
            Pool { nodes: vec![node("a", Some("rack7")), node("b", None)], links: vec![link] }.to_toml();
        let expected = "\
[[node]]
name = \"a\"
memory = \"8192MiB\"
speed = 12.500
host = \"rack7\"
cores = 2
threads = 1

[[node]]
name = \"b\"
memory = \"8192MiB\"
speed = 12.500
cores = 2
threads = 1

[[link]]
from = \"a\"
to = \"b\"
bandwidth = \"940.0MiB/s\"
latency = \"0.05000ms\"
";
        assert_eq!(text, expected);
        assert!(toml::de::DeTable::parse(&text).is_ok());
    }

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(
            [2345.6, 12.0, 0.012_345_6, 0.0].map(short),
            ["2346", "12.00", "0.01235", "0"].map(str::to_owned)
        );
    }

    #[test]
    fn machines_of_one_name_are_told_apart_and_containers_of_one_are_not() {
        let hosts = [host("localhost", 1), host("localhost", 2), host("web", 3), host("db", 3)];
        let names = host_names(&hosts);
        assert_eq!(names[&1], "localhost-0000000000000001");
        assert_eq!(names[&2], "localhost-0000000000000002");
        assert_eq!((names[&3].as_str(), names.len()), ("db", 3));
    }
}
