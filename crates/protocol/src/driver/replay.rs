//! The driver's core in recordings: what it is told, and what it decides, in words.

use super::{DriverCommand, DriverConfig, DriverCore, DriverEvent};
use phalanx_recording::Replay;
use phalanx_types::{Outbox, Time};
use std::fmt;

/// Longer descriptions are cut off: a message may hold the reports of many steps.
const MOST_CHARS: usize = 240;

impl Replay for DriverCore {
    const CORE: &'static str = "driver";
    type Config = DriverConfig;
    type Event = DriverEvent;
    type Command = DriverCommand;

    fn new(config: DriverConfig) -> Self {
        DriverCore::new(config)
    }

    fn feed(&mut self, now: Time, event: DriverEvent, out: &mut Outbox<DriverCommand>) {
        self.on(now, event, out);
    }
}

impl fmt::Display for DriverEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverEvent::Started => f.write_str("the run begins here"),
            DriverEvent::NodeUp { node } => write!(f, "{node} could take part"),
            DriverEvent::NodeDown { node, loss } => write!(f, "{node} is gone: {loss}"),
            DriverEvent::Message { node, message } => write!(f, "{node} says {}", Short(message)),
            DriverEvent::StopAsked => f.write_str("the run is asked to stop"),
            DriverEvent::Tick => f.write_str("time has passed"),
            other => write!(f, "{}", Short(other)),
        }
    }
}

impl fmt::Display for DriverCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverCommand::Send { node, message } => write!(f, "send to {node}: {}", Short(message)),
            DriverCommand::Abort { epoch, reason, .. } => write!(f, "abort group {epoch}: {reason}"),
            DriverCommand::Tell(notice) => write!(f, "tell the user: {notice}"),
            DriverCommand::RecordStep(report) => write!(f, "record step {}", report.step),
            DriverCommand::RecordValidation { step, .. } => write!(f, "record the validation of step {step}"),
            other => write!(f, "{}", Short(other)),
        }
    }
}

/// The debug form of a value, cut off where it gets long.
struct Short<'a, T>(&'a T);

impl<T: fmt::Debug> fmt::Display for Short<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        match text.char_indices().nth(MOST_CHARS) {
            Some((end, _)) => write!(f, "{} …", &text[..end]),
            None => f.write_str(&text),
        }
    }
}
