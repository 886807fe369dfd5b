//! Pools from text, and errors for mistakes.

use phalanx_formation::{Link, Pool};

const FILE: &str = r#"
[network]
bandwidth = "10Gbit"
latency = "0.1ms"

[[node]]
name = "n1"
memory = "8GiB"
speed = 50.0
host = "h1"
cores = 2
bandwidth = "100Mbit"
latency = "1ms"

[[node]]
name = "n2"
memory = "512MiB"
speed = 5
host = "h1"

[[node]]
name = "n3"
memory = "1GiB"

[[link]]
from = "n1"
to = "n3"
bandwidth = "1Gbit"
latency = "0.2ms"
"#;

#[test]
fn a_pool_file_is_read_and_written() {
    let pool = Pool::from_toml(FILE).unwrap();
    assert_eq!(pool.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    assert_eq!((pool.nodes[0].memory, pool.nodes[0].speed), (8 << 30, 50e9));
    assert_eq!((pool.nodes[1].cores, pool.nodes[2].cores), (2.0, 1.0));
    assert_eq!(pool.link(0, 1), pool.local_link);
    assert_eq!(pool.link(2, 0), Link::new(125e6, 0.2e-3));
    assert_eq!(pool.link(1, 2), Link::new(1.25e9, 0.1e-3));
    let again = Pool::from_toml(&pool.to_toml()).unwrap();
    assert_eq!(again, pool);
    let text = pool.to_toml();
    for (section, of) in [("network", "hosts"), ("local", "nodes of one host")] {
        let told = format!("# Assumed of links between {of} that are not named below.\n[{section}]\n");
        assert!(text.contains(&told), "{text}");
    }
    assert!(text.contains("latency = \"0.1ms\"") && text.contains("speed = 50.0\n"), "{text}");
}

#[test]
fn mistakes_in_pool_files_name_the_node_and_the_field() {
    for (from, to, message) in [
        (
            "memory = \"512MiB\"",
            "memery = \"512MiB\"",
            "node n2 has an unknown key `memery`; did you mean `memory`?",
        ),
        ("memory = \"512MiB\"", "", "node n2 has no `memory`"),
        ("speed = 5\n", "speed = \"x\"\n", "`speed` of node n2 must be a number above 0, not \"x\""),
        ("speed = 5\n", "speed = -5\n", "`speed` of node n2 must be a number above 0, not -5"),
        (
            "\"100Mbit\"",
            "\"100MiB\"",
            "`bandwidth` of node n1 must be a bandwidth like \"100Mbit\" or \"10MiB/s\", not \"100MiB\"",
        ),
        ("\"1ms\"", "5", "`latency` of node n1 must be a time like \"0.2ms\", not 5"),
        ("name = \"n3\"", "name = \"n2\"", "two nodes are called n2"),
        ("name = \"n3\"", "", "node 3 has no `name`"),
        (
            "to = \"n3\"",
            "to = \"n33\"",
            "`to` of link 1 names n33, which is no node of the pool; did you mean n3?",
        ),
        ("[[link]]", "[[lnk]]", "the file has an unknown key `lnk`; did you mean `link`?"),
        ("[network]", "[network", "line 2 is no TOML: unclosed table, expected `]`"),
    ] {
        let error = Pool::from_toml(&FILE.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(Pool::from_toml("").unwrap_err().to_string(), "the pool has no nodes");
}

#[test]
fn json_of_other_tools_is_read() {
    let nested = r#"{"0": {"IP": "0.0.0.0:8080", "benchmarks": {"ram": 8, "bandwidth": 10}},
                     "10": {"IP": "10.0.0.2:8080", "benchmarks": {"ram": 2.5, "bandwidth": 80}},
                     "2": {"IP": "0.0.0.0:8081", "benchmarks": {"ram": 4, "bandwidth": 20}}}"#;
    let pool = Pool::from_json(nested).unwrap();
    assert_eq!(pool.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["0", "2", "10"]);
    assert_eq!(
        pool.nodes.iter().map(|n| n.memory).collect::<Vec<_>>(),
        [8_000_000_000, 4_000_000_000, 2_500_000_000]
    );
    assert_eq!(pool.link(0, 1), pool.local_link);
    assert_eq!(pool.link(0, 2).bytes_per_s, 1.25e6);
    assert_eq!((pool.nodes[0].cores, pool.nodes[2].cores), (2.0, 1.0));
    let flat = r#"{"0": {"IP": "a:1", "ram": 8, "bandwidth": 10}}"#;
    let list = r#"[{"IP": "a:1", "ram": 8, "bandwidth": 10}]"#;
    assert_eq!(Pool::from_json(flat).unwrap(), Pool::from_json(list).unwrap());
}

#[test]
fn mistakes_in_json_name_the_node_and_the_field() {
    for (text, message) in [
        (r#"{"7": {"IP": "a:1", "rma": 8}}"#, "node 7 has an unknown key `rma`; did you mean `ram`?"),
        (r#"{"7": {"IP": "a:1"}}"#, "node 7 has no `ram`"),
        (r#"[{"ram": 8}]"#, "node 0 has no `IP`"),
        (r#"[{"IP": "a", "ram": "8"}]"#, "`ram` of node 0 must be a number above 0, not \"8\""),
        ("[]", "the pool has no nodes"),
        ("3", "no JSON: neither a map nor a list of nodes"),
    ] {
        assert_eq!(Pool::from_json(text).unwrap_err().to_string(), message);
    }
    assert!(Pool::from_json("{").unwrap_err().to_string().starts_with("no JSON: "));
}
