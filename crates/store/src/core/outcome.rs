use super::model_call::ModelCall;
use phalanx_resp::Reply;

/// What becomes of a command.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// The client gets this.
    Reply(Reply),
    /// The client gets these, one after the other.
    Replies(Vec<Reply>),
    /// The client gets nothing: it asked for no replies.
    Silent,
    /// The reply comes later as a message; until then no other command of this client is executed.
    Blocked,
    /// A model is to be run outside; [`super::Keyspace::finish`] makes the reply of its result.
    Run(Box<ModelCall>),
    /// The client gets this, then its connection is closed.
    Close(Reply),
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Outcome::Reply(reply)
    }
}
