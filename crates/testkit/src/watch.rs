//! Following the nodes of a sandbox without polling.

use crate::{Process, Sandbox};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;

/// `phalanx nodes --watch`, and its output so far.
#[derive(Debug)]
pub struct NodeWatch {
    process: Process,
    nodes: BTreeMap<String, Value>,
}

impl NodeWatch {
    /// Reads the next change; returns its event (`appeared`, `changed`, `gone`) and the node.
    ///
    /// # Panics
    /// There is no change before the deadline.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> (String, Value) {
        let change = self.process.json();
        let event = change["event"].as_str().expect("an event").to_owned();
        let id = change["id"].as_str().expect("an id").to_owned();
        self.nodes.insert(id, change.clone());
        (event, change)
    }

    /// Reads changes until `seen` returns something for the nodes, by id.
    ///
    /// # Panics
    /// They never do.
    pub fn until<T>(&mut self, mut seen: impl FnMut(&BTreeMap<String, Value>) -> Option<T>) -> T {
        loop {
            if let Some(seen) = seen(&self.nodes) {
                return seen;
            }
            self.next();
        }
    }

    /// Reads changes until a number of a node has this value.
    ///
    /// # Panics
    /// It never has.
    pub fn until_is(&mut self, node: &str, key: &str, value: u64) {
        self.until(|nodes| (nodes.get(node)?[key].as_u64()? == value).then_some(()));
    }

    /// Reads changes until a node is in this state.
    ///
    /// # Panics
    /// It never is.
    pub fn until_state(&mut self, node: &str, state: &str) {
        self.until(|nodes| (nodes.get(node)?["state"].as_str()? == state).then_some(()));
    }

    /// Ends the watch as a user would; returns its exit code.
    pub fn stop(mut self) -> Option<i32> {
        self.process.signal(Signal::INT);
        self.process.finish().0.code()
    }
}

impl Sandbox {
    /// Starts to follow the nodes of this sandbox.
    pub fn watch(&self, args: &[&str]) -> NodeWatch {
        let all: Vec<&str> = ["nodes", "--watch", "--output", "json"].iter().chain(args).copied().collect();
        NodeWatch { process: self.start(&all), nodes: BTreeMap::new() }
    }
}
