//! How long collectives take.
//!
//! Small groups walk through the real programs of all their ranks. In large groups the ring and the direct exchange
//! have a closed form, which is the same to a hundredth; programs of few messages are walked at any size.

use super::options::{Link, Options};
use super::walk::walk;
use phalanx_collective::simulate::{BLOCK, RankProgram, choose};
use phalanx_collective::{Algorithm, Kind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Groups of up to so many hosts are always walked.
const WALKED: usize = 64;
/// In how many frames a message of a larger group is cut at most.
const FRAMES: usize = 32;
/// Parts of a ring are cut at multiples of so many elements.
const UNIT: usize = 16;
/// What ranks of one host need to agree in shared memory.
const SHARED_LATENCY: f64 = 20e-6;

/// One collective, by what each rank brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    AllReduce {
        elements: usize,
        element: usize,
    },
    AllGather {
        bytes: usize,
    },
    /// So many bytes for every rank.
    AllToAll {
        bytes: usize,
    },
    Broadcast {
        bytes: usize,
    },
}

/// What a collective costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    pub(super) seconds: f64,
    /// The most that one rank sends to other hosts.
    pub(super) bytes: f64,
    pub(super) algorithm: Algorithm,
}

/// The links of a cluster, and what was asked of them before.
#[derive(Debug)]
pub(super) struct Network {
    link: Link,
    shared_bytes_per_sec: f64,
    host_ranks: usize,
    forced: Option<Algorithm>,
    known: BTreeMap<(Call, usize), Cost>,
}

impl Network {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            link: options.link,
            shared_bytes_per_sec: options.shared_bytes_per_sec,
            host_ranks: options.host_ranks.max(1),
            forced: options.algorithm,
            known: BTreeMap::new(),
        }
    }

    pub(super) fn latency(&self) -> Duration {
        self.link.latency
    }

    /// What a call costs a group of so many ranks.
    pub(super) fn cost(&mut self, call: Call, ranks: usize) -> Cost {
        if let Some(cost) = self.known.get(&(call, ranks)) {
            return *cost;
        }
        let cost = self.compute(call, ranks);
        self.known.insert((call, ranks), cost);
        cost
    }

    fn compute(&self, call: Call, ranks: usize) -> Cost {
        let hosts = ranks.div_ceil(self.host_ranks);
        let algorithm = choose(call.kind(), call.bytes(ranks) as u64, ranks, hosts);
        if ranks <= 1 {
            return Cost { seconds: 0.0, bytes: 0.0, algorithm };
        }
        // One rank of each host speaks for all of them.
        let within = call.bytes(ranks) as f64 / self.shared_bytes_per_sec + SHARED_LATENCY;
        if hosts == 1 {
            return Cost { seconds: within, bytes: 0.0, algorithm: Algorithm::Shared };
        }
        if hosts == ranks {
            return self.between(call, self.forced.unwrap_or(algorithm), ranks);
        }
        let call = match call {
            Call::AllGather { bytes } => Call::AllGather { bytes: bytes * self.host_ranks },
            Call::AllToAll { bytes } => Call::AllToAll { bytes: bytes * self.host_ranks * self.host_ranks },
            other => other,
        };
        let leaders = self.forced.unwrap_or_else(|| {
            // Leaders of one host each are a group in which nobody shares memory.
            choose(call.kind(), call.bytes(hosts) as u64, hosts, hosts)
        });
        let between = self.between(call, leaders, hosts);
        Cost { seconds: within + between.seconds, algorithm: Algorithm::Hierarchical, ..between }
    }

    /// Among ranks that each have their own host.
    fn between(&self, call: Call, algorithm: Algorithm, ranks: usize) -> Cost {
        let used = call.plan(algorithm, 0, ranks).algorithm();
        if ranks <= WALKED || used == Algorithm::HalvingDoubling {
            return self.walked(call, algorithm, ranks, if ranks <= WALKED { usize::MAX } else { FRAMES });
        }
        let (seconds, bytes) = closed(call, used, ranks, self.link);
        Cost { seconds, bytes, algorithm: used }
    }

    fn walked(&self, call: Call, algorithm: Algorithm, ranks: usize, frames: usize) -> Cost {
        let plans: Vec<RankProgram> = (0..ranks).map(|rank| call.plan(algorithm, rank, ranks)).collect();
        let element = match call {
            Call::AllReduce { element, .. } => element,
            Call::AllGather { .. } | Call::AllToAll { .. } | Call::Broadcast { .. } => 1,
        };
        let block = BLOCK.max(call.bytes(1) / frames).next_multiple_of(element.max(1));
        let used = plans.first().map_or(algorithm, RankProgram::algorithm);
        let walked = walk(&plans, element, self.link, block);
        let (seconds, bytes) = walked.map_or((f64::INFINITY, 0.0), |walked| (walked.seconds, walked.bytes));
        Cost { seconds, bytes, algorithm: used }
    }
}

impl Call {
    fn kind(self) -> Kind {
        match self {
            Call::AllReduce { .. } => Kind::AllReduce,
            Call::AllGather { .. } => Kind::AllGather,
            Call::AllToAll { .. } => Kind::AllToAll,
            Call::Broadcast { .. } => Kind::Broadcast { root: 0 },
        }
    }

    /// What all ranks get together of one result.
    fn bytes(self, ranks: usize) -> usize {
        match self {
            Call::AllReduce { elements, element } => elements * element,
            Call::AllGather { bytes } | Call::AllToAll { bytes } => bytes * ranks,
            Call::Broadcast { bytes } => bytes,
        }
    }

    fn plan(self, algorithm: Algorithm, rank: usize, ranks: usize) -> RankProgram {
        match self {
            Call::AllReduce { elements, .. } => RankProgram::all_reduce(algorithm, rank, ranks, elements),
            Call::AllGather { bytes } => RankProgram::all_gather(algorithm, rank, ranks, bytes),
            Call::AllToAll { bytes } => RankProgram::all_to_all(rank, ranks, bytes),
            Call::Broadcast { bytes } => RankProgram::broadcast(algorithm, rank, ranks, bytes),
        }
    }
}

/// Seconds and bytes of a rank, by the structure of the programs.
fn closed(call: Call, algorithm: Algorithm, ranks: usize, link: Link) -> (f64, f64) {
    let latency = link.latency.as_secs_f64();
    let others = (ranks - 1) as f64;
    // A frame is sent on when it is complete.
    let frame = |bytes: f64| link.seconds(bytes.min(BLOCK as f64)) + latency;
    let rounds = |rounds: f64, mean: f64, most: f64| {
        let seconds = (rounds - 1.0) * link.seconds(mean).max(frame(most)) + link.seconds(most) + latency;
        (seconds, rounds * mean)
    };
    match (algorithm, call) {
        // Everybody sends everything to everybody, one after the other.
        (Algorithm::Direct, _) | (_, Call::AllToAll { .. }) => {
            let bytes = others * call.bytes(1) as f64;
            (link.seconds(bytes) + latency, bytes)
        }
        (_, Call::AllReduce { elements, element }) => {
            let most = (elements.div_ceil(UNIT).div_ceil(ranks) * UNIT).min(elements);
            let mean = (elements * element) as f64 / ranks as f64;
            rounds(2.0 * others, mean, (most * element) as f64)
        }
        (_, Call::AllGather { bytes }) => rounds(others, bytes as f64, bytes as f64),
        // Frames follow each other from rank to rank.
        (_, Call::Broadcast { bytes }) => {
            let bytes = bytes as f64;
            ((others - 1.0) * frame(bytes) + link.seconds(bytes) + latency, bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: [(f64, u64); 5] = [(125e6, 20_000), (125e6, 100), (1.25e9, 50), (12.5e9, 5), (1e6, 100_000)];

    fn network(link: (f64, u64), forced: Algorithm) -> Network {
        let link = Link { bytes_per_sec: link.0, latency: Duration::from_micros(link.1) };
        Network::new(&Options { link, algorithm: Some(forced), ..Options::default() })
    }

    /// The closed form and the walk of every call, over links of every kind.
    fn compare(call: Call, algorithm: Algorithm) {
        for link in LINKS {
            for ranks in [2, 3, 4, 7, 8, 16, 33, 64] {
                let network = network(link, algorithm);
                let walked = network.walked(call, algorithm, ranks, usize::MAX);
                let (seconds, bytes) = closed(call, walked.algorithm, ranks, network.link);
                let far = (seconds - walked.seconds).abs() / walked.seconds;
                assert!(
                    far < 0.01,
                    "{call:?} by {algorithm:?}, {ranks} ranks, {link:?}: {walked:?} {seconds}"
                );
                let far = (bytes - walked.bytes).abs() / walked.bytes;
                assert!(far < 0.01, "{call:?} by {algorithm:?}, {ranks} ranks: {walked:?} {bytes}");
            }
        }
    }

    #[test]
    fn the_closed_form_of_a_ring_is_what_walking_it_takes() {
        for elements in [200_000, 1 << 20, 4 << 20] {
            compare(Call::AllReduce { elements, element: 4 }, Algorithm::Ring);
        }
        compare(Call::AllReduce { elements: 4 << 20, element: 1 }, Algorithm::Ring);
        compare(Call::AllGather { bytes: 40 }, Algorithm::Ring);
        compare(Call::AllGather { bytes: 320 }, Algorithm::Ring);
        compare(Call::Broadcast { bytes: 16 << 20 }, Algorithm::Ring);
    }

    #[test]
    fn the_closed_form_of_a_direct_exchange_is_what_walking_it_takes() {
        for elements in [10, 1_000, 10_000] {
            compare(Call::AllReduce { elements, element: 4 }, Algorithm::Direct);
        }
        compare(Call::AllGather { bytes: 40 }, Algorithm::Direct);
        compare(Call::AllToAll { bytes: 300_000 }, Algorithm::Direct);
    }

    #[test]
    fn halving_takes_few_rounds_and_a_ring_sends_the_least() {
        let call = Call::AllReduce { elements: 1 << 10, element: 4 };
        let slow = (125e6, 20_000);
        let halving = network(slow, Algorithm::HalvingDoubling).cost(call, 1024);
        assert!((20.0..21.0).contains(&(halving.seconds / 20e-3)), "{halving:?}");
        let ring = network(slow, Algorithm::Ring).cost(call, 1024);
        assert!((2046.0..2060.0).contains(&(ring.seconds / 20e-3)), "{ring:?}");
        let large = Call::AllReduce { elements: 1 << 22, element: 4 };
        let ring = network((125e6, 1), Algorithm::Ring).cost(large, 48);
        let least = 2.0 * 47.0 / 48.0 * f64::from(1 << 24);
        assert!((ring.bytes - least).abs() < least * 0.001, "{ring:?}");
        assert!((ring.seconds - least / 125e6).abs() < ring.seconds * 0.02, "{ring:?}");
    }

    #[test]
    fn large_groups_cut_into_fewer_frames_take_about_as_long() {
        let call = Call::AllReduce { elements: 4 << 20, element: 4 };
        for link in LINKS {
            let network = network(link, Algorithm::HalvingDoubling);
            let fine = network.walked(call, Algorithm::HalvingDoubling, 64, usize::MAX);
            let coarse = network.walked(call, Algorithm::HalvingDoubling, 64, FRAMES);
            let far = (coarse.seconds - fine.seconds).abs() / fine.seconds;
            assert!(far < 0.05, "{link:?}: {fine:?} {coarse:?}");
        }
    }

    #[test]
    fn ranks_of_one_host_speak_with_one_voice() {
        let options = Options { host_ranks: 8, ..Options::default() };
        let call = Call::AllReduce { elements: 1 << 20, element: 4 };
        let mut shared = Network::new(&options);
        let hosts = Network::new(&Options::default()).cost(call, 4);
        let cost = shared.cost(call, 32);
        assert_eq!((cost.algorithm, cost.bytes), (Algorithm::Hierarchical, hosts.bytes));
        assert!(cost.seconds > hosts.seconds && cost.seconds < hosts.seconds + 2e-3, "{cost:?} {hosts:?}");
        let alone = shared.cost(call, 8);
        assert_eq!((alone.algorithm, alone.bytes), (Algorithm::Shared, 0.0));
    }
}
