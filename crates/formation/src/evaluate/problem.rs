use crate::evaluate::moving;
use crate::{Link, Mode, ModelCost, Options, Pool, Shortfall};
use std::collections::BTreeMap;

/// A model, a pool and options, with precomputed values.
///
/// A *place* is the number of a legal boundary: 0 is the model's beginning, then come the cuts, and the last is its
/// end.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    pub(crate) model: &'a ModelCost,
    pub(crate) pool: &'a Pool,
    pub(crate) options: &'a Options,
    /// The number of operators before each place.
    pub(crate) places: Vec<usize>,
    /// Bytes per sample that cross a place, forward and backward.
    pub(crate) crossing: Vec<(f64, f64)>,
    /// Prefix sums up to each place.
    pub(crate) parameters: Vec<f64>,
    buffers: Vec<f64>,
    activations: Vec<f64>,
    per_sample: Vec<f64>,
    per_batch: Vec<f64>,
    /// Work per step.
    updates: Vec<f64>,
    /// The forward part of `per_sample` and `per_batch`.
    forward: (Vec<f64>, Vec<f64>),
    /// Seconds per unit of work, by node.
    slowness: Vec<f64>,
    /// By node.
    pub(crate) host: Vec<usize>,
    pub(crate) cores: Vec<f64>,
    /// Seconds to fetch everything before each place, by node; empty if moving is free.
    pub(crate) moves: Vec<Vec<f64>>,
}

/// A node, and the range of places that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StageRange {
    pub(crate) node: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl<'a> Problem<'a> {
    pub(crate) fn new(model: &'a ModelCost, pool: &'a Pool, options: &'a Options) -> Result<Self, Shortfall> {
        check(model, pool, options)?;
        let mut cuts: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for cut in model.cuts.iter().filter(|c| c.at > 0 && c.at < model.ops.len()) {
            let scaled = |bytes: u64| bytes as f64 * options.transfer_factor;
            cuts.insert(cut.at, (scaled(cut.forward_bytes), scaled(cut.backward_bytes)));
        }
        cuts.insert(0, (0.0, 0.0));
        cuts.insert(model.ops.len(), (0.0, 0.0));
        let places: Vec<usize> = cuts.keys().copied().collect();
        let sums = |each: &dyn Fn(&crate::OpCost) -> f64| sums(model, &places, each);
        let (host, cores) = hosts(pool);
        let mut problem = Self {
            model,
            pool,
            options,
            crossing: cuts.into_values().collect(),
            parameters: sums(&|op| op.parameter_bytes as f64),
            buffers: sums(&|op| op.buffer_bytes as f64),
            activations: sums(&|op| op.activation_bytes as f64),
            per_sample: sums(&|op| op.forward.per_sample + op.backward.per_sample),
            per_batch: sums(&|op| op.forward.per_batch + op.backward.per_batch),
            updates: sums(&|op| op.update),
            forward: (sums(&|op| op.forward.per_batch), sums(&|op| op.forward.per_sample)),
            slowness: pool.nodes.iter().map(|node| 1.0 / node.speed).collect(),
            places,
            host,
            cores,
            moves: Vec::new(),
        };
        problem.moves = moving::table(&problem);
        Ok(problem)
    }

    /// The number of the last place.
    pub(crate) fn end(&self) -> usize {
        self.places.len() - 1
    }

    pub(crate) fn batch(&self) -> usize {
        self.options.batch
    }

    pub(crate) fn link(&self, a: usize, b: usize) -> Link {
        if !self.pool.links.is_empty() {
            return self.pool.link(a, b);
        }
        if self.host[a] == self.host[b] {
            self.pool.local_link
        } else {
            self.pool.between_hosts(&self.pool.nodes[a], &self.pool.nodes[b])
        }
    }

    /// Seconds of a part for one of `micro_batches` micro-batches: fixed, and per sample. The update after the last is
    /// spread over all of them.
    pub(crate) fn busy(&self, part: StageRange, micro_batches: usize) -> (f64, f64) {
        let slowness = self.slowness[part.node];
        let between = |sums: &[f64]| (sums[part.to] - sums[part.from]) * slowness;
        let update = between(&self.updates) / micro_batches.max(1) as f64;
        let (there, back) = self.passing(part);
        let passes = 2.0 * self.pass(part) * slowness;
        (between(&self.per_batch) + update + passes, between(&self.per_sample) + (there + back) * slowness)
    }

    /// Work of a pass of a part besides its operators: a part that is the whole model needs no wake-up.
    fn pass(&self, part: StageRange) -> f64 {
        let whole = part.from == 0 && part.to == self.end();
        if whole { 0.0 } else { self.options.pass_work }
    }

    /// Work of receiving and sending activations per sample, forward and backward.
    fn passing(&self, part: StageRange) -> (f64, f64) {
        let ((there, back), (on, again)) = (self.crossing[part.from], self.crossing[part.to]);
        (self.options.byte_work * (there + on), self.options.byte_work * (back + again))
    }

    /// Seconds of a part's update after a step.
    pub(crate) fn update(&self, part: StageRange) -> f64 {
        (self.updates[part.to] - self.updates[part.from]) * self.slowness[part.node]
    }

    /// The forward part of [`Self::busy`], without the update.
    pub(crate) fn busy_forward(&self, part: StageRange) -> (f64, f64) {
        let slowness = self.slowness[part.node];
        let between = |sums: &[f64]| (sums[part.to] - sums[part.from]) * slowness;
        let (pass, (there, _)) = (self.pass(part), self.passing(part));
        (between(&self.forward.0) + pass * slowness, between(&self.forward.1) + there * slowness)
    }

    /// Work of the model up to a place, for one of `micro_batches` micro-batches of `m` samples.
    pub(crate) fn work_before(&self, place: usize, micro_batches: usize, m: usize) -> f64 {
        let update = self.updates[place] / micro_batches.max(1) as f64;
        self.per_batch[place] + update + self.per_sample[place] * m as f64
    }

    /// Bytes of a part, with `kept` micro-batches of `m` samples.
    pub(crate) fn memory(&self, from: usize, to: usize, kept: usize, m: usize) -> f64 {
        self.fixed_memory(from, to, kept) + self.activations(from, to) * kept as f64 * m as f64
    }

    /// The part of the memory that does not depend on samples. Micro-batches that overlap updates keep the parameters
    /// they began with.
    pub(crate) fn fixed_memory(&self, from: usize, to: usize, kept: usize) -> f64 {
        let versions = match self.options.mode {
            Mode::Asynchronous { .. } if kept > 1 => kept as f64,
            _ => 0.0,
        };
        let each = self.options.kept_per_parameter_byte + versions;
        let parameters = (self.parameters[to] - self.parameters[from]) * each;
        parameters.ceil() + self.buffers[to] - self.buffers[from] + self.options.base_bytes as f64
    }

    pub(crate) fn activations(&self, from: usize, to: usize) -> f64 {
        self.activations[to] - self.activations[from]
    }

    /// Micro-batches that a stage keeps at a time; `behind` counts the stages from it to the end.
    pub(crate) fn kept(&self, behind: usize, micro_batches: usize) -> usize {
        match self.options.mode {
            Mode::Exact if behind <= 1 => 1,
            Mode::Exact => (behind + self.options.ahead).min(micro_batches),
            // The last stage runs backward at once; each stage before it admits evenly more, up to all that may be in
            // flight.
            Mode::Asynchronous { .. } if behind <= 1 => 1,
            Mode::Asynchronous { in_flight } => in_flight.unwrap_or(2 * behind).max(1),
        }
    }

    pub(crate) fn fits(&self, node: usize, from: usize, to: usize, kept: usize, m: usize) -> bool {
        self.memory(from, to, kept, m) <= self.pool.nodes[node].memory as f64
    }
}

fn sums(model: &ModelCost, places: &[usize], each: &dyn Fn(&crate::OpCost) -> f64) -> Vec<f64> {
    let mut all = vec![0.0];
    for pair in places.windows(2) {
        let more: f64 = model.ops[pair[0]..pair[1]].iter().map(each).sum();
        all.push(all[all.len() - 1] + more);
    }
    all
}

fn hosts(pool: &Pool) -> (Vec<usize>, Vec<f64>) {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut host, mut cores) = (Vec::new(), Vec::new());
    for node in &pool.nodes {
        let next = known.len();
        let number = *known.entry(&node.host).or_insert(next);
        if number == next {
            cores.push(node.cores);
        }
        cores[number] = cores[number].max(node.cores);
        host.push(number);
    }
    (host, cores)
}

fn check(model: &ModelCost, pool: &Pool, options: &Options) -> Result<(), Shortfall> {
    if model.ops.is_empty() {
        return Err(Shortfall::EmptyModel);
    }
    if pool.nodes.is_empty() {
        return Err(Shortfall::EmptyPool);
    }
    let mut numbers: Vec<(&'static str, String, f64, bool)> = Vec::new();
    let mut positive = |what, of: &str, value: f64| numbers.push((what, of.to_owned(), value, true));
    positive("batch", "a step", options.batch as f64);
    positive("exchange interval", "replicas", options.exchange.every as f64);
    positive("unit", "asynchronous steps", options.unit as f64);
    for node in &pool.nodes {
        positive("speed", &node.name, node.speed);
        positive("cores", &node.name, node.cores);
        positive("threads", &node.name, node.threads);
        node.uplink.iter().for_each(|l| positive("bandwidth", &node.name, l.bytes_per_s));
    }
    positive("bandwidth", "links between hosts", pool.default_link.bytes_per_s);
    positive("bandwidth", "links on a host", pool.local_link.bytes_per_s);
    for link in pool.links.values() {
        positive("bandwidth", "a link", link.bytes_per_s);
    }
    for op in &model.ops {
        for work in [op.forward, op.backward] {
            numbers.push(("work per sample", op.name.clone(), work.per_sample, false));
            numbers.push(("work per batch", op.name.clone(), work.per_batch, false));
        }
        numbers.push(("work of an update", op.name.clone(), op.update, false));
    }
    numbers.push(("factor", "transfers".into(), options.transfer_factor, false));
    numbers.push(("work per pass", "stages".into(), options.pass_work, false));
    numbers.push(("work per byte", "transfers".into(), options.byte_work, false));
    numbers.push(("bytes kept for a byte", "parameters".into(), options.kept_per_parameter_byte, false));
    let wrong = numbers
        .into_iter()
        .find(|(_, _, value, positive)| !value.is_finite() || *value < 0.0 || (*positive && *value == 0.0));
    wrong.map_or(Ok(()), |(what, of, value, _)| Err(Shortfall::Senseless { what, of, value }))
}
