//! The processes below this one.

use rustix::process::{Pid, Signal};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long killed processes may take to go.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at the processes of the machine.
const LOOK: Duration = Duration::from_millis(2);

/// Kills all processes below this one, and those that they start meanwhile; gives their command lines.
pub(crate) fn kill_descendants() -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    let mut killed = BTreeMap::new();
    loop {
        let alive = descendants();
        if alive.is_empty() || Instant::now() > until {
            return killed.into_values().collect();
        }
        for pid in alive {
            killed.entry(pid.as_raw_nonzero()).or_insert_with(|| command_line(pid));
            // One that has ended meanwhile is as good.
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        std::thread::park_timeout(LOOK);
    }
}

/// All living processes below this one.
fn descendants() -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(parent) = living_parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![rustix::process::getpid().as_raw_nonzero().get()];
    while let Some(parent) = next.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            next.push(child);
            found.extend(Pid::from_raw(child));
        }
    }
    found
}

fn command_line(pid: Pid) -> String {
    let words = std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}

/// The parent of a process; nothing for one that has ended.
fn living_parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // State and parent follow the name, which is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(fields.next()?.parse().ok()?)
}
