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

/// An error and its causes in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
