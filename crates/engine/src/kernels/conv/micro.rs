//! The inner loop of every convolution: a tile of sums of products kept in registers.
//!
//! A tile is `MR` rows of `NV` vectors. Each step takes one number per row from the first operand and `NV` vectors from
//! the second, and adds all their products. The second operand is packed: its vectors are in the order in which they
//! are used. The first need not be: its rows may begin anywhere, and all follow the same walk.

#![expect(
    unsafe_code,
    reason = "explicit vectors; every address is checked against the slices before the loop"
)]

use pulp::{MemMask, Simd};

/// A stretch of a walk: its offset from the beginning of a row, and its length.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stretch {
    pub(super) from: usize,
    pub(super) len: usize,
}

/// The numbers of a row that a tile reads, in order. Their extent is computed once for all tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk<'a> {
    stretches: &'a [Stretch],
    /// Numbers in all.
    steps: usize,
    /// The end of the furthest stretch.
    reach: usize,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub(super) fn new(stretches: &'a [Stretch]) -> Self {
        let steps = stretches.iter().map(|s| s.len).sum();
        let reach = stretches.iter().map(|s| s.from + s.len).max().unwrap_or(0);
        Self { stretches, steps, reach }
    }
}

/// The destination of a tile of sums.
pub(super) struct TileTarget<'a> {
    pub(super) c: &'a mut [f32],
    /// Where each row of the tile begins.
    pub(super) rows: &'a [u32],
    /// How many numbers a row has; the last vector may be partly used.
    pub(super) lanes: usize,
    /// Add to the destination.
    pub(super) add: bool,
}

/// Computes one tile. `rows` are the offsets of the rows in `a`. If there are fewer than `MR`, the rest of the tile is
/// discarded.
#[inline(always)]
pub(super) fn tile<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    walk: &Walk<'_>,
    (a, rows): (&[f32], &[u32]),
    b: &[f32],
    target: TileTarget<'_>,
) {
    let wide = NV * S::F32_LANES;
    let count = rows.len();
    assert!(count == target.rows.len() && (1..=MR).contains(&count), "rows of a tile");
    assert!(walk.steps * wide <= b.len(), "a walk leaves the second operand");
    let mut starts = [a.as_ptr(); MR];
    for (i, start) in starts.iter_mut().enumerate() {
        let row = rows[i.min(count - 1)] as usize;
        assert!(row + walk.reach <= a.len(), "a walk leaves the first operand");
        *start = a[row..].as_ptr();
    }
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    let mut b = b.as_ptr();
    for stretch in walk.stretches {
        for at in stretch.from..stretch.from + stretch.len {
            // SAFETY: all steps of the walk are within both operands, as checked above.
            unsafe { step(simd, &starts, at, b, &mut sums) };
            b = b.wrapping_add(wide);
        }
    }
    put(simd, target, sums);
}

/// Computes one tile from two packed operands: `[step][row]`, with `apart` numbers from a step to the next, and
/// `[step][column]`.
#[inline(always)]
pub(super) fn packed_tile<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    (a, apart): (&[f32], usize),
    b: &[f32],
    target: TileTarget<'_>,
) {
    let wide = NV * S::F32_LANES;
    let steps = b.len() / wide;
    assert!(steps == 0 || (steps - 1) * apart + MR <= a.len(), "operands of different lengths");
    let mut sums = [[simd.splat_f32s(0.0); NV]; MR];
    let starts: [*const f32; MR] = std::array::from_fn(|i| a.as_ptr().wrapping_add(i));
    let mut b = b.as_ptr();
    for at in 0..steps {
        // SAFETY: both operands have this step.
        unsafe { step(simd, &starts, at * apart, b, &mut sums) };
        b = b.wrapping_add(wide);
    }
    put(simd, target, sums);
}

/// Adds the products of the number `at` of each row with the vectors at `b`.
///
/// # Safety
/// The rows have this number, and there are as many vectors at `b`.
#[inline(always)]
unsafe fn step<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    starts: &[*const f32; MR],
    at: usize,
    b: *const f32,
    sums: &mut [[S::f32s; NV]; MR],
) {
    let mut vectors = [simd.splat_f32s(0.0); NV];
    for (j, vector) in vectors.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *vector = unsafe { b.add(j * S::F32_LANES).cast::<S::f32s>().read_unaligned() };
    }
    for (start, sums) in starts.iter().zip(sums.iter_mut()) {
        // SAFETY: the caller's promise.
        let factor = simd.splat_f32s(unsafe { *start.add(at) });
        for (sum, vector) in sums.iter_mut().zip(vectors) {
            *sum = simd.mul_add_e_f32s(factor, vector, *sum);
        }
    }
}

/// Writes a tile or adds it to the destination.
#[inline(always)]
fn put<S: Simd, const MR: usize, const NV: usize>(
    simd: S,
    target: TileTarget<'_>,
    sums: [[S::f32s; NV]; MR],
) {
    let TileTarget { c, rows, lanes, add } = target;
    let before = (NV - 1) * S::F32_LANES;
    assert!(lanes > before && lanes <= before + S::F32_LANES, "lanes of a tile");
    // Masked stores are slow.
    let last = (lanes - before < S::F32_LANES).then(|| simd.mask_between_m32s(0, (lanes - before) as u32));
    for (row, sums) in rows.iter().zip(sums) {
        let c = &mut c[*row as usize..][..lanes];
        // SAFETY: the row has `lanes` numbers; of the last vector only those are touched.
        unsafe { put_row(simd, c.as_mut_ptr(), &sums, last, add) };
    }
}

/// # Safety
/// `c` has room for the vectors, the last one as far as `last` says.
#[inline(always)]
unsafe fn put_row<S: Simd, const NV: usize>(
    simd: S,
    c: *mut f32,
    sums: &[S::f32s; NV],
    last: Option<MemMask<S::m32s>>,
    add: bool,
) {
    for (j, sum) in sums.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let to = c.add(j * S::F32_LANES);
            if let (Some(last), true) = (last, j + 1 == NV) {
                let sum = if add { simd.add_f32s(simd.mask_load_ptr_f32s(last, to), *sum) } else { *sum };
                simd.mask_store_ptr_f32s(last, to, sum);
            } else {
                let to = to.cast::<S::f32s>();
                to.write_unaligned(if add { simd.add_f32s(to.read_unaligned(), *sum) } else { *sum });
            }
        }
    }
}
