use phalanx_types::Time;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// One reusable timer that follows a core's `next_wake`.
#[derive(Debug)]
pub(super) struct Wake {
    sleep: Pin<Box<Sleep>>,
    at: Time,
}

impl Wake {
    pub(super) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(Duration::from_secs(3600))), at: Time::NEVER }
    }

    /// Waits until `at`, given that it is `now`; for ever when `at` is never.
    pub(super) async fn until(&mut self, now: Time, at: Time) {
        if at == Time::NEVER {
            return std::future::pending().await;
        }
        if at != self.at {
            self.sleep.as_mut().reset(Instant::now() + at.since(now));
            self.at = at;
        }
        self.sleep.as_mut().await;
        self.at = Time::NEVER;
    }
}
