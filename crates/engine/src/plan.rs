//! Gives temporary buffers a place in the workspace; places are used again as soon as nobody reads them.

use crate::tape::{Place, Tape, V};

/// Which place each temporary buffer has, and how large the places are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    /// By buffer; `NONE` for those that are not temporary or never made.
    pub(crate) slots: Vec<u32>,
    /// Elements of each place.
    pub(crate) sizes: Vec<usize>,
}

pub(crate) const NONE: u32 = u32::MAX;

/// Plans a tape. What is `kept` (outputs, gradients of inputs) stays until the end.
pub(crate) fn plan(tape: &Tape, kept: &[V]) -> Plan {
    let last = last_uses(tape, kept);
    let mut plan = Plan { slots: vec![NONE; tape.slabs.len()], sizes: Vec::new() };
    let mut free: Vec<usize> = Vec::new();
    for (i, instr) in tape.instrs.iter().enumerate() {
        for v in &instr.outs {
            if tape.place(*v) == Place::Temporary {
                plan.slots[v.index()] = plan.take(&mut free, tape.len(*v)) as u32;
            }
        }
        for v in instr.ins.iter().chain(&instr.outs) {
            let slot = plan.slots[v.index()];
            if last[v.index()] <= i && slot != NONE && !free.contains(&(slot as usize)) {
                free.push(slot as usize);
            }
        }
    }
    plan
}

/// By buffer: the call after which it is not read any more; for one never read the call that makes it.
fn last_uses(tape: &Tape, kept: &[V]) -> Vec<usize> {
    let mut last = vec![0; tape.slabs.len()];
    for (i, instr) in tape.instrs.iter().enumerate() {
        instr.ins.iter().chain(&instr.outs).for_each(|v| last[v.index()] = i);
    }
    kept.iter().for_each(|v| last[v.index()] = usize::MAX);
    last
}

impl Plan {
    /// The smallest free place that is large enough; else the largest, enlarged; else a new one.
    fn take(&mut self, free: &mut Vec<usize>, len: usize) -> usize {
        let fitting =
            (0..free.len()).filter(|i| self.sizes[free[*i]] >= len).min_by_key(|i| self.sizes[free[*i]]);
        let best = fitting.or_else(|| (0..free.len()).max_by_key(|i| self.sizes[free[*i]]));
        match best {
            Some(i) => {
                let slot = free.swap_remove(i);
                self.sizes[slot] = self.sizes[slot].max(len);
                slot
            }
            None => {
                self.sizes.push(len);
                self.sizes.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::Kernel;

    #[test]
    fn places_are_used_again_but_never_while_somebody_reads() {
        let mut tape = Tape::default();
        let x = tape.slab(8, Place::Input(0));
        let a = tape.call1(0, Kernel::Fill(0.0), vec![x], 8);
        let b = tape.call1(0, Kernel::Fill(0.0), vec![a], 8);
        let c = tape.call1(0, Kernel::Fill(0.0), vec![b], 8);
        let d = tape.call1(0, Kernel::Fill(0.0), vec![a, c], 4);
        let p = plan(&tape, &[d]);
        let slot = |v: V| p.slots[v.index()];
        assert_eq!(slot(x), NONE);
        assert_ne!(slot(a), slot(b));
        assert_ne!(slot(a), slot(c));
        assert_ne!(slot(b), slot(c));
        assert_eq!(slot(d), slot(b), "b is not read any more when d is made");
        assert_eq!(p.sizes.iter().sum::<usize>(), 24);
    }

    #[test]
    fn what_is_kept_is_never_overwritten() {
        let mut tape = Tape::default();
        let kept = tape.call1(0, Kernel::Fill(0.0), vec![], 8);
        let a = tape.call1(0, Kernel::Fill(0.0), vec![], 8);
        let b = tape.call1(0, Kernel::Fill(0.0), vec![a], 8);
        let c = tape.call1(0, Kernel::Fill(0.0), vec![b], 8);
        let p = plan(&tape, &[kept]);
        assert!([a, b, c].iter().all(|v| p.slots[v.index()] != p.slots[kept.index()]));
    }
}
