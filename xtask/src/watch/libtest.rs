//! Reads the output of libtest and decides when a test has taken too long. No clock: times are since the start.

use std::collections::BTreeMap;
use std::time::Duration;

/// After this time libtest says that a test is slow.
const SLOW: Duration = Duration::from_secs(60);
const IS_SLOW: &str = " has been running for over 60 seconds";

/// What a test binary has said so far.
///
/// With several threads libtest prints a test when it has ended, and names it when it is slow; with one thread it
/// prints the name first, and nothing of slow tests.
pub(crate) struct Watch {
    limit: Duration,
    /// When a test ended last.
    progress: Duration,
    /// When slow tests began.
    slow: BTreeMap<String, Duration>,
    /// A line whose end has not come.
    partial: Vec<u8>,
}

impl Watch {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, progress: Duration::ZERO, slow: BTreeMap::new(), partial: Vec::new() }
    }

    /// Takes output that came at this time.
    pub(crate) fn read(&mut self, now: Duration, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.partial);
                self.line(now, String::from_utf8_lossy(&line).trim_end());
            }
        }
    }

    fn line(&mut self, now: Duration, line: &str) {
        let Some(test) = line.strip_prefix("test ") else { return };
        if let Some(name) = test.strip_suffix(IS_SLOW) {
            self.slow.entry(name.to_owned()).or_insert(now.saturating_sub(SLOW));
        } else if let Some((name, _result)) = test.split_once(" ... ") {
            self.slow.remove(name.strip_suffix(" - should panic").unwrap_or(name));
            self.progress = now;
        }
    }

    /// When a test has taken too long, unless more is read before.
    pub(crate) fn deadline(&self) -> Duration {
        let oldest = self.slow.values().min().copied().unwrap_or(self.progress);
        oldest.min(self.progress) + self.limit
    }

    /// Why the binary is ended at this time.
    pub(crate) fn verdict(&self, now: Duration) -> String {
        let limit = self.limit.as_secs();
        let begun = String::from_utf8_lossy(&self.partial);
        let begun =
            begun.strip_prefix("test ").and_then(|test| test.split_once(" ... ")).map(|(name, _)| name);
        let running: Vec<&str> = self.slow.keys().map(String::as_str).chain(begun).collect();
        let over: Vec<&str> = running
            .iter()
            .copied()
            .filter(|name| self.slow.get(*name).is_none_or(|since| now >= *since + self.limit))
            .collect();
        match (&over[..], &running[..]) {
            ([], []) => format!("no test ended for {limit} s; all processes were killed"),
            ([], running) => {
                format!(
                    "no test ended for {limit} s, all processes were killed; running: {}",
                    running.join(", ")
                )
            }
            (over, _) => format!("not done after {limit} s, all processes were killed: {}", over.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Output that came after these seconds.
    fn watch(output: &[(u64, &str)]) -> Watch {
        let mut watch = Watch::new(LIMIT);
        for (at, text) in output {
            watch.read(s(*at), text.as_bytes());
        }
        watch
    }

    #[test]
    fn every_test_that_ends_gives_the_others_more_time() {
        assert_eq!(watch(&[(1, "\nrunning 3 tests\n")]).deadline(), s(300));
        let output = [(20, "test a ... ok\n"), (40, "test b ... FAILED\n"), (50, "test c ... ignored\n")];
        assert_eq!(watch(&output).deadline(), s(350));
        // What a test prints is no progress.
        assert_eq!(watch(&[(20, "test a ... ok\n"), (90, "still here\ntest\n")]).deadline(), s(320));
    }

    #[test]
    fn a_slow_test_gets_no_more_time_from_others() {
        let slow = [(65, "test a::slow has been running for over 60 seconds\n")];
        let others = [(200, "test b ... ok\n"), (290, "test c - should panic ... ok\n")];
        let hung = watch(&[&slow[..], &others].concat());
        assert_eq!(hung.deadline(), s(305));
        assert_eq!(hung.verdict(s(305)), "not done after 300 s, all processes were killed: a::slow");
        let done = [&slow[..], &others, &[(295, "test a::slow ... ok\n")]].concat();
        assert_eq!(watch(&done).deadline(), s(595));
    }

    #[test]
    fn a_slow_test_that_should_panic_is_done_when_it_has() {
        let output =
            [(61, "test p has been running for over 60 seconds\n"), (70, "test p - should panic ... ok\n")];
        assert_eq!(watch(&output).deadline(), s(370));
    }

    #[test]
    fn only_tests_over_their_limit_are_blamed() {
        let output = [
            (60, "test old has been running for over 60 seconds\n"),
            (200, "test young has been running for over 60 seconds\n"),
        ];
        let watch = watch(&output);
        assert_eq!(watch.deadline(), s(300));
        assert!(watch.verdict(s(300)).ends_with(": old"), "{}", watch.verdict(s(300)));
    }

    #[test]
    fn lines_may_come_in_pieces() {
        let output = [(10, "test a ... ok\ntest b"), (20, " ... "), (30, "ok\n")];
        assert_eq!(watch(&output).deadline(), s(330));
    }

    #[test]
    fn with_one_thread_the_test_that_has_begun_is_blamed() {
        let watch = watch(&[(10, "test a ... ok\ntest b::c ... ")]);
        assert_eq!(watch.deadline(), s(310));
        assert!(watch.verdict(s(310)).ends_with(": b::c"), "{}", watch.verdict(s(310)));
    }

    #[test]
    fn a_binary_that_says_nothing_is_ended_as_well() {
        let watch = watch(&[]);
        assert_eq!(watch.deadline(), s(300));
        assert_eq!(watch.verdict(s(300)), "no test ended for 300 s; all processes were killed");
    }
}
