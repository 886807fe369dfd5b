use crate::digest::Digest;
use phalanx_types::{Outbox, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;

/// A core whose decisions follow from its configuration and the events it was fed.
pub trait Replay: Sized {
    /// Which core it is, as recordings name it.
    const CORE: &'static str;
    /// What the core begins with.
    type Config: Serialize + DeserializeOwned;
    /// What the core is told. What decisions do not depend on may be left out of its encoding.
    type Event: Serialize + DeserializeOwned + fmt::Display;
    /// What the core decides. Its encoding holds what has to be the same in a replay, and its
    /// text says the decision with its reason.
    type Command: Serialize + fmt::Display;

    /// Makes a core that begins with this configuration.
    fn new(config: Self::Config) -> Self;

    /// Tells the core what happened.
    fn feed(&mut self, now: Time, event: Self::Event, out: &mut Outbox<Self::Command>);

    /// Takes a command into the digest by which a replay is compared with its recording. A core
    /// that decides millions of things a second does so by numbers, others by the encoding.
    fn digest(command: &Self::Command, digest: &mut Digest<'_>) {
        digest.value(command);
    }

    /// A value that is encoded like a [`Replay::Config`] from which a core goes on just as this
    /// one does; `None` when the core cannot be captured.
    fn snapshot(&self) -> Option<impl Serialize + '_> {
        None::<()>
    }
}
