use phalanx_types::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Time since 1970 that never goes back: setting the machine's clock does not end keys.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    unix: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), unix: u64::try_from(unix.as_micros()).unwrap_or(0) }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.unix) + self.began.elapsed()
    }
}
