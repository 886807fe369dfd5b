//! Decides which node of a domain runs which rank, and says why ranks wait.

use phalanx_types::NodeId;
use phalanx_wire::detail::Detail;
use phalanx_wire::usage::Shortage;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Which nodes of the domain run ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NodeChoice {
    /// All that run programs.
    #[default]
    Any,
    /// This many.
    Count(u32),
    /// Nodes with these names or ids.
    Named(Vec<String>),
}

impl NodeChoice {
    /// Whether a node is among those that may be used.
    fn admits(&self, node: &NodeId) -> bool {
        match self {
            NodeChoice::Any | NodeChoice::Count(_) => true,
            NodeChoice::Named(names) => names.iter().any(|name| is_called(node, name)),
        }
    }
}

/// Whether a node has this id, or this name, to which digits were added.
fn is_called(node: &NodeId, name: &str) -> bool {
    node.as_str() == name || node.as_str().rsplit_once('-').is_some_and(|(own, _digits)| own == name)
}

/// A node as the launcher knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeOffer {
    pub(crate) node: NodeId,
    /// Its machine, if that is known.
    pub(crate) machine: Option<u64>,
    /// Cores that nothing uses.
    pub(crate) free: u32,
    /// Whether its owner allows programs.
    pub(crate) runs_programs: bool,
    /// The launcher's address as the node sees it; none through a relay, where ranks could not reach the launcher.
    pub(crate) launcher: Option<IpAddr>,
}

/// Ranks that are to be placed, all of them or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gang<'a> {
    pub(crate) workers: &'a BTreeSet<u32>,
    /// The cores of each rank.
    pub(crate) cores: u32,
    pub(crate) choice: &'a NodeChoice,
    /// Where other ranks of the launch run.
    pub(crate) running: &'a BTreeMap<u32, NodeId>,
}

/// Why ranks wait for nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlaceWait {
    /// There is no computing node.
    NoNodes,
    /// Nodes that were named are not there.
    Missing {
        /// Their names.
        names: Vec<String>,
    },
    /// No node runs programs.
    NotAllowed {
        /// Nodes that would, if their owners allowed it.
        nodes: Vec<NodeId>,
    },
    /// Nodes are reached only through a relay, and ranks cannot reach the launcher through it.
    Relayed {
        /// These nodes.
        nodes: Vec<NodeId>,
    },
    /// Fewer nodes than asked for can run ranks.
    TooFewNodes {
        /// How many were asked for.
        wanted: u32,
        /// How many there are.
        usable: u32,
        /// Nodes that do not run programs.
        closed: Vec<NodeId>,
    },
    /// The nodes have too few free cores.
    NoRoom {
        /// How many ranks wait.
        ranks: u32,
        /// The cores of each.
        cores: u32,
        /// How many of them would fit.
        fit: u32,
        /// Nodes that do not run programs.
        closed: Vec<NodeId>,
    },
    /// A node has fewer free cores than it announced.
    Shortage {
        /// The node.
        node: NodeId,
        /// What it lacks.
        shortage: Shortage,
    },
    /// A node could not be asked.
    Failed {
        /// The node.
        node: NodeId,
        /// Why.
        detail: Detail,
    },
}

impl PlaceWait {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            PlaceWait::NoNodes => Some("start nodes with `phalanx node --allow-exec`"),
            PlaceWait::NotAllowed { .. } => Some("nodes run programs when started with --allow-exec"),
            PlaceWait::TooFewNodes { closed, .. } | PlaceWait::NoRoom { closed, .. } => {
                (!closed.is_empty()).then_some("nodes run programs when started with --allow-exec")
            }
            PlaceWait::Missing { .. }
            | PlaceWait::Relayed { .. }
            | PlaceWait::Shortage { .. }
            | PlaceWait::Failed { .. } => None,
        }
    }
}

fn listed(nodes: &[impl fmt::Display]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn counted(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl fmt::Display for PlaceWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceWait::NoNodes => f.write_str("there is no computing node in the domain"),
            PlaceWait::Missing { names } => write!(f, "no node called {} is there", listed(names)),
            PlaceWait::NotAllowed { nodes } => write!(f, "{} may not run programs", listed(nodes)),
            PlaceWait::Relayed { nodes } => {
                write!(f, "{} can be reached only through a relay, which carries no ranks", listed(nodes))
            }
            PlaceWait::TooFewNodes { wanted, usable, closed } => {
                let (wanted, usable) = (counted(*wanted, "node", "nodes"), counted(*usable, "node", "nodes"));
                write!(f, "{wanted} asked for, and {usable} can run ranks")?;
                write_closed(f, closed)
            }
            PlaceWait::NoRoom { ranks, cores, fit, closed } => {
                let (ranks, cores) =
                    (counted(*ranks, "rank", "ranks"), counted(*cores, "free core", "free cores"));
                write!(f, "{ranks} with {cores} each cannot be placed: there is room for {fit}")?;
                write_closed(f, closed)
            }
            PlaceWait::Shortage { node, shortage } => write!(f, "{node}: {shortage}"),
            PlaceWait::Failed { node, detail } => write!(f, "{node} could not be asked: {detail}"),
        }
    }
}

fn write_closed(f: &mut fmt::Formatter<'_>, closed: &[NodeId]) -> fmt::Result {
    if closed.is_empty() { Ok(()) } else { write!(f, "; {} may not run programs", listed(closed)) }
}

/// Places all ranks of a gang, as evenly over the nodes as free cores allow. Neighbouring ranks share a node.
///
/// # Errors
/// They do not all fit.
pub(crate) fn place(offers: &[NodeOffer], gang: Gang<'_>) -> Result<BTreeMap<u32, NodeId>, PlaceWait> {
    let admitted: Vec<&NodeOffer> = offers.iter().filter(|offer| gang.choice.admits(&offer.node)).collect();
    if let NodeChoice::Named(names) = gang.choice {
        let missing = |name: &&String| !offers.iter().any(|offer| is_called(&offer.node, name));
        let names: Vec<String> = names.iter().filter(missing).cloned().collect();
        if !names.is_empty() {
            return Err(PlaceWait::Missing { names });
        }
    }
    let closed = named(&admitted, |offer| !offer.runs_programs);
    let mut usable: Vec<&NodeOffer> =
        admitted.iter().copied().filter(|offer| offer.runs_programs && offer.launcher.is_some()).collect();
    if usable.is_empty() {
        let relayed = named(&admitted, |offer| offer.runs_programs);
        return Err(match (admitted.is_empty(), relayed.is_empty()) {
            (true, _) => PlaceWait::NoNodes,
            (false, true) => PlaceWait::NotAllowed { nodes: closed },
            (false, false) => PlaceWait::Relayed { nodes: relayed },
        });
    }
    if let NodeChoice::Count(wanted) = *gang.choice {
        keep_best(&mut usable, wanted, gang.running);
        if (usable.len() as u32) < wanted {
            return Err(PlaceWait::TooFewNodes { wanted, usable: usable.len() as u32, closed });
        }
    }
    spread(&usable, gang).map_err(|fit| PlaceWait::NoRoom {
        ranks: gang.workers.len() as u32,
        cores: gang.cores,
        fit,
        closed,
    })
}

fn named(offers: &[&NodeOffer], which: impl Fn(&NodeOffer) -> bool) -> Vec<NodeId> {
    offers.iter().filter(|offer| which(offer)).map(|offer| offer.node.clone()).collect()
}

/// Keeps nodes that run ranks of the launch, then those with the most free cores.
fn keep_best(usable: &mut Vec<&NodeOffer>, wanted: u32, running: &BTreeMap<u32, NodeId>) {
    let in_use: BTreeSet<&NodeId> = running.values().collect();
    usable.sort_by_key(|offer| {
        (!in_use.contains(&offer.node), std::cmp::Reverse(offer.free), offer.node.clone())
    });
    usable.truncate(wanted as usize);
}

/// Gives every rank to the node with the fewest ranks that has room; else says how many fit.
fn spread(usable: &[&NodeOffer], gang: Gang<'_>) -> Result<BTreeMap<u32, NodeId>, u32> {
    struct Load<'a> {
        node: &'a NodeId,
        ranks: usize,
        new: usize,
        room: u32,
    }
    let mut loads: Vec<Load<'_>> = usable
        .iter()
        .map(|offer| Load {
            node: &offer.node,
            ranks: gang.running.values().filter(|node| **node == offer.node).count(),
            new: 0,
            room: offer.free / gang.cores.max(1),
        })
        .collect();
    loads.sort_by_key(|load| load.node);
    for placed in 0..gang.workers.len() {
        let open = loads.iter_mut().filter(|load| load.room > 0);
        let Some(load) = open.min_by_key(|load| load.ranks) else { return Err(placed as u32) };
        load.ranks += 1;
        load.new += 1;
        load.room -= 1;
    }
    let seats = loads.iter().flat_map(|load| std::iter::repeat_n(load.node.clone(), load.new));
    Ok(gang.workers.iter().copied().zip(seats).collect())
}

/// Where a rank is among the ranks of its machine, and its machine among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) local_rank: u32,
    pub(crate) local_size: u32,
    pub(crate) cross_rank: u32,
    pub(crate) cross_size: u32,
}

/// The seat of every rank, by the machine that each runs on. Machines are counted in the order of their first rank.
pub(crate) fn seats<M: Ord>(machines: &BTreeMap<u32, M>) -> BTreeMap<u32, Seat> {
    let mut order: Vec<&M> = Vec::new();
    let mut counts: BTreeMap<&M, u32> = BTreeMap::new();
    for machine in machines.values() {
        if !order.contains(&machine) {
            order.push(machine);
        }
        *counts.entry(machine).or_insert(0) += 1;
    }
    let mut seen: BTreeMap<&M, u32> = BTreeMap::new();
    let mut seat = |(worker, machine): (&u32, _)| {
        let local = seen.entry(machine).or_insert(0);
        let local_rank = *local;
        *local += 1;
        let seat = Seat {
            local_rank,
            local_size: counts.get(machine).copied().unwrap_or(1),
            cross_rank: order.iter().position(|other| *other == machine).unwrap_or(0) as u32,
            cross_size: order.len() as u32,
        };
        (*worker, seat)
    };
    machines.iter().map(&mut seat).collect()
}

/// The launcher's address for ranks of a node, which see it as `own`.
///
/// A rank listens where it reaches the launcher. Ranks on the launcher's machine must not do so on the loopback
/// interface when ranks of other machines are to reach them.
pub(crate) fn launcher_address(own: IpAddr, offers: &[NodeOffer]) -> IpAddr {
    let mut seen = offers.iter().filter_map(|offer| offer.launcher);
    if own.is_loopback() { seen.find(|ip| !ip.is_loopback()).unwrap_or(own) } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;
    use phalanx_types::{ByteSize, Needs};

    fn id(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    fn offer(name: &str, free: u32) -> NodeOffer {
        let launcher = Some("10.0.0.1".parse().unwrap());
        NodeOffer { node: id(name), machine: None, free, runs_programs: true, launcher }
    }

    fn placed(
        offers: &[NodeOffer],
        workers: &[u32],
        cores: u32,
        choice: &NodeChoice,
    ) -> Result<Vec<(u32, String)>, PlaceWait> {
        placed_beside(offers, workers, cores, choice, &BTreeMap::new())
    }

    fn placed_beside(
        offers: &[NodeOffer],
        workers: &[u32],
        cores: u32,
        choice: &NodeChoice,
        running: &BTreeMap<u32, NodeId>,
    ) -> Result<Vec<(u32, String)>, PlaceWait> {
        let workers = workers.iter().copied().collect();
        let gang = Gang { workers: &workers, cores, choice, running };
        let placed = place(offers, gang)?;
        Ok(placed.into_iter().map(|(worker, node)| (worker, node.to_string())).collect())
    }

    fn names(placed: &[(u32, String)]) -> Vec<&str> {
        placed.iter().map(|(_, node)| node.as_str()).collect()
    }

    #[test]
    fn ranks_are_spread_evenly_and_neighbours_share_a_node() {
        let offers = [offer("b-2", 4), offer("a-1", 4), offer("c-3", 4)];
        let four = placed(&offers, &[0, 1, 2, 3], 1, &NodeChoice::Any).unwrap();
        assert_eq!(names(&four), ["a-1", "a-1", "b-2", "c-3"]);
        let three = placed(&offers, &[0, 1, 2], 4, &NodeChoice::Any).unwrap();
        assert_eq!(names(&three), ["a-1", "b-2", "c-3"]);
    }

    #[test]
    fn a_node_with_less_room_gets_fewer_ranks() {
        let offers = [offer("a-1", 1), offer("b-2", 7)];
        let five = placed(&offers, &[0, 1, 2, 3], 2, &NodeChoice::Any);
        let no_room = PlaceWait::NoRoom { ranks: 4, cores: 2, fit: 3, closed: vec![] };
        assert_eq!(five, Err(no_room.clone()));
        assert_eq!(
            no_room.to_string(),
            "4 ranks with 2 free cores each cannot be placed: there is room for 3"
        );
        let four = placed(&offers, &[0, 1, 2, 3], 1, &NodeChoice::Any).unwrap();
        assert_eq!(names(&four), ["a-1", "b-2", "b-2", "b-2"]);
    }

    #[test]
    fn all_of_a_gang_fit_or_none_is_placed() {
        let offers = [offer("a-1", 3)];
        assert!(placed(&offers, &[0, 1, 2, 3], 1, &NodeChoice::Any).is_err());
        assert_eq!(placed(&offers, &[1, 2, 3], 1, &NodeChoice::Any).unwrap().len(), 3);
    }

    #[test]
    fn a_rank_that_is_started_again_goes_where_the_fewest_are() {
        let offers = [offer("a-1", 2), offer("b-2", 2)];
        let running = BTreeMap::from([(0, id("a-1")), (1, id("a-1")), (2, id("b-2"))]);
        let again = placed_beside(&offers, &[3], 1, &NodeChoice::Any, &running).unwrap();
        assert_eq!(again, [(3, "b-2".to_owned())]);
    }

    #[test]
    fn as_many_nodes_are_used_as_asked_for() {
        let offers = [offer("a-1", 2), offer("b-2", 8), offer("c-3", 4)];
        let two = placed(&offers, &[0, 1, 2, 3], 1, &NodeChoice::Count(2)).unwrap();
        assert_eq!(names(&two), ["b-2", "b-2", "c-3", "c-3"]);
        let running = BTreeMap::from([(0, id("a-1"))]);
        let one = placed_beside(&offers, &[1], 1, &NodeChoice::Count(1), &running).unwrap();
        assert_eq!(names(&one), ["a-1"]);
        let wait = placed(&offers, &[0, 1, 2, 3], 1, &NodeChoice::Count(4)).unwrap_err();
        assert_eq!(wait.to_string(), "4 nodes asked for, and 3 nodes can run ranks");
    }

    #[test]
    fn named_nodes_are_waited_for() {
        let offers = [offer("a-1", 2), offer("b-2", 8)];
        let named = |names: &[&str]| NodeChoice::Named(names.iter().map(ToString::to_string).collect());
        assert_eq!(names(&placed(&offers, &[0, 1], 1, &named(&["a"])).unwrap()), ["a-1", "a-1"]);
        assert_eq!(names(&placed(&offers, &[0], 1, &named(&["b-2"])).unwrap()), ["b-2"]);
        let wait = placed(&offers, &[0], 1, &named(&["a", "c", "d"])).unwrap_err();
        assert_eq!(wait, PlaceWait::Missing { names: vec!["c".to_owned(), "d".to_owned()] });
    }

    #[test]
    fn a_node_that_cannot_be_used_is_named() {
        let closed = NodeOffer { runs_programs: false, ..offer("a-1", 4) };
        let relayed = NodeOffer { launcher: None, ..offer("b-2", 4) };
        let place = |offers: &[NodeOffer]| placed(offers, &[0, 1], 1, &NodeChoice::Any).unwrap_err();
        assert_eq!(place(&[]), PlaceWait::NoNodes);
        let not_allowed = place(std::slice::from_ref(&closed));
        assert_eq!(not_allowed, PlaceWait::NotAllowed { nodes: vec![id("a-1")] });
        assert!(not_allowed.hint().unwrap().contains("--allow-exec"));
        assert_eq!(place(&[closed.clone(), relayed]), PlaceWait::Relayed { nodes: vec![id("b-2")] });
        let wait = place(&[closed, offer("c-3", 1)]);
        assert_eq!(
            wait.to_string(),
            "2 ranks with 1 free core each cannot be placed: there is room for 1; a-1 may not run programs"
        );
        let shortage = Shortage {
            needed: Needs { cores: 2, memory: ByteSize(0) },
            capacity: Needs { cores: 1, memory: ByteSize(0) },
            uses: vec![],
        };
        let wait = PlaceWait::Shortage { node: id("a-1"), shortage };
        assert_eq!(wait.to_string(), "a-1: needs 2 cores, the node has 1");
    }

    #[test]
    fn seats_count_ranks_of_a_machine_and_machines() {
        let machines = BTreeMap::from([(0, "y"), (1, "y"), (2, "x"), (3, "y")]);
        let seats = seats(&machines);
        let seat = |worker: u32| {
            let seat = seats[&worker];
            (seat.local_rank, seat.local_size, seat.cross_rank, seat.cross_size)
        };
        assert_eq!(
            [seat(0), seat(1), seat(2), seat(3)],
            [(0, 3, 0, 2), (1, 3, 0, 2), (0, 1, 1, 2), (2, 3, 0, 2)]
        );
    }

    #[test]
    fn ranks_beside_the_launcher_listen_where_other_machines_reach_them() {
        let (here, lan): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let local = NodeOffer { launcher: Some(here), ..offer("a-1", 4) };
        assert_eq!(launcher_address(here, std::slice::from_ref(&local)), here);
        assert_eq!(launcher_address(here, &[local.clone(), offer("b-2", 1)]), lan);
        assert_eq!(launcher_address(lan, &[local]), lan);
    }
}
