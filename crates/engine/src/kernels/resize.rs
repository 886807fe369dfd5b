//! Resizing images, and its gradient.

#[cfg(test)]
mod tests;

use crate::simd;
use crate::threads::{Threads, scratch};
use phalanx_graph::{Coordinates, ResizeMode};
use pulp::{Simd, WithSimd};

/// Elements per task.
const TASK: usize = 1 << 14;

/// A resize of `[n, h, w, c]` to `[n, oh, ow, c]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Resize2d {
    pub(crate) n: usize,
    pub(crate) h: usize,
    pub(crate) w: usize,
    pub(crate) c: usize,
    pub(crate) oh: usize,
    pub(crate) ow: usize,
    /// How much larger than the input: rows, columns.
    pub(crate) scale: (f32, f32),
    pub(crate) mode: ResizeMode,
    pub(crate) coordinates: Coordinates,
}

/// The source of an output position: two input positions, and the weight of the second.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Blend {
    near: usize,
    far: usize,
    weight: f32,
}

impl Resize2d {
    fn row(&self, at: usize) -> Blend {
        self.blend(at, self.h, self.oh, self.scale.0)
    }

    fn column(&self, at: usize) -> Blend {
        self.blend(at, self.w, self.ow, self.scale.1)
    }

    fn blend(&self, at: usize, input: usize, output: usize, scale: f32) -> Blend {
        let exact = output as f64 / input as f64;
        // A scale that was rounded from the sizes would miss whole positions slightly.
        let scale = if (f64::from(scale) - exact).abs() <= 1e-6 * exact { exact } else { f64::from(scale) };
        let position = match self.coordinates {
            Coordinates::HalfPixel => (at as f64 + 0.5) / scale - 0.5,
            Coordinates::AlignCorners if output > 1 => at as f64 * (input - 1) as f64 / (output - 1) as f64,
            Coordinates::AlignCorners => 0.0,
            Coordinates::Asymmetric => at as f64 / scale,
        };
        let position = position.clamp(0.0, (input - 1) as f64);
        let near = position.floor();
        let far = (near as usize + 1).min(input - 1);
        match self.mode {
            ResizeMode::Nearest => Blend { near: near as usize, far: near as usize, weight: 0.0 },
            ResizeMode::Linear => Blend { near: near as usize, far, weight: (position - near) as f32 },
        }
    }

    /// Lends the blends of all columns: (near, far) as positions of pixels, and the weights.
    fn with_columns<R>(&self, work: impl FnOnce(&[[u32; 2]], &[f32]) -> R) -> R {
        scratch(3 * self.ow, |all| {
            let (places, weights) = all.split_at_mut(2 * self.ow);
            let places: &mut [[u32; 2]] = bytemuck::cast_slice_mut(places);
            for (at, (place, weight)) in places.iter_mut().zip(weights.iter_mut()).enumerate() {
                let blend = self.column(at);
                (*place, *weight) = ([blend.near as u32, blend.far as u32], blend.weight);
            }
            work(places, weights)
        })
    }
}

/// Computes `y`.
pub(crate) fn forward(threads: &Threads, s: &Resize2d, x: &[f32], y: &mut [f32]) {
    let line = s.ow * s.c;
    if y.is_empty() {
        return;
    }
    let rows = TASK.div_ceil(line);
    s.with_columns(|places, weights| {
        threads.chunks(y, rows * line, |i, y| {
            for (j, y) in y.chunks_exact_mut(line).enumerate() {
                let (image, at) = ((i * rows + j) / s.oh, (i * rows + j) % s.oh);
                let row = s.row(at);
                let source = |row: usize| &x[(image * s.h + row) * s.w * s.c..][..s.w * s.c];
                let (near, far) = (source(row.near), source(row.far));
                match s.mode {
                    ResizeMode::Nearest => pick(s.c, near, places, y),
                    ResizeMode::Linear => {
                        simd::arch().dispatch(Mix {
                            c: s.c,
                            near,
                            far,
                            down: row.weight,
                            places,
                            weights,
                            y,
                        });
                    }
                }
            }
        });
    });
}

fn pick(c: usize, x: &[f32], places: &[[u32; 2]], y: &mut [f32]) {
    for (y, [near, _]) in y.chunks_exact_mut(c).zip(places) {
        y.copy_from_slice(&x[*near as usize * c..][..c]);
    }
}

/// Blends a row from two rows of the input.
struct Mix<'a> {
    c: usize,
    near: &'a [f32],
    far: &'a [f32],
    /// The weight of the second.
    down: f32,
    places: &'a [[u32; 2]],
    weights: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { c, near: upper, far: lower, down, places, weights, y } = self;
        for ((y, [near, far]), across) in y.chunks_exact_mut(c).zip(places).zip(weights) {
            let (near, far) = (*near as usize * c, *far as usize * c);
            let (a, b) = (&upper[near..][..c], &upper[far..][..c]);
            let (d, e) = (&lower[near..][..c], &lower[far..][..c]);
            for i in 0..c {
                let above = a[i] * (1.0 - across) + b[i] * across;
                let below = d[i] * (1.0 - across) + e[i] * across;
                y[i] = above * (1.0 - down) + below * down;
            }
        }
    }
}

/// Computes the gradient of `x`: every output's gradient goes to its two inputs, by their weights.
pub(crate) fn backward(threads: &Threads, s: &Resize2d, dy: &[f32], dx: &mut [f32]) {
    let line = s.w * s.c;
    if dx.is_empty() {
        return;
    }
    let rows = TASK.div_ceil(line);
    s.with_columns(|places, weights| {
        threads.chunks(dx, rows * line, |i, dx| {
            dx.fill(0.0);
            let (first, end) = (i * rows, i * rows + dx.len() / line);
            for out in first / s.h * s.oh..end.div_ceil(s.h) * s.oh {
                let (image, row) = (out / s.oh, s.row(out % s.oh));
                let dy = &dy[out * s.ow * s.c..][..s.ow * s.c];
                for (to, share) in [(row.near, 1.0 - row.weight), (row.far, row.weight)] {
                    let to = image * s.h + to;
                    if share != 0.0 && (first..end).contains(&to) {
                        let dx = &mut dx[(to - first) * line..][..line];
                        simd::arch().dispatch(SpreadRow { c: s.c, dy, share, places, weights, dx });
                    }
                }
            }
        });
    });
}

/// Adds a row of gradients to a row of the input with the weight `share`.
struct SpreadRow<'a> {
    c: usize,
    dy: &'a [f32],
    share: f32,
    places: &'a [[u32; 2]],
    weights: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for SpreadRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { c, dy, share, places, weights, dx } = self;
        for ((dy, [near, far]), weight) in dy.chunks_exact(c).zip(places).zip(weights) {
            let k = share * (1.0 - weight);
            dx[*near as usize * c..][..c].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * k);
            let k = share * weight;
            if k != 0.0 {
                dx[*far as usize * c..][..c].iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * k);
            }
        }
    }
}
