//! Numbers from nodes, checked before the driver calculates with them.

use phalanx_wire::train::{FromReplica, HoldRef, SealedPass, StepReport};

/// The last step that a message may name: no run is longer, and sums with it do not overflow.
const MOST_STEPS: u64 = 1 << 53;

/// A message names a step, or a place in the data, that no run can have reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it names {number} as {what}, and no run is longer than {MOST_STEPS} steps")]
pub struct ImpossibleNumber {
    /// What the number stands for.
    pub what: &'static str,
    /// The number.
    pub number: u64,
}

/// Checks the numbers of a message that the driver calculates with.
///
/// # Errors
/// One of them is impossible: the message is not to be used.
pub fn check_numbers(message: &FromReplica) -> Result<(), ImpossibleNumber> {
    match message {
        FromReplica::Enlisted { step, .. } => check("a step", step.unwrap_or(0)),
        FromReplica::Restored { step, .. } | FromReplica::Validated { step, .. } => check("a step", *step),
        FromReplica::Left { step, holds, .. } => {
            check("a step", step.unwrap_or(0))?;
            holds.iter().try_for_each(|hold: &HoldRef| check("a step", hold.step))
        }
        FromReplica::Steps { steps, .. } => steps.iter().try_for_each(check_report),
        FromReplica::Snapshot { state, .. } | FromReplica::Computed { outputs: state, .. } => {
            check("a step", state.step)
        }
        FromReplica::Part { part, .. } => check("a step", part.state.step),
        FromReplica::StreamWaits { step, ended, .. } | FromReplica::StreamEnded { step, ended, .. } => {
            check("a step", *step)?;
            ended.as_ref().map_or(Ok(()), check_pass)
        }
        FromReplica::Refused { .. }
        | FromReplica::Prepared { .. }
        | FromReplica::Spans { .. }
        | FromReplica::Waits { .. }
        | FromReplica::NotComputed { .. } => Ok(()),
    }
}

fn check_report(report: &StepReport) -> Result<(), ImpossibleNumber> {
    check("a step", report.step)?;
    check("a pass", report.pass)?;
    report.sealed.as_ref().map_or(Ok(()), check_pass)
}

fn check_pass(pass: &SealedPass) -> Result<(), ImpossibleNumber> {
    check("a pass", pass.pass)?;
    check("the first step of a pass", pass.start)?;
    check("the steps of a pass", pass.steps)
}

fn check(what: &'static str, number: u64) -> Result<(), ImpossibleNumber> {
    match number <= MOST_STEPS {
        true => Ok(()),
        false => Err(ImpossibleNumber { what, number }),
    }
}
