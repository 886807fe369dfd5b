//! One client on a socket.

mod commands;
mod input;
mod output;
mod transfer;

use super::hang_up::HangUp;
use super::held_replies::HeldReplies;
use super::hub::{Connected, Hub};
use super::mailbox::{Mail, MailReader};
use super::model_run::ModelRun;
use super::persist::RecordNumber;
use super::shards::{Forwarding, Transit, Upstreams};
use super::sharing::Sharing;
use super::spill::SpillPass;
use crate::core::{ClientId, Effects, Ending};
use bytes::{Buf, BytesMut};
use phalanx_resp::{Limits, Reply, ReplyQueue, RequestParser, RequestProgress, Version};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use transfer::Transfer;

/// What a connection reads and writes in a turn, in bytes: large values never delay small ones for long.
const TURN: usize = 512 << 10;

/// How many commands a connection executes in a turn.
const COMMANDS: usize = 256;

/// Replies may gather to this size before a turn writes them.
const GATHER: usize = 64 << 10;

/// Replies that wait for the journal may gather to this size before no more commands are executed.
const HELD: usize = 1 << 20;

const SMALLEST_READ: usize = 4 << 10;
const LARGEST_READ: usize = 64 << 10;

/// Why a turn is over.
enum Turn {
    /// There is more to do.
    Yield,
    /// The connection is to be closed.
    End(Ending),
}

struct Connection<S> {
    stream: S,
    hub: Arc<Hub>,
    client: ClientId,
    mail: MailReader,
    parser: RequestParser,
    input: BytesMut,
    output: ReplyQueue,
    /// Replies that wait for the journal, and all that come after them.
    held: HeldReplies,
    effects: Effects,
    version: Version,
    /// The reply to a command comes by mail.
    blocked: bool,
    run: Option<ModelRun>,
    /// Nothing is read any more; what waits is written.
    closing: bool,
    /// What can be written at once is written, then the connection ends.
    aborted: bool,
    /// The client sends nothing any more.
    end_of_input: bool,
    /// Bytes of large arguments that the hub knows of.
    announced: u64,
    read_size: usize,
    /// The last look at the socket found nothing to read.
    is_drained: bool,
    /// The bytes that were read are no whole request.
    is_starved: bool,
    /// There is no mail, and it will wake this.
    is_listening: bool,
    sharing: Sharing,
    authenticated: bool,
    /// The stream holds back something that was written.
    unflushed: bool,
    /// A request waits until values have left memory.
    room: Option<RoomWait>,
    /// What the parser said last.
    progress: RequestProgress,
    /// What has arrived is not executed yet, since memory or the journal has no room.
    stalled: bool,
    /// A command that other nodes carry out.
    forwarding: Option<Forwarding>,
    upstreams: Upstreams,
    /// Memory of large arguments that are for another node.
    arriving_transit: Option<Transit>,
    /// Memory of the last reply of another node, until it is sent.
    sent_transit: Option<Transit>,
    /// The client is another node, which passes on commands for this one.
    is_peer: bool,
    transfer: Transfer,
}

/// What waits for room in memory, and for which pass of the spill.
enum RoomWait {
    /// A large argument, before it arrives.
    Argument(SpillPass),
    /// A whole request.
    Request(SpillPass),
}

/// Serves a client until it leaves.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + HangUp + Unpin>(
    stream: S,
    hub: Arc<Hub>,
    connected: Connected,
    same_host: bool,
) {
    let Connected { client, mail, authenticated } = connected;
    let transfer = Transfer::new(&hub, client, same_host);
    let limits = if authenticated { Limits::default() } else { Limits::UNAUTHENTICATED };
    let mut connection = Connection {
        stream,
        hub,
        client,
        mail,
        parser: RequestParser::new(limits),
        input: BytesMut::new(),
        output: ReplyQueue::default(),
        held: HeldReplies::default(),
        effects: Effects::default(),
        version: Version::Resp2,
        blocked: false,
        run: None,
        closing: false,
        aborted: false,
        end_of_input: false,
        announced: 0,
        read_size: SMALLEST_READ,
        is_drained: false,
        is_starved: false,
        is_listening: false,
        sharing: Sharing::new(same_host),
        authenticated,
        unflushed: false,
        room: None,
        progress: RequestProgress::More,
        stalled: false,
        forwarding: None,
        upstreams: Upstreams::default(),
        arriving_transit: None,
        sent_transit: None,
        is_peer: false,
        transfer,
    };
    let ending = loop {
        match poll_fn(|context| connection.turn(context)).await {
            Turn::Yield => tokio::task::yield_now().await,
            Turn::End(ending) => break ending,
        }
    };
    connection.release();
    connection.sharing.end(&connection.hub);
    connection.hub.disconnect(client, ending);
}

impl<S: AsyncRead + AsyncWrite + HangUp + Unpin> Connection<S> {
    /// Does what can be done without waiting.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Turn> {
        let mut bytes = TURN;
        let mut commands = COMMANDS;
        loop {
            let mut progress = self.take_mail(context);
            progress |= self.poll_run(context);
            progress |= self.poll_forwarding(context);
            progress |= self.release_held(context);
            match self.read(context, &mut bytes) {
                Ok(read) => progress |= read,
                Err(_broken) => return Poll::Ready(Turn::End(Ending::Unanswered)),
            }
            match self.execute_buffered(context, &mut commands) {
                Ok(executed) => progress |= executed,
                Err(error) => self.fail(&error),
            }
            progress |= self.release_held(context);
            match self.write(context, &mut bytes) {
                Ok(wrote) => progress |= wrote,
                Err(_broken) => return Poll::Ready(Turn::End(Ending::Unanswered)),
            }
            if let Some(ending) = self.ended() {
                return Poll::Ready(Turn::End(ending));
            }
            // Nothing is left to do, and what is to come will wake this.
            let idle = self.is_drained && self.is_starved && self.is_listening;
            let idle = idle && self.output.remaining() == 0 && self.held.is_empty() && !self.waits();
            if !progress || idle {
                return self.pause();
            }
            if bytes == 0 || commands == 0 {
                return Poll::Ready(Turn::Yield);
            }
        }
    }

    /// Nothing can be done now.
    fn pause(&mut self) -> Poll<Turn> {
        let arrives = self.room.is_none() && !self.closing && self.parser.large().is_some();
        if self.transfer.goes_on(arrives) {
            return Poll::Ready(Turn::Yield);
        }
        self.transfer.stop();
        Poll::Pending
    }

    fn waits(&self) -> bool {
        self.blocked || self.run.is_some() || self.forwarding.is_some()
    }

    fn ended(&self) -> Option<Ending> {
        let sent = self.output.remaining() == 0 && self.held.is_empty() && !self.unflushed;
        if self.aborted {
            return Some(if sent { Ending::Answered } else { Ending::Unanswered });
        }
        if self.closing {
            return sent.then_some(Ending::Answered);
        }
        // A client that left does not wait any more.
        let passed_on = self.forwarding.as_ref().is_some_and(|forwarding| !forwarding.is_blocking);
        let owes = self.stalled || passed_on;
        let left = self.end_of_input && sent && !owes && (self.blocked || self.run.is_none());
        let unanswered = || self.blocked || self.stream.refused_writes();
        left.then(|| if unanswered() { Ending::Unanswered } else { Ending::Answered })
    }

    fn take_mail(&mut self, context: &mut Context<'_>) -> bool {
        let mut any = false;
        self.is_listening = false;
        if self.mail.poll_closed(context) {
            self.aborted = true;
            return true;
        }
        // Mail that is not taken counts against the bound of the mailbox.
        while self.output.remaining() + self.held.weight() <= self.hub.unsent() {
            match self.mail.poll(context) {
                Poll::Pending => {
                    self.is_listening = true;
                    break;
                }
                Poll::Ready(Mail::Close) => self.aborted = true,
                Poll::Ready(Mail::Message(after, reply)) => {
                    // A reply comes by mail only to a client that waits; messages come to clients that listen.
                    if !matches!(reply, Reply::Push(_)) {
                        self.blocked = false;
                    }
                    self.answer(after, reply);
                }
            }
            any = true;
            if self.aborted {
                break;
            }
        }
        any
    }

    fn poll_run(&mut self, context: &mut Context<'_>) -> bool {
        let Some(run) = &mut self.run else { return false };
        let before = self.output.remaining();
        let output = self.held.is_empty().then_some(&mut self.output);
        match run.poll(context, &self.hub, &mut self.effects, output, self.version) {
            Poll::Ready(executed) => {
                self.run = None;
                self.on_executed(executed);
                true
            }
            Poll::Pending => self.output.remaining() > before,
        }
    }

    fn poll_forwarding(&mut self, context: &mut Context<'_>) -> bool {
        let Some(forwarding) = &mut self.forwarding else { return false };
        let Poll::Ready((upstreams, reply)) = forwarding.poll(context) else { return false };
        (self.upstreams, self.forwarding) = (upstreams, None);
        self.sent_transit = self.upstreams.take_transit();
        self.answer(RecordNumber::NONE, reply);
        true
    }
}
