//! Which requests of one model are computed together, and when: pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// When requests of a model are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchRules {
    /// The most samples that are joined; 0 when requests are not joined at all.
    pub(super) most: u64,
    /// Requests wait until there are this many samples,
    pub(super) least: u64,
    /// but no longer than this.
    pub(super) wait: Duration,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<R> {
    /// Compute these together.
    Compute(Vec<R>),
    /// Look again then, or after the next change.
    WaitUntil(Instant),
    /// There is nothing to do before the next change.
    Nothing,
}

#[derive(Debug)]
struct Waiting<R> {
    request: R,
    samples: u64,
    since: Instant,
}

/// Requests for one model that wait to be computed, in the order in which they came.
#[derive(Debug)]
pub(super) struct Gathering<R> {
    rules: BatchRules,
    waiting: VecDeque<Waiting<R>>,
    /// Batches that are being computed.
    computing: usize,
}

impl<R> Gathering<R> {
    pub(super) fn new(rules: BatchRules) -> Self {
        Self { rules, waiting: VecDeque::new(), computing: 0 }
    }

    pub(super) fn push(&mut self, now: Instant, request: R, samples: u64) {
        self.waiting.push_back(Waiting { request, samples, since: now });
    }

    /// Drops requests that nobody waits for any more.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&R) -> bool) {
        self.waiting.retain(|waiting| is_wanted(&waiting.request));
    }

    /// Neither waits nor is computed.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.computing == 0
    }

    /// Whether a thread that has nothing to do should look, after a request came: not when a thread that computes will
    /// look anyway, and not when one waits for the same end already.
    pub(super) fn wants_thread(&self, now: Instant) -> bool {
        let begins_to_wait = self.computing == 0 && self.waiting.len() == 1;
        self.is_due(now) || begins_to_wait
    }

    /// Whether something is to be computed now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let Some(first) = self.waiting.front() else { return false };
        let samples: u64 = self.waiting.iter().map(|waiting| waiting.samples).sum();
        if self.rules.most == 0 || samples >= self.rules.most {
            return true;
        }
        // What comes while a batch is computed is the next one, unless that is full.
        self.computing == 0 && (samples >= self.rules.least || now >= first.since + self.rules.wait)
    }

    /// Decides what is computed next; [`Self::computed`] ends it.
    pub(super) fn next(&mut self, now: Instant) -> Next<R> {
        if !self.is_due(now) {
            let first = self.waiting.front().filter(|_| self.computing == 0);
            return first.map_or(Next::Nothing, |first| Next::WaitUntil(first.since + self.rules.wait));
        }
        self.computing += 1;
        let count = self.batch();
        Next::Compute(self.waiting.drain(..count).map(|waiting| waiting.request).collect())
    }

    /// A batch has been computed.
    pub(super) fn computed(&mut self) {
        self.computing = self.computing.saturating_sub(1);
    }

    /// Everything that waits, for a model that cannot be computed.
    pub(super) fn take_all(&mut self) -> Vec<R> {
        self.waiting.drain(..).map(|waiting| waiting.request).collect()
    }

    /// How many requests fit in a batch; one that is larger goes alone.
    fn batch(&self) -> usize {
        let mut samples = 0u64;
        let fits = |waiting: &&Waiting<R>| {
            samples = samples.saturating_add(waiting.samples);
            samples <= self.rules.most
        };
        self.waiting.iter().take_while(fits).count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(20);

    fn gathering(most: u64, least: u64) -> (Gathering<u32>, Instant) {
        (Gathering::new(BatchRules { most, least, wait: WAIT }), Instant::now())
    }

    #[test]
    fn requests_that_are_not_joined_are_computed_at_once_and_side_by_side() {
        let (mut gathering, now) = gathering(0, 0);
        (0..3).for_each(|n| gathering.push(now, n, 1));
        for n in 0..3 {
            assert_eq!(gathering.next(now), Next::Compute(vec![n]));
        }
        assert_eq!(gathering.next(now), Next::Nothing);
    }

    #[test]
    fn what_comes_during_a_batch_is_the_next_one() {
        let (mut gathering, now) = gathering(4, 0);
        gathering.push(now, 0, 1);
        assert_eq!(gathering.next(now), Next::Compute(vec![0]));
        (1..4).for_each(|n| gathering.push(now, n, 1));
        assert!(!gathering.wants_thread(now));
        assert_eq!(gathering.next(now), Next::Nothing);
        // A full batch need not wait for the one before.
        gathering.push(now, 4, 1);
        gathering.push(now, 5, 1);
        assert_eq!(gathering.next(now), Next::Compute(vec![1, 2, 3, 4]));
        gathering.computed();
        gathering.computed();
        assert_eq!(gathering.next(now), Next::Compute(vec![5]));
        gathering.computed();
        assert!(gathering.is_idle());
    }

    #[test]
    fn a_batch_waits_for_enough_samples_but_not_for_ever() {
        let (mut gathering, now) = gathering(8, 4);
        gathering.push(now, 0, 1);
        assert!(gathering.wants_thread(now), "one that waits for the end");
        assert_eq!(gathering.next(now), Next::WaitUntil(now + WAIT));
        gathering.push(now + WAIT / 2, 1, 2);
        assert!(!gathering.wants_thread(now + WAIT / 2));
        assert_eq!(gathering.next(now + WAIT / 2), Next::WaitUntil(now + WAIT));
        gathering.push(now + WAIT / 2, 2, 1);
        assert_eq!(gathering.next(now + WAIT / 2), Next::Compute(vec![0, 1, 2]));
        gathering.computed();
        gathering.push(now, 3, 1);
        assert_eq!(gathering.next(now + WAIT), Next::Compute(vec![3]));
    }

    #[test]
    fn a_request_larger_than_a_batch_goes_alone_and_unwanted_ones_do_not_go() {
        let (mut gathering, now) = gathering(4, 0);
        gathering.push(now, 0, 9);
        gathering.push(now, 1, 1);
        gathering.push(now, 2, 1);
        gathering.retain(|request| *request != 1);
        assert_eq!(gathering.next(now), Next::Compute(vec![0]));
        gathering.computed();
        assert_eq!(gathering.next(now), Next::Compute(vec![2]));
        gathering.push(now, 3, 1);
        assert_eq!(gathering.take_all(), [3]);
    }
}
