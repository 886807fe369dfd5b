//! Moments as users read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last moment that RFC 3339 can name: the end of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;

/// A moment that others say, within the years that can be printed.
pub(crate) fn moment(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(unix_ms.min(LAST_MS))
}

/// That moment to the second, as `2026-11-19T21:54:56Z`.
pub(crate) fn rfc3339(unix_ms: u64) -> String {
    humantime::format_rfc3339_seconds(moment(unix_ms)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_moment_that_can_be_printed() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(LAST_MS), "9999-12-31T23:59:59Z");
        assert_eq!([LAST_MS + 1, u64::MAX].map(rfc3339), ["9999-12-31T23:59:59Z"; 2].map(str::to_owned));
    }
}
