//! Carries out the real programs of all ranks over simulated links.
//!
//! Every rank has one way out and one way in, each as fast as the link. A frame leaves when the program allows it and
//! the way out is free, travels for the latency, and comes in when the way in is free. Computing takes no time here:
//! summing is far faster than any link.

use super::options::Link;
use phalanx_collective::simulate::{RankProgram, Walk};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const NANOS: f64 = 1e9;

/// What a collective took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Walked {
    pub(super) seconds: f64,
    /// The most that one rank sent.
    pub(super) bytes: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The way out of a rank is free.
    Free { rank: usize },
    /// The first bit of a frame is there.
    Reaches { rank: usize, from: usize, bytes: usize },
    /// A frame has come in.
    Arrived { rank: usize, from: usize, bytes: usize },
}

#[derive(Debug)]
struct Rank<'p> {
    walk: Walk<'p>,
    out_free: u64,
    in_free: u64,
    sent: usize,
    arrived: BTreeMap<usize, usize>,
}

#[derive(Debug)]
struct Links<'p> {
    link: Link,
    block: usize,
    ranks: Vec<Rank<'p>>,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

/// Walks through a collective with elements of so many bytes and frames of at most `block` bytes; `None` when its
/// programs wait for each other for ever.
pub(super) fn walk(plans: &[RankProgram], element: usize, link: Link, block: usize) -> Option<Walked> {
    let start = |plan| {
        let walk = RankProgram::start(plan, element);
        Rank { walk, out_free: 0, in_free: 0, sent: 0, arrived: BTreeMap::new() }
    };
    let ranks = plans.iter().map(start).collect();
    let mut links = Links { link, block, ranks, queue: BinaryHeap::new(), scheduled: 0 };
    for rank in 0..plans.len() {
        links.go_on(rank, 0);
    }
    let mut last = 0;
    while let Some(Reverse((now, _, event))) = links.queue.pop() {
        last = now;
        match event {
            Event::Free { rank } => links.go_on(rank, now),
            Event::Reaches { rank, from, bytes } => {
                let (takes, to) = (links.nanos(bytes), &mut links.ranks[rank]);
                to.in_free = to.in_free.max(now) + takes;
                let at = to.in_free;
                links.push(at, Event::Arrived { rank, from, bytes });
            }
            Event::Arrived { rank, from, bytes } => {
                *links.ranks[rank].arrived.entry(from).or_default() += bytes;
                links.go_on(rank, now);
            }
        }
    }
    let finished = links.ranks.iter().all(|rank| rank.walk.finished());
    let bytes = links.ranks.iter().map(|rank| rank.sent).max().unwrap_or(0) as f64;
    finished.then_some(Walked { seconds: last as f64 / NANOS, bytes })
}

impl Links<'_> {
    fn nanos(&self, bytes: usize) -> u64 {
        (self.link.seconds(bytes as f64) * NANOS).round() as u64
    }

    fn push(&mut self, at: u64, event: Event) {
        self.queue.push(Reverse((at, self.scheduled, event)));
        self.scheduled += 1;
    }

    /// Takes in what has arrived and sends a frame if the way out is free.
    fn go_on(&mut self, index: usize, now: u64) {
        let rank = &mut self.ranks[index];
        let arrived = &mut rank.arrived;
        rank.walk.receive(&mut |from, room| {
            let Some(there) = arrived.get_mut(&from) else { return 0 };
            let take = room.min(*there);
            *there -= take;
            take
        });
        if rank.out_free > now {
            return;
        }
        let Some((to, bytes)) = rank.walk.send(self.block) else {
            return;
        };
        rank.sent += bytes;
        // What was sent may be written over now.
        let free = now + self.nanos(bytes);
        self.ranks[index].out_free = free;
        let latency = u64::try_from(self.link.latency.as_nanos()).unwrap_or(u64::MAX / 4);
        self.push(free, Event::Free { rank: index });
        self.push(now.saturating_add(latency), Event::Reaches { rank: to, from: index, bytes });
    }
}
