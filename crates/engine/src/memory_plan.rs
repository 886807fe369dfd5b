//! Assigns offsets in the workspace to temporary buffers; memory is reused after the last read.

use crate::tape::{Storage, Tape, V};
use std::cmp::Reverse;

/// The offset of each temporary buffer, and the size of the workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryPlan {
    /// By buffer, in elements; `NONE` for buffers that are not temporary or never made.
    pub(crate) offsets: Vec<usize>,
    /// Elements of the workspace.
    pub(crate) size: usize,
}

pub(crate) const NONE: usize = usize::MAX;

/// Buffers begin at cache lines and none is empty, so that no two live buffers begin at the same offset.
const LINE: usize = 16;

/// The lifetime of a temporary buffer: from the call that makes it to the last call that reads it.
#[derive(Debug, Clone, Copy)]
struct Life {
    buffer: usize,
    len: usize,
    first: usize,
    last: usize,
}

/// Plans a tape. Buffers in `kept` (outputs, gradients of inputs) live until the end.
///
/// The largest buffers are placed first, each where it leaves the smallest gap. On the models of the zoo this is within
/// a few percent of the peak of live memory, which is a lower bound.
pub(crate) fn plan(tape: &Tape, kept: &[V]) -> MemoryPlan {
    let mut lives = lives(tape, kept);
    lives.sort_by_key(|life| (Reverse(life.len), life.first, life.buffer));
    let mut plan = MemoryPlan { offsets: vec![NONE; tape.slabs.len()], size: 0 };
    // The placed buffers, by offset.
    let mut placed: Vec<(usize, Life)> = Vec::with_capacity(lives.len());
    for life in lives {
        let at = best_place(&placed, life);
        plan.offsets[life.buffer] = at;
        plan.size = plan.size.max(at + life.len);
        let i = placed.partition_point(|(offset, _)| *offset <= at);
        placed.insert(i, (at, life));
    }
    plan
}

/// The smallest sufficient gap between buffers that are live at the same time; otherwise behind them all.
fn best_place(placed: &[(usize, Life)], life: Life) -> usize {
    let (mut end, mut best) = (0, None);
    for (offset, other) in placed {
        if other.last < life.first || life.last < other.first {
            continue;
        }
        if let Some(gap) = offset.checked_sub(end).filter(|gap| *gap >= life.len) {
            best = Some(best.map_or((gap, end), |b: (usize, usize)| b.min((gap, end))));
        }
        end = end.max(offset + other.len);
    }
    best.map_or(end, |(_, at)| at)
}

/// The temporary buffers, as they are made.
fn lives(tape: &Tape, kept: &[V]) -> Vec<Life> {
    let last = last_uses(tape, kept);
    let mut seen = vec![false; tape.slabs.len()];
    let mut lives = Vec::new();
    for (first, instr) in tape.instrs.iter().enumerate() {
        for v in &instr.outs {
            let buffer = v.index();
            if tape.storage(*v) == Storage::Temporary && !std::mem::replace(&mut seen[buffer], true) {
                let len = tape.len(*v).max(1).next_multiple_of(LINE);
                lives.push(Life { buffer, len, first, last: last[buffer] });
            }
        }
    }
    lives
}

/// By buffer: the last call that reads it; for a buffer that is never read the call that makes it.
fn last_uses(tape: &Tape, kept: &[V]) -> Vec<usize> {
    let mut last = vec![0; tape.slabs.len()];
    for (i, instr) in tape.instrs.iter().enumerate() {
        instr.ins.iter().chain(&instr.outs).for_each(|v| last[v.index()] = i);
    }
    kept.iter().for_each(|v| last[v.index()] = usize::MAX);
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Kernel;

    #[test]
    fn memory_is_reused_but_never_while_a_call_still_reads_it() {
        let mut tape = Tape::default();
        let x = tape.slab(8, Storage::Input(0));
        let a = tape.call1(0, Kernel::Fill(0.0), vec![x], 8);
        let b = tape.call1(0, Kernel::Fill(0.0), vec![a], 8);
        let c = tape.call1(0, Kernel::Fill(0.0), vec![b], 8);
        let d = tape.call1(0, Kernel::Fill(0.0), vec![a, c], 4);
        let p = plan(&tape, &[d]);
        let at = |v: V| p.offsets[v.index()];
        assert_eq!(at(x), NONE);
        assert_ne!(at(a), at(b));
        assert_ne!(at(a), at(c));
        assert_ne!(at(b), at(c));
        assert_eq!(at(d), at(b), "b is not read any more when d is made");
        assert_eq!(p.size, 3 * LINE);
    }

    #[test]
    fn room_of_a_large_buffer_is_used_by_several_small_ones() {
        let mut tape = Tape::default();
        let large = tape.call1(0, Kernel::Fill(0.0), vec![], 64);
        let a = tape.call1(0, Kernel::Fill(0.0), vec![large], 16);
        let b = tape.call1(0, Kernel::Fill(0.0), vec![a], 32);
        let c = tape.call1(0, Kernel::Fill(0.0), vec![a, b], 32);
        let p = plan(&tape, &[c]);
        assert_eq!(p.size, 80, "{p:?}");
    }

    #[test]
    fn what_is_kept_is_never_overwritten() {
        let mut tape = Tape::default();
        let kept = tape.call1(0, Kernel::Fill(0.0), vec![], 8);
        let a = tape.call1(0, Kernel::Fill(0.0), vec![], 8);
        let b = tape.call1(0, Kernel::Fill(0.0), vec![a], 8);
        let c = tape.call1(0, Kernel::Fill(0.0), vec![b], 8);
        let p = plan(&tape, &[kept]);
        assert!([a, b, c].iter().all(|v| p.offsets[v.index()] != p.offsets[kept.index()]));
    }
}
