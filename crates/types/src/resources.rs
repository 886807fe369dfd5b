use crate::{ByteSize, HostName};
use serde::{Deserialize, Serialize};

/// The resources of a node.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    pub cores: u32,
    pub memory: ByteSize,
    pub devices: Vec<Device>,
    /// Speed in GFLOP/s, once it was measured.
    pub speed_gflops: Option<f32>,
    /// The machine it is on, if that is known.
    pub host: Option<Box<Host>>,
}

/// A machine. Nodes on the same one share its cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    pub name: HostName,
    /// Distinguishes machines of the same name; changes at every boot.
    pub boot: u64,
    /// All cores of the machine; a node may use fewer.
    pub cores: u32,
}

/// An accelerator of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    pub name: String,
    pub memory: ByteSize,
}

/// The resources that one job holds while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Needs {
    pub cores: u32,
    pub memory: ByteSize,
}

impl Default for Needs {
    fn default() -> Self {
        Self { cores: 1, memory: ByteSize(0) }
    }
}

impl Needs {
    pub fn fit(&self, cores: u32, memory: ByteSize) -> bool {
        self.cores <= cores && self.memory <= memory
    }
}
