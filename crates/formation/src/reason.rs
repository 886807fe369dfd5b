//! Reasons for a plan.

use phalanx_types::ByteSize;
use serde::Serialize;
use std::fmt;

/// Why a node holds nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum WhyLeftOut {
    /// No part of the model fits.
    TooSmall { has: u64, needs: u64 },
    /// A step would take longer by this many percent.
    Slower { percent: f64 },
    /// A step would take as long as now.
    NoGain,
    /// Replicas and stages were given, and all have a node.
    NotNeeded,
    /// It cannot hold the model alone, and fits into no replica.
    NoPlace,
    /// Every replica has the given number of stages, and there are too few nodes left for one more.
    TooFew { left: usize, stages: usize },
    /// A step would be shorter by this many percent; the method does not search that far.
    Overlooked { percent: f64 },
    /// The time or effort for reasons had ended.
    NotTried,
}

/// For one node or several.
impl fmt::Display for WhyLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { has, needs } => {
                write!(f, "{} is less than the {} of the smallest stage", ByteSize(*has), ByteSize(*needs))
            }
            Self::Slower { percent } if *percent >= 0.5 => {
                write!(f, "otherwise a step would be {percent:.0} % slower")
            }
            Self::Slower { .. } | Self::NoGain => f.write_str("otherwise no step would be faster"),
            Self::NotNeeded => f.write_str("the formation that was asked for needs no more nodes"),
            Self::NoPlace => f.write_str("there is no place in any formation that was looked at"),
            Self::TooFew { left, stages } => {
                let are = if *left == 1 { "is" } else { "are" };
                let left = count(*left, "node", "nodes");
                write!(f, "{left} {are} left, another replica of {stages} stages needs {stages}")
            }
            Self::Overlooked { percent } => {
                write!(f, "this method does not look so far, though a step would be {percent:.1} % faster")
            }
            Self::NotTried => f.write_str("planning ended before anything else was tried"),
        }
    }
}

/// One choice of the planner, and its reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Choice {
    Replicas {
        chosen: usize,
        why: Because,
    },
    Stages {
        replica: usize,
        chosen: usize,
        why: Because,
    },
    MicroBatches {
        chosen: usize,
        why: Because,
    },
    /// The first nodes of a pipeline keep more micro-batches, so nodes with much memory come first.
    Order {
        replica: usize,
        first: String,
        /// `None` if the model would not fit.
        percent_slower_reversed: Option<f64>,
    },
    Moves {
        bytes: u64,
        seconds: f64,
    },
}

/// The reason for a number.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum Because {
    Given,
    /// The next best number makes a step longer by this many percent.
    Faster {
        than: usize,
        percent: f64,
    },
    /// The next number does not fit into memory.
    Memory {
        instead_of: usize,
    },
    /// There are no nodes for more.
    Nodes {
        enough_for: usize,
    },
    /// There was no alternative.
    OnlyOne,
    /// Another number makes a step shorter by this many percent; the method does not search that far.
    Overlooked {
        than: usize,
        percent: f64,
    },
    /// No fitting formation was found with the other numbers that were tried.
    NoneFits,
    /// The time for reasons had ended, or there are too many nodes to try other numbers.
    NotTried,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given => f.write_str("as given"),
            Self::Faster { than, percent } if *percent >= 0.5 => {
                write!(f, "{than} would make a step {percent:.0} % slower")
            }
            Self::Faster { than, .. } => write!(f, "{than} would be no faster"),
            Self::Memory { instead_of } => write!(f, "{instead_of} would not fit into memory"),
            Self::Nodes { enough_for: 1 } => f.write_str("there are nodes for one only"),
            Self::Nodes { enough_for } => write!(f, "there are nodes for {enough_for} only"),
            Self::OnlyOne => f.write_str("nothing else is possible"),
            Self::Overlooked { than, percent } => {
                write!(f, "this method does not look so far, though {than} would be {percent:.1} % faster")
            }
            Self::NoneFits => f.write_str("with no other number that was tried does the model fit"),
            Self::NotTried => f.write_str("no other number was tried"),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicas { chosen, why } => write!(f, "{}: {why}", count(*chosen, "replica", "replicas")),
            Self::Stages { replica, chosen, why } => {
                write!(f, "{} in replica {replica}: {why}", count(*chosen, "stage", "stages"))
            }
            Self::MicroBatches { chosen, why } => {
                write!(f, "{}: {why}", count(*chosen, "micro-batch", "micro-batches"))
            }
            Self::Order { replica, first, percent_slower_reversed: p } => {
                write!(f, "{first} is first in replica {replica}: the other way round ")?;
                match p {
                    Some(p) => write!(f, "a step would be {p:.0} % slower"),
                    None => f.write_str("the model would not fit"),
                }
            }
            Self::Moves { bytes, seconds } => {
                write!(f, "{} of parameters change their place, in {seconds:.1} s", ByteSize(*bytes))
            }
        }
    }
}

pub(crate) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
