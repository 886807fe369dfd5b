use std::time::Duration;

/// The value below which this share of the samples lies.
pub(super) fn percentile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    samples.get(at.min(last)).copied().unwrap_or_default()
}

/// The middle value.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Memory this process holds, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The most memory this process has held so far, in bytes.
pub(super) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
}
