//! Leaving in order.

use super::Engine;
use crate::core::messages::{ToLeader, ToRank};
use crate::error::OpsError;
use crate::shell::channel::Channel;
use crate::shell::shared::Shared;
use std::time::{Duration, Instant};

/// How long the others may take to hear that this rank leaves.
const FAREWELL: Duration = Duration::from_secs(2);

impl Engine {
    /// Computes what all ranks wait for, says goodbye and fails what is left.
    pub(in crate::shell) fn leave(&mut self, shared: &Shared) {
        let until = Instant::now() + FAREWELL;
        while self.turn(shared, true) {}
        if self.over.is_none() {
            self.leaving = true;
            self.tell_all(shared);
        }
        while self.over.is_none() && !self.all_know(shared) && Instant::now() < until {
            if !self.turn(shared, true) && self.over.is_none() {
                self.look_at_streams = true;
                self.ring_bells();
                if self.doze() {
                    shared.sleep_on(self.channels.values(), Duration::from_millis(20));
                }
                self.rouse();
            }
        }
        if self.over.is_none() {
            self.over = Some(OpsError::ShutDown { rank: self.rank });
        }
        self.fail_all(shared);
        self.ring_bells();
        self.close_channels();
    }

    /// Closes all connections without a word.
    pub(in crate::shell) fn sever(&mut self, shared: &Shared) {
        let error = OpsError::ShutDown { rank: self.rank };
        shared.set_over(&error);
        self.over = Some(error);
        self.channels.values_mut().for_each(Channel::close);
    }

    fn tell_all(&mut self, shared: &Shared) {
        if self.leader.is_none() {
            return self.say(shared, ToLeader::Leave);
        }
        for channel in self.channels.values_mut() {
            if let Err(error) = channel.send(&ToRank::Leave) {
                tracing::debug!(%error, "could not say goodbye to a rank");
            }
        }
    }

    fn all_know(&self, shared: &Shared) -> bool {
        let knows = |rank: &u32| self.farewells.contains(rank) || shared.has_left(*rank);
        (0..self.size).filter(|rank| self.channels.contains_key(rank)).all(|rank| knows(&rank))
    }
}
