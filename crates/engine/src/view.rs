//! Views: the layout of a logical tensor in a buffer. Permuting, reshaping and slicing change the view, not the data.
//!
//! An image `[N, C, H, W]` with channels last is a view of a dense `[N, H, W, C]` buffer, so layouts need no special
//! cases: kernels ask for the element order they need, and get a copy only if it differs.

use crate::tape::V;

/// A logical tensor on the buffer of `base`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) base: V,
    pub(crate) offset: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<usize>,
}

/// The strides of a dense row-major tensor.
pub(crate) fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

impl View {
    pub(crate) fn dense(base: V, shape: &[usize]) -> Self {
        Self { base, offset: 0, shape: shape.to_vec(), strides: dense_strides(shape) }
    }

    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    pub(crate) fn permute(&self, perm: &[usize]) -> Self {
        Self {
            shape: perm.iter().map(|p| self.shape[*p]).collect(),
            strides: perm.iter().map(|p| self.strides[*p]).collect(),
            ..self.clone()
        }
    }

    /// Elements lie as in a dense row-major tensor.
    pub(crate) fn is_dense(&self) -> bool {
        let mut expected = 1;
        for (n, s) in self.shape.iter().zip(&self.strides).rev() {
            if *n != 1 {
                if *s != expected {
                    return false;
                }
                expected *= n;
            }
        }
        true
    }

    /// Axes by descending stride: the order in which the elements lie in memory.
    pub(crate) fn memory_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.sort_by_key(|a| {
            (std::cmp::Reverse(if self.shape[*a] == 1 { usize::MAX } else { self.strides[*a] }), *a)
        });
        order
    }

    /// Whether every element of a buffer of `base_len` is seen exactly once, in some order of axes.
    pub(crate) fn covers(&self, base_len: usize) -> bool {
        self.offset == 0 && self.len() == base_len && self.permute(&self.memory_order()).is_dense()
    }

    /// The view with another shape, when that needs no copy.
    pub(crate) fn reshape(&self, to: &[usize]) -> Option<Self> {
        let strides = if self.len() == 0 {
            dense_strides(to)
        } else {
            reshaped_strides(&self.shape, &self.strides, to)?
        };
        Some(Self { shape: to.to_vec(), strides, ..self.clone() })
    }

    /// Dimensions of size one repeated to fill `shape`; missing leading ones added.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Self {
        let lead = shape.len() - self.rank();
        let strides = (shape.iter().enumerate())
            .map(|(i, n)| match i.checked_sub(lead) {
                Some(j) if self.shape[j] == *n => self.strides[j],
                _ => 0,
            })
            .collect();
        Self { shape: shape.to_vec(), strides, ..self.clone() }
    }

    /// `len` elements of an axis from `start` on.
    pub(crate) fn narrow(&self, axis: usize, start: usize, len: usize) -> Self {
        let mut view = self.clone();
        view.offset += start * view.strides[axis];
        view.shape[axis] = len;
        view
    }
}

/// Groups of old axes and of new axes with equal products must each be one run of memory, or match one to one.
fn reshaped_strides(shape: &[usize], strides: &[usize], to: &[usize]) -> Option<Vec<usize>> {
    let old: Vec<(usize, usize)> =
        shape.iter().copied().zip(strides.iter().copied()).filter(|(n, _)| *n != 1).collect();
    let mut result = vec![1; to.len()];
    let (mut i, mut j) = (0, 0);
    while i < old.len() {
        let (first_i, first_j) = (i, j);
        let (mut a, mut b) = (old[i].0, *to.get(j)?);
        while a != b {
            if a < b {
                i += 1;
                a *= old.get(i)?.0;
            } else {
                j += 1;
                b *= *to.get(j)?;
            }
        }
        // Old axes of the group must be one run.
        if (first_i..i).any(|k| old[k].1 != old[k + 1].1 * old[k + 1].0) {
            return None;
        }
        let mut stride = old[i].1;
        for k in (first_j..=j).rev() {
            result[k] = stride;
            stride *= to[k];
        }
        i += 1;
        j += 1;
    }
    to[j.min(to.len())..].iter().all(|n| *n == 1).then_some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: &[usize]) -> View {
        View::dense(V(0), shape)
    }

    #[test]
    fn splitting_and_merging_runs_needs_no_copy() {
        let x = view(&[4, 6, 5]);
        assert_eq!(x.reshape(&[24, 5]).map(|v| v.strides), Some(vec![5, 1]));
        assert_eq!(x.reshape(&[4, 2, 3, 5]).map(|v| v.strides), Some(vec![30, 15, 5, 1]));
        assert_eq!(x.reshape(&[1, 4, 1, 30]).map(|v| v.strides.last().copied()), Some(Some(1)));
    }

    #[test]
    fn merging_permuted_axes_needs_a_copy() {
        let x = view(&[4, 6, 5]).permute(&[1, 0, 2]);
        assert!(x.reshape(&[24, 5]).is_none());
        assert_eq!(x.reshape(&[3, 2, 4, 5]).map(|v| v.strides), Some(vec![10, 5, 30, 1]));
        assert!(x.covers(120));
        assert!(!x.is_dense());
    }

    #[test]
    fn channels_last_is_a_view() {
        let image = view(&[2, 3, 4, 5]).permute(&[0, 3, 1, 2]);
        assert_eq!(image.shape, [2, 5, 3, 4]);
        assert_eq!(image.memory_order(), [0, 2, 3, 1]);
        assert!(image.covers(120));
        assert!(!image.narrow(1, 0, 2).covers(120));
    }
}
