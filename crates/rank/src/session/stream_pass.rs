//! Passes over a stream: all ranks wait for the next one before they take its first step.
//!
//! ```text
//!   every rank:  ask the store (a thread does) ─► has it, waits, or the stream has ended
//!   all ranks:   tell each other what they have, what they wish ─► go on when all have the same pass
//! ```
//! While one of them waits, all exchange a ballot a few times a second: so a wish to stop or to form the group anew is
//! followed, a checkpoint that is due is made, and a rank that is lost is noticed, whatever the store does.

use super::{Ended, Session};
use crate::connector::broken;
use crate::error::RankError;
use crate::worker::Report;
use phalanx_protocol::progress::Place;
use phalanx_protocol::{Every, NotSealed, SealedPass, Wish};
use phalanx_train::stream::{StreamFeed, StreamPass};
use phalanx_wire::ballot::PassBallot;
use phalanx_wire::codec;
use std::time::{Duration, Instant};

/// Steps before the end of a pass at which the next one is asked for.
const AHEAD: u64 = 3;
/// Waits shorter than this are not reported.
const SHORT_WAIT: Duration = Duration::from_secs(1);
/// How often ranks that wait tell each other so.
const HEARTBEAT: Duration = Duration::from_millis(100);
/// After this time a checkpoint that the store still lacks is made again.
const SAVE_AGAIN: Duration = Duration::from_secs(10);
/// How long the store is given to repeat what it has said of passes before.
const PATIENCE: Duration = Duration::from_secs(60);

impl Session<'_, '_> {
    /// Learns of the passes up to the step that the group begins with: the store repeats them.
    pub(super) fn locate(&mut self) -> Result<(), RankError> {
        let Some(feed) = self.worker.task.stream.clone() else { return Ok(()) };
        let until = Instant::now() + PATIENCE;
        while self.worker.passes.place(self.at).is_err() {
            let start = self.worker.passes.start_before(self.at);
            let learned = match feed.pass(start.pass, HEARTBEAT)? {
                StreamPass::Sealed(cursor) => self.worker.passes.learn(feed.sealed(&cursor, start.step)),
                StreamPass::Waiting(_) => Instant::now() < until,
                StreamPass::Finished => false,
            };
            if !learned {
                return Err(NotSealed { step: self.at }.into());
            }
        }
        Ok(())
    }

    /// Makes sure that all ranks know the pass of the next step; says how the group ends, if there is no next step.
    pub(super) fn enter_pass(&mut self) -> Result<Option<Ended>, RankError> {
        let Some(feed) = self.worker.task.stream.clone() else { return Ok(None) };
        if self.worker.passes.pass_of(self.at).is_some() {
            return Ok(None);
        }
        let loader = self.loader.take();
        let ahead = self.ahead.take().zip(loader);
        let pass = self.worker.passes.place(self.at)?.pass;
        let (began, mut told) = (Instant::now(), None);
        let mut saved: Option<Instant> = None;
        loop {
            let own = feed.pass(pass, HEARTBEAT)?;
            let all = self.tell_pass(&feed, &own, saved.is_some_and(|saved| saved.elapsed() < SAVE_AGAIN))?;
            let first = all.first().map(answer).unwrap_or_default();
            let agreed = all.iter().all(|ballot| answer(ballot) == first);
            match first {
                (Some(sealed), _) if agreed => {
                    self.worker.passes.learn(sealed);
                    self.loader = ahead.filter(|(pass, _)| *pass == sealed).map(|(_, loader)| loader);
                    if let Some(progress) = &mut self.progress {
                        progress.on_sealed(sealed);
                    }
                    if began.elapsed() >= HEARTBEAT {
                        // How fast the run is does not depend on how long it waited.
                        self.last = Instant::now();
                    }
                    return Ok(None);
                }
                (None, true) if agreed => return self.end_of_stream().map(|()| Some(Ended::Done)),
                _ => self.check_passes(&all)?,
            }
            match all.iter().map(|ballot| ballot.wish).max() {
                Some(wish) if wish == Wish::Stop as u8 => return Ok(Some(Ended::Done)),
                Some(wish) if wish == Wish::Reform as u8 => return Ok(Some(Ended::Reformed)),
                _ => {}
            }
            let is_due = all.get(self.speaker()).is_some_and(|speaker| speaker.save);
            let save = is_due && !all.iter().any(|ballot| ballot.saved);
            if save || began.elapsed() >= SHORT_WAIT {
                self.tell_wait(own, &mut told);
            }
            if save {
                saved = Some(Instant::now());
                self.save_while_waiting()?;
            }
            self.worker.outlet.check()?;
        }
    }

    /// Asks for the next pass when the last steps of this one begin, and reads its first samples while they are
    /// computed.
    pub(super) fn look_ahead(&mut self, step: u64) {
        let Some(feed) = self.worker.task.stream.as_ref().filter(|feed| feed.may_look_ahead()) else {
            return;
        };
        let Some(pass) = self.worker.passes.pass_of(step) else { return };
        let next = Place { step: pass.start + pass.steps, pass: pass.pass + 1, ..Place::default() };
        if self.ahead.is_some() || next.step - step > AHEAD || self.worker.passes.plan().is_done(next) {
            return;
        }
        // What goes wrong here goes wrong again when the pass begins.
        let Ok(StreamPass::Sealed(cursor)) = feed.pass(next.pass, Duration::ZERO) else { return };
        let sealed = feed.sealed(&cursor, next.step);
        let (Ok(batches), Some(loader)) = (feed.batches(sealed), &mut self.loader) else { return };
        if loader.continue_with(next.pass, Box::new(batches)) {
            self.ahead = Some(sealed);
        }
    }

    /// Tells all ranks what this one knows of the pass, and hears what they know.
    fn tell_pass(
        &self,
        feed: &StreamFeed,
        own: &StreamPass,
        saved: bool,
    ) -> Result<Vec<PassBallot>, RankError> {
        let by_time = matches!(self.worker.passes.plan().checkpoint, Every::Time(_));
        let late =
            by_time && self.progress.as_ref().is_some_and(|progress| progress.is_late(self.spans.now()));
        let (sealed, needed) = match own {
            StreamPass::Sealed(cursor) => (Some(feed.sealed(cursor, self.at)), false),
            StreamPass::Waiting(delay) => {
                (None, delay.as_ref().is_some_and(|delay| delay.needs_checkpoint()))
            }
            StreamPass::Finished => (None, false),
        };
        let ended = *own == StreamPass::Finished;
        let wish = self.worker.mailbox.wish(self.epoch).max(self.worker.outlet.wish()) as u8;
        let own = PassBallot { sealed, ended, wish, save: late || needed, saved };
        if self.lane.ranks() == 1 {
            return Ok(vec![own]);
        }
        let mut bytes = bytes::BytesMut::new();
        codec::encode_into(&own, &mut bytes).map_err(|error| broken(error.to_string()))?;
        let gathered = self.lane.all_gather(&bytes, "pass")?;
        let ballot = |rank: usize| codec::decode::<PassBallot>(gathered.part(rank).unwrap_or_default());
        (0..self.lane.ranks()).map(|rank| ballot(rank).map_err(|error| broken(error.to_string()))).collect()
    }

    /// Ranks that have an answer have the same.
    fn check_passes(&self, all: &[PassBallot]) -> Result<(), RankError> {
        let mut answers = all.iter().map(answer).filter(|answer| *answer != (None, false));
        let first = answers.next();
        match answers.all(|answer| Some(answer) == first) {
            true => Ok(()),
            false => Err(RankError::OtherPass { step: self.at + 1 }),
        }
    }

    /// Tells the user why the run waits, when the reason is another one than before.
    fn tell_wait(&mut self, own: StreamPass, told: &mut Option<String>) {
        let StreamPass::Waiting(Some(delay)) = own else { return };
        let text = delay.to_string();
        if self.speaks() && told.as_ref() != Some(&text) {
            tracing::info!(step = self.at, "{text}");
            let (epoch, step, wait) = (self.epoch, self.at, text.as_str().into());
            let ended = self.worker.passes.pass_before(step);
            self.worker.say(Report::StreamWaits { epoch, step, wait, ended });
        }
        *told = Some(text);
    }

    /// A checkpoint lets the store free what was used, and there is nothing else to do.
    fn save_while_waiting(&mut self) -> Result<(), RankError> {
        if self.at == 0 {
            return Ok(());
        }
        let now = self.spans.now();
        self.share_buffers()?;
        self.snapshot()?;
        if let Some(progress) = &mut self.progress {
            progress.on_saved(now);
        }
        Ok(())
    }

    /// The stream has no more samples: the model is validated as at any end.
    fn end_of_stream(&mut self) -> Result<(), RankError> {
        let step = self.at;
        self.worker.passes.on_stream_ended(step);
        self.tell_end_of_stream();
        let due = self.progress_here()?.due_here();
        if due.validate && self.validated < step {
            self.share_buffers()?;
            self.validate(step)?;
        } else {
            self.share_buffers()?;
        }
        self.worker.outlet.check()
    }

    /// Tells the driver that there are no more steps, also in a group that begins where the stream ends.
    pub(super) fn tell_end_of_stream(&self) {
        if self.speaks() && self.worker.passes.has_ended(self.at) {
            let ended = self.worker.passes.pass_before(self.at);
            self.worker.say(Report::StreamEnded { epoch: self.epoch, step: self.at, ended });
        }
    }
}

/// What a rank knows of the pass: which it is, or that there is none; neither while it waits.
fn answer(ballot: &PassBallot) -> (Option<SealedPass>, bool) {
    (ballot.sealed, ballot.ended)
}
