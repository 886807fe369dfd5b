//! What a collector asks of every process, with the names that are usual for it.

use crate::Exposition;

/// Adds memory, processor time and open files of this process; what the system does not say is left out.
pub fn add_process(metrics: &mut Exposition) {
    let page = rustix::param::page_size() as f64;
    let pages = |text: String| text.split_whitespace().nth(1)?.parse::<f64>().ok();
    if let Some(resident) = std::fs::read_to_string("/proc/self/statm").ok().and_then(pages) {
        metrics.gauge("process_resident_memory_bytes", "Resident memory of the process", resident * page);
    }
    if let Some(seconds) = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| cpu_seconds(&stat))
    {
        metrics.counter("process_cpu_seconds", "Processor time of the process", seconds);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        metrics.gauge("process_open_fds", "Open files of the process", files.count() as f64);
    }
}

/// User and system time. The name of the program, in parentheses, may contain anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_time() {
        let mut metrics = Exposition::default();
        add_process(&mut metrics);
        let text = metrics.finish();
        assert!(
            text.contains("process_resident_memory_bytes ") && text.contains("process_open_fds "),
            "{text}"
        );
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(cpu_seconds("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 30 12 13"), Some(42.0 / ticks));
    }
}
