//! Room in memory: how much is used, who may use more, and who waits for some.

use super::{Hub, Shared};
use crate::core::{ClientId, Effects, grows};
use crate::shell::persist::RecordNumber;
use crate::shell::spill::SpillPass;
use bytes::Bytes;
use phalanx_shared::trim_kept;
use std::sync::atomic::Ordering;
use std::task::Context;

/// Copies that are lent to clients may take this part of the memory.
const COPIES_SHARE: u64 = 4;

/// This part of the memory may be kept for new values even when values take all of it.
const KEPT_SHARE: u64 = 16;

impl Hub {
    /// Memory that is kept for new values counts, too: most of it goes when there is no room beside the values.
    pub(in crate::shell) fn trim_kept_memory(&self) {
        let (resident, limit) = self.resident_and_limit();
        if limit > 0 {
            let resident = resident.saturating_add(self.copies());
            let most = limit.saturating_sub(resident).max(limit / KEPT_SHARE);
            trim_kept(usize::try_from(most).unwrap_or(usize::MAX));
        }
    }

    /// Bytes in memory and on the way there, and the most that may be.
    pub(in crate::shell) fn resident_and_limit(&self) -> (u64, u64) {
        let arriving = self.arriving.load(Ordering::Relaxed);
        let resident = self.used.load(Ordering::Relaxed).saturating_add(arriving);
        (resident, self.limit.load(Ordering::Relaxed))
    }

    /// Bytes of copies that are lent. Values leave memory for them, but no write is refused because of them.
    pub(in crate::shell) fn copies(&self) -> u64 {
        self.copies.load(Ordering::Relaxed)
    }

    /// Takes note of a copy that is lent to a client; false when there is no room for it.
    pub(crate) fn lend_copy(&self, len: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let copies = self.copies.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        // Clients that hold on to copies must leave room for new values.
        if limit == 0 || copies <= limit / COPIES_SHARE {
            return true;
        }
        self.copies.fetch_sub(len, Ordering::Relaxed);
        false
    }

    /// Ends what [`Self::lend_copy`] began.
    pub(crate) fn copy_returned(&self, len: u64) {
        self.copies.fetch_sub(len, Ordering::Relaxed);
    }

    /// Tells clients that wait for room in memory, when there may be some.
    pub(in crate::shell) fn serve_room(&self, shared: &mut Shared) {
        shared.keyspace.set_arriving(self.arriving.load(Ordering::Relaxed));
        let mut effects = Effects::default();
        shared.keyspace.serve_room(&mut effects);
        self.deliver(shared, &mut effects, RecordNumber::NONE);
    }

    /// How much room in memory a request lacks that could be made.
    pub(crate) fn lacks_room(&self, args: &[Bytes]) -> Option<u64> {
        self.spill.as_ref()?;
        let (resident, limit) = self.resident_and_limit();
        let needed = match args {
            [name, len] if name.eq_ignore_ascii_case(b"phalanx.take") => {
                std::str::from_utf8(len).ok().and_then(|len| len.parse().ok()).unwrap_or(0)
            }
            args => args.iter().map(|arg| arg.len() as u64).sum::<u64>(),
        };
        let fits = limit == 0 || resident.saturating_add(needed) <= limit || needed > limit;
        let is_take = args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"phalanx.take"));
        (!fits && (is_take || grows(args))).then_some(needed)
    }

    /// Has a client woken when values have left memory; none when there is no use in waiting.
    pub(crate) fn wait_for_spill(
        &self,
        needed: u64,
        pass: Option<SpillPass>,
        client: ClientId,
        context: &mut Context<'_>,
    ) -> Option<SpillPass> {
        let spill = self.spill.as_ref()?;
        let pass = pass.unwrap_or_else(|| spill.request(needed));
        spill.wait(pass, client, context).then_some(pass)
    }

    /// Takes note of a large argument that begins to arrive; false when there is no room for it.
    pub(crate) fn admit(&self, len: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let arriving = self.arriving.fetch_add(len, Ordering::Relaxed).saturating_add(len);
        if limit == 0 || self.used.load(Ordering::Relaxed).saturating_add(arriving) <= limit {
            return true;
        }
        self.arrived(len);
        false
    }

    /// Ends what [`Self::admit`] began.
    pub(crate) fn arrived(&self, len: u64) {
        self.arriving.fetch_sub(len, Ordering::Relaxed);
        if len > 0 && self.waits_for_room.load(Ordering::Relaxed) {
            self.serve_room(&mut self.lock());
        }
    }
}
