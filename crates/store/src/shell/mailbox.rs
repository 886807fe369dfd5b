use super::persist::RecordNumber;
use phalanx_resp::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// What others have for a client.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A reply to the command it waits for, or a published message, to be sent when this record is recorded.
    Message(RecordNumber, Reply),
    /// Its connection is to end.
    Close,
}

/// Puts mail in; the keyspace's side.
#[derive(Debug)]
pub(crate) struct Mailbox {
    sender: mpsc::UnboundedSender<(RecordNumber, Reply)>,
    closer: mpsc::Sender<()>,
    held: Arc<AtomicUsize>,
    bound: usize,
}

/// Takes mail out; the client's side.
#[derive(Debug)]
pub(crate) struct MailReader {
    receiver: mpsc::UnboundedReceiver<(RecordNumber, Reply)>,
    /// Beside the messages: a client that takes none must learn that it is closed.
    closing: mpsc::Receiver<()>,
    held: Arc<AtomicUsize>,
}

/// A mailbox that closes its client when more than `bound` bytes wait in it.
pub(crate) fn mailbox(bound: usize) -> (Mailbox, MailReader) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (closer, closing) = mpsc::channel(1);
    let held = Arc::new(AtomicUsize::new(0));
    (Mailbox { sender, closer, held: held.clone(), bound }, MailReader { receiver, closing, held })
}

/// About what a reply takes.
pub(crate) fn weight(reply: &Reply) -> usize {
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
    pub(crate) fn send(&self, after: RecordNumber, reply: Reply) {
        let weight = weight(&reply);
        let held = self.held.load(Ordering::Relaxed);
        // One message is always taken, however large.
        if held > 0 && held + weight > self.bound {
            self.close();
            return;
        }
        self.held.fetch_add(weight, Ordering::Relaxed);
        let _gone = self.sender.send((after, reply));
    }

    pub(crate) fn close(&self) {
        // Once is enough.
        let _closed = self.closer.try_send(());
    }
}

impl MailReader {
    fn taken(&self, (after, reply): (RecordNumber, Reply)) -> Mail {
        self.held.fetch_sub(weight(&reply), Ordering::Relaxed);
        Mail::Message(after, reply)
    }

    /// Whether the client is to be closed.
    pub(crate) fn poll_closed(&mut self, context: &mut Context<'_>) -> bool {
        self.closing.poll_recv(context).is_ready()
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Mail> {
        let reply = self.receiver.poll_recv(context);
        // The sender lives as long as the client is known.
        reply.map(|reply| reply.map_or(Mail::Close, |reply| self.taken(reply)))
    }

    pub(crate) async fn next(&mut self) -> Mail {
        tokio::select! {
            reply = self.receiver.recv() => reply.map_or(Mail::Close, |reply| self.taken(reply)),
            _closed = self.closing.recv() => Mail::Close,
        }
    }
}
