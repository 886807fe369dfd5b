//! Replies of one connection that wait for the journal.

use super::mailbox::weight;
use super::persist::{Acknowledgements, RecordNumber, Standing};
use crate::core::ClientId;
use phalanx_resp::{Reply, ReplyQueue, Version};
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// In the order in which they are to be sent.
#[derive(Debug, Default)]
pub(crate) struct HeldReplies {
    replies: VecDeque<(RecordNumber, Reply, Version)>,
    weight: usize,
}

impl HeldReplies {
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// About what they take.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    pub(crate) fn push(&mut self, after: RecordNumber, reply: Reply, version: Version) {
        self.weight += weight(&reply);
        self.replies.push_back((after, reply, version));
    }

    /// Moves those to `output` whose records are decided; says whether there were any. Wakes the client for the next.
    pub(crate) fn release(
        &mut self,
        acknowledgements: &Acknowledgements,
        client: ClientId,
        context: &mut Context<'_>,
        output: &mut ReplyQueue,
    ) -> bool {
        let mut any = false;
        while let Some((after, _, _)) = self.replies.front() {
            let Poll::Ready(standing) = acknowledgements.poll(*after, client, context) else { break };
            let Some((_, reply, version)) = self.replies.pop_front() else { break };
            any = true;
            self.weight -= weight(&reply);
            match (standing, reply) {
                // A message of something that was taken back is none.
                (Standing::Failed(_), Reply::Push(_)) => {}
                (Standing::Failed(text), _) => output.push(Reply::error(text.to_string()), version),
                (Standing::Recorded | Standing::Waiting, reply) => output.push(reply, version),
            }
        }
        any
    }
}
