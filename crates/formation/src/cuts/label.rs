use crate::Mode;
use crate::cuts::Lane;
use crate::evaluate::{Line, Problem, StageRange, own, trips};

/// The most hosts with several nodes of a replica that are distinguished.
const HOSTS: usize = 3;

/// The cost of the last stages of a replica. A label that is lower in everything is never worse, whatever precedes it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Label {
    /// The time through these stages and back.
    pub(crate) way: f64,
    /// The time of all micro-batches in these stages; without waiting if the pipeline stays full.
    pub(crate) time: f64,
    /// Busy seconds of hosts that several nodes share.
    pub(crate) hosts: [f64; HOSTS],
    /// Seconds of moving parameters: the sum over all nodes, and the longest.
    pub(crate) moving: [f64; 2],
}

impl Label {
    pub(crate) fn no_worse(&self, other: &Self) -> bool {
        self.way <= other.way
            && self.time <= other.time
            && self.hosts.iter().zip(&other.hosts).all(|(a, b)| a <= b)
            && self.moving.iter().zip(&other.moving).all(|(a, b)| a <= b)
    }
}

/// Computes labels of stages that are put in front of others.
#[derive(Debug)]
pub(crate) struct Counter<'a> {
    pub(crate) problem: &'a Problem<'a>,
    pub(crate) lane: Lane<'a>,
    /// For each stage, the index of its host's busy seconds.
    slots: Vec<Option<usize>>,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(problem: &'a Problem<'a>, lane: Lane<'a>) -> Self {
        Self { problem, lane, slots: slots(problem, lane.nodes) }
    }

    /// The label of the stages from `stage` on, which holds `from..to`, given the label `behind` of the stages after
    /// it. `None` if it does not fit.
    pub(crate) fn before(&self, stage: usize, from: usize, to: usize, behind: &Label) -> Option<Label> {
        let (problem, lane) = (self.problem, self.lane);
        let node = lane.nodes[stage];
        let kept = problem.kept(lane.nodes.len() - stage, lane.micro_batches);
        if !problem.fits(node, from, to, kept, lane.m) {
            return None;
        }
        let mut label = *behind;
        let count = lane.micro_batches as f64;
        let (both, one) = match lane.nodes.get(stage + 1) {
            Some(next) => self.transfer(node, *next, to),
            None => (0.0, 0.0),
        };
        let busy = self.busy(stage, from, to);
        label.way += both + busy;
        if problem.options.mode == Mode::Exact {
            let (base, slope) = problem.busy_forward(StageRange { node, from, to });
            let forward = base + slope * lane.m as f64;
            let constant = |base: f64| Line { base, slope: 0.0 };
            let passes = (constant(forward), constant(busy - forward));
            let own = own(passes.0, passes.1, constant(label.way - busy), (kept, lane.micro_batches));
            let time = (label.time + both + busy).max(label.way + one * (count - 1.0));
            let time = own.iter().fold(time, |t, line| t.max(line.base));
            label.time = time.max(label.way * trips(kept, lane.micro_batches));
        } else {
            label.time = label.time.max(busy * count).max(one * count);
        }
        if let Some(slot) = self.slots[stage] {
            let share = problem.pool.nodes[node].threads / problem.cores[problem.host[node]];
            label.hosts[slot] += busy * share * lane.micro_batches as f64;
        }
        if let Some(moves) = problem.moves.get(node) {
            let seconds = moves[to] - moves[from];
            label.moving = [label.moving[0] + seconds, label.moving[1].max(seconds)];
        }
        Some(label)
    }

    pub(crate) fn busy(&self, stage: usize, from: usize, to: usize) -> f64 {
        let (base, slope) =
            self.problem.busy(StageRange { node: self.lane.nodes[stage], from, to }, self.lane.micro_batches);
        base + slope * self.lane.m as f64
    }

    /// Seconds over a link, there and back, and the longer direction without its latency.
    pub(crate) fn transfer(&self, from: usize, to: usize, place: usize) -> (f64, f64) {
        let (there, back) = self.problem.crossing[place];
        let link = self.problem.link(from, to);
        let each = self.lane.m as f64 / link.bytes_per_s;
        (2.0 * link.latency_s + (there + back) * each, there.max(back) * each)
    }

    /// Seconds of a replica with this label.
    pub(crate) fn seconds(&self, label: &Label) -> f64 {
        let time = match self.problem.options.mode {
            Mode::Exact => label.time,
            Mode::Asynchronous { .. } => {
                let kept = self.problem.kept(self.lane.nodes.len(), self.lane.micro_batches);
                label.time.max(label.way * self.lane.micro_batches as f64 / kept as f64)
            }
        };
        label.hosts.iter().copied().fold(time, f64::max)
    }

    /// A lower bound if at least `way` precedes it.
    pub(crate) fn at_least(&self, label: &Label, way: f64) -> f64 {
        let before = if self.problem.options.mode == Mode::Exact { way } else { 0.0 };
        self.seconds(&Label { way: label.way + way, time: label.time + before, ..*label })
    }

    /// For each number of first stages and each place, the shortest way through them and over the link behind.
    pub(crate) fn ways_before(&self) -> Vec<Vec<f64>> {
        let (nodes, end) = (self.lane.nodes, self.problem.end());
        let mut all = vec![vec![f64::INFINITY; end + 1]; nodes.len()];
        all[0][0] = 0.0;
        for stage in 0..nodes.len() - 1 {
            let kept = self.problem.kept(nodes.len() - stage, self.lane.micro_batches);
            for to in stage + 1..end {
                let (both, _) = self.transfer(nodes[stage], nodes[stage + 1], to);
                for from in (stage..to).rev() {
                    if !self.problem.fits(nodes[stage], from, to, kept, self.lane.m) {
                        break;
                    }
                    let way = all[stage][from] + self.busy(stage, from, to) + both;
                    all[stage + 1][to] = all[stage + 1][to].min(way);
                }
            }
        }
        all
    }
}

/// Whether labels hold everything that the time of a replica on these nodes depends on.
///
/// They count the work of only a few hosts, and ignore contention of threads: it depends on which nodes are busy at
/// all, so less work on one node can make it worse.
pub(crate) fn tell_all(problem: &Problem<'_>, nodes: &[usize]) -> bool {
    let threads = |host: usize| -> f64 {
        let here = nodes.iter().filter(|n| problem.host[**n] == host);
        here.map(|n| problem.pool.nodes[*n].threads).sum()
    };
    let crowded = || nodes.iter().map(|n| problem.host[*n]).any(|host| threads(host) > problem.cores[host]);
    shared(problem, nodes).len() <= HOSTS && (problem.options.crowding == 1.0 || !crowded())
}

/// Hosts whose cores may be the bottleneck of a replica.
fn shared(problem: &Problem<'_>, nodes: &[usize]) -> Vec<usize> {
    let mut hosts: Vec<usize> = Vec::new();
    for node in nodes {
        let host = problem.host[*node];
        let many = nodes.iter().filter(|n| problem.host[**n] == host).count() > 1;
        let crowded = problem.pool.nodes[*node].threads > problem.cores[host];
        if (many || crowded) && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

fn slots(problem: &Problem<'_>, nodes: &[usize]) -> Vec<Option<usize>> {
    let mut hosts = shared(problem, nodes);
    hosts.truncate(HOSTS);
    nodes.iter().map(|n| hosts.iter().position(|h| *h == problem.host[*n])).collect()
}
