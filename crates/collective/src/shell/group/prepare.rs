//! Making a group.

use super::aborter::GroupAborter;
use super::alarm::{Alarm, AlarmStream};
use super::end::{GroupEnd, HostId};
use super::links_end::LinksEnd;
use super::{Group, Reach, system};
use crate::core::hosts::Hosts;
use crate::error::CollectiveError;
use crate::shell::links::{Links, Socket};
use crate::shell::shared::{Prepared, SharedGroup};

/// How one rank takes part in a group.
///
/// Any ranks can form a group, whatever other groups they are in; a rank has one number in each. Groups are independent
/// of each other. A rank that calls two groups from one thread must order its calls so that ranks cannot deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOptions {
    /// The number of this rank.
    pub rank: usize,
    /// How many ranks there are.
    pub ranks: usize,
    /// The attempt of the group; the same on all ranks. Messages of other epochs are refused.
    pub epoch: u64,
    /// The bytes of all buffers together; the same on all ranks.
    pub room: usize,
    /// Whether shared memory may be used.
    pub share: bool,
    /// How many cores the ranks of this host run on, if not all cores of this process.
    pub cores: Option<usize>,
    /// The host that this rank counts as being on, if not the real one.
    pub host: Option<HostId>,
}

/// A rank with its own memory that does not know the other ranks yet.
#[derive(Debug)]
pub struct PreparedGroup {
    options: GroupOptions,
    shared: Option<Prepared>,
}

impl Group {
    /// Allocates what this rank needs. The end must be delivered to all other ranks.
    ///
    /// # Errors
    /// There is no such rank, or not enough memory.
    pub fn prepare(options: GroupOptions) -> Result<(PreparedGroup, GroupEnd), CollectiveError> {
        let GroupOptions { rank, ranks, .. } = options;
        if rank >= ranks || u32::try_from(ranks).is_err() {
            return Err(CollectiveError::NoRank { rank, ranks });
        }
        let host = match options.host {
            Some(host) => Ok(host),
            None => HostId::here(),
        };
        let host = host.map_err(|error| tracing::debug!(%error, "ranks of this host share no memory"));
        let (mut shared, mut segment) = (None, None);
        if options.share && ranks > 1 && host.is_ok() {
            let GroupOptions { epoch, room, .. } = options;
            let (prepared, address) = match options.cores {
                Some(cores) => SharedGroup::prepare_for_cores(rank, ranks, epoch, room, cores),
                None => SharedGroup::prepare(rank, ranks, epoch, room),
            }?;
            (shared, segment) = (Some(prepared), Some(address));
        }
        let end = GroupEnd { host: host.unwrap_or(HostId::from_bytes([0; 16])), segment };
        Ok((PreparedGroup { options, shared }, end))
    }
}

impl PreparedGroup {
    /// The ranks to which this rank needs a connected stream, given the ends of all ranks in order. The relation is
    /// symmetric.
    pub fn needs(&self, ends: &[GroupEnd]) -> Vec<usize> {
        if ends.len() != self.options.ranks {
            return Vec::new();
        }
        hosts(ends).connected(self.options.rank)
    }

    /// Connects to the other ranks, given the ends of all and the streams that [`PreparedGroup::needs`] asks for, both
    /// in rank order. Does not wait for any rank.
    ///
    /// # Errors
    /// An end or a stream is missing, or a rank of the same host cannot be reached.
    pub fn connect(
        self,
        ends: &[GroupEnd],
        mut streams: Vec<Option<Socket>>,
    ) -> Result<Group, CollectiveError> {
        let Self { options, shared } = self;
        let GroupOptions { rank, ranks, epoch, .. } = options;
        if ends.len() != ranks {
            return Err(CollectiveError::Length { what: "a group", wanted: ranks, got: ends.len() });
        }
        let hosts = hosts(ends);
        streams.resize_with(ranks, || None);
        let mut stream = |other: usize| {
            let missing = || system("connect a group", format!("there is no stream to rank {other}"));
            streams[other].take().ok_or_else(missing)
        };
        let (host, place) = hosts.seat(rank);
        let members = hosts.members(host);
        let reach = match (ranks, hosts.count()) {
            (1, _) => Reach::Alone,
            (_, 1) => Reach::Host,
            _ => Reach::Hosts,
        };
        let (mut local, mut posts) = (None, Vec::new());
        if let Some(shared) = shared.filter(|_| members.len() > 1) {
            let addresses: Vec<_> = members.iter().filter_map(|member| ends[*member].segment).collect();
            local = Some(shared.connect_members(members, &addresses)?);
            let others = if place == 0 { &members[1..] } else { &members[..1] };
            for other in others.iter().filter(|_| reach == Reach::Hosts) {
                posts.push(AlarmStream { rank: *other, stream: stream(*other)? });
            }
        }
        let (mut links, mut leaders) = (None, Vec::new());
        if reach == Reach::Hosts && place == 0 {
            let mut between: Vec<Option<Socket>> = (0..ranks).map(|_| None).collect();
            for other in hosts.leaders().into_iter().filter(|other| *other != rank) {
                let stream = stream(other)?;
                let again = stream.try_clone().map_err(|error| system("watch a stream", error))?;
                leaders.push(AlarmStream { rank: other, stream: again });
                between[other] = Some(stream);
            }
            let between =
                Links::new(rank, epoch, between).map_err(|error| system("set up a stream", error))?;
            links = Some(LinksEnd::new(between));
        }
        let alarm = (reach == Reach::Hosts).then(|| Alarm::new(posts)).transpose();
        let alarm = alarm.map_err(|error| system("watch a stream", error))?;
        let aborter = GroupAborter::new(local.as_ref().map(SharedGroup::aborter), links.as_ref(), alarm);
        let watch = aborter.watch(leaders).map_err(|error| system("start a thread", error))?;
        Ok(Group {
            rank,
            ranks,
            epoch,
            hosts,
            reach,
            shared: local,
            links,
            aborter,
            watch,
            sequence: 0,
            sent: 0,
            fused: Vec::new(),
        })
    }
}

fn hosts(ends: &[GroupEnd]) -> Hosts {
    Hosts::new(&ends.iter().map(GroupEnd::key).collect::<Vec<_>>())
}
