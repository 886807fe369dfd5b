//! What nodes say to the driver.

use super::{Driver, Failing, LAST_WORDS, RETRY};
use crate::error::DistributedError;
use phalanx_fabric::{LinkEvent, NodeKind};
use phalanx_protocol::{FormationEvent, Left};
use phalanx_records::{Event, Events};
use phalanx_types::{Epoch, NodeId};
use phalanx_wire::codec;
use phalanx_wire::train::{FromReplica, LeftWhy, ToReplica};
use std::time::{Duration, Instant};

impl Driver<'_> {
    pub(super) fn on_event(
        &mut self,
        event: LinkEvent,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        match event {
            LinkEvent::Up(peer) if peer.kind() == NodeKind::Computing => {
                let node = peer.id().clone();
                self.nodes.insert(peer.key(), node.clone());
                self.peers.insert(node.clone(), peer);
                self.refused.remove(&node);
                self.core.feed(self.now(), FormationEvent::NodeFound { node }, &mut self.out);
            }
            LinkEvent::Up(_) => {}
            LinkEvent::Down { link, node, reason, .. } => {
                self.nodes.remove(&link);
                if self.peers.get(&node).is_some_and(|peer| peer.key() == link) {
                    self.peers.remove(&node);
                    self.lost(&node, &reason.to_string(), events);
                }
            }
            LinkEvent::Frame { link, body } => {
                let Some(node) = self.nodes.get(&link).cloned() else { return Ok(()) };
                match codec::decode::<FromReplica>(&body) {
                    Ok(message) => self.on_message(&node, message, events)?,
                    Err(error) => tracing::debug!(from = %node, %error, "no report of a replica"),
                }
            }
        }
        Ok(())
    }

    fn lost(&mut self, node: &NodeId, reason: &str, events: &mut Events<'_>) {
        if self.core.active().any(|active| active == node) {
            events.on(Event::Warning(format!("{node} is lost: {reason}")));
        }
        self.forget(node);
        self.refused.remove(node);
        let event = FormationEvent::NodeLost { node: node.clone(), reason: reason.to_owned() };
        self.core.feed(self.now(), event, &mut self.out);
        self.offer_again();
    }

    /// A node holds nothing any more.
    fn forget(&mut self, node: &NodeId) {
        self.holders.remove(node);
        let held = self.staging.inventory.remove(node).is_some();
        self.ending.take_if(|asked| asked == node || held);
    }

    /// Names every node that could take part: there may be room for one that there was none for before.
    pub(super) fn offer_again(&mut self) {
        let (now, time) = (Instant::now(), self.now());
        for node in self.peers.keys() {
            let refuses = self.refused.get(node).is_some_and(|retry| retry.is_none_or(|at| at > now));
            if !refuses {
                self.core.feed(time, FormationEvent::NodeFound { node: node.clone() }, &mut self.out);
            }
        }
    }

    fn on_message(
        &mut self,
        node: &NodeId,
        message: FromReplica,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let now = self.now();
        match message {
            FromReplica::Enlisted { run, step } if run == self.run => {
                self.refused.remove(node);
                self.core.feed(now, FormationEvent::Enlisted { node: node.clone(), step }, &mut self.out);
            }
            FromReplica::Refused { run, reason, busy } if run == self.run => {
                self.on_refused(node, reason, busy, events)?
            }
            FromReplica::Restored { run, step } if run == self.run => {
                self.core.feed(now, FormationEvent::Restored { node: node.clone(), step }, &mut self.out);
            }
            FromReplica::Prepared { run, epoch, end } if run == self.run => {
                let event = FormationEvent::Prepared { node: node.clone(), epoch, end: end.to_vec() };
                self.core.feed(now, event, &mut self.out);
            }
            FromReplica::Left { run, epoch, step, why, holds } if run == self.run => {
                self.staging.on_left(node, holds);
                self.on_left(node, epoch, step, why, events)?;
            }
            FromReplica::Steps { run, epoch, steps } if run == self.run && epoch == self.core.epoch() => {
                if let Some(first) = steps.first() {
                    self.commit(first.step.saturating_sub(1), events)?;
                }
                self.observe(epoch, &steps, events)?;
                steps.into_iter().for_each(|step| self.journal.on_step(step));
            }
            FromReplica::Validated { run, epoch, step, sums }
                if run == self.run && epoch == self.core.epoch() =>
            {
                self.journal.on_valid(step, sums);
            }
            FromReplica::Snapshot { run, epoch, ops, state } if run == self.run => {
                let last = epoch == Epoch(0) && self.ending.as_ref() == Some(node);
                if last || epoch == self.core.epoch() {
                    // Of parts, the first says so for all.
                    if !last && ops.is_none_or(|ops| ops.start == 0) {
                        self.journal.on_snapshot(state.step);
                    }
                    self.fetch(node, epoch, ops, state, last);
                } else {
                    // Of a group that is over: nobody comes for it.
                    self.send(node, &ToReplica::Taken { run: self.run, blob: state.blob });
                }
            }
            FromReplica::Part { run, epoch, part } if run == self.run && epoch == self.core.epoch() => {
                for new in &self.joiners {
                    let (run, holder, part) = (self.run, node.clone(), part.clone());
                    self.send(new, &ToReplica::Part { run, epoch, holder, part });
                }
            }
            FromReplica::Spans { run, epoch, rank, spans } if run == self.run => {
                if let Some(trace) = &mut self.trace {
                    trace.on_spans(epoch, rank as usize, spans);
                }
            }
            FromReplica::Waits { run, epoch, on, millis }
                if run == self.run && epoch == self.core.epoch() =>
            {
                if let Some(other) = self.seats.get(on as usize) {
                    let since = humantime::format_duration(Duration::from_millis(millis / 1000 * 1000));
                    events.on(Event::Waiting(format!("{node} waits for {other}, since {since}")));
                }
            }
            FromReplica::Computed { run, number, shape, outputs } if run == self.run => {
                self.on_computed(node, number, shape, outputs);
            }
            FromReplica::NotComputed { run, number, reason } if run == self.run => {
                self.on_not_computed(number, reason);
            }
            _ => {}
        }
        Ok(())
    }

    /// A node cannot take part; when none is left that can, neither can the run.
    fn on_refused(
        &mut self,
        node: &NodeId,
        reason: String,
        busy: bool,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        let retry = busy.then(|| Instant::now() + RETRY);
        if self.refused.insert(node.clone(), retry).is_none() {
            events.on(Event::Warning(format!("{node} does not take part: {reason}")));
        }
        self.forget(node);
        let event = FormationEvent::NodeLost { node: node.clone(), reason: reason.clone() };
        self.core.feed(self.now(), event, &mut self.out);
        self.offer_again();
        let local = self.task.config.formation.local;
        if local > 0 && self.refused.len() >= local {
            return Err(DistributedError::Replica { reason: format!("no node can train this: {reason}") });
        }
        Ok(())
    }

    fn on_left(
        &mut self,
        node: &NodeId,
        epoch: Epoch,
        step: Option<u64>,
        why: LeftWhy,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        if let Some(step) = step {
            self.holders.insert(node.clone(), step);
        }
        let left = match (why, step) {
            (LeftWhy::Broken { reason }, Some(step)) => {
                // A loss is told of anyway.
                let told =
                    self.epochs.last().is_some_and(|last| last.epoch == epoch.0 && last.ended.is_some());
                if !told && !reason.contains("lost") && self.warned < epoch {
                    self.warned = epoch;
                    events.on(Event::Warning(format!("{node} left the group: {reason}")));
                }
                Left::Broken { step, reason }
            }
            (LeftWhy::Broken { reason }, None) => Left::Empty { reason: Some(reason) },
            (LeftWhy::Reformed, Some(step)) => Left::Reformed { step },
            (LeftWhy::Reformed | LeftWhy::Ended, None) => Left::Empty { reason: None },
            (LeftWhy::Ended, Some(step)) => Left::Ended { step },
            (LeftWhy::Failed { reason, cause }, _) => {
                let error = DistributedError::Replica { reason: format!("{node}: {reason}") };
                return self.on_failed(step, error, cause, events);
            }
            (LeftWhy::WrongInput { reason, hint }, _) => {
                let error = DistributedError::Input { reason: format!("{node}: {reason}"), hint };
                return self.on_failed(step, error, true, events);
            }
        };
        if self.failing.is_none() {
            let event = FormationEvent::Left { node: node.clone(), epoch, left };
            self.core.feed(self.now(), event, &mut self.out);
        }
        Ok(())
    }

    /// The run cannot go on after `step`; `cause` when the error says why.
    fn on_failed(
        &mut self,
        step: Option<u64>,
        error: DistributedError,
        cause: bool,
        events: &mut Events<'_>,
    ) -> Result<(), DistributedError> {
        // All had done that step when they tried the next.
        self.commit(step.unwrap_or(0), events)?;
        tracing::debug!(%error, "a node gives up");
        let until = Instant::now() + if cause { Duration::ZERO } else { LAST_WORDS };
        match &mut self.failing {
            Some(failing) if failing.cause || !cause => {}
            failing => *failing = Some(Failing { error, cause, until }),
        }
        Ok(())
    }
}
