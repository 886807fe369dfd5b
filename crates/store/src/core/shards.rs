//! A store that several nodes share: which node has which key, and what becomes of commands with keys of others.
//!
//! The parts are fixed: part `i` of `n` has the `i`-th of `n` equal ranges of slots, whatever nodes come and go. A key
//! whose part no node serves is an error, never another node's key: so no node ever answers wrongly.

use super::commands::{self, Command};
use bytes::Bytes;
use phalanx_resp::{SLOTS, slot};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// One part of a store, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardPlace {
    index: u16,
    count: u16,
}

/// Why a text or two numbers are no part of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a part of a store is I/N, from 1/N to N/N, with at most {SLOTS} parts")]
pub struct ShardPlaceError;

impl ShardPlace {
    /// All of a store.
    pub const WHOLE: ShardPlace = ShardPlace { index: 1, count: 1 };

    /// Part `index`, from 1, of `count`.
    ///
    /// # Errors
    /// There is no such part.
    pub fn new(index: u16, count: u16) -> Result<Self, ShardPlaceError> {
        let is_part = (1..=count).contains(&index) && count <= SLOTS;
        if is_part { Ok(Self { index, count }) } else { Err(ShardPlaceError) }
    }

    /// Which part it is, from 1.
    pub fn index(self) -> u16 {
        self.index
    }

    /// How many parts there are.
    pub fn count(self) -> u16 {
        self.count
    }

    /// The slots of this part.
    pub fn slots(self) -> RangeInclusive<u16> {
        let bound = |index: u16| u32::from(index) * u32::from(SLOTS) / u32::from(self.count);
        // Both are at most the number of slots.
        let (first, end) = (bound(self.index - 1) as u16, bound(self.index) as u16);
        first..=end - 1
    }

    /// The part of a slot.
    pub(crate) fn of_slot(slot: u16, count: u16) -> u16 {
        let index = ((u32::from(slot) + 1) * u32::from(count)).div_ceil(u32::from(SLOTS));
        u16::try_from(index).unwrap_or(count)
    }
}

impl FromStr for ShardPlace {
    type Err = ShardPlaceError;

    fn from_str(text: &str) -> Result<Self, ShardPlaceError> {
        let (index, count) = text.split_once('/').ok_or(ShardPlaceError)?;
        let number = |text: &str| text.trim().parse().ok().ok_or(ShardPlaceError);
        Self::new(number(index)?, number(count)?)
    }
}

impl fmt::Display for ShardPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// A node that serves a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardMember {
    /// When it began; of two nodes with the same part the first one has it.
    pub since: u64,
    /// The name of the node.
    pub node: String,
    /// Where its store is.
    pub host: String,
    /// The port of it.
    pub port: u16,
    /// Whether it is on the host of this node, where clients reach it as they reach this one.
    pub is_same_host: bool,
    /// Which part it serves.
    pub place: ShardPlace,
}

/// All nodes that share a store, as one of them sees it.
#[derive(Debug, Clone)]
pub struct ShardMap {
    own: ShardPlace,
    node: String,
    holders: BTreeMap<u16, ShardMember>,
}

/// Where a command is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Here.
    Own,
    /// At the node of this part.
    Other(u16),
    /// A part of it at each node, with the numbers of its keys; the replies become one.
    Split(BTreeMap<u16, Vec<usize>>, Merge),
    /// At all nodes.
    Everywhere,
    /// A value goes from one node to another.
    Transfer {
        from: u16,
        to: u16,
    },
    Refused(Refusal),
}

/// How replies of several nodes become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// They are numbers to add.
    Sum,
    /// They are lists, one element for each key.
    Elements,
    /// They are all `OK`.
    Ok,
}

/// Why a shared store does not carry out a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No node serves the part of the key.
    Missing(ShardPlace),
    /// This node's part is served by a node that began before.
    Displaced(ShardPlace, String),
    /// Its keys are at several nodes.
    Apart,
}

impl Refusal {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Missing(place) => {
                format!(
                    "CLUSTERDOWN no node serves part {place} of this store: start one with --store-shard {place}"
                )
            }
            Self::Displaced(place, node) => {
                format!(
                    "CLUSTERDOWN node {node} serves part {place} of this store, which this node was started for, too"
                )
            }
            Self::Apart => {
                "CROSSSLOT the keys of this command are at several nodes; {tags} keep them together"
                    .to_owned()
            }
        }
    }
}

impl ShardMap {
    /// A map that knows only its own node.
    pub fn new(own: ShardPlace, node: impl Into<String>) -> Self {
        Self { own, node: node.into(), holders: BTreeMap::new() }
    }

    /// The part of this node.
    pub fn own(&self) -> ShardPlace {
        self.own
    }

    /// Takes note of all nodes that serve parts now, this one included. The first that began has a part.
    pub fn set_members(&mut self, mut members: Vec<ShardMember>) {
        members.sort();
        self.holders.clear();
        for member in members.into_iter().filter(|member| member.place.count == self.own.count) {
            self.holders.entry(member.place.index).or_insert(member);
        }
    }

    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    pub(crate) fn is_me(&self, member: &ShardMember) -> bool {
        member.node == self.node
    }

    pub(crate) fn holder(&self, index: u16) -> Option<&ShardMember> {
        self.holders.get(&index)
    }

    /// The ranges of slots in their order, and the nodes that clients should ask for them. A range that no node serves
    /// is answered by this node, which says so.
    pub(crate) fn ranges(&self) -> Vec<(RangeInclusive<u16>, Option<&ShardMember>)> {
        let place = |index| ShardPlace { index, count: self.own.count };
        let own = self.holder(self.own.index).filter(|holder| holder.node == self.node);
        (1..=self.own.count).map(|index| (place(index).slots(), self.holder(index).or(own))).collect()
    }

    /// Whether another node has this node's part.
    fn displaced(&self) -> Option<Refusal> {
        let holder = self.holder(self.own.index).filter(|holder| holder.node != self.node)?;
        Some(Refusal::Displaced(self.own, holder.node.clone()))
    }

    /// The part of a key.
    pub(crate) fn part_of(&self, key: &[u8]) -> u16 {
        ShardPlace::of_slot(slot(key), self.own.count)
    }

    /// Whether other nodes have a part of the keys.
    pub(crate) fn is_shared(&self) -> bool {
        self.own.count > 1
    }

    /// Whether a key is of this node's part.
    pub(crate) fn is_own_part(&self, key: &[u8]) -> bool {
        self.part_of(key) == self.own.index
    }

    /// Whether this node has a key.
    pub(crate) fn is_own(&self, key: &[u8]) -> bool {
        self.is_own_part(key) && self.displaced().is_none()
    }

    /// Why a key is at no node.
    pub(crate) fn missing(&self, key: &[u8]) -> Refusal {
        self.displaced()
            .unwrap_or(Refusal::Missing(ShardPlace { index: self.part_of(key), count: self.own.count }))
    }

    /// Decides where a command is carried out.
    pub(crate) fn route(&self, command: &Command, args: &[Bytes]) -> Route {
        if command.name == "publish" {
            return Route::Everywhere;
        }
        // Without a name it is about all streams of the node that is asked.
        if command.name == "phalanx.stream" && args.get(2).is_some_and(Bytes::is_empty) {
            return Route::Own;
        }
        let parts: Vec<u16> = command.keys_of(args).map(|key| self.part_of(key)).collect();
        let different: BTreeSet<u16> = parts.iter().copied().collect();
        if different.is_empty() {
            return Route::Own;
        }
        if let Some(refusal) = self.displaced() {
            return Route::Refused(refusal);
        }
        if let Some(missing) =
            different.iter().find(|part| **part != self.own.index && self.holder(**part).is_none())
        {
            return Route::Refused(Refusal::Missing(ShardPlace { index: *missing, count: self.own.count }));
        }
        if let (Some(only), 1) = (different.first(), different.len()) {
            return if *only == self.own.index { Route::Own } else { Route::Other(*only) };
        }
        let merge = match command.name {
            "del" | "unlink" | "exists" | "touch" => Merge::Sum,
            "mget" => Merge::Elements,
            "mset" => Merge::Ok,
            "rename" | "copy" => {
                let (from, to) = (parts.first().copied().unwrap_or(1), parts.last().copied().unwrap_or(1));
                return Route::Transfer { from, to };
            }
            _ => return Route::Refused(Refusal::Apart),
        };
        let mut split: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, part) in parts.into_iter().enumerate() {
            split.entry(part).or_default().push(number);
        }
        Route::Split(split, merge)
    }
}

/// The commands by name, for deciding without the keyspace.
#[derive(Debug)]
pub(crate) struct ShardCommands(Vec<&'static Command>);

impl Default for ShardCommands {
    fn default() -> Self {
        Self(commands::sorted())
    }
}

impl ShardCommands {
    /// The command of a request, if it is known and has enough arguments.
    pub(crate) fn find(&self, args: &[Bytes]) -> Option<&'static Command> {
        self.named(args).filter(|command| command.takes(args.len()))
    }

    /// The command of a request whose last argument may be elsewhere.
    pub(crate) fn named(&self, args: &[Bytes]) -> Option<&'static Command> {
        let name = args.first()?.to_ascii_lowercase();
        let at = self.0.binary_search_by(|command| command.name.as_bytes().cmp(&name)).ok()?;
        self.0.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> ShardPlace {
        text.parse().unwrap()
    }

    fn member(index: u16, count: u16, since: u64, node: &str) -> ShardMember {
        let place = ShardPlace::new(index, count).unwrap();
        ShardMember { since, node: node.into(), host: "h".into(), port: index, is_same_host: false, place }
    }

    fn map(own: &str, nodes: &[(u16, &str)]) -> ShardMap {
        let own = place(own);
        let mut map = ShardMap::new(own, "me");
        map.set_members(nodes.iter().map(|(index, node)| member(*index, own.count, 1, node)).collect());
        map
    }

    fn route(map: &ShardMap, words: &[&str]) -> Route {
        let args: Vec<Bytes> = words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        map.route(ShardCommands::default().find(&args).unwrap(), &args)
    }

    /// A key of each of three parts.
    const KEYS: [&str; 3] = ["{b}", "{c}", "{a}"];

    #[test]
    fn parts_cover_every_slot_once_for_every_number_of_nodes() {
        for count in (1..=64).chain([100, 1000, 9999, SLOTS - 1, SLOTS]) {
            let mut next = 0;
            for index in 1..=count {
                let slots = ShardPlace::new(index, count).unwrap().slots();
                assert_eq!((*slots.start(), slots.is_empty()), (next, false), "{index}/{count}");
                for slot in [*slots.start(), *slots.end()] {
                    assert_eq!(ShardPlace::of_slot(slot, count), index, "slot {slot} of {index}/{count}");
                }
                next = slots.end() + 1;
            }
            assert_eq!(next, SLOTS, "{count} parts");
        }
        for slot in 0..SLOTS {
            let part = ShardPlace::new(ShardPlace::of_slot(slot, 3), 3).unwrap();
            assert!(part.slots().contains(&slot));
        }
    }

    #[test]
    fn places_are_read_as_people_write_them() {
        assert_eq!(
            (place("2/3").index(), place("2/3").count(), place("2/3").to_string()),
            (2, 3, "2/3".into())
        );
        for wrong in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/20000", "a/b"] {
            assert_eq!(wrong.parse::<ShardPlace>(), Err(ShardPlaceError), "{wrong}");
        }
    }

    #[test]
    fn commands_go_where_their_keys_are() {
        let all = map("1/3", &[(1, "me"), (2, "b"), (3, "c")]);
        let parts = KEYS.map(|key| all.part_of(key.as_bytes()));
        assert_eq!(parts, [1, 2, 3]);
        let [one, two, three] = KEYS;
        assert_eq!(route(&all, &["GET", one]), Route::Own);
        assert_eq!(route(&all, &["get", two]), Route::Other(2));
        assert_eq!(route(&all, &["PING"]), Route::Own);
        assert_eq!(route(&all, &["PUBLISH", two, "x"]), Route::Everywhere);
        assert_eq!(route(&all, &["PHALANX.WAIT", "10", "EXISTS", three]), Route::Other(3));
        assert_eq!(route(&all, &["RENAME", two, three]), Route::Transfer { from: 2, to: 3 });
        assert_eq!(route(&all, &["BLPOP", one, two, "0"]), Route::Refused(Refusal::Apart));
        assert_eq!(route(&all, &["PHALANX.STREAM", "INFO", one]), Route::Own);
        assert_eq!(route(&all, &["PHALANX.STREAM", "INFO", two]), Route::Other(2));
        assert_eq!(route(&all, &["PHALANX.STREAM", "LIST", ""]), Route::Own);
        let split = |parts: &[(u16, &[usize])]| parts.iter().map(|(part, at)| (*part, at.to_vec())).collect();
        assert_eq!(
            route(&all, &["DEL", two, one, two]),
            Route::Split(split(&[(1, &[1]), (2, &[0, 2])]), Merge::Sum)
        );
        assert_eq!(
            route(&all, &["MSET", three, "x", one, "y"]),
            Route::Split(split(&[(1, &[1]), (3, &[0])]), Merge::Ok)
        );
    }

    #[test]
    fn a_part_that_no_node_serves_is_told_and_leaves_no_gap() {
        let some = map("1/3", &[(1, "me"), (3, "c")]);
        let [one, two, three] = KEYS;
        let missing = Route::Refused(Refusal::Missing(place("2/3")));
        assert_eq!(route(&some, &["GET", two]), missing);
        assert_eq!(route(&some, &["DEL", one, two]), missing);
        assert_eq!(route(&some, &["GET", three]), Route::Other(3));
        let answering: Vec<_> =
            some.ranges().into_iter().map(|(slots, holder)| (*slots.start(), holder.unwrap().port)).collect();
        assert_eq!(answering, [(0, 1), (5461, 1), (10922, 3)]);
    }

    #[test]
    fn of_two_nodes_with_one_part_the_first_has_it() {
        let mut map = ShardMap::new(place("1/2"), "me");
        map.set_members(vec![member(1, 2, 5, "me"), member(1, 2, 4, "earlier"), member(2, 2, 9, "b")]);
        let displaced = Route::Refused(Refusal::Displaced(place("1/2"), "earlier".into()));
        assert_eq!(route(&map, &["GET", KEYS[0]]), displaced);
        assert!(!map.is_own(KEYS[0].as_bytes()));
        // Nodes of a store with another number of parts do not count.
        map.set_members(vec![member(1, 2, 5, "me"), member(1, 3, 4, "other")]);
        assert_eq!(route(&map, &["GET", KEYS[0]]), Route::Own);
    }
}
