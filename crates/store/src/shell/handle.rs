use super::executed::Executed;
use super::hub::{Connected, Hub};
use super::mailbox::Mail;
use super::model_run::ModelRun;
use super::persist::{RecordNumber, Standing};
use crate::core::{ClientId, Effects, Ending, Origin, Outcome};
use bytes::Bytes;
use phalanx_resp::Reply;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// A client of the store inside its process: commands without a socket.
#[derive(Debug)]
pub struct StoreClient {
    hub: Arc<Hub>,
    /// None when the store has too many clients.
    connected: Option<Connected>,
    effects: Effects,
    messages: VecDeque<(RecordNumber, Reply)>,
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
        room_in_journal(&self.hub, connected.client).await;
        room_in_memory(&self.hub, connected.client, &args).await;
        let executed = self.hub.execute(connected.client, &args, &mut self.effects);
        let after = executed.after;
        let reply = match executed.outcome {
            Outcome::Reply(reply) | Outcome::Close(reply) => reply,
            Outcome::Replies(replies) => {
                let mut replies = VecDeque::from(replies);
                let first = replies.pop_front().unwrap_or(Reply::Null);
                self.messages.extend(replies.into_iter().map(|reply| (after, reply)));
                first
            }
            Outcome::Silent => Reply::Null,
            Outcome::Run(call) => {
                let executed = ModelRun::start(&self.hub, *call).result(&self.hub, &mut self.effects).await;
                return recorded(&self.hub, connected.client, executed.after, reply_of(executed)).await;
            }
            Outcome::Blocked => loop {
                match connected.mail.next().await {
                    Mail::Message(after, push @ Reply::Push(_)) => self.messages.push_back((after, push)),
                    Mail::Message(after, reply) => {
                        return recorded(&self.hub, connected.client, after, reply).await;
                    }
                    Mail::Close => return Reply::error("ERR the store has ended"),
                }
            },
        };
        recorded(&self.hub, connected.client, after, reply).await
    }

    /// The next published message for this client; none when the store has ended or closed this client.
    pub async fn message(&mut self) -> Option<Reply> {
        let connected = self.connected.as_mut()?;
        loop {
            let (after, message) = match self.messages.pop_front() {
                Some(message) => message,
                None => match connected.mail.next().await {
                    Mail::Message(after, message) => (after, message),
                    Mail::Close => return None,
                },
            };
            // A message of something that was taken back is none.
            if let Standing::Recorded = standing(&self.hub, connected.client, after).await {
                return Some(message);
            }
        }
    }
}

async fn standing(hub: &Hub, client: ClientId, after: RecordNumber) -> Standing {
    match hub.persistence() {
        None => Standing::Recorded,
        Some(persistence) => {
            poll_fn(|context| persistence.acknowledgements.poll(after, client, context)).await
        }
    }
}

/// The reply when its record is recorded, or why that failed.
async fn recorded(hub: &Hub, client: ClientId, after: RecordNumber, reply: Reply) -> Reply {
    match standing(hub, client, after).await {
        Standing::Failed(text) => Reply::error(text.to_string()),
        Standing::Recorded | Standing::Waiting => reply,
    }
}

/// Waits while too much is on its way to the journal.
async fn room_in_journal(hub: &Hub, client: ClientId) {
    let Some(persistence) = hub.persistence() else { return };
    poll_fn(|context| {
        if !persistence.is_congested() {
            return Poll::Ready(());
        }
        persistence.acknowledgements.wake_at_next(client, context);
        // It may have passed meanwhile.
        if persistence.is_congested() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await
}

/// Waits while values leave memory to make room for a command.
async fn room_in_memory(hub: &Hub, client: ClientId, args: &[Bytes]) {
    let mut pass = None;
    poll_fn(|context| {
        let Some(needed) = hub.lacks_room(args) else { return Poll::Ready(()) };
        pass = hub.wait_for_spill(needed, pass, client, context);
        if pass.is_some() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await
}

fn reply_of(executed: Executed) -> Reply {
    match executed.outcome {
        Outcome::Reply(reply) => reply,
        _ => Reply::Null,
    }
}

impl Drop for StoreClient {
    fn drop(&mut self) {
        if let Some(connected) = &self.connected {
            self.hub.disconnect(connected.client, Ending::Answered);
        }
    }
}
