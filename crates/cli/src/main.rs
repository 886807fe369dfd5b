//! The `phalanx` binary.

use phalanx_nodes::Program;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let called = arguments.next().unwrap_or_default();
    // The name by which it was called is found on PATH where the file itself is not known.
    let program = std::env::current_exe().map_or_else(|_unknown| Program::new(called), Program::new);
    ExitCode::from(phalanx_cli::run_command(program, arguments.collect()))
}
