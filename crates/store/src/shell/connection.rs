//! One client on a socket.

use super::executed::Executed;
use super::hang_up::HangUp;
use super::held_replies::HeldReplies;
use super::hub::{Connected, Hub};
use super::mailbox::{Mail, MailReader};
use super::model_run::ModelRun;
use super::persist::RecordNumber;
use super::shards::{Forwarding, Plan, Transit, Upstreams};
use super::sharing::{Sharing, SharingCommand, memory_for};
use super::spill::SpillPass;
use crate::core::{ClientId, Effects, Ending, Outcome};
use bytes::{Buf, BufMut, BytesMut};
use phalanx_resp::{Limits, Reply, ReplyQueue, RequestParser, RequestProgress, Version};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

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
                return Poll::Pending;
            }
            if bytes == 0 || commands == 0 {
                return Poll::Ready(Turn::Yield);
            }
        }
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

    /// Passes a command on to the nodes that have its keys; false if it is carried out here.
    fn passed_on(&mut self) -> bool {
        let (true, Some(shards)) = (self.authenticated, self.hub.shards()) else { return false };
        let args = self.parser.args();
        let name = args.first().map(|name| &name[..]).unwrap_or_default();
        let shared = SharingCommand::find(name).map(|command| command.inner(args));
        let plan = match shared {
            // What is shared is shared with this server.
            Some(inner) => shards.refuse_shared(inner).map_or(Plan::Own, Plan::Reply),
            None if name.eq_ignore_ascii_case(b"phalanx.shard") => {
                let (may, reply) = shards.greet(args);
                self.is_peer |= may;
                Plan::Reply(reply)
            }
            None if self.is_peer => Plan::Own,
            None => {
                let (arriving, announced) = (&mut self.arriving_transit, &mut self.announced);
                shards.plan(args, &mut self.upstreams, || {
                    let mut transit = arriving.take().unwrap_or_else(|| Transit::new(self.hub.clone()));
                    transit.adopt(std::mem::take(announced));
                    let len = args.iter().map(|arg| arg.len() as u64).sum::<u64>();
                    transit.take(len.saturating_sub(transit.len())).then_some(transit)
                })
            }
        };
        match plan {
            Plan::Own => return false,
            Plan::Reply(reply) => self.answer(RecordNumber::NONE, reply),
            Plan::Forward(forwarding) => self.forwarding = Some(forwarding),
        }
        self.release();
        true
    }

    /// Sends a reply when its record is recorded, and behind all replies before it.
    fn answer(&mut self, after: RecordNumber, reply: Reply) {
        if self.held.is_empty() && after == RecordNumber::NONE {
            self.output.push(reply, self.version);
        } else {
            self.held.push(after, reply, self.version);
        }
    }

    /// Takes over the replies whose records are decided.
    fn release_held(&mut self, context: &mut Context<'_>) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let Some(persistence) = self.hub.persistence() else { return false };
        self.held.release(&persistence.acknowledgements, self.client, context, &mut self.output)
    }

    /// Tells the client why its bytes are no request, and ends the connection.
    fn fail(&mut self, error: &phalanx_resp::ProtocolError) {
        self.answer(RecordNumber::NONE, Reply::error(format!("ERR Protocol error: {error}")));
        self.closing = true;
    }

    /// Executes requests that have arrived whole.
    fn execute_buffered(
        &mut self,
        context: &mut Context<'_>,
        left: &mut usize,
    ) -> Result<bool, phalanx_resp::ProtocolError> {
        let mut any = false;
        self.is_starved = false;
        self.stalled = false;
        let had_waited = self.room.is_some();
        while *left > 0 && !self.closing && !self.aborted && !self.waits() && self.output.remaining() < GATHER
        {
            self.stalled = self.waits_for_journal(context) || !self.next_request(context)?;
            if self.stalled {
                break;
            }
            match self.progress {
                RequestProgress::Request => self.execute(),
                RequestProgress::Announced { .. } => continue,
                RequestProgress::More | RequestProgress::Large => {
                    self.is_starved = true;
                    break;
                }
            }
            *left -= 1;
            any = true;
        }
        // Nothing was read while it waited, so nothing would wake this for what is to be read now.
        Ok(any || (had_waited && self.room.is_none()))
    }

    /// Takes the next step of parsing, unless it waits for room in memory; false if it does.
    fn next_request(&mut self, context: &mut Context<'_>) -> Result<bool, phalanx_resp::ProtocolError> {
        let waited = match self.room.take() {
            None => {
                self.progress = self.parser.parse(&mut self.input)?;
                None
            }
            Some(RoomWait::Argument(pass) | RoomWait::Request(pass)) => Some(pass),
        };
        match self.progress {
            RequestProgress::Announced { len } => Ok(self.admit(len as u64, waited, context)),
            RequestProgress::Request if self.is_uncounted() => {
                let needed = self.hub.lacks_room(self.parser.args());
                let pass =
                    needed.and_then(|needed| self.hub.wait_for_spill(needed, waited, self.client, context));
                self.room = pass.map(RoomWait::Request);
                Ok(pass.is_none())
            }
            RequestProgress::Request | RequestProgress::More | RequestProgress::Large => Ok(true),
        }
    }

    /// Whether the request that has arrived had no large argument, so that no room was asked for.
    fn is_uncounted(&self) -> bool {
        self.announced == 0 && self.arriving_transit.is_none() && !self.parser.refused()
    }

    /// Takes or refuses a large argument that is announced; false if it waits for room.
    fn admit(&mut self, len: u64, waited: Option<SpillPass>, context: &mut Context<'_>) -> bool {
        if self.hub.admit(len) {
            self.announced += len;
            if let Some(memory) = usize::try_from(len).ok().and_then(memory_for) {
                self.parser.give(memory);
            }
            return true;
        }
        let shards = self.hub.shards().filter(|_| self.authenticated && !self.is_peer);
        if shards.is_some_and(|shards| shards.is_elsewhere(self.parser.args())) {
            let transit = self.arriving_transit.get_or_insert_with(|| Transit::new(self.hub.clone()));
            if transit.take(len) {
                return true;
            }
        }
        let pass = self.hub.wait_for_spill(len, waited, self.client, context);
        self.room = pass.map(RoomWait::Argument);
        if pass.is_none() {
            self.parser.refuse();
        }
        pass.is_none()
    }

    /// Whether more has to be recorded before more is executed.
    fn waits_for_journal(&self, context: &mut Context<'_>) -> bool {
        let Some(persistence) = self.hub.persistence() else { return false };
        if self.held.weight() >= HELD {
            return true;
        }
        if !persistence.is_congested() {
            return false;
        }
        persistence.acknowledgements.wake_at_next(self.client, context);
        // It may have passed before the connection was to be woken.
        persistence.is_congested()
    }

    fn execute(&mut self) {
        if self.parser.refused() {
            let reply = self.hub.refuse(self.parser.args());
            self.answer(RecordNumber::NONE, reply);
            self.release();
            return;
        }
        if self.passed_on() {
            return;
        }
        let args = self.parser.args();
        // Clients repeat an append whose reply they did not wait for: it must be known before this one counts.
        let appends = args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"rpush"));
        if appends && self.stream.has_hung_up() {
            self.hub.leave(self.client);
        }
        let sharing = args.first().and_then(|name| SharingCommand::find(name)).filter(|_| self.authenticated);
        let executed = match sharing {
            Some(command) => self.sharing.execute(&self.hub, self.client, (command, args), &mut self.effects),
            None => self.hub.execute(self.client, args, &mut self.effects),
        };
        self.release();
        if let Some(version) = self.effects.version {
            self.version = version;
        }
        if self.effects.authenticated {
            self.authenticated = true;
            self.parser.set_limits(Limits::default());
        }
        self.on_executed(executed);
    }

    fn on_executed(&mut self, executed: Executed) {
        let after = executed.after;
        match executed.outcome {
            Outcome::Reply(reply) => self.answer(after, reply),
            Outcome::Replies(replies) => replies.into_iter().for_each(|reply| self.answer(after, reply)),
            Outcome::Silent => {}
            Outcome::Blocked => self.blocked = true,
            Outcome::Run(call) => self.run = Some(ModelRun::start(&self.hub, *call)),
            Outcome::Close(reply) => {
                self.answer(after, reply);
                self.closing = true;
            }
        }
    }

    fn release(&mut self) {
        self.arriving_transit = None;
        let announced = std::mem::take(&mut self.announced);
        if announced > 0 {
            self.hub.arrived(announced);
        }
    }

    /// Writes replies from where they lie.
    fn write(&mut self, context: &mut Context<'_>, left: &mut usize) -> io::Result<bool> {
        let mut any = false;
        while self.output.remaining() > 0 && *left > 0 {
            let mut slices = [IoSlice::new(&[]); 32];
            let filled = self.output.slices(&mut slices, *left);
            let slices = slices.get(..filled).unwrap_or_default();
            let stream = Pin::new(&mut self.stream);
            let written = match slices {
                // The plain call is the quicker one.
                [slice] => stream.poll_write(context, slice),
                _ => stream.poll_write_vectored(context, slices),
            };
            match written? {
                Poll::Pending => break,
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(n) => {
                    self.output.advance(n);
                    *left = left.saturating_sub(n);
                    any = true;
                }
            }
        }
        if self.output.remaining() == 0 && self.held.is_empty() {
            self.sent_transit = None;
        }
        // Sockets send at once; this is for streams that buffer.
        self.unflushed |= any;
        if self.unflushed && self.output.remaining() == 0 {
            self.unflushed = Pin::new(&mut self.stream).poll_flush(context)?.is_pending();
        }
        Ok(any)
    }

    /// Reads what has arrived. A client that has left is noticed before its last commands are carried out.
    fn read(&mut self, context: &mut Context<'_>, left: &mut usize) -> io::Result<bool> {
        let mut any = false;
        self.is_drained = false;
        loop {
            let full = self.input.len() >= LARGEST_READ || self.output.remaining() >= GATHER;
            // An argument that waits for room has no memory yet.
            if self.end_of_input || self.closing || full || self.room.is_some() || *left == 0 {
                return Ok(any);
            }
            let (polled, room) = self.read_once(context, *left);
            let Poll::Ready(n) = polled? else {
                self.is_drained = true;
                return Ok(any);
            };
            any = true;
            *left = left.saturating_sub(n);
            if n == 0 {
                self.end_of_input = true;
                self.hub.leave(self.client);
            }
            // A full buffer is looked at first: what follows may belong to a large argument.
            if n == room {
                return Ok(any);
            }
        }
    }

    /// Reads into the read buffer, or a large argument straight into its own. Says how much room there was.
    fn read_once(&mut self, context: &mut Context<'_>, left: usize) -> (Poll<io::Result<usize>>, usize) {
        if let Some(bulk) = self.parser.large() {
            if let Some(room) = bulk.given_room() {
                let len = room.len().min(left);
                let mut buffer = ReadBuf::new(room.get_mut(..len).unwrap_or_default());
                let polled = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
                let n = buffer.filled().len();
                bulk.arrived(n);
                return (polled.map_ok(|()| n), len);
            }
            let mut room = bulk.room().limit(left);
            let len = room.remaining_mut();
            return (pin!(self.stream.read_buf(&mut room)).poll(context), len);
        }
        let len = self.read_size;
        self.input.reserve(len);
        let mut room = (&mut self.input).limit(len);
        let polled = pin!(self.stream.read_buf(&mut room)).poll(context);
        if let Poll::Ready(Ok(n)) = polled
            && n == len
        {
            self.read_size = (2 * n).min(LARGEST_READ);
        }
        (polled, len)
    }
}
