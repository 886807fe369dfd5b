//! Handlers that every computing node has, so that it is useful without writing Rust.

mod exec;
#[cfg(target_os = "linux")]
pub mod python;

pub use exec::{Exec, exec_payload};
#[cfg(target_os = "linux")]
pub use python::Python;

use crate::{HandlerError, Handlers, JobContext};
use phalanx_types::Parcel;
use std::time::Duration;

/// `echo`, `upper`, `sleep` and `fail`.
pub fn handlers() -> Handlers {
    Handlers::new().with("echo", echo).with("upper", upper).with("sleep", sleep).with("fail", fail)
}

fn text(job: &JobContext) -> Result<&str, HandlerError> {
    std::str::from_utf8(&job.payload().bytes)
        .map_err(|error| HandlerError::failed(format!("the payload is not UTF-8: {error}")))
}

/// The payload is the solution.
#[expect(clippy::unnecessary_wraps, reason = "the form of a handler")]
fn echo(job: &JobContext) -> Result<Parcel, HandlerError> {
    Ok(job.payload().clone())
}

/// The text in capitals.
fn upper(job: &JobContext) -> Result<Parcel, HandlerError> {
    Ok(Parcel::from_bytes(text(job)?.to_uppercase()))
}

/// Waits as long as the payload says (`5ms`, `2s`), reporting progress on long waits.
fn sleep(job: &JobContext) -> Result<Parcel, HandlerError> {
    const STEP: Duration = Duration::from_secs(1);
    let text = text(job)?.trim();
    let whole = humantime::parse_duration(text).map_err(|error| {
        HandlerError::failed(format!("expected a duration like 5ms, got {text:?}: {error}"))
    })?;
    let mut slept = Duration::ZERO;
    while slept < whole {
        let step = STEP.min(whole - slept);
        job.sleep(step)?;
        slept += step;
        if whole > STEP {
            job.progress(slept.as_secs_f32() / whole.as_secs_f32(), "sleeping");
        }
    }
    Ok(Parcel::default())
}

/// Fails with the payload as its message.
fn fail(job: &JobContext) -> Result<Parcel, HandlerError> {
    Err(HandlerError::failed(text(job)?))
}
