/// How the shell should handle an error; it acts on this, never on the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Trying again may succeed.
    Retry,
    /// The operation cannot succeed as asked.
    Fatal,
    /// An invariant of ours was broken.
    Bug,
    /// The other side misbehaved; its connection is closed.
    Peer,
}
