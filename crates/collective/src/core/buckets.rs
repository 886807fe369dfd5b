//! Buckets: many small tensors exchanged as a few large messages.
//!
//! Gradients become final in a known order. Neighbours in that order share a *bucket*, which is exchanged as soon as
//! all its tensors are ready, while backward still computes the rest.

use std::ops::Range;

/// Every tensor starts at a multiple of this many elements: 64 bytes of `f32`, a line of the cache.
pub(crate) const ALIGNMENT: usize = 16;
/// The bytes of an element.
const ELEMENT: usize = size_of::<f32>();

/// How large buckets may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketLimits {
    /// Bytes of the first bucket: small, so that the exchange starts early.
    pub first: usize,
    /// Bytes of every other bucket.
    pub bytes: usize,
}

impl Default for BucketLimits {
    fn default() -> Self {
        Self { first: 1 << 20, bytes: 16 << 20 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BucketSlot {
    bucket: usize,
    range: Range<usize>,
}

/// The position of each tensor in its bucket. Tensors and buckets are identified by index; elements are `f32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    places: Vec<BucketSlot>,
    /// The tensors of each bucket.
    tensors: Vec<Range<usize>>,
    /// Elements of each bucket, with the gaps between tensors.
    lengths: Vec<usize>,
}

impl Buckets {
    /// Packs tensors of `sizes` elements, in the order they become ready, into buckets within `limits`. A tensor larger
    /// than the limit has a bucket of its own.
    pub fn plan(sizes: &[usize], limits: BucketLimits) -> Self {
        let mut buckets =
            Self { places: Vec::with_capacity(sizes.len()), tensors: Vec::new(), lengths: Vec::new() };
        for (tensor, size) in sizes.iter().enumerate() {
            let range = buckets.next_range(*size, limits).unwrap_or_else(|| {
                buckets.tensors.push(tensor..tensor);
                buckets.lengths.push(0);
                0..*size
            });
            let bucket = buckets.lengths.len() - 1;
            buckets.tensors[bucket].end = tensor + 1;
            buckets.lengths[bucket] = range.end;
            buckets.places.push(BucketSlot { bucket, range });
        }
        buckets
    }

    /// The range of a tensor of that size in the last bucket, if it fits.
    fn next_range(&self, size: usize, limits: BucketLimits) -> Option<Range<usize>> {
        let limit = if self.lengths.len() == 1 { limits.first.min(limits.bytes) } else { limits.bytes };
        let start = self.lengths.last()?.checked_next_multiple_of(ALIGNMENT)?;
        let end = start.checked_add(size)?;
        (end <= limit / ELEMENT).then_some(start..end)
    }

    /// How many buckets there are.
    pub fn count(&self) -> usize {
        self.lengths.len()
    }

    /// How many tensors there are.
    pub fn tensor_count(&self) -> usize {
        self.places.len()
    }

    /// The bucket of a tensor.
    ///
    /// # Panics
    /// There is no such tensor.
    pub fn bucket(&self, tensor: usize) -> usize {
        self.places[tensor].bucket
    }

    /// The range of elements that a tensor occupies in its bucket.
    ///
    /// # Panics
    /// There is no such tensor.
    pub fn range(&self, tensor: usize) -> Range<usize> {
        self.places[tensor].range.clone()
    }

    /// The tensors of a bucket.
    ///
    /// # Panics
    /// There is no such bucket.
    pub fn tensors(&self, bucket: usize) -> Range<usize> {
        self.tensors[bucket].clone()
    }

    /// The elements of a bucket, with the gaps between its tensors. The gaps are exchanged too: hold zeros there.
    ///
    /// # Panics
    /// There is no such bucket.
    pub fn length(&self, bucket: usize) -> usize {
        self.lengths[bucket]
    }
}

/// Counts the tensors of one step that are ready. Allocates only on construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    /// The bucket of each tensor.
    buckets: Vec<usize>,
    /// Which tensors are ready.
    ready: Vec<bool>,
    /// How many tensors each bucket has, and how many of them are not ready.
    counts: Vec<BucketCount>,
    /// Tensors of all buckets that are not ready.
    missing: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BucketCount {
    all: usize,
    missing: usize,
}

impl Filling {
    /// Begins a step in which nothing is ready.
    pub fn new(buckets: &Buckets) -> Self {
        let tensors = buckets.tensor_count();
        let counts = (0..buckets.count()).map(|bucket| buckets.tensors(bucket).len());
        Self {
            buckets: (0..tensors).map(|tensor| buckets.bucket(tensor)).collect(),
            ready: vec![false; tensors],
            counts: counts.map(|all| BucketCount { all, missing: all }).collect(),
            missing: tensors,
        }
    }

    /// Notes that a tensor is ready. Returns its bucket if that is complete now.
    ///
    /// # Panics
    /// There is no such tensor, or it was ready before in this step.
    pub fn on_ready(&mut self, tensor: usize) -> Option<usize> {
        let before = std::mem::replace(&mut self.ready[tensor], true);
        assert!(!before, "tensor {tensor} is ready twice in one step");
        let bucket = self.buckets[tensor];
        let count = &mut self.counts[bucket];
        count.missing -= 1;
        self.missing -= 1;
        (count.missing == 0).then_some(bucket)
    }

    /// Whether all buckets are complete.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Begins the next step, whether this one is complete or given up.
    pub fn reset(&mut self) {
        self.ready.fill(false);
        for count in &mut self.counts {
            count.missing = count.all;
        }
        self.missing = self.ready.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_pcg::Pcg64;
    use rand_pcg::rand_core::{Rng, SeedableRng};

    fn elements(first: usize, others: usize) -> BucketLimits {
        BucketLimits { first: first * ELEMENT, bytes: others * ELEMENT }
    }

    #[test]
    fn neighbours_share_a_bucket_and_the_first_is_smaller() {
        let buckets = Buckets::plan(&[10, 6, 10, 40, 20, 4], elements(32, 64));
        assert_eq!(buckets.count(), 3);
        let bucket: Vec<usize> = (0..6).map(|tensor| buckets.bucket(tensor)).collect();
        assert_eq!(bucket, [0, 0, 1, 1, 2, 2]);
        let ranges: Vec<Range<usize>> = (0..6).map(|tensor| buckets.range(tensor)).collect();
        assert_eq!(ranges, [0..10, 16..22, 0..10, 16..56, 0..20, 32..36]);
        assert_eq!([0, 1, 2].map(|bucket| buckets.length(bucket)), [22, 56, 36]);
        assert_eq!([0, 1, 2].map(|bucket| buckets.tensors(bucket)), [0..2, 2..4, 4..6]);
    }

    #[test]
    fn a_tensor_beyond_the_limit_is_alone() {
        let buckets = Buckets::plan(&[1, 500, 1, 0, 500, 0], elements(64, 64));
        let bucket: Vec<usize> = (0..6).map(|tensor| buckets.bucket(tensor)).collect();
        assert_eq!(bucket, [0, 1, 2, 2, 3, 4]);
        assert_eq!(buckets.length(1), 500);
    }

    #[test]
    fn nothing_makes_no_bucket() {
        let buckets = Buckets::plan(&[], BucketLimits::default());
        assert_eq!((buckets.count(), buckets.tensor_count()), (0, 0));
        let filling = Filling::new(&buckets);
        assert!(filling.is_complete());
    }

    #[test]
    fn sizes_beyond_counting_do_not_overflow() {
        let buckets = Buckets::plan(&[5, usize::MAX - 3, 5], elements(64, 64));
        assert_eq!((0..3).map(|tensor| buckets.bucket(tensor)).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn every_plan_holds_its_limits() {
        let mut dice = Pcg64::seed_from_u64(21);
        for _ in 0..300 {
            let count = dice.next_u32() as usize % 60;
            let sizes: Vec<usize> = (0..count).map(|_| dice.next_u32() as usize % 300).collect();
            let limits = elements(dice.next_u32() as usize % 200, dice.next_u32() as usize % 600);
            let buckets = Buckets::plan(&sizes, limits);
            let mut tensor = 0;
            for bucket in 0..buckets.count() {
                let tensors = buckets.tensors(bucket);
                assert_eq!(tensors.start, tensor);
                assert!(!tensors.is_empty());
                let limit = if bucket == 0 { limits.first.min(limits.bytes) } else { limits.bytes };
                assert!(tensors.len() == 1 || buckets.length(bucket) * ELEMENT <= limit);
                let mut end = 0usize;
                for tensor in tensors.clone() {
                    let range = buckets.range(tensor);
                    assert_eq!(buckets.bucket(tensor), bucket);
                    assert_eq!(range.len(), sizes[tensor]);
                    assert_eq!(range.start, end.next_multiple_of(ALIGNMENT));
                    end = range.end;
                }
                assert_eq!(end, buckets.length(bucket));
                // The next tensor would not have fitted.
                if let Some(size) = sizes.get(tensors.end) {
                    assert!((end.next_multiple_of(ALIGNMENT) + size) * ELEMENT > limit);
                }
                tensor = tensors.end;
            }
            assert_eq!(tensor, count);
        }
    }

    #[test]
    fn a_bucket_is_complete_with_its_last_tensor_in_any_order() {
        let mut dice = Pcg64::seed_from_u64(22);
        let sizes: Vec<usize> = (0..40).map(|_| 1 + dice.next_u32() as usize % 100).collect();
        let buckets = Buckets::plan(&sizes, elements(100, 300));
        let mut filling = Filling::new(&buckets);
        let begin = filling.clone();
        for _ in 0..50 {
            let mut order: Vec<usize> = (0..sizes.len()).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, dice.next_u32() as usize % (i + 1));
            }
            let mut complete = Vec::new();
            for (done, tensor) in order.iter().enumerate() {
                assert!(!filling.is_complete());
                let seen = &order[..=done];
                let whole = buckets.tensors(buckets.bucket(*tensor)).all(|tensor| seen.contains(&tensor));
                let bucket = filling.on_ready(*tensor);
                assert_eq!(bucket, whole.then_some(buckets.bucket(*tensor)));
                complete.extend(bucket);
            }
            assert!(filling.is_complete());
            complete.sort_unstable();
            assert_eq!(complete, (0..buckets.count()).collect::<Vec<_>>());
            filling.reset();
            assert_eq!(filling, begin);
        }
    }

    #[test]
    fn a_step_can_be_given_up() {
        let buckets = Buckets::plan(&[1, 1], BucketLimits::default());
        let mut filling = Filling::new(&buckets);
        assert_eq!(filling.on_ready(1), None);
        filling.reset();
        assert_eq!(filling.on_ready(1), None);
        assert_eq!(filling.on_ready(0), Some(0));
    }

    #[test]
    #[should_panic(expected = "tensor 1 is ready twice in one step")]
    fn no_tensor_is_ready_twice() {
        let buckets = Buckets::plan(&[1, 1, 1], BucketLimits::default());
        let mut filling = Filling::new(&buckets);
        filling.on_ready(1);
        filling.on_ready(1);
    }
}
