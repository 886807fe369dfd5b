//! `phalanx store`: the tensor store.

mod at;
mod info;
mod serve;
mod streams;
mod values;

pub(crate) use at::failure;
pub(crate) use serve::DurabilityArg;

use crate::failure::Failure;
use crate::output::Output;
use anyhow::Context;
use clap::{Args, Subcommand};
use std::path::Path;

#[derive(Debug, Args)]
pub(crate) struct StoreCommand {
    #[command(subcommand)]
    verb: Verb,
}

impl StoreCommand {
    /// Whether it goes on until it is stopped, and logs what happens.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.verb, Verb::Serve(_))
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve a store until stopped; SmartRedis programs and all Redis tools can use it.
    Serve(serve::ServeArgs),
    /// Show what a store holds and who uses it.
    Info(info::InfoArgs),
    /// Store the arrays of files as tensors.
    #[command(visible_alias = "import")]
    Put(values::PutArgs),
    /// Show tensors, or write them to a file.
    Get(values::GetArgs),
    /// Write all tensors that match to a file.
    Export(values::ExportArgs),
    /// List keys with their kind, type, shape and size.
    List(values::ListArgs),
    /// Show streams as they change: rates, lag, memory, who waits and why.
    Watch(streams::WatchArgs),
    /// End a stream: no more samples will arrive.
    Seal(streams::SealArgs),
    /// Delete keys.
    Rm(values::RemoveArgs),
}

pub(crate) async fn run(command: StoreCommand, output: Output) -> Result<(), Failure> {
    match command.verb {
        Verb::Serve(args) => serve::run(args, output).await,
        Verb::Info(args) => info::run(&args, output),
        Verb::Put(args) => values::put(args, output),
        Verb::Get(args) => values::get(args, output),
        Verb::Export(args) => values::export(&args, output),
        Verb::List(args) => values::list(&args, output),
        Verb::Watch(args) => streams::watch(args, output).await,
        Verb::Seal(args) => streams::seal(&args, output),
        Verb::Rm(args) => values::remove(args, output),
    }
}

/// The first line of a file, which is the password.
pub(crate) fn password(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("could not read the password from {}", file.display()))
        .map_err(Failure::usage)?;
    let password = text.lines().next().unwrap_or_default().trim_end();
    if password.is_empty() {
        let error = anyhow::anyhow!("there is no password in {}", file.display());
        return Err(Failure::usage(error).hint("its first line is the password"));
    }
    Ok(Some(password.to_owned()))
}
