//! Membership of a domain: a state machine without IO, clock or randomness.
//!
//! [`Membership`] takes events (learned, offered, heard, lost) and decides which nodes to dial, which link to keep,
//! what to send and which nodes to announce. Everything it knows of a peer comes either from a link to that peer (which
//! always wins) or from a member that has such a link.

mod backoff;
mod beats;
#[cfg(test)]
#[path = "../crowd_tests.rs"]
mod crowd_tests;
mod event;
mod gossip;
mod links;
mod membership;
#[cfg(test)]
mod mesh_tests;
mod peer;
mod roster;
#[cfg(test)]
mod tests;

pub(crate) use backoff::Backoff;
pub(crate) use event::{Command, ControlMessage, DialEnd, DialTarget, Event, LinkOffer, LinkSample};
pub use event::{LinkKey, NodeEvent};
pub(crate) use gossip::is_modest;
pub(crate) use membership::{Membership, Settings};
