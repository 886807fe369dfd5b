//! The `phalanx` command line as a library: parses, runs one command, says how it went.
//!
//! The binary `phalanx` calls [`run_command`], and so does any other front that offers the whole command line.

#![warn(missing_docs)]

mod args;
mod commands;
mod escape;
mod exec_shim;
mod failure;
mod log_lines;
mod output;
mod own_program;
mod paths;
mod stop;
mod times;

use args::{Cli, Command};
use clap::Parser;
use failure::Failure;
use phalanx_jobs::builtin::python;
use phalanx_nodes::Program;
use std::ffi::OsString;

/// Runs one command to its end and gives the exit code of the process.
///
/// `program` is what starts this command line again, for nodes and for work in the background. `arguments` do not
/// have its name in front.
pub fn run_command(program: Program, arguments: Vec<OsString>) -> u8 {
    own_program::begin(program, arguments.clone());
    // Before anything else: this process becomes a job's command, and there may be many.
    if let Some(failure) = exec_shim::run_if_asked(&arguments) {
        return failure.report();
    }
    if let Some(code) = stand_in_worker(&arguments) {
        return code;
    }
    let words = std::iter::once(OsString::from("phalanx")).chain(arguments);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(told) => {
            // A reader that went away is not an error.
            let _printed = told.print();
            return u8::try_from(told.exit_code()).unwrap_or(2);
        }
    };
    start_logging(&cli);
    phalanx_shared::raise_file_limit();
    match run(cli) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// Answers calls as a worker without Python, if that is asked for: benchmarks name this program as the Python.
fn stand_in_worker(arguments: &[OsString]) -> Option<u8> {
    let asked = arguments.iter().eq(python::STAND_IN_ARGUMENTS.iter());
    asked.then(|| match python::stand_in_worker() {
        Ok(()) => 0,
        Err(error) => Failure::infrastructure(error).report(),
    })
}

fn run(cli: Cli) -> Result<(), Failure> {
    // One thread for all IO: a round trip takes a fifth of what it takes on the multi-thread
    // runtime. Computing has threads of its own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::infrastructure(anyhow::Error::new(error).context("could not start")))?;
    let output = cli.output;
    let _dashboard = cli.dashboard.and_then(commands::dashboard::beside::start);
    let result = runtime.block_on(async {
        match cli.command {
            Command::Node(args) => Box::pin(commands::node::run(*args, output)).await,
            Command::Nodes(args) => commands::nodes::run(args, output).await,
            Command::Relay(args) => commands::relay::run(args, output).await,
            Command::Domain(args) => commands::domain::run(args, output),
            Command::Job(args) => commands::job::run(args, output).await,
            Command::Train(args) => commands::train::run(*args, output).await,
            Command::Plan(args) => commands::plan::run(*args, output).await,
            Command::Search(args) => commands::search::run(args, output).await,
            Command::Run(args) => commands::run::run(args, output).await,
            Command::Ledger(args) => commands::ledger::run(&args, output),
            Command::Eval(args) => commands::eval::run(*args, output).await,
            Command::Predict(args) => commands::predict::run(*args, output).await,
            Command::Infer(args) => commands::infer::run(*args, output).await,
            Command::Export(args) => commands::export::run(args, output),
            Command::Fuse(args) => commands::fuse::run(args, output),
            Command::Model(args) => commands::model::run(args, output),
            Command::Launch(args) => commands::launch::run(args, output).await,
            Command::Store(args) => commands::store::run(args, output).await,
            Command::Dashboard(args) => commands::dashboard::run(*args, output).await,
            Command::Bench(args) => commands::bench::run(args, output).await,
            Command::Replay(args) => commands::replay::run(&args, output),
            Command::Simulate(args) => commands::simulate::run(args, output),
        }
    });
    // A handler that ignores its cancellation must not keep the process.
    runtime.shutdown_background();
    result
}

fn start_logging(cli: &Cli) {
    let usual = match &cli.command {
        Command::Node(_) | Command::Relay(_) => tracing::Level::INFO,
        Command::Store(store) if store.serves() => tracing::Level::INFO,
        _ => tracing::Level::WARN,
    };
    let level = match cli.verbose {
        0 if cli.output == output::Output::Quiet => tracing::Level::WARN,
        0 => usual,
        1 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(log_lines::stderr)
        .with_ansi(terminal)
        .with_target(false)
        .finish();
    // A program that logs by its own means goes on doing so.
    let _taken = tracing::subscriber::set_global_default(subscriber);
}
