//! The progress of a program: which steps are done and which may run next.

use super::{Area, Program, Span, Step};
use std::ops::Range;

/// One run of a program, counted in bytes. The caller asks what can proceed, does it, and reports it.
#[derive(Debug)]
pub(crate) struct Progress<'p> {
    steps: &'p [Step],
    element: usize,
    /// The bytes done of each step.
    done: Vec<usize>,
    /// The current step that is not a send; all before it are complete.
    turn: usize,
    /// The sends to each rank that are not complete, in order.
    sends: Vec<Sends>,
}

#[derive(Debug)]
struct Sends {
    to: usize,
    steps: Vec<usize>,
    complete: usize,
}

impl<'p> Progress<'p> {
    /// Starts a program over elements of `element` bytes.
    pub(crate) fn new(program: &'p Program, element: usize) -> Self {
        let mut sends: Vec<Sends> = Vec::new();
        for (index, step) in program.steps.iter().enumerate() {
            let Step::Send { to, .. } = step else { continue };
            match sends.iter_mut().find(|sends| sends.to == *to) {
                Some(sends) => sends.steps.push(index),
                None => sends.push(Sends { to: *to, steps: vec![index], complete: 0 }),
            }
        }
        let steps = &program.steps;
        let mut progress = Self { steps, element, done: vec![0; steps.len()], turn: 0, sends };
        progress.skip_sends();
        progress
    }

    /// How many ranks the program sends to.
    pub(crate) fn targets(&self) -> usize {
        self.sends.len()
    }

    /// The rank and the step of the first send to a target that is not complete.
    pub(crate) fn send(&self, target: usize) -> Option<(usize, usize)> {
        let sends = &self.sends[target];
        sends.steps.get(sends.complete).map(|step| (sends.to, *step))
    }

    /// The current step that is not a send.
    pub(crate) fn turn(&self) -> Option<(usize, &'p Step)> {
        self.steps.get(self.turn).map(|step| (self.turn, step))
    }

    /// The area that a send reads, or that another step writes.
    pub(crate) fn area(&self, step: usize) -> Area {
        span(&self.steps[step]).area
    }

    /// The byte range of its area that a send or the current step still has to process.
    pub(crate) fn left(&self, step: usize) -> Range<usize> {
        let range = self.bytes(span(&self.steps[step]));
        range.start + self.done[step]..range.end
    }

    /// The byte range of its area that a send may send now, because it is final.
    pub(crate) fn sendable(&self, step: usize) -> Range<usize> {
        let Step::Send { span: sent, .. } = &self.steps[step] else { return 0..0 };
        let mut left = self.left(step);
        for (index, earlier) in self.steps.iter().enumerate().take(step).skip(self.turn) {
            if !matches!(earlier, Step::Send { .. }) && span(earlier).area == sent.area {
                left = before(left, self.left(index));
            }
        }
        left
    }

    /// The byte range of its area that the current step may write now, because no send needs it any more.
    pub(crate) fn writable(&self) -> Range<usize> {
        let Some((turn, step)) = self.turn() else { return 0..0 };
        let mut left = self.left(turn);
        for sends in &self.sends {
            let waiting = sends.steps[sends.complete..].iter().take_while(|index| **index < turn);
            for index in waiting.filter(|index| span(&self.steps[**index]).area == span(step).area) {
                left = before(left, self.left(*index));
            }
        }
        left
    }

    /// Counts bytes done of a send or of the current step.
    pub(crate) fn did(&mut self, step: usize, bytes: usize) {
        self.done[step] += bytes;
        debug_assert!(self.done[step] <= self.bytes(span(&self.steps[step])).len());
    }

    /// Moves on to the next send to a target.
    pub(crate) fn complete_send(&mut self, target: usize) {
        self.sends[target].complete += 1;
    }

    /// Moves on to the next step that is not a send.
    pub(crate) fn complete_turn(&mut self) {
        self.turn += 1;
        self.skip_sends();
    }

    pub(crate) fn finished(&self) -> bool {
        self.turn == self.steps.len() && self.sends.iter().all(|sends| sends.complete == sends.steps.len())
    }

    /// Whether anything still has to be exchanged with a rank.
    pub(crate) fn needs(&self, rank: usize) -> bool {
        let sends = |sends: &Sends| sends.to == rank && sends.complete < sends.steps.len();
        let receives = |step: &Step| matches!(step, Step::Receive { from, .. } if *from == rank);
        self.sends.iter().any(sends) || self.steps[self.turn..].iter().any(receives)
    }

    fn skip_sends(&mut self) {
        while matches!(self.steps.get(self.turn), Some(Step::Send { .. })) {
            self.turn += 1;
        }
    }

    fn bytes(&self, span: &Span) -> Range<usize> {
        span.range.start * self.element..span.range.end * self.element
    }
}

/// The span that a step sends or writes.
fn span(step: &Step) -> &Span {
    match step {
        Step::Send { span, .. } => span,
        Step::Receive { into, .. } | Step::Copy { into, .. } | Step::Combine { into, .. } => into,
    }
}

/// The start of `range`, up to where it meets `taken`.
fn before(range: Range<usize>, taken: Range<usize>) -> Range<usize> {
    let meets = range.start < taken.end && taken.start < range.end;
    if meets { range.start..taken.start.max(range.start) } else { range }
}
