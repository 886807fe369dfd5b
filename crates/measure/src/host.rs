//! The machine of this process.

use phalanx_types::{Host, HostName};
use std::collections::{BTreeMap, BTreeSet};

/// What the kernel reports about this machine; `None` if it does not.
pub fn this_host() -> Option<Host> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let boot = boot_number(&read("/proc/sys/kernel/random/boot_id")?)?;
    let name = host_name(&read("/proc/sys/kernel/hostname")?);
    let online = read("/sys/devices/system/cpu/online").and_then(|list| count(&list));
    // The usable cores are at most the cores of the machine, but better than nothing.
    let usable = || std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok());
    Some(Host { name, boot, cores: online.or_else(usable)? })
}

/// The first half of the kernel's random boot id.
fn boot_number(text: &str) -> Option<u64> {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    if digits.len() == 16 { u64::from_str_radix(&digits, 16).ok() } else { None }
}

/// The machine's name, without characters that are not allowed.
fn host_name(text: &str) -> HostName {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let text = text.trim().trim_start_matches('.');
    let name: String = text.chars().map(|c| if allowed(c) { c } else { '_' }).take(64).collect();
    HostName::new(name).unwrap_or_else(|_| HostName::new("host").expect("a name"))
}

/// How many numbers a list like `0-3,8` has.
fn count(list: &str) -> Option<u32> {
    list.trim().split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// A display name for each machine, by its boot id: its name, with a suffix where two are equal.
pub fn host_names<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> BTreeMap<u64, String> {
    let mut named: BTreeMap<u64, &Host> = BTreeMap::new();
    for host in hosts {
        // Containers of one machine may call it by different names.
        let first = named.entry(host.boot).or_insert(host);
        if host.name < first.name {
            *first = host;
        }
    }
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<_> =
        named.values().map(|host| &host.name).filter(|name| !seen.insert(*name)).collect();
    let name = |(boot, host): (&u64, &&Host)| {
        let (name, boot) = (&host.name, *boot);
        (boot, if twice.contains(name) { format!("{name}-{boot:016x}") } else { name.to_string() })
    };
    named.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        for (list, expected) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(count(list), Some(expected), "{list}");
        }
        for bad in ["", "x", "3-1", "0-4294967295", "1,"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn whatever_a_machine_is_called_has_a_name() {
        assert_eq!(host_name("rack7.lab\n").as_str(), "rack7.lab");
        assert_eq!(host_name("Jörgs Rechner").as_str(), "J_rgs_Rechner");
        assert_eq!(host_name("..").as_str(), "host");
        assert_eq!(host_name(&"x".repeat(99)).as_str().len(), 64);
    }

    #[test]
    fn a_start_of_the_machine_has_a_number() {
        assert_eq!(boot_number("01234567-89ab-cdef-0123-456789abcdef\n"), Some(0x0123_4567_89ab_cdef));
        assert_eq!(boot_number("none"), None);
        assert_eq!(this_host(), this_host());
    }

    fn host(name: &str, boot: u64) -> Host {
        Host { name: name.parse().unwrap(), boot, cores: 4 }
    }

    #[test]
    fn machines_of_one_name_are_told_apart_and_containers_of_one_are_not() {
        let hosts = [host("localhost", 1), host("localhost", 2), host("web", 3), host("db", 3)];
        let names = host_names(&hosts);
        assert_eq!(names[&1], "localhost-0000000000000001");
        assert_eq!(names[&2], "localhost-0000000000000002");
        assert_eq!((names[&3].as_str(), names.len()), ("db", 3));
    }
}
