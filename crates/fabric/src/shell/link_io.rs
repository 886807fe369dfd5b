//! The two tasks of a link: one reads frames and passes them on, one writes what was queued.

use super::bulk;
use super::inner::Inner;
use super::link::{Ending, Link, LinkEvent, Peer, USERS};
use super::refusal::ConnError;
use super::requests;
use super::stream::{ReadHalf, Stream, WriteHalf};
use super::topics::MAX_PUBLISHED;
use crate::core::Event;
use bytes::{Bytes, BytesMut};
use phalanx_wire::codec;
use phalanx_wire::fabric::FabricMessage;
use phalanx_wire::frame::{self, Frame, FrameError, FrameKind};
use phalanx_wire::node::LostReason;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};

const READ_AHEAD: usize = 64 << 10;
/// A buffer that grew beyond this is freed once it is empty.
const KEEP_BUFFER: usize = 1 << 20;
/// How long a link that ends on purpose waits for the other side to close.
const LINGER: Duration = Duration::from_millis(500);
/// The most bytes of frames kept for a channel that is not open yet.
const MAX_EARLY: usize = 1 << 20;
/// The overhead of keeping one frame.
const EARLY_FRAME: usize = 64;

/// Starts the tasks of a link that the core accepted.
pub(crate) fn run(inner: &Arc<Inner>, link: Arc<Link>, stream: Stream) {
    let (read, write) = stream.split();
    inner.spawn_to_end(write_queued(link.clone(), write));
    let shared = inner.clone();
    inner.spawn_to_end(Box::pin(async move {
        let mut reader = Reader::new(shared, link, read);
        let why = reader.read_all().await;
        reader.finish(why).await;
    }));
}

async fn write_queued(link: Arc<Link>, mut half: WriteHalf) {
    let mut ending = link.ending.subscribe();
    let mut cut = link.ending.subscribe();
    let mut batch = BytesMut::new();
    loop {
        // Read before the swap: frames queued before the end still go out.
        let ends = ending.borrow_and_update().is_some();
        link.swap_outgoing(&mut batch);
        if batch.is_empty() {
            if ends {
                break;
            }
            tokio::select! {
                () = link.wake.notified() => {}
                _ = ending.changed() => {}
            }
            continue;
        }
        let write = async {
            half.write_all(&batch).await?;
            half.flush().await
        };
        tokio::select! {
            result = write => if let Err(error) = result {
                // The reader may still find the peer's last message, and then sees the end itself.
                tracing::debug!(?link, %error, "nothing more can be sent");
                link.close_outgoing();
                return;
            },
            _ = cut.wait_for(|e| matches!(e, Some(Ending::Cut(_)))) => return,
        }
        link.mark_sent();
        batch.clear();
        if batch.capacity() > KEEP_BUFFER {
            batch = BytesMut::new();
        }
    }
    if let Ok(Err(error)) = tokio::time::timeout(LINGER, half.shutdown()).await {
        tracing::debug!(?link, %error, "link did not close cleanly");
    }
}

fn broken(error: &std::io::Error) -> LostReason {
    LostReason::LinkBroken { detail: error.kind().to_string().into() }
}

/// Why the reader stopped.
enum Why {
    /// The link was ended from this side, or the peer said goodbye.
    Ended,
    Lost(LostReason),
    Bad(ConnError),
}

impl<E: Into<ConnError>> From<E> for Why {
    fn from(error: E) -> Self {
        Why::Bad(error.into())
    }
}

enum ReadStep {
    End,
    Announce,
    Read(std::io::Result<usize>),
}

struct Reader {
    inner: Arc<Inner>,
    link: Arc<Link>,
    half: ReadHalf,
    buffer: BytesMut,
    ending: watch::Receiver<Option<Ending>>,
    channels: watch::Receiver<()>,
    /// In the order of [`USERS`].
    inboxes: [Inbox; USERS.len()],
}

/// The receiver of one kind of frame, and the frames that came before it was opened.
#[derive(Default)]
struct Inbox {
    user: Option<mpsc::Sender<LinkEvent>>,
    early: Vec<Bytes>,
    early_bytes: usize,
}

impl Reader {
    fn new(inner: Arc<Inner>, link: Arc<Link>, half: ReadHalf) -> Self {
        let ending = link.ending.subscribe();
        let channels = inner.channels.changed.subscribe();
        let (buffer, inboxes) = (BytesMut::new(), Default::default());
        Self { inner, link, half, buffer, ending, channels, inboxes }
    }

    async fn read_all(&mut self) -> Why {
        if let Err(why) = self.announce().await {
            return why;
        }
        loop {
            if let Err(why) = self.take_frames().await {
                return why;
            }
            self.buffer.reserve(READ_AHEAD);
            let step = tokio::select! {
                biased;
                _ = self.ending.wait_for(Option::is_some) => ReadStep::End,
                _ = self.channels.changed() => ReadStep::Announce,
                read = self.half.read_buf(&mut self.buffer) => ReadStep::Read(read),
            };
            match step {
                ReadStep::End => return Why::Ended,
                ReadStep::Announce => {
                    if let Err(why) = self.announce().await {
                        return why;
                    }
                }
                ReadStep::Read(Ok(0)) if self.buffer.is_empty() => {
                    return Why::Lost(LostReason::LinkBroken { detail: "closed by the peer".into() });
                }
                ReadStep::Read(Ok(0)) => return FrameError::Truncated { have: self.buffer.len() }.into(),
                ReadStep::Read(Ok(_)) => self.link.mark_heard(),
                ReadStep::Read(Err(error)) => return Why::Lost(broken(&error)),
            }
        }
    }

    async fn take_frames(&mut self) -> Result<(), Why> {
        while let Some(Frame { kind, body }) = frame::take(&mut self.buffer)? {
            match kind {
                FrameKind::Fabric => self.on_fabric(codec::decode(&body)?).await?,
                kind => match USERS.iter().position(|user| *user == kind) {
                    Some(user) => self.on_user(user, body).await?,
                    None => {
                        let expected = FrameKind::Fabric;
                        return Err(FrameError::Unexpected { expected, got: kind }.into());
                    }
                },
            }
        }
        Ok(())
    }

    async fn on_fabric(&mut self, message: FabricMessage) -> Result<(), Why> {
        let link = self.link.key;
        match message {
            FabricMessage::Heartbeat => {}
            FabricMessage::Status(status) => self.inner.tell(Event::StatusHeard { link, status }).await,
            FabricMessage::Known(known) => self.inner.tell(Event::KnownHeard { link, known }).await,
            FabricMessage::Goodbye => {
                self.link.goodbye.store(true, Ordering::Relaxed);
                return Err(Why::Ended);
            }
            FabricMessage::OpenBulk => bulk::open(&self.inner, &self.link),
            FabricMessage::Publish { topic, body } => {
                if body.len() > MAX_PUBLISHED {
                    let (kind, len) = (FrameKind::Fabric, body.len());
                    return Err(FrameError::TooLong { kind, len, max: MAX_PUBLISHED }.into());
                }
                self.inner.topics.deliver(&topic, self.link.node.clone(), body);
            }
            FabricMessage::Request { id, service, deadline_ms, body } => {
                let permit = self.link.pending.admission();
                let permit = self.unless_ended(permit).await?;
                let request = requests::Call { id, service, deadline_ms, body };
                requests::answer(&self.inner, &self.link, request, permit);
            }
            FabricMessage::Reply { id, result } => self.link.pending.resolve(id, result),
        }
        Ok(())
    }

    async fn on_user(&mut self, user: usize, body: Bytes) -> Result<(), Why> {
        if self.inboxes[user].user.is_none() {
            if self.inner.channels.user(user).is_none() {
                // The channel is not open yet; a receiver that comes soon must not miss the first frames.
                let inbox = &mut self.inboxes[user];
                inbox.early_bytes = inbox.early_bytes.saturating_add(body.len() + EARLY_FRAME);
                if inbox.early_bytes <= MAX_EARLY {
                    // A copy, because a slice would hold the whole buffer it was read into.
                    inbox.early.push(Bytes::copy_from_slice(&body));
                } else {
                    inbox.early = Vec::new();
                }
                return Ok(());
            }
            self.announce().await?;
        }
        self.pass_on(user, LinkEvent::Frame { link: self.link.key, body }).await
    }

    /// Tells users that opened their channels about this link, and delivers the frames kept for them.
    async fn announce(&mut self) -> Result<(), Why> {
        self.channels.mark_unchanged();
        for user in 0..USERS.len() {
            let Some(sender) = self.inner.channels.user(user) else { continue };
            let inbox = &mut self.inboxes[user];
            if inbox.user.as_ref().is_some_and(|present| present.same_channel(&sender)) {
                continue;
            }
            if inbox.early_bytes > MAX_EARLY {
                // The user would miss the beginning; a fresh link starts over.
                let detail = "frames came long before their channel was opened".into();
                return Err(Why::Lost(LostReason::LinkBroken { detail }));
            }
            *inbox = Inbox { user: Some(sender), early: std::mem::take(&mut inbox.early), early_bytes: 0 };
            self.pass_on(user, LinkEvent::Up(Peer(self.link.clone()))).await?;
            for body in std::mem::take(&mut self.inboxes[user].early) {
                self.pass_on(user, LinkEvent::Frame { link: self.link.key, body }).await?;
            }
        }
        Ok(())
    }

    /// Hands an event to the user, and reads nothing more until the user has taken it.
    async fn pass_on(&mut self, user: usize, event: LinkEvent) -> Result<(), Why> {
        let Some(sender) = &self.inboxes[user].user else { return Ok(()) };
        match sender.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(event)) => {
                let sender = sender.clone();
                let sent = self.unless_ended(async move { sender.send(event).await.is_ok() }).await?;
                if !sent {
                    tracing::debug!(link = ?self.link, "the user of the channel is gone");
                }
                Ok(())
            }
        }
    }

    /// Waits for something on this side; the peer's silence meanwhile does not count.
    async fn unless_ended<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Why> {
        self.link.set_held_up(true);
        let result = tokio::select! {
            done = work => Ok(done),
            _ = self.ending.wait_for(|e| matches!(e, Some(Ending::Cut(_)))) => Err(Why::Ended),
        };
        self.link.set_held_up(false);
        result
    }

    async fn finish(&mut self, why: Why) {
        let reason = match why {
            Why::Ended => self.ended_on_purpose().await,
            Why::Lost(reason) => reason,
            Why::Bad(error) => {
                self.inner.misbehaved(&self.link.node, &error);
                LostReason::Misbehaved { detail: error.to_string().into() }
            }
        };
        let link = self.link.key;
        let goodbye = self.link.goodbye.load(Ordering::Relaxed);
        self.link.end(Ending::Cut(reason.clone()));
        self.inner.links.remove(link);
        self.link.pending.fail_all(&reason, goodbye);
        self.link.bulk.close(&self.link.node);
        self.link.streams.close();
        self.inner.tell(Event::LinkDown { link, reason: reason.clone(), goodbye }).await;
        for sender in self.inboxes.iter_mut().filter_map(|inbox| inbox.user.take()) {
            let node = self.link.node.clone();
            let down = LinkEvent::Down { link, node, reason: reason.clone(), goodbye };
            let mut stop = self.inner.stop.subscribe();
            tokio::select! {
                sent = sender.send(down) => if sent.is_err() {
                    tracing::debug!(link = ?self.link, "the user of the channel is gone");
                },
                _ = stop.wait_for(|stopped| *stopped) => {}
            }
        }
    }

    /// The end that this side chose, or the peer's goodbye.
    async fn ended_on_purpose(&mut self) -> LostReason {
        let ending = self.ending.borrow().clone();
        match ending {
            Some(Ending::Cut(reason)) => reason,
            Some(Ending::Drain) => {
                // Closing with unread bytes would reset the connection and lose the last message.
                let rest = async {
                    loop {
                        self.buffer.clear();
                        self.buffer.reserve(READ_AHEAD);
                        if self.half.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                            break;
                        }
                    }
                };
                if tokio::time::timeout(LINGER, rest).await.is_err() {
                    tracing::debug!(link = ?self.link, "the peer did not close in time");
                }
                LostReason::LinkBroken { detail: "closed here".into() }
            }
            None => LostReason::LinkBroken { detail: "the peer said goodbye".into() },
        }
    }
}
