//! How this process was started, to start more of its kind.

use phalanx_nodes::Program;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

/// How the command line was called.
#[derive(Debug, Clone)]
struct Call {
    program: Program,
    arguments: Vec<OsString>,
}

static CALL: Mutex<Option<Call>> = Mutex::new(None);

/// Notes the program and the arguments of the command that begins.
pub(crate) fn begin(program: Program, arguments: Vec<OsString>) {
    *CALL.lock().unwrap_or_else(PoisonError::into_inner) = Some(Call { program, arguments });
}

fn call() -> Option<Call> {
    CALL.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The program that runs this command; `phalanx` of PATH if no command has begun.
pub(crate) fn own_program() -> Program {
    call().map_or_else(|| Program::new("phalanx"), |call| call.program)
}

/// The arguments of this command, without the program.
pub(crate) fn own_arguments() -> Vec<OsString> {
    call().map(|call| call.arguments).unwrap_or_default()
}
