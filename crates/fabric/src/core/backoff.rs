use phalanx_types::Time;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(3);

/// When to dial next: at once, then after 100 ms, doubling up to 3 s, without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    due: Time,
    step: Duration,
}

impl Backoff {
    pub(crate) fn due_at(due: Time) -> Self {
        Self { due, step: FIRST }
    }

    pub(crate) fn due(&self) -> Time {
        self.due
    }

    pub(crate) fn failed(&mut self, now: Time) {
        self.due = now + self.step;
        self.step = (self.step * 2).min(LONGEST);
    }

    /// Jumps to the longest delay, for a peer that would only misbehave again.
    pub(crate) fn punished(&mut self, now: Time) {
        self.step = LONGEST;
        self.due = now + LONGEST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_three_seconds() {
        let mut backoff = Backoff::due_at(Time::ZERO);
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = backoff.due();
            backoff.failed(now);
            waits.push(backoff.due().since(now).as_millis());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3000, 3000]);
    }
}
