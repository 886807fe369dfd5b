//! Normalisation: batch norm, group norm, layer norm.
//!
//! Channels are last, so batch and group norm work on columns of a matrix `[rows, c]`. Statistics are sums of distances
//! from a number close to the mean, over a few rows in single and then in double precision: memory is read once and
//! nothing cancels. Blocks depend on the shape alone.

mod columns;
mod layer;
#[cfg(test)]
mod tests;

pub(crate) use layer::{LayerNorm, layer_norm_backward, layer_norm_forward};

use crate::kernels::math::wide;
use crate::threads::{Threads, scratch};
use columns::{Backward, Fold, Forward};

/// An activation fused into the result: limits, or none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Activation {
    None,
    Clip(f32, f32),
}

impl Activation {
    fn limits(self) -> (f32, f32) {
        match self {
            Self::None => (f32::NEG_INFINITY, f32::INFINITY),
            Self::Clip(low, high) => (low, high),
        }
    }
}

/// A normalisation of `groups` groups of channels over the `rows` of each of `n` samples, `x` being `[n, rows, c]`.
/// Batch norm is one sample of `N · H · W` rows with a group for every channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupNorm<'a> {
    pub(crate) n: usize,
    pub(crate) rows: usize,
    pub(crate) c: usize,
    pub(crate) groups: usize,
    /// Per channel; 1 if not given.
    pub(crate) weight: Option<&'a [f32]>,
    /// Per channel; 0 if not given.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) activation: Activation,
}

/// The statistics of each group of each sample: `[n, groups]`.
#[derive(Debug)]
pub(crate) struct Statistics<'a> {
    pub(crate) mean: &'a mut [f32],
    /// `1 / sqrt(biased variance + eps)`
    pub(crate) inv_std: &'a mut [f32],
    /// Unbiased, as running statistics want it.
    pub(crate) variance: &'a mut [f32],
}

/// What [`GroupNorm::backward`] computes.
#[derive(Debug)]
pub(crate) struct Gradients<'a> {
    pub(crate) dx: &'a mut [f32],
    pub(crate) dweight: Option<&'a mut [f32]>,
    pub(crate) dbias: Option<&'a mut [f32]>,
}

impl GroupNorm<'_> {
    /// Normalises `x` into `y` by its own statistics, which it returns; `share` may add the statistics of other
    /// replicas.
    pub(crate) fn forward<E>(
        &self,
        t: &Threads,
        (x, eps): (&[f32], f32),
        y: &mut [f32],
        statistics: Statistics<'_>,
        share: impl FnOnce(&mut [f64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Statistics { mean, inv_std, variance } = statistics;
        let plan = self.plan();
        let groups = self.n * self.groups;
        scratch(4 * self.c * plan.blocks * self.n + 4 * groups + 2, |buffer| {
            let buffer: &mut [f64] = bytemuck::cast_slice_mut(buffer);
            let (partials, totals) = buffer.split_at_mut(2 * self.c * plan.blocks * self.n);
            self.moments(t, x, partials);
            let (sums, size) = totals.split_at_mut(2 * groups);
            size[0] = (self.rows * self.channels_per_group()) as f64;
            for (group, total) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                *total = self.total(partials, plan, group);
            }
            share(totals)?;
            let size = totals[2 * groups];
            for (group, [sum, squares]) in totals.as_chunks::<2>().0.iter().copied().enumerate() {
                let about_mean = (squares - sum * (sum / size)).max(0.0);
                mean[group] = (sum / size) as f32;
                inv_std[group] = (1.0 / (about_mean / size + f64::from(eps)).sqrt()) as f32;
                variance[group] = (about_mean / (size - 1.0)) as f32;
            }
            Ok(())
        })?;
        self.apply(t, x, mean, inv_std, y);
        Ok(())
    }

    /// Normalises `x` into `y` by given statistics, such as running averages.
    pub(crate) fn apply(&self, t: &Threads, x: &[f32], mean: &[f32], inv_std: &[f32], y: &mut [f32]) {
        let fold = Fold::new(self.rows, self.c);
        self.each_block(t, y, |sample, first, y| {
            let start = (sample * self.rows + first) * self.c;
            let x = &x[start..start + y.len()];
            scratch(3 * fold.width, |buffer| {
                let [means, factors, biases] = split(buffer);
                fold.fill(means, |channel| mean[self.group(sample, channel)]);
                fold.fill(factors, |channel| inv_std[self.group(sample, channel)] * self.weight(channel));
                fold.fill(biases, |channel| self.bias(channel));
                let (low, high) = self.activation.limits();
                wide!(columns::forward, (Forward { means, factors, biases, low, high }, x, y));
            });
        });
    }

    /// Computes the gradients, given the gradient of the result. `frozen`: the statistics were given, not computed from
    /// `x`. Where the activation was at its limits the gradient is zero; that is recomputed from `x`. `share` may add
    /// the sums of other replicas; gradients of weight and bias are of this replica alone.
    pub(crate) fn backward<E>(
        &self,
        t: &Threads,
        (x, dy): (&[f32], &[f32]),
        (mean, inv_std): (&[f32], &[f32]),
        (frozen, share): (bool, impl FnOnce(&mut [f64]) -> Result<(), E>),
        gradients: Gradients<'_>,
    ) -> Result<(), E> {
        let Gradients { dx, dweight, dbias } = gradients;
        let plan = self.plan();
        let groups = self.n * self.groups;
        scratch(4 * self.c * plan.blocks * self.n + 4 * groups + 2 + 2 * groups, |buffer| {
            let (doubles, group_sums) =
                buffer.split_at_mut(4 * self.c * plan.blocks * self.n + 4 * groups + 2);
            let doubles: &mut [f64] = bytemuck::cast_slice_mut(doubles);
            let (partials, totals) = doubles.split_at_mut(2 * self.c * plan.blocks * self.n);
            self.sums(t, (x, dy), (mean, inv_std), partials);
            self.learned(partials, inv_std, dweight, dbias);
            let (direct, along) = group_sums.split_at_mut(groups);
            let (sums, size) = totals.split_at_mut(2 * groups);
            size[0] = (self.rows * self.channels_per_group()) as f64;
            for (group, total) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                *total = self.weighted_total(partials, plan, group);
            }
            share(totals)?;
            let size = totals[2 * groups];
            for (group, [sum, product]) in totals.as_chunks::<2>().0.iter().copied().enumerate() {
                let inv_std = f64::from(inv_std[group]);
                direct[group] = if frozen { 0.0 } else { (inv_std * sum / size) as f32 };
                along[group] = if frozen { 0.0 } else { (inv_std.powi(3) * product / size) as f32 };
            }
            self.input_gradient(t, (x, dy), (mean, inv_std), (direct, along), dx);
            Ok(())
        })
    }

    fn input_gradient(
        &self,
        t: &Threads,
        (x, dy): (&[f32], &[f32]),
        (mean, inv_std): (&[f32], &[f32]),
        (direct, along): (&[f32], &[f32]),
        dx: &mut [f32],
    ) {
        let fold = Fold::new(self.rows, self.c);
        self.each_block(t, dx, |sample, first, dx| {
            let range = (sample * self.rows + first) * self.c;
            let range = range..range + dx.len();
            scratch(5 * fold.width, |buffer| {
                let [means, factors, biases, directs, alongs] = split(buffer);
                fold.fill(means, |channel| mean[self.group(sample, channel)]);
                fold.fill(factors, |channel| inv_std[self.group(sample, channel)] * self.weight(channel));
                fold.fill(biases, |channel| self.bias(channel));
                fold.fill(directs, |channel| direct[self.group(sample, channel)]);
                fold.fill(alongs, |channel| along[self.group(sample, channel)]);
                let (low, high) = self.activation.limits();
                let forward = Forward { means, factors, biases, low, high };
                let rule = Backward { forward, directs, alongs };
                let (x, dy) = (&x[range.clone()], &dy[range.clone()]);
                match self.activation {
                    Activation::None => wide!(columns::backward::<false>, (rule, x, dy, dx)),
                    _ => wide!(columns::backward::<true>, (rule, x, dy, dx)),
                }
            });
        });
    }

    /// Sums of every channel and block, `[n, blocks, 2, c]`: of `x` and of its squares.
    fn moments(&self, t: &Threads, x: &[f32], partials: &mut [f64]) {
        let fold = Fold::new(self.rows, self.c);
        t.chunks(partials, 2 * self.c, |task, sums| {
            let x = &x[self.range(task)];
            scratch(7 * fold.width, |buffer| wide!(columns::moments, (fold, x, sums, buffer)));
        });
    }

    /// Sums of every channel and block: of the gradient after the activation, and of its products with `x - mean`.
    fn sums(
        &self,
        t: &Threads,
        (x, dy): (&[f32], &[f32]),
        (mean, inv_std): (&[f32], &[f32]),
        partials: &mut [f64],
    ) {
        let fold = Fold::new(self.rows, self.c);
        t.chunks(partials, 2 * self.c, |task, sums| {
            let (x, dy) = (&x[self.range(task)], &dy[self.range(task)]);
            let sample = task / self.plan().blocks;
            scratch(9 * fold.width, |buffer| {
                let (buffer, rest) = buffer.split_at_mut(6 * fold.width);
                let [means, factors, biases] = split(rest);
                fold.fill(means, |channel| mean[self.group(sample, channel)]);
                fold.fill(factors, |channel| inv_std[self.group(sample, channel)] * self.weight(channel));
                fold.fill(biases, |channel| self.bias(channel));
                let (low, high) = self.activation.limits();
                let forward = Forward { means, factors, biases, low, high };
                match self.activation {
                    Activation::None => wide!(columns::sums::<false>, (fold, forward, x, dy, sums, buffer)),
                    _ => wide!(columns::sums::<true>, (fold, forward, x, dy, sums, buffer)),
                }
            });
        });
    }

    /// The gradients of weight and bias.
    fn learned(
        &self,
        partials: &[f64],
        inv_std: &[f32],
        dweight: Option<&mut [f32]>,
        dbias: Option<&mut [f32]>,
    ) {
        let blocks = self.plan().blocks;
        let of_sample = |sample: usize, channel: usize, which: usize| -> f64 {
            (sample * blocks..(sample + 1) * blocks)
                .map(|b| partials[(2 * b + which) * self.c + channel])
                .sum()
        };
        if let Some(dweight) = dweight {
            for (channel, out) in dweight.iter_mut().enumerate() {
                let scaled = |s: usize| of_sample(s, channel, 1) * f64::from(inv_std[self.group(s, channel)]);
                *out = (0..self.n).map(scaled).sum::<f64>() as f32;
            }
        }
        if let Some(dbias) = dbias {
            for (channel, out) in dbias.iter_mut().enumerate() {
                *out = (0..self.n).map(|s| of_sample(s, channel, 0)).sum::<f64>() as f32;
            }
        }
    }
}

/// How the rows of each sample are divided into blocks.
#[derive(Debug, Clone, Copy)]
struct RowBlocks {
    blocks: usize,
    rows: usize,
}

impl GroupNorm<'_> {
    /// Blocks of at least 32 Ki elements, and no more of them than a large machine can use.
    fn plan(&self) -> RowBlocks {
        let enough = (self.rows * self.c).div_ceil(32 * 1024);
        let blocks = enough.min(64usize.div_ceil(self.n.max(1))).max(1);
        let rows = self.rows.div_ceil(blocks).next_multiple_of(Fold::new(self.rows, self.c).rows).max(1);
        RowBlocks { blocks: self.rows.div_ceil(rows).max(1), rows }
    }

    /// The elements of a block.
    fn range(&self, task: usize) -> std::ops::Range<usize> {
        let plan = self.plan();
        let (sample, block) = (task / plan.blocks, task % plan.blocks);
        let row = |row: usize| (sample * self.rows + row.min(self.rows)) * self.c;
        row(block * plan.rows)..row((block + 1) * plan.rows)
    }

    /// Runs `task(sample, first row, elements)` on every block of an output.
    fn each_block(&self, t: &Threads, out: &mut [f32], task: impl Fn(usize, usize, &mut [f32]) + Sync) {
        let (plan, sample) = (self.plan(), self.rows * self.c);
        if sample == 0 {
            return;
        }
        if plan.blocks == 1 {
            t.chunks(out, sample, |s, part| task(s, 0, part));
            return;
        }
        for (s, out) in out.chunks_mut(sample).enumerate() {
            t.chunks(out, plan.rows * self.c, |b, part| task(s, b * plan.rows, part));
        }
    }

    fn channels_per_group(&self) -> usize {
        self.c / self.groups
    }

    fn group(&self, sample: usize, channel: usize) -> usize {
        // Batch norm has wide rows in small blocks, where the divisions would be noticeable.
        let in_sample = if self.groups == self.c { channel } else { channel / self.channels_per_group() };
        sample * self.groups + in_sample
    }

    fn weight(&self, channel: usize) -> f32 {
        self.weight.map_or(1.0, |weight| weight[channel])
    }

    fn bias(&self, channel: usize) -> f32 {
        self.bias.map_or(0.0, |bias| bias[channel])
    }

    fn total(&self, partials: &[f64], plan: RowBlocks, group: usize) -> [f64; 2] {
        self.total_of(partials, plan, group, |_| 1.0)
    }

    fn weighted_total(&self, partials: &[f64], plan: RowBlocks, group: usize) -> [f64; 2] {
        self.total_of(partials, plan, group, |channel| f64::from(self.weight(channel)))
    }

    /// Both sums of a group of a sample, over its channels and blocks.
    fn total_of(
        &self,
        partials: &[f64],
        plan: RowBlocks,
        group: usize,
        weight: impl Fn(usize) -> f64,
    ) -> [f64; 2] {
        let (blocks, size) = (plan.blocks, self.channels_per_group());
        let (sample, first) = (group / self.groups, group % self.groups * size);
        let mut total = [0.0; 2];
        for block in sample * blocks..(sample + 1) * blocks {
            for channel in first..first + size {
                let weight = weight(channel);
                total[0] += weight * partials[2 * block * self.c + channel];
                total[1] += weight * partials[(2 * block + 1) * self.c + channel];
            }
        }
        total
    }
}

/// Cuts a buffer into equal parts.
fn split<const N: usize>(buffer: &mut [f32]) -> [&mut [f32]; N] {
    let part = (buffer.len() / N).max(1);
    let mut parts = buffer.chunks_mut(part);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}
