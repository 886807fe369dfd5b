//! A rank's ends of the groups it is in, before all ranks know all ends.

use super::connector::{Connector, broken};
use super::control_lane::ControlLane;
use super::exchange::Exchange;
use super::part::Part;
use super::pipe::Pipe;
use super::rings::{RingLane, Rings};
use crate::error::RankError;
use phalanx_collective::{
    BucketLimits, Buckets, CollectiveError, Group, GroupEnd, GroupOptions, HostId, PreparedGroup,
    SegmentAddress, Socket,
};
use phalanx_protocol::layout::{self, Post, Ring};
use phalanx_train::Task;
use phalanx_types::Epoch;
use phalanx_wire::group_end::{EndRef, RankEnds, RingEnd, SegmentRef};
use phalanx_wire::train::Layout;
use std::time::Duration;

/// A rank that keeps another waiting for longer than this is named.
const STALL: Duration = Duration::from_secs(5);
/// Memory for what travels on the control lane.
const CONTROL_ROOM: usize = 64 << 10;
const CONTROL: usize = 1;
const PIPE: usize = 2;
/// The first lane of rings.
const FIRST_RING: usize = 16;

/// This rank's ends.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) epoch: Epoch,
    pub(super) rank: usize,
    pub(super) layout: Layout,
    control: PreparedGroup,
    rings: Vec<OwnRing>,
}

#[derive(Debug)]
struct OwnRing {
    number: usize,
    ring: Ring,
    end: PreparedGroup,
    buckets: Buckets,
    /// Its parameters, in the order of its buckets.
    names: Vec<String>,
}

/// A stage that is connected to all that it needs.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) lane: ControlLane,
    pub(super) rings: Rings,
    pub(super) prev: Option<Socket>,
    pub(super) next: Option<Socket>,
}

impl Joined {
    /// A rank that is alone.
    pub(super) fn alone() -> Self {
        Self { lane: ControlLane::alone(), rings: Rings::new(Vec::new()), prev: None, next: None }
    }

    /// Makes pipes of the sockets, with room for `queue` frames of at most `most` bytes.
    pub(super) fn pipes(&mut self, queue: usize, most: usize) -> Result<[Option<Pipe>; 2], RankError> {
        let pipe = |socket: Option<Socket>| socket.map(|socket| Pipe::new(socket, queue, most)).transpose();
        Ok([pipe(self.prev.take())?, pipe(self.next.take())?])
    }
}

/// Makes the ends, and says how the others reach them.
///
/// # Errors
/// The layout makes no sense, or there is no memory to share.
pub(super) fn prepare(
    task: &Task,
    part: Option<&Part>,
    epoch: Epoch,
    rank: usize,
    layout: Layout,
) -> Result<(Ends, RankEnds), RankError> {
    let posts = layout::posts(&layout);
    if !layout::is_sound(&layout, task.graph.nodes.len()) || rank >= posts.len() {
        return Err(broken("the layout is not one of this model".to_owned()));
    }
    let options = |rank, ranks, room| GroupOptions {
        rank,
        ranks,
        epoch: epoch.0,
        room,
        share: true,
        cores: None,
        host: None,
    };
    let (control, end) = Group::prepare(options(rank, posts.len(), CONTROL_ROOM))?;
    let mut refs = RankEnds { control: to_ref(&end), rings: Vec::new() };
    let mut rings = Vec::new();
    for (number, ring) in layout::rings(&layout).into_iter().enumerate() {
        let Some(own) = ring.ranks.iter().position(|of| *of == rank).filter(|_| ring.ranks.len() > 1) else {
            continue;
        };
        let (names, sizes) = parameters(task, part, &ring)?;
        let buckets = Buckets::plan(&sizes, BucketLimits::default());
        let (end, end_ref) = Group::prepare(options(own, ring.ranks.len(), Exchange::room(&buckets)))?;
        refs.rings.push(RingEnd { ring: number as u32, end: to_ref(&end_ref) });
        rings.push(OwnRing { number, ring, end, buckets, names });
    }
    Ok((Ends { epoch, rank, layout, control, rings }, refs))
}

/// The parameters of a ring in the order in which backward makes their gradients final: as the part of the model says
/// that all ranks of the ring hold, else about in that order.
fn parameters(task: &Task, part: Option<&Part>, ring: &Ring) -> Result<(Vec<String>, Vec<usize>), RankError> {
    if let Some(part) = part.filter(|part| part.ops == ring.ops) {
        let all = part.stepper.model.parameters().iter();
        return Ok(all.map(|parameter| (parameter.name.clone(), parameter.elements())).unzip());
    }
    let graph = super::part::stage_of(&task.graph, ring.ops)?;
    let of = |value: &phalanx_graph::Value| (value.name.clone(), value.shape.at(1).iter().product());
    let mut all: Vec<(String, usize)> = graph.parameters().map(|(_, value)| of(value)).collect();
    all.reverse();
    Ok(all.into_iter().unzip())
}

fn to_ref(end: &GroupEnd) -> EndRef {
    let segment = |SegmentAddress { pid, fd, bytes, token }| SegmentRef { pid, fd, bytes, token };
    EndRef { host: end.host().to_bytes(), segment: end.segment().map(segment) }
}

fn from_ref(end: &EndRef) -> GroupEnd {
    let segment = |SegmentRef { pid, fd, bytes, token }| SegmentAddress { pid, fd, bytes, token };
    GroupEnd::new(HostId::from_bytes(end.host), end.segment.map(segment))
}

impl Ends {
    pub(super) fn post(&self) -> Post {
        layout::posts(&self.layout)[self.rank]
    }

    /// Joins the ends of all ranks, which come in the order of ranks. `on_wait` hears which rank is late.
    ///
    /// # Errors
    /// One cannot be reached.
    pub(super) fn connect(
        self,
        task: &Task,
        ends: &[RankEnds],
        connector: &dyn Connector,
        on_wait: impl Fn(usize, Duration) + Clone + Send + 'static,
    ) -> Result<Joined, RankError> {
        let post = self.post();
        let compression = task.config.sync.compress;
        let join = |lane: usize, own: PreparedGroup, ends: &[GroupEnd], among: &[usize]| {
            let streams = connector.streams(self.epoch, lane, &own.needs(ends), among)?;
            let mut group = own.connect(ends, streams)?;
            let (on_wait, among) = (on_wait.clone(), among.to_vec());
            group.set_on_wait(STALL, move |on, waited| on_wait(among.get(on).copied().unwrap_or(on), waited));
            Ok::<_, CollectiveError>(group)
        };
        let mut lanes = Vec::new();
        for OwnRing { number, ring, end, buckets, names } in self.rings {
            let of = |rank: &usize| {
                let mut rings = ends.get(*rank)?.rings.iter();
                rings.find(|end| end.ring as usize == number).map(|end| from_ref(&end.end))
            };
            let others: Option<Vec<GroupEnd>> = ring.ranks.iter().map(of).collect();
            let others = others.ok_or_else(|| broken("a stage has no end of a ring".to_owned()))?;
            let group = join(FIRST_RING + number, end, &others, &ring.ranks)?;
            lanes.push(RingLane { exchange: Exchange::new(group, buckets, compression)?, names });
        }
        let all: Vec<usize> = (0..ends.len()).collect();
        let controls: Vec<GroupEnd> = ends.iter().map(|end| from_ref(&end.control)).collect();
        let control = join(CONTROL, self.control, &controls, &all)?;
        let stream = |to: Option<usize>| to.map(|to| connector.stream(self.epoch, PIPE, to)).transpose();
        Ok(Joined {
            lane: ControlLane::new(control),
            rings: Rings::new(lanes),
            prev: stream((!post.is_first()).then(|| self.rank - 1))?,
            next: stream((!post.is_last()).then(|| self.rank + 1))?,
        })
    }
}
