//! How long one round of steps takes a group.

use super::network::{Call, Network};
use super::options::{Options, Sync};
use super::work::Work;
use phalanx_collective::simulate::encoded_len;
use phalanx_collective::{Algorithm, Compression};
use phalanx_protocol::Vote;

/// The parts of a round, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Round {
    /// Of the rank that computes longest, with what it waits for statistics.
    pub(super) compute: f64,
    /// Of all collectives of values.
    pub(super) exchange: f64,
    /// Of that, what is left when everybody has computed.
    pub(super) exposed: f64,
    pub(super) vote: f64,
    pub(super) update: f64,
    /// The most that a rank sends.
    pub(super) bytes: f64,
}

impl Round {
    /// When the votes are counted.
    pub(super) fn decided(&self) -> f64 {
        self.compute + self.exposed + self.vote
    }

    pub(super) fn seconds(&self) -> f64 {
        self.decided() + self.update
    }
}

/// What groups of one size take, whatever they compute.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rhythm {
    /// By bucket: when it is ready, as a part of computing, and how long its exchange takes.
    buckets: Vec<(f64, f64)>,
    statistics: f64,
    vote: f64,
    update: f64,
    bytes: f64,
    /// In the order of first use.
    pub(super) algorithms: Vec<Algorithm>,
}

impl Rhythm {
    pub(super) fn new(work: &Work, options: &Options, network: &mut Network, ranks: usize) -> Self {
        let mut rhythm = Self {
            buckets: Vec::new(),
            statistics: 0.0,
            vote: 0.0,
            update: work.update_seconds(),
            bytes: 0.0,
            algorithms: Vec::new(),
        };
        for bucket in &work.buckets {
            // Parameters are exchanged when all of them have moved.
            let ready = if options.sync == Sync::Gradients { bucket.ready } else { 1.0 };
            let seconds = rhythm.sum(bucket.elements, options.compression, network, ranks);
            rhythm.buckets.push((ready, seconds));
        }
        for channels in work.norms.iter().filter(|_| options.statistics) {
            // Once on the way forward, once on the way back: two sums for each channel.
            let call = Call::AllReduce { elements: 2 * channels, element: 8 };
            rhythm.statistics += 2.0 * rhythm.add(call, network, ranks);
        }
        rhythm.vote = rhythm.gather(Vote::LEN * options.sync.every() as usize, network, ranks);
        rhythm
    }

    /// Sums values over all ranks, as groups do with this compression.
    fn sum(&mut self, elements: usize, by: Compression, network: &mut Network, ranks: usize) -> f64 {
        match by {
            Compression::None => self.add(Call::AllReduce { elements, element: 4 }, network, ranks),
            Compression::TopK { .. } => self.gather(encoded_len(by, elements), network, ranks),
            // Every rank sums a part, and sends the sum to all.
            Compression::F16 | Compression::Bf16 | Compression::Int8 => {
                let bytes = encoded_len(by, elements.div_ceil(ranks.max(1)));
                self.add(Call::AllToAll { bytes }, network, ranks) + self.gather(bytes, network, ranks)
            }
        }
    }

    /// Everybody hears everybody; ranks of several hosts first say how much they have to say.
    fn gather(&mut self, bytes: usize, network: &mut Network, ranks: usize) -> f64 {
        let lengths = self.add(Call::AllGather { bytes: size_of::<u64>() }, network, ranks);
        lengths + self.add(Call::AllGather { bytes }, network, ranks)
    }

    fn add(&mut self, call: Call, network: &mut Network, ranks: usize) -> f64 {
        let cost = network.cost(call, ranks);
        self.bytes += cost.bytes;
        if ranks > 1 && !self.algorithms.contains(&cost.algorithm) {
            self.algorithms.push(cost.algorithm);
        }
        cost.seconds
    }

    /// A round of so many steps in which the slowest rank computes for so long.
    pub(super) fn round(&self, compute: f64, steps: u64) -> Round {
        let steps = steps as f64;
        let compute = compute + self.statistics * steps;
        let mut end = 0.0_f64;
        for (ready, seconds) in &self.buckets {
            end = end.max(compute * ready) + seconds;
        }
        Round {
            compute,
            exchange: self.buckets.iter().map(|(_, seconds)| seconds).sum(),
            exposed: (end - compute).max(0.0),
            vote: self.vote,
            // Replicas that go alone update after every step; what they exchange is applied once more.
            update: self.update * steps,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rhythm(buckets: &[(f64, f64)]) -> Rhythm {
        let buckets = buckets.to_vec();
        let (statistics, vote, update, bytes) = (0.0, 0.5, 0.25, 7.0);
        Rhythm { buckets, statistics, vote, update, bytes, algorithms: Vec::new() }
    }

    #[test]
    fn what_is_exchanged_while_computing_costs_nothing() {
        let round = rhythm(&[(0.5, 2.0), (0.8, 1.0)]).round(10.0, 1);
        assert_eq!((round.exposed, round.exchange, round.seconds()), (0.0, 3.0, 10.75));
    }

    #[test]
    fn the_last_bucket_is_always_seen_and_a_slow_link_delays_all() {
        let round = rhythm(&[(0.5, 2.0), (1.0, 1.0)]).round(10.0, 1);
        assert_eq!((round.exposed, round.seconds()), (1.0, 11.75));
        let round = rhythm(&[(0.5, 20.0), (1.0, 10.0)]).round(10.0, 1);
        assert_eq!((round.exposed, round.exchange), (25.0, 30.0));
    }
}
