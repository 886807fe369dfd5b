//! A simulated node.

use phalanx_types::{Epoch, NodeId};

/// One place in the cluster, where one process after the other takes part.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Counts the processes.
    pub(super) life: u16,
    pub(super) up: bool,
    /// How many times longer it computes than others.
    pub(super) slow: f64,
    /// How many steps the state in its memory has behind it, if it has any.
    pub(super) holds: Option<u64>,
    /// The group it is in, as far as it knows.
    pub(super) epoch: Option<Epoch>,
    /// Microseconds that a sample took it last; 0 when it has computed none.
    pub(super) cost: f64,
}

impl Node {
    pub(super) fn new(slow: f64) -> Self {
        Self { life: 0, up: false, slow, holds: None, epoch: None, cost: 0.0 }
    }

    /// Another process begins.
    pub(super) fn start(&mut self) {
        *self = Self { life: self.life.wrapping_add(1), up: true, ..Self::new(self.slow) };
    }

    /// The process is gone, with all it held.
    pub(super) fn die(&mut self) {
        *self = Self { life: self.life, ..Self::new(self.slow) };
    }
}

/// A process: a node and which of its lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) life: u16,
}

impl Process {
    /// Its name in the domain; names are in the order of nodes.
    pub(super) fn id(self) -> NodeId {
        let name = format!("n{:06}", self.node);
        NodeId::with_suffix(&name, self.life).expect("letters, digits and a dash make a name")
    }
}
