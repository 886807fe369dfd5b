//! Why a run waits.

use serde::Serialize;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// There are not enough replicas to go on.
    TooFew { have: usize, need: usize, coming: usize },
    /// There are enough to begin, but more were asked for and may still come.
    Gathering { have: usize, want: usize, coming: usize },
    /// The nodes that are there cannot hold the model.
    Shortfall { shortfall: String, coming: usize },
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let coming = match self {
            Pause::TooFew { have, need, coming } => {
                let replicas = if *need == 1 { "replica" } else { "replicas" };
                write!(f, "waiting: needs {need} {replicas}, there are {have}")?;
                coming
            }
            Pause::Gathering { have, want, coming } => {
                write!(f, "waiting for more nodes: {have} of {want} are ready")?;
                coming
            }
            Pause::Shortfall { shortfall, coming } => {
                write!(f, "waiting: {shortfall}")?;
                coming
            }
        };
        match self {
            _ if *coming > 0 => write!(f, " ({coming} more are getting ready)"),
            Pause::TooFew { .. } | Pause::Shortfall { .. } => f.write_str("; `phalanx node` starts one"),
            Pause::Gathering { .. } => Ok(()),
        }
    }
}
