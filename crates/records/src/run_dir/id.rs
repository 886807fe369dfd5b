//! Names of runs.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// A name for a run that starts now (UTC): `2026-11-16-141502-3fa9`.
pub fn new_id(now: SystemTime) -> String {
    let stamp = humantime::format_rfc3339_seconds(now).to_string();
    let (date, time) = stamp.split_once('T').unwrap_or((&stamp, ""));
    let time: String = time.chars().filter(char::is_ascii_digit).collect();
    // The standard library seeds this hasher from the operating system.
    let random = RandomState::new().hash_one(std::process::id()) & 0xffff;
    format!("{date}-{time}-{random:04x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_id_begins_with_its_time() {
        let id = new_id(SystemTime::UNIX_EPOCH + Duration::from_secs(1_794_838_502));
        assert!(id.starts_with("2026-11-16-") && id.len() == "2026-11-16-141502-3fa9".len(), "{id}");
    }
}
