//! The file this process runs from.

use crate::failure::Failure;
use anyhow::Context;
use std::path::PathBuf;

/// The file this process runs from.
pub(crate) fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().context("could not find this program's own file").map_err(Failure::infrastructure)
}
