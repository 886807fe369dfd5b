//! Where Phalanx keeps a user's keys and background jobs.

use crate::failure::Failure;
use anyhow::anyhow;
use phalanx_types::DomainName;
use std::path::PathBuf;

fn base(own: &str, xdg: &str, fallback: &str) -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set(own)
        .or_else(|| set(xdg).map(|dir| dir.join("phalanx")))
        .or_else(|| set("HOME").map(|home| home.join(fallback).join("phalanx")))
        .ok_or_else(|| {
            Failure::usage(anyhow!("no home directory to keep files in")).hint(format!("set {own} or HOME"))
        })
}

/// Where the key of a domain is looked for when none is named.
pub(crate) fn domain_key(domain: &DomainName) -> Result<PathBuf, Failure> {
    let dir = base("PHALANX_CONFIG_DIR", "XDG_CONFIG_HOME", ".config")?;
    Ok(dir.join("domains").join(format!("{domain}.key")))
}

/// Where background main nodes keep their journals.
pub(crate) fn job_journals(domain: &DomainName) -> Result<PathBuf, Failure> {
    Ok(all_job_journals()?.join(domain.as_str()))
}

/// The directories with journals of background main nodes, by the names of their domains.
pub(crate) fn journals_by_domain() -> Vec<(String, PathBuf)> {
    // Without a home directory there are none.
    let dir = all_job_journals().ok().and_then(|dir| std::fs::read_dir(dir).ok());
    let dirs = dir.into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let named = dirs.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)));
    let mut found: Vec<(String, PathBuf)> = named.collect();
    found.sort();
    found
}

fn all_job_journals() -> Result<PathBuf, Failure> {
    let dir = base("PHALANX_STATE_DIR", "XDG_STATE_HOME", ".local/state")?;
    Ok(dir.join("jobs"))
}
