//! Numbers in shared memory that count up when keys change.
//!
//! A client that holds a view of a value looks whether the numbers are as they were before it asked for the value: then
//! the key is unchanged, and no command is needed. They count up under the keyspace's lock, before the reply to the
//! command that changed the key is sent, so a view is never served after a change was acknowledged to any client.

use crate::core::Touched;
use phalanx_resp::SLOTS;
use phalanx_shared::Counters;
use phalanx_wire::bulk::SharedPlace;
use std::io;

/// One number for every slot, and after them one for all keys together.
#[derive(Debug)]
pub(crate) struct KeyVersions(Counters);

impl KeyVersions {
    pub(crate) fn create() -> io::Result<Self> {
        Counters::create(usize::from(SLOTS) + 1).map(Self)
    }

    pub(crate) fn place(&self) -> SharedPlace {
        self.0.place()
    }

    pub(crate) fn count_up(&self, touched: &Touched) {
        touched.slots.iter().for_each(|slot| self.0.count_up(usize::from(*slot)));
        if touched.all {
            self.0.count_up(usize::from(SLOTS));
        }
    }
}
