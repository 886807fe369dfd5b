//! The contract of the command line: JSON, exit codes, help, clean ends.

mod contracts;
mod domains;
mod help;
mod launch;
mod launch_domain;
mod local_nodes;
mod simulate;
mod usage;

use crate::sandbox;
use phalanx_testkit::keys;
