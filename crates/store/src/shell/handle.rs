use super::hub::{Connected, Hub};
use super::mailbox::Mail;
use super::model_run::ModelRun;
use crate::core::{Effects, Ending, Origin, Outcome};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::collections::VecDeque;
use std::sync::Arc;

/// A client of the store inside its process: commands without a socket.
#[derive(Debug)]
pub struct StoreClient {
    hub: Arc<Hub>,
    /// None when the store has too many clients.
    connected: Option<Connected>,
    effects: Effects,
    messages: VecDeque<Reply>,
}

impl StoreClient {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        let origin = Origin { peer: "in-process:0".to_owned(), host: String::new(), port: 0, trusted: true };
        let connected = hub.connect(origin);
        Self { hub, connected, effects: Effects::default(), messages: VecDeque::new() }
    }

    /// Carries out a command, and waits if the command does.
    ///
    /// Large arguments are kept as they are, not copied.
    pub async fn execute(&mut self, args: impl IntoIterator<Item = impl Into<Bytes>>) -> Reply {
        let args: Vec<Bytes> = args.into_iter().map(Into::into).collect();
        let Some(connected) = &mut self.connected else {
            return Reply::error("ERR max number of clients reached");
        };
        match self.hub.execute(connected.client, &args, &mut self.effects) {
            Outcome::Reply(reply) | Outcome::Close(reply) => reply,
            Outcome::Replies(replies) => {
                let mut replies = VecDeque::from(replies);
                let first = replies.pop_front().unwrap_or(Reply::Null);
                self.messages.extend(replies);
                first
            }
            Outcome::Silent => Reply::Null,
            Outcome::Run(call) => {
                ModelRun::start(&self.hub, *call).result(&self.hub, &mut self.effects).await
            }
            Outcome::Blocked => loop {
                match connected.mail.next().await {
                    Mail::Message(push @ Reply::Push(_)) => self.messages.push_back(push),
                    Mail::Message(reply) => return reply,
                    Mail::Close => return Reply::error("ERR the store has ended"),
                }
            },
        }
    }

    /// The next published message for this client; none when the store has ended or closed this client.
    pub async fn message(&mut self) -> Option<Reply> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        match self.connected.as_mut()?.mail.next().await {
            Mail::Message(message) => Some(message),
            Mail::Close => None,
        }
    }
}

impl Drop for StoreClient {
    fn drop(&mut self) {
        if let Some(connected) = &self.connected {
            self.hub.disconnect(connected.client, Ending::Answered);
        }
    }
}
