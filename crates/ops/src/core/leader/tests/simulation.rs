//! A leader and its ranks, with messages that are delayed by a seed: nothing hangs, and all ranks run the same order.

use super::*;
use crate::core::local::{LocalRank, RankCommand, RunUnit};

/// A small generator; the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % most.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index + 1));
        }
    }
}

struct SimRank {
    local: LocalRank,
    /// What it still issues, last first.
    program: Vec<String>,
    /// How many operations it may have under way.
    window: usize,
    under_way: usize,
    order: Vec<Vec<String>>,
    failed: Vec<OpFailure>,
    joined_last: Option<u32>,
    to_leader: VecDeque<ToLeader>,
    from_leader: VecDeque<ToRank>,
}

struct Sim {
    leader: Leader,
    ranks: Vec<SimRank>,
    dice: Dice,
    now: Time,
    /// Ranks whose operation of this name differs.
    planted: Option<(usize, String)>,
}

impl Sim {
    fn new(seed: u64, ranks: usize, names: usize, passes: usize) -> Self {
        let mut dice = Dice(seed.wrapping_mul(977) + 11);
        let rank = |_| {
            let mut program = Vec::new();
            for pass in 0..passes {
                let mut names: Vec<String> = (0..names).map(|name| format!("g{name}")).collect();
                // From the third pass on orders are equal, as of programs that repeat.
                if pass < passes.saturating_sub(2) {
                    dice.shuffle(&mut names);
                }
                names.extend(program);
                program = names;
            }
            SimRank {
                local: LocalRank::default(),
                program,
                // A window that is too small for the shuffle would make even correct programs wait for each other.
                window: names,
                under_way: 0,
                order: Vec::new(),
                failed: Vec::new(),
                joined_last: None,
                to_leader: VecDeque::new(),
                from_leader: VecDeque::new(),
            }
        };
        let ranks: Vec<SimRank> = (0..ranks).map(rank).collect();
        let hold = Duration::from_micros(dice.below(3) as u64 * 40);
        let limits = LeaderLimits { hold, known: 1 + dice.below(2 * names), ..limits() };
        let leader = Leader::new(ranks.len() as u32, limits);
        Self { leader, ranks, dice, now: Time::ZERO, planted: None }
    }

    fn signature(&self, rank: usize, name: &str) -> OpSignature {
        let size = 1 + name.bytes().map(u64::from).sum::<u64>() % 90;
        match &self.planted {
            Some((odd, planted)) if *odd == rank && planted == name => sum(size + 1),
            _ => sum(size),
        }
    }

    fn issue(&mut self, rank: usize) {
        let here = &self.ranks[rank];
        let free = here.program.last().is_some_and(|_| here.under_way < here.window);
        if !free {
            return;
        }
        let Some(name) = self.ranks[rank].program.pop() else { return };
        let signature = self.signature(rank, &name);
        match self.ranks[rank].local.issue(&name, &signature) {
            Ok(message) => {
                self.ranks[rank].under_way += 1;
                self.ranks[rank].to_leader.push_back(message);
            }
            // It is still under way from the pass before: later.
            Err(_) => self.ranks[rank].program.push(name),
        }
        if self.ranks[rank].program.is_empty() {
            let join = self.ranks[rank].local.join();
            self.ranks[rank].to_leader.extend(join);
        }
    }

    fn lead(&mut self, work: impl FnOnce(&mut Leader, Time, &mut Outbox<LeaderCommand>)) {
        let mut out = Outbox::default();
        work(&mut self.leader, self.now, &mut out);
        for LeaderCommand { to, message } in out.drain() {
            for rank in to {
                self.ranks[rank as usize].from_leader.push_back(message.clone());
            }
        }
    }

    fn hear(&mut self, rank: usize) {
        let here = &mut self.ranks[rank];
        let Some(message) = here.from_leader.pop_front() else { return };
        match here.local.on_message(message) {
            None | Some(RankCommand::Report { .. }) => {}
            Some(RankCommand::Run(units)) => {
                let name = |unit: &RunUnit| match unit {
                    RunUnit::Issued { key: (_, name) } => {
                        here.under_way -= 1;
                        name.clone()
                    }
                    RunUnit::Joined { name, .. } => name.clone(),
                };
                here.order.push(units.iter().map(name).collect());
            }
            Some(RankCommand::Fail(_, failure)) => {
                here.under_way -= 1;
                here.failed.push(failure);
            }
            Some(RankCommand::Send(message)) => here.to_leader.push_back(message),
            Some(RankCommand::AllJoined { last }) => here.joined_last = Some(last),
            Some(other) => panic!("rank {rank} got {other:?}"),
        }
    }

    /// Runs until all ranks have joined. Each turn something happens somewhere.
    fn finish(&mut self) {
        for _ in 0..200_000 {
            if self.ranks.iter().all(|rank| rank.joined_last.is_some()) {
                return;
            }
            self.now += Duration::from_micros(self.dice.below(20) as u64);
            let rank = self.dice.below(self.ranks.len());
            match self.dice.below(4) {
                0 => self.issue(rank),
                1 => {
                    if let Some(message) = self.ranks[rank].to_leader.pop_front() {
                        self.lead(|leader, now, out| leader.on_message(now, rank as u32, message, out));
                    }
                }
                2 => self.hear(rank),
                _ => self.lead(|leader, now, out| {
                    leader.dispatch(now, out);
                }),
            }
        }
        let left: Vec<_> = self.ranks.iter().map(|rank| (&rank.program, rank.under_way)).collect();
        panic!("nothing more happens; left are {left:?}, pending {:?}", self.leader.pending);
    }

    fn check_orders(&self) {
        for rank in &self.ranks[1..] {
            assert_eq!(rank.order, self.ranks[0].order);
            assert_eq!(rank.joined_last, self.ranks[0].joined_last);
        }
    }
}

#[test]
fn any_order_of_any_rank_gives_one_order() {
    for seed in 0..60 {
        for ranks in 1..=4 {
            let mut sim = Sim::new(seed, ranks, 7, 5);
            sim.finish();
            sim.check_orders();
            let done: usize = sim.ranks[0].order.iter().map(Vec::len).sum();
            assert!(done >= 35, "{done} of at least 35 operations ran");
            assert!(sim.ranks.iter().all(|rank| rank.failed.is_empty()));
        }
    }
}

#[test]
fn a_planted_mismatch_fails_on_all_ranks_and_nothing_else_does() {
    for seed in 0..60 {
        let mut sim = Sim::new(seed, 3, 6, 4);
        sim.planted = Some((seed as usize % 3, "g2".to_owned()));
        sim.finish();
        sim.check_orders();
        for rank in &sim.ranks {
            assert!(!rank.failed.is_empty());
            assert!(rank.failed.iter().all(|failure| failure.name() == "g2"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let order = |seed| {
        let mut sim = Sim::new(seed, 4, 9, 4);
        sim.finish();
        sim.ranks.swap_remove(0).order
    };
    assert_eq!(order(5), order(5));
}
