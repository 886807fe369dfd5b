use phalanx_resp::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What others have for a client.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A reply to the command it waits for, or a published message.
    Message(Reply),
    /// Its connection is to end.
    Close,
}

/// Puts mail in; the keyspace's side.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    sender: mpsc::UnboundedSender<Mail>,
    held: Arc<AtomicUsize>,
    bound: usize,
}

/// Takes mail out; the client's side.
#[derive(Debug)]
pub(crate) struct MailReader {
    receiver: mpsc::UnboundedReceiver<Mail>,
    held: Arc<AtomicUsize>,
}

/// A mailbox that closes its client when more than `bound` bytes wait in it.
pub(crate) fn mailbox(bound: usize) -> (Mailbox, MailReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let held = Arc::new(AtomicUsize::new(0));
    (Mailbox { sender, held: held.clone(), bound }, MailReader { receiver, held })
}

/// About what a reply takes.
fn weight(reply: &Reply) -> usize {
    64 + match reply {
        Reply::Simple(data)
        | Reply::Error(data)
        | Reply::Bulk(data)
        | Reply::BigNumber(data)
        | Reply::Verbatim(data) => data.len(),
        Reply::Array(items) | Reply::Set(items) | Reply::Push(items) => items.iter().map(weight).sum(),
        Reply::Map(pairs) => pairs.iter().map(|(name, value)| weight(name) + weight(value)).sum(),
        Reply::Integer(_) | Reply::Null | Reply::NullArray | Reply::Double(_) | Reply::Bool(_) => 0,
    }
}

impl Mailbox {
    /// A client that is gone gets nothing, and one that takes nothing is closed.
    pub(crate) fn send(&self, reply: Reply) {
        let weight = weight(&reply);
        let held = self.held.fetch_add(weight, Ordering::Relaxed);
        // One message is always taken, however large.
        let over = held > 0 && held + weight > self.bound;
        let mail = if over { Mail::Close } else { Mail::Message(reply) };
        let _gone = self.sender.send(mail);
    }

    pub(crate) fn close(&self) {
        let _gone = self.sender.send(Mail::Close);
    }
}

impl MailReader {
    fn taken(&self, mail: Mail) -> Mail {
        if let Mail::Message(reply) = &mail {
            self.held.fetch_sub(weight(reply), Ordering::Relaxed);
        }
        mail
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Mail> {
        let mail = self.receiver.poll_recv(context);
        // The sender lives as long as the client is known.
        mail.map(|mail| self.taken(mail.unwrap_or(Mail::Close)))
    }

    pub(crate) async fn next(&mut self) -> Mail {
        let mail = self.receiver.recv().await.unwrap_or(Mail::Close);
        self.taken(mail)
    }
}
