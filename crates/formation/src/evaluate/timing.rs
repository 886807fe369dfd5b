//! How long one replica takes for its share of a batch.
//!
//! In exact mode a stage with `k` stages from itself to the end admits `k` micro-batches, then alternates one backward
//! and one forward. Counted from when the first micro-batch reaches it to when the last leaves it backward, `M`
//! micro-batches take the longest of
//!
//! ```text
//! M * (f + b) + max(0, A - (k - 1) * f) + max(0, A - (k - 1) * b)      its own computing, and waiting at both ends
//! (1 + floor((M - 1) / k)) * (f + b + A)                               k micro-batches for each round trip
//! f + b + A + (M - 1) * transfer                                       the link behind it
//! f + b + L + what the next stage takes                                where a later stage is the slowest
//! ```
//!
//! where `f` and `b` are its forward and backward, `L` the link to the next stage both ways, and `A` the way from it to
//! the end and back. All of it is linear in the samples of a micro-batch, and it is a lower bound of the schedule's
//! real time.

use crate::Mode;
use crate::evaluate::{Problem, StageRange};
use std::cell::{Cell, OnceCell};

/// Seconds as a function of the samples in a micro-batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Line {
    pub(crate) base: f64,
    pub(crate) slope: f64,
}

impl Line {
    pub(crate) fn at(self, m: usize) -> f64 {
        self.base + self.slope * m as f64
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        Self { base: self.base * factor, slope: self.slope * factor }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { base: self.base + other.base, slope: self.slope + other.slope }
    }
}

/// The bottleneck of a replica; its time is that of the highest line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Stage(usize),
    /// The link behind this stage.
    Link(usize),
    /// From this stage to the last and back.
    RoundTrip(usize),
    /// Nodes of one host within the replica.
    Host(usize),
}

/// The time of a stage by itself; `behind` is the way from it to the end and back.
pub(crate) fn own(
    forward: Line,
    backward: Line,
    behind: Line,
    (kept, micro_batches): (usize, usize),
) -> [Line; 4] {
    let busy = forward.plus(backward);
    let all = busy.times(micro_batches as f64);
    let ahead = 1.0 - kept as f64;
    let first = behind.plus(forward.times(ahead));
    let last = behind.plus(backward.times(ahead));
    // If all micro-batches are admitted at once, it waits once.
    let both = if micro_batches > kept { all.plus(first).plus(last) } else { all };
    [all, all.plus(first), all.plus(last), both]
}

/// Round trips that all micro-batches take one after the other, with `kept` of them in each.
pub(crate) fn trips(kept: usize, micro_batches: usize) -> f64 {
    (1 + (micro_batches - 1) / kept) as f64
}

/// All lines of a replica that divides its share into `micro_batches`.
pub(crate) fn lines(problem: &Problem<'_>, parts: &[StageRange], micro_batches: usize) -> Vec<(Limit, Line)> {
    let exact = problem.options.mode == Mode::Exact;
    let count = micro_batches as f64;
    let mut all = Vec::with_capacity(parts.len() * 6 + 1);
    let mut way = Line::default();
    for (s, part) in parts.iter().enumerate().rev() {
        let (forward, backward) = passes(problem, *part, micro_batches);
        let busy = forward.plus(backward);
        let begun = all.len();
        let mut transfer = None;
        if let Some(next) = parts.get(s + 1) {
            let (there, back) = problem.crossing[part.to];
            let link = problem.link(part.node, next.node);
            let both = Line { base: 2.0 * link.latency_s, slope: (there + back) / link.bytes_per_s };
            way = way.plus(both);
            transfer = Some(Line { base: 0.0, slope: there.max(back) / link.bytes_per_s });
        }
        let kept = problem.kept(parts.len() - s, micro_batches);
        let behind = way;
        way = way.plus(busy);
        if exact {
            all.extend(transfer.map(|one| (Limit::Link(s), way.plus(one.times(count - 1.0)))));
            let own = own(forward, backward, behind, (kept, micro_batches));
            all.extend(own.map(|line| (Limit::Stage(s), line)));
            all.push((Limit::RoundTrip(s), way.times(trips(kept, micro_batches))));
            // The time before a stage is added to its lines once it is known.
            all[begun..].iter_mut().for_each(|(_, line)| *line = line.plus(way.times(-1.0)));
        } else {
            all.extend(transfer.map(|one| (Limit::Link(s), one.times(count))));
            all.push((Limit::Stage(s), busy.times(count)));
            if s == 0 {
                all.push((Limit::RoundTrip(0), way.times(count / kept as f64)));
            }
        }
    }
    if exact {
        all.iter_mut().for_each(|(_, line)| *line = line.plus(way));
    }
    for (host, line) in host_work(problem, parts, micro_batches) {
        all.push((Limit::Host(host), line.times(count)));
    }
    all
}

/// Forward and backward of a part, for one of `micro_batches` micro-batches.
fn passes(problem: &Problem<'_>, part: StageRange, micro_batches: usize) -> (Line, Line) {
    let ((base, slope), (there, each)) = (problem.busy(part, micro_batches), problem.busy_forward(part));
    (Line { base: there, slope: each }, Line { base: base - there, slope: slope - each })
}

/// The highest of all lines, without storing them.
pub(crate) fn seconds(problem: &Problem<'_>, parts: &[StageRange], micro_batches: usize, m: usize) -> f64 {
    let time = pipeline_seconds(problem, parts, micro_batches, m);
    time.max(host_seconds(problem, parts, (micro_batches, m)) * micro_batches as f64)
}

/// The same for a replica whose nodes do not share their hosts.
pub(crate) fn pipeline_seconds(
    problem: &Problem<'_>,
    parts: &[StageRange],
    micro_batches: usize,
    m: usize,
) -> f64 {
    let exact = problem.options.mode == Mode::Exact;
    let (samples, count) = (m as f64, micro_batches as f64);
    let constant = |line: Line| Line { base: line.at(m), slope: 0.0 };
    // The way from a stage to the end and back, and the time of the stages from there on.
    let (mut way, mut time) = (0.0f64, 0.0f64);
    for (s, part) in parts.iter().enumerate().rev() {
        let (forward, backward) = passes(problem, *part, micro_batches);
        let (forward, backward) = (constant(forward), constant(backward));
        let busy = forward.base + backward.base;
        let mut transfer = 0.0;
        let mut both = 0.0;
        if let Some(next) = parts.get(s + 1) {
            let (there, back) = problem.crossing[part.to];
            let link = problem.link(part.node, next.node);
            let each = samples / link.bytes_per_s;
            both = 2.0 * link.latency_s + (there + back) * each;
            transfer = there.max(back) * each;
        }
        let behind = way + both;
        way = behind + busy;
        let kept = problem.kept(parts.len() - s, micro_batches);
        if exact {
            time = (time + both + busy).max(way + (count - 1.0) * transfer);
            let behind = Line { base: behind, slope: 0.0 };
            let own = own(forward, backward, behind, (kept, micro_batches));
            time = own.iter().fold(time, |t, line| t.max(line.base)).max(way * trips(kept, micro_batches));
        } else {
            time = time.max(busy * count).max(transfer * count);
            if s == 0 {
                time = time.max(way * count / kept as f64);
            }
        }
    }
    time
}

/// From the first stage to the last and back: the time to fill and drain the pipeline.
pub(crate) fn way(problem: &Problem<'_>, parts: &[StageRange], (micro_batches, m): (usize, usize)) -> f64 {
    let mut all = 0.0;
    for (part, next) in parts.iter().zip(parts.iter().skip(1).map(Some).chain([None])) {
        let (base, slope) = problem.busy(*part, micro_batches);
        all += base + slope * m as f64;
        if let Some(next) = next {
            let (there, back) = problem.crossing[part.to];
            let link = problem.link(part.node, next.node);
            all += 2.0 * link.latency_s + (there + back) * m as f64 / link.bytes_per_s;
        }
    }
    all
}

/// The longest that a host's cores take for a micro-batch.
fn host_seconds(problem: &Problem<'_>, parts: &[StageRange], (micro_batches, m): (usize, usize)) -> f64 {
    let host = |p: &StageRange| problem.host[p.node];
    let mut longest = 0.0f64;
    for (i, part) in parts.iter().enumerate() {
        if parts[..i].iter().any(|p| host(p) == host(part)) {
            continue;
        }
        let here = parts[i..].iter().filter(|p| host(p) == host(part));
        let busy = |p: &StageRange| {
            let (base, slope) = problem.busy(*p, micro_batches);
            (base + slope * m as f64) * problem.pool.nodes[p.node].threads
        };
        longest = longest.max(here.map(busy).sum::<f64>() / problem.cores[host(part)]);
    }
    longest
}

/// For each host that several nodes of this replica share, or that has fewer cores than a node would use: its seconds
/// for one micro-batch.
fn host_work(problem: &Problem<'_>, parts: &[StageRange], micro_batches: usize) -> Vec<(usize, Line)> {
    let mut all: Vec<(usize, Line, usize, bool)> = Vec::new();
    for part in parts {
        let host = problem.host[part.node];
        let (base, slope) = problem.busy(*part, micro_batches);
        let share = problem.pool.nodes[part.node].threads / problem.cores[host];
        let line = Line { base, slope }.times(share);
        match all.iter_mut().find(|(h, ..)| *h == host) {
            Some(known) => *known = (host, known.1.plus(line), known.2 + 1, known.3 || share > 1.0),
            None => all.push((host, line, 1, share > 1.0)),
        }
    }
    all.retain(|(.., nodes, crowded)| *nodes > 1 || *crowded);
    all.into_iter().map(|(host, line, ..)| (host, line)).collect()
}

/// A replica with its times, for a number of micro-batches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timed {
    pub(crate) parts: Vec<StageRange>,
    pub(crate) micro_batches: usize,
    /// Only the lines that can be the highest.
    lines: Vec<Line>,
    /// The most samples that its nodes' memory allows.
    pub(crate) most: usize,
    /// Seconds for fewer samples than micro-batches, by their number; computed on demand.
    few: OnceCell<Vec<Cell<f64>>>,
}

impl Timed {
    pub(crate) fn new(problem: &Problem<'_>, parts: Vec<StageRange>, micro_batches: usize) -> Self {
        let mut all: Vec<Line> =
            lines(problem, &parts, micro_batches).into_iter().map(|(_, line)| line).collect();
        all.sort_by(|a, b| b.slope.total_cmp(&a.slope).then(b.base.total_cmp(&a.base)));
        let mut highest = f64::NEG_INFINITY;
        all.retain(|line| {
            let higher = line.at(1) > highest;
            highest = highest.max(line.at(1));
            higher
        });
        let most = samples_that_fit(problem, &parts, micro_batches);
        Self { parts, micro_batches, lines: all, most, few: OnceCell::new() }
    }

    /// The micro-batches of a share, and the samples in each.
    pub(crate) fn split(&self, samples: usize) -> (usize, usize) {
        (self.micro_batches.min(samples), samples.div_ceil(self.micro_batches))
    }

    fn at(&self, m: usize) -> f64 {
        self.lines.iter().fold(0.0, |t, line| t.max(line.at(m)))
    }

    /// Seconds for a share of `samples` samples.
    pub(crate) fn seconds(&self, problem: &Problem<'_>, samples: usize) -> f64 {
        if samples >= self.micro_batches {
            return self.at(samples.div_ceil(self.micro_batches));
        }
        let few = self.few.get_or_init(|| vec![Cell::new(f64::NAN); self.micro_batches]);
        let known = &few[samples];
        if known.get().is_nan() {
            known.set(seconds(problem, &self.parts, samples.max(1), 1));
        }
        known.get()
    }

    /// The most samples that take at most `limit`.
    pub(crate) fn samples_within(
        &self,
        problem: &Problem<'_>,
        limit: f64,
        factor: f64,
        extra: Line,
    ) -> usize {
        let at = |m: usize| self.at(m).max(extra.at(m) * factor);
        if at(1) > limit {
            return self.few_within(problem, limit, factor, extra).min(self.most);
        }
        let most = self.most.div_ceil(self.micro_batches).max(1);
        let reach = |line: &Line| {
            if line.slope > 0.0 { (limit - line.base) / line.slope } else { f64::INFINITY }
        };
        let reached = self.lines.iter().map(reach).fold(reach(&extra.times(factor)), f64::min);
        let mut m = (reached.max(1.0) as usize).min(most);
        while m > 1 && at(m) > limit {
            m -= 1;
        }
        while m < most && at(m + 1) <= limit {
            m += 1;
        }
        (m * self.micro_batches).min(self.most)
    }

    /// Samples in `limit` seconds as if they were divisible, for comparing.
    pub(crate) fn flow(&self, limit: f64) -> f64 {
        let reach = |line: &Line| {
            if line.slope > 0.0 { (limit - line.base) / line.slope } else { f64::INFINITY }
        };
        let m = self.lines.iter().map(reach).fold(f64::INFINITY, f64::min);
        (m * self.micro_batches as f64).clamp(0.0, self.most as f64)
    }

    /// For fewer samples than micro-batches.
    fn few_within(&self, problem: &Problem<'_>, limit: f64, factor: f64, extra: Line) -> usize {
        let part = |n: usize| extra.at(1) * factor * n as f64 / self.micro_batches as f64;
        let within = |n: usize| self.seconds(problem, n).max(part(n)) <= limit;
        let (mut low, mut high) = (0, self.micro_batches);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if within(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// The most samples whose activations fit beside these parts; 0 if none do.
pub(crate) fn samples_that_fit(problem: &Problem<'_>, parts: &[StageRange], micro_batches: usize) -> usize {
    let within = |micro: usize| {
        parts.iter().enumerate().fold(usize::MAX, |least, (s, part)| {
            let kept = problem.kept(parts.len() - s, micro);
            least.min(samples_of_part(problem, *part, kept))
        })
    };
    let m = within(micro_batches);
    if m >= 1 {
        return m.min(problem.batch()).saturating_mul(micro_batches);
    }
    let fewest = parts.len().min(micro_batches);
    (1..fewest).rev().find(|n| within(*n) >= 1).unwrap_or(0)
}

fn samples_of_part(problem: &Problem<'_>, part: StageRange, kept: usize) -> usize {
    let left = problem.pool.nodes[part.node].memory as f64 - problem.fixed_memory(part.from, part.to, kept);
    if left < 0.0 {
        return 0;
    }
    let each = problem.activations(part.from, part.to) * kept as f64;
    if each <= 0.0 { usize::MAX } else { (left / each).floor() as usize }
}
