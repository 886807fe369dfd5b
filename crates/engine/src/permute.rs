//! Permuting axes of parameters between the user's order and the engine's.

/// Elements of two axes transposed at a time, so that source and destination both stay in the L1 cache.
const TILE: usize = 16;

/// An axis of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PermutedAxis {
    len: usize,
    /// The strides in the source and in the destination.
    from: usize,
    to: usize,
}

/// The values of a dense tensor of this shape, with its axes in this order.
pub(crate) fn permuted(values: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
    let axes = merged(shape, order);
    let Some((last, outer)) = axes.split_last() else { return values.to_vec() };
    let mut result = vec![0.0; values.len()];
    if values.is_empty() {
        return result;
    }
    if last.from == 1 {
        each(outer, &mut |from, to| {
            result[to..to + last.len].copy_from_slice(&values[from..from + last.len]);
        });
        return result;
    }
    // The axis that is contiguous in the source.
    let (near, rest): (Vec<PermutedAxis>, Vec<PermutedAxis>) = outer.iter().partition(|axis| axis.from == 1);
    for near in near {
        each(&rest, &mut |from, to| turn(&values[from..], &mut result[to..], near, *last));
    }
    result
}

/// The axes of the result, outermost first. Axes that stay adjacent are merged.
fn merged(shape: &[usize], order: &[usize]) -> Vec<PermutedAxis> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut axes: Vec<PermutedAxis> = Vec::new();
    let mut to = 1;
    for axis in order.iter().rev().filter(|axis| shape[**axis] != 1) {
        let (len, from) = (shape[*axis], strides[*axis]);
        match axes.last_mut() {
            Some(inner) if from == inner.from * inner.len => inner.len *= len,
            _ => axes.push(PermutedAxis { len, from, to }),
        }
        to *= len;
    }
    axes.reverse();
    axes
}

/// Calls `then` with every offset in the source and in the destination.
fn each(axes: &[PermutedAxis], then: &mut dyn FnMut(usize, usize)) {
    let Some((first, rest)) = axes.split_first() else { return then(0, 0) };
    for i in 0..first.len {
        each(rest, &mut |from, to| then(from + i * first.from, to + i * first.to));
    }
}

/// Transposes two axes, one of which is contiguous in the source and the other in the destination.
fn turn(values: &[f32], result: &mut [f32], near: PermutedAxis, last: PermutedAxis) {
    for row in (0..near.len).step_by(TILE) {
        for column in (0..last.len).step_by(TILE) {
            let columns = TILE.min(last.len - column);
            for i in row..near.len.min(row + TILE) {
                let into = &mut result[i * near.to + column..][..columns];
                for (value, j) in into.iter_mut().zip(column..) {
                    *value = values[i + j * last.from];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Element by element.
    fn plainly(values: &[f32], shape: &[usize], order: &[usize]) -> Vec<f32> {
        let lens: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
        let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
        let at = |mut element: usize| {
            let mut from = 0;
            for (axis, len) in order.iter().zip(&lens).rev() {
                from += element % len * stride(*axis);
                element /= len;
            }
            values[from]
        };
        (0..values.len()).map(at).collect()
    }

    #[test]
    fn every_order_of_axes_of_all_kinds_of_lengths() {
        let shapes: [&[usize]; 9] = [
            &[],
            &[5],
            &[1, 1, 1, 1],
            &[33, 40],
            &[17, 1, 3, 16],
            &[2, 19, 3, 3],
            &[4, 1, 35, 1],
            &[3, 0, 2],
            &[2, 3, 4, 18, 5],
        ];
        for shape in shapes {
            let values: Vec<f32> = (0..shape.iter().product()).map(|i| i as f32).collect();
            let mut orders: Vec<Vec<usize>> = vec![Vec::new()];
            for axis in 0..shape.len() {
                let longer = |order: &Vec<usize>| -> Vec<Vec<usize>> {
                    let at = |place: usize| [&order[..place], &[axis], &order[place..]].concat();
                    (0..=order.len()).map(at).collect()
                };
                orders = orders.iter().flat_map(longer).collect();
            }
            for order in orders {
                let (ours, theirs) = (permuted(&values, shape, &order), plainly(&values, shape, &order));
                assert_eq!(ours, theirs, "{shape:?} in the order {order:?}");
            }
        }
    }

    #[test]
    fn axes_that_stay_together_are_one() {
        let axis = |len, from, to| PermutedAxis { len, from, to };
        // Of a convolution: output, input, height, width, to output, height, width, input.
        assert_eq!(merged(&[8, 4, 3, 3], &[0, 2, 3, 1]), [axis(8, 36, 36), axis(9, 1, 4), axis(4, 9, 1)]);
        assert_eq!(merged(&[8, 4, 1, 1], &[0, 2, 3, 1]), [axis(32, 1, 1)]);
    }
}
