//! Who holds which part of the model, as ranks see it.

use super::Shares;
use phalanx_wire::train::{Layout, Ops, ReplicaLayout};
use std::collections::BTreeSet;
use std::ops::Range;

/// Where a rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    pub replica: usize,
    pub stage: usize,
    /// Of its replica.
    pub stages: usize,
    pub ops: Ops,
}

impl Post {
    pub fn is_first(&self) -> bool {
        self.stage == 0
    }

    pub fn is_last(&self) -> bool {
        self.stage + 1 == self.stages
    }
}

/// Operators that the same ranks hold, one of each replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    pub ops: Ops,
    /// By replica.
    pub ranks: Vec<usize>,
}

/// Every rank's post.
pub fn posts(layout: &Layout) -> Vec<Post> {
    let of = |(replica, of): (usize, &ReplicaLayout)| {
        let stages = of.stages.len();
        let posts = of.stages.iter().enumerate();
        posts.map(move |(stage, ops)| Post { replica, stage, stages, ops: *ops }).collect::<Vec<_>>()
    };
    layout.replicas.iter().enumerate().flat_map(of).collect()
}

/// The ranges between all cuts of all replicas: within one, parameters lie on the same rank of every replica.
pub fn rings(layout: &Layout) -> Vec<Ring> {
    let posts = posts(layout);
    let ends: BTreeSet<u32> = posts.iter().map(|post| post.ops.end).collect();
    let mut start = 0;
    let ring = |end: &u32| {
        let ops = Ops { start, end: *end };
        start = *end;
        let holds = |(_, post): &(usize, &Post)| covers(post.ops, ops);
        Ring { ops, ranks: posts.iter().enumerate().filter(holds).map(|(rank, _)| rank).collect() }
    };
    ends.iter().map(ring).collect()
}

/// Whether operators are all among others.
pub fn covers(whole: Ops, part: Ops) -> bool {
    whole.start <= part.start && part.end <= whole.end
}

pub fn range(ops: Ops) -> Range<usize> {
    ops.start as usize..ops.end as usize
}

/// How batches are cut over the replicas.
pub fn shares(layout: &Layout) -> Shares {
    Shares::from_counts(layout.replicas.iter().map(|replica| replica.samples as usize))
}

/// Replicas that each hold all of a model on one rank, with shares of a batch that are as equal as possible.
pub fn replicas(whole: Ops, batch: usize, count: usize) -> Layout {
    let shares = Shares::equal(batch, count.max(1));
    let replica = |number: usize| {
        let samples = shares.count(number) as u32;
        ReplicaLayout { samples, micro: samples.max(1), stages: vec![whole] }
    };
    Layout { replicas: (0..count).map(replica).collect() }
}

/// Whether the stages of every replica cover all `operators` in order, and every replica has samples.
pub fn is_sound(layout: &Layout, operators: usize) -> bool {
    let whole = |replica: &ReplicaLayout| {
        let mut end = 0;
        let follows = |ops: &Ops| {
            let ok = ops.start == end && ops.end > ops.start;
            end = ops.end;
            ok
        };
        replica.stages.iter().all(follows) && end as usize == operators
    };
    let sound = |replica: &ReplicaLayout| replica.micro > 0 && whole(replica);
    !layout.replicas.is_empty() && layout.replicas.iter().all(sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(cuts: &[&[u32]]) -> Layout {
        let replica = |ends: &&[u32]| {
            let starts = std::iter::once(0).chain(ends.iter().copied());
            let stages = starts.zip(ends.iter()).map(|(start, end)| Ops { start, end: *end }).collect();
            ReplicaLayout { samples: 8, micro: 4, stages }
        };
        Layout { replicas: cuts.iter().map(replica).collect() }
    }

    #[test]
    fn rings_lie_between_all_cuts() {
        let layout = layout(&[&[3, 9], &[5, 7, 9]]);
        assert!(is_sound(&layout, 9) && !is_sound(&layout, 10));
        let rings: Vec<(u32, u32, Vec<usize>)> =
            rings(&layout).into_iter().map(|ring| (ring.ops.start, ring.ops.end, ring.ranks)).collect();
        let expected = [(0, 3, vec![0, 2]), (3, 5, vec![1, 2]), (5, 7, vec![1, 3]), (7, 9, vec![1, 4])];
        assert_eq!(rings, expected);
        let post = posts(&layout)[4];
        assert_eq!((post.replica, post.stage, post.stages, post.is_last()), (1, 2, 3, true));
    }
}
