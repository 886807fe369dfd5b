//! Carrying out what a client asked for, here or at the node that has its keys.

use super::Connection;
use crate::core::Outcome;
use crate::shell::executed::Executed;
use crate::shell::hang_up::HangUp;
use crate::shell::model_run::ModelRun;
use crate::shell::persist::RecordNumber;
use crate::shell::shards::{Plan, Transit};
use crate::shell::sharing::SharingCommand;
use phalanx_resp::Limits;
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + HangUp + Unpin> Connection<S> {
    pub(super) fn execute(&mut self) {
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

    pub(super) fn on_executed(&mut self, executed: Executed) {
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

    pub(super) fn release(&mut self) {
        self.arriving_transit = None;
        let announced = std::mem::take(&mut self.announced);
        if announced > 0 {
            self.hub.arrived(announced);
        }
    }
}
