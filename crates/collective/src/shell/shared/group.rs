//! One rank's end of a group on one host.

use super::abort::{Aborter, Members};
use super::calls::{self, SharedCall};
use super::header::{PLACES, STEP};
use super::segment::{HEADER_BYTES, PAGE, Segment, SegmentAddress};
use super::waiter::{Waited, Waiter};
use crate::core::words::{Kind, Signature};
use crate::error::CollectiveError;
use phalanx_types::DType;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The bytes of one staging slot.
pub(super) const SLOT_BYTES: usize = 1 << 20;
/// Where the buffers begin.
const DATA_OFFSET: usize = HEADER_BYTES + PLACES * SLOT_BYTES;
/// Each of up to this many ranks has a cache line of a slot.
const MOST_RANKS: usize = 1024;
/// Longer than it takes to wake a sleeping rank (55 µs on virtual machines). Otherwise the rank that woke it would
/// itself be asleep when it arrives, and so on.
const SPIN: Duration = Duration::from_micros(150);

/// A rank with its own memory that does not know the other ranks' memory yet.
#[derive(Debug)]
pub struct Prepared {
    rank: usize,
    ranks: usize,
    epoch: u64,
    own: Segment,
}

/// One rank's end of a group of ranks on one host.
///
/// All ranks make the same calls in the same order; a call that differs fails on all of them.
pub struct SharedGroup {
    pub(super) members: Arc<Members>,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// There are more ranks than cores: a waiting rank sleeps at once, and a running rank does work of the others.
    pub(super) crowded: bool,
    /// How many steps this rank has arrived at.
    step: u64,
    /// How many calls this rank has begun.
    sequence: u64,
    /// The offset of the next buffer.
    pub(super) allocated: usize,
    /// The claim count of every rank's part, between calls.
    pub(super) claimed: Vec<u64>,
    /// Which ranks have joined: they take part in the current call with zeros. Empty if none has.
    pub(super) joined: Vec<bool>,
    /// The error that ended this rank's part in the group.
    failed: Option<CollectiveError>,
    waiter: Waiter,
}

impl SharedGroup {
    /// Allocates this rank's memory, with room for buffers of `data_bytes` in total, the same on every rank. The
    /// address must be delivered to the other ranks.
    pub fn prepare(
        rank: usize,
        ranks: usize,
        epoch: u64,
        data_bytes: usize,
    ) -> Result<(Prepared, SegmentAddress), CollectiveError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        SharedGroup::prepare_for_cores(rank, ranks, epoch, data_bytes, cores)
    }

    /// As [`SharedGroup::prepare`], for ranks that run on `cores` cores; rank 0's number counts.
    pub fn prepare_for_cores(
        rank: usize,
        ranks: usize,
        epoch: u64,
        data_bytes: usize,
        cores: usize,
    ) -> Result<(Prepared, SegmentAddress), CollectiveError> {
        if rank >= ranks {
            return Err(CollectiveError::NoRank { rank, ranks });
        }
        let (own, address) = Segment::create(data_bytes.saturating_add(DATA_OFFSET - HEADER_BYTES + PAGE))?;
        let identity = &own.header().identity;
        identity.epoch.store(epoch, Ordering::Relaxed);
        identity.rank.store(rank as u64, Ordering::Relaxed);
        identity.ranks.store(ranks as u64, Ordering::Relaxed);
        identity.cores.store(cores as u64, Ordering::Release);
        Ok((Prepared { rank, ranks, epoch, own }, address))
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// A handle that aborts the group from any thread.
    pub fn aborter(&self) -> Aborter {
        Aborter { members: Arc::clone(&self.members) }
    }

    /// Sets how long this rank looks for the others before it sleeps.
    pub fn set_spin(&mut self, spin: Duration) {
        self.waiter.set_spin(spin);
    }

    /// Sets a callback for long waits: it is called with the rank waited for and the time so far, each time a wait has
    /// lasted `after` longer.
    pub fn set_on_wait(&mut self, after: Duration, on_wait: impl FnMut(usize, Duration) + Send + 'static) {
        self.waiter.set_on_wait(after, Box::new(on_wait));
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&mut self, name: &str) -> Result<(), CollectiveError> {
        let call =
            SharedCall { kind: Kind::Barrier, reduction: None, dtype: DType::U8, count: 0, name, place: 0 };
        self.agree(&call, 0)
    }

    /// The offset, in every segment, of the values staged for the next step.
    pub(super) fn slot(&self) -> usize {
        self.slot_of(self.step + 1)
    }

    /// The offset of the values of the step `back` steps before the next one.
    pub(super) fn slot_back(&self, back: u64) -> usize {
        self.slot_of((self.step + 1).saturating_sub(back))
    }

    fn slot_of(&self, step: u64) -> usize {
        HEADER_BYTES + place(step) * SLOT_BYTES
    }

    /// The first step of a call: returns when all ranks have arrived with the same one, or have joined.
    pub(super) fn agree(&mut self, call: &SharedCall<'_>, length: usize) -> Result<(), CollectiveError> {
        let (sequence, hash, place) = self.announce(call, length)?;
        self.joined.clear();
        for (rank, segment) in self.members.segments.iter().enumerate() {
            let header = segment.header();
            if header.progress.hash[place].load(Ordering::Relaxed) == hash {
                continue;
            }
            let theirs = self.read_call(rank, place)?;
            let ours = call.signature(sequence);
            if theirs.kind != Kind::Join || !ours.takes_zeros() {
                return Err(CollectiveError::Mismatch {
                    own_rank: self.rank,
                    rank,
                    ours: Box::new(ours),
                    theirs: Box::new(theirs),
                });
            }
            self.joined.resize(self.ranks, false);
            self.joined[rank] = true;
        }
        Ok(())
    }

    /// Announces this rank's call and waits until all ranks have arrived. Returns the number of the call, its hash and
    /// the place of every rank's call.
    pub(super) fn announce(
        &mut self,
        call: &SharedCall<'_>,
        length: usize,
    ) -> Result<(u64, u64, usize), CollectiveError> {
        let sequence = self.sequence;
        self.sequence += 1;
        let place = place(self.step + 1);
        let header = self.members.segments[self.rank].header();
        let hash = call.write(sequence, &header.calls[place]);
        header.progress.hash[place].store(hash, Ordering::Relaxed);
        header.progress.length[place].store(length as u64, Ordering::Relaxed);
        self.step()?;
        Ok((sequence, hash, place))
    }

    /// The call of a rank, right after it was announced.
    pub(super) fn read_call(&self, rank: usize, place: usize) -> Result<Signature, CollectiveError> {
        calls::read(&self.members.segments[rank].header().calls[place]).ok_or_else(|| {
            CollectiveError::System {
                what: "compare calls",
                problem: format!("rank {rank} wrote what is no call"),
            }
        })
    }

    /// The number of the next call.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The bytes that every rank contributes, right after the ranks agreed.
    pub(super) fn lengths(&self) -> Vec<usize> {
        let place = place(self.step);
        let length = |segment: &Segment| segment.header().progress.length[place].load(Ordering::Relaxed);
        self.members
            .segments
            .iter()
            .map(|segment| usize::try_from(length(segment)).unwrap_or(usize::MAX))
            .collect()
    }

    /// Announces that this rank has done what the step needs, and waits until all ranks have.
    pub(super) fn step(&mut self) -> Result<(), CollectiveError> {
        self.check()?;
        self.step += 1;
        let stepped = self.arrive_and_wait();
        if let Ok(Waited::Reached) = stepped {
            return Ok(());
        }
        let error = match stepped {
            Err(error) => error,
            Ok(_) => self.members.aborted(),
        };
        self.failed = Some(error.clone());
        Err(error)
    }

    /// Fails if the group is over.
    pub(super) fn check(&self) -> Result<(), CollectiveError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Ends the group because this rank cannot carry out a call that all agreed to.
    pub(super) fn give_up(&mut self, error: CollectiveError) -> CollectiveError {
        self.members.abort(&format!("rank {} gave up: {error}", self.rank));
        self.failed = Some(self.members.aborted());
        error
    }

    fn arrive_and_wait(&mut self) -> Result<Waited, CollectiveError> {
        let members = &*self.members;
        // Step counters wrap around; they are only compared with counters one step away.
        let target = (self.step as u32).wrapping_mul(STEP);
        if members.progress(self.rank).advance() == Waited::Over {
            return Ok(Waited::Over);
        }
        if self.crowded {
            let arrivals = members.segments[0].header().gate.arrivals.fetch_add(1, Ordering::AcqRel) + 1;
            if arrivals == self.step.wrapping_mul(self.ranks as u64) {
                return Ok(members.gate().advance());
            }
            return self.waiter.wait(members.gate(), target, || members.behind(target));
        }
        for rank in (self.rank + 1..self.ranks).chain(0..self.rank) {
            if self.waiter.wait(members.progress(rank), target, || rank)? == Waited::Over {
                return Ok(Waited::Over);
            }
        }
        Ok(Waited::Reached)
    }
}

impl Members {
    /// The first rank that has not arrived yet.
    fn behind(&self, target: u32) -> usize {
        let late = |rank: &usize| {
            self.progress(*rank).word.load(Ordering::Relaxed).wrapping_sub(target).cast_signed() < 0
        };
        (0..self.segments.len()).find(late).unwrap_or(self.rank)
    }
}

impl Prepared {
    /// Maps the memory of all ranks, given their addresses in rank order.
    ///
    /// # Errors
    /// As [`Prepared::connect_members`].
    pub fn connect(self, addresses: &[SegmentAddress]) -> Result<SharedGroup, CollectiveError> {
        let all: Vec<usize> = (0..self.ranks).collect();
        self.connect_members(&all, addresses)
    }

    /// Maps the memory of some ranks, including this one, given their addresses in order. In the group a rank is
    /// identified by its position among them.
    ///
    /// # Errors
    /// An address is missing or belongs to another rank, this rank is not among them, or there are too many ranks.
    pub fn connect_members(
        self,
        members: &[usize],
        addresses: &[SegmentAddress],
    ) -> Result<SharedGroup, CollectiveError> {
        let Prepared { rank: own_rank, ranks: all_ranks, epoch, own } = self;
        let ranks = members.len();
        if addresses.len() != ranks {
            return Err(CollectiveError::Length {
                what: "a shared group",
                wanted: ranks,
                got: addresses.len(),
            });
        }
        if ranks > MOST_RANKS {
            return Err(CollectiveError::Length {
                what: "a shared group, at most,",
                wanted: MOST_RANKS,
                got: ranks,
            });
        }
        let own_place = members.iter().position(|member| *member == own_rank);
        let rank = own_place.ok_or(CollectiveError::NoRank { rank: own_rank, ranks })?;
        let bytes = own.bytes();
        let mut own = Some(own);
        let mut segments = Vec::with_capacity(ranks);
        for ((place, member), address) in members.iter().enumerate().zip(addresses) {
            let segment = match own.take_if(|_| place == rank) {
                Some(own) => own,
                None => Segment::open(address, bytes)?,
            };
            let identity = &segment.header().identity;
            let stands =
                [&identity.epoch, &identity.rank, &identity.ranks].map(|word| word.load(Ordering::Relaxed));
            if stands != [epoch, *member as u64, all_ranks as u64] {
                let problem = format!("it does not belong to rank {member} of {all_ranks} in epoch {epoch}");
                return Err(CollectiveError::System { what: "map a peer's segment", problem });
            }
            segments.push(segment);
        }
        let crowded = (ranks as u64) > segments[0].header().identity.cores.load(Ordering::Acquire);
        Ok(SharedGroup {
            members: Arc::new(Members { segments, epoch, rank }),
            rank,
            ranks,
            crowded,
            step: 0,
            sequence: 0,
            allocated: DATA_OFFSET,
            claimed: vec![0; ranks],
            joined: Vec::new(),
            failed: None,
            waiter: Waiter::new(SPIN, crowded),
        })
    }
}

impl fmt::Debug for SharedGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedGroup")
            .field("rank", &self.rank)
            .field("ranks", &self.ranks)
            .field("epoch", &self.members.epoch)
            .field("sequence", &self.sequence)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

fn place(step: u64) -> usize {
    (step % PLACES as u64) as usize
}
