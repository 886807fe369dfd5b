//! Simulated hosts on this machine: network namespaces, joined by veth pairs and bridges.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other test uses at the same time.
fn unique(prefix: &str) -> String {
    format!("{prefix}{}x{}", std::process::id() % 1_000_000, NEXT.fetch_add(1, Ordering::Relaxed))
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("`ip` of iproute2 is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {stderr}(network namespaces need root)", args.join(" "));
}

/// A host with a network stack of its own.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    #[expect(clippy::new_without_default, reason = "making a namespace is no default")]
    pub fn new() -> Self {
        let name = unique("phx");
        ip(&["netns", "add", &name]);
        let ns = Self { name };
        ns.ip(&["link", "set", "lo", "up"]);
        ns
    }

    /// A command in this namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// `ip` in this namespace.
    pub fn ip(&self, args: &[&str]) {
        let all: Vec<&str> = ["-n", &self.name].iter().chain(args).copied().collect();
        ip(&all);
    }

    /// Joins two hosts by a cable, with an address in each: `("10.9.1.1/24", "10.9.1.2/24")`.
    pub fn cable(&self, other: &Namespace, (ours, theirs): (&str, &str)) -> Cable {
        let (a, b) = (unique("va"), unique("vb"));
        ip(&["link", "add", &a, "netns", &self.name, "type", "veth", "peer", &b, "netns", &other.name]);
        for (ns, device, address) in [(self, &a, ours), (other, &b, theirs)] {
            ns.ip(&["addr", "add", address, "dev", device]);
            ns.ip(&["link", "set", device, "up"]);
        }
        Cable { ns: self.name.clone(), device: a }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its devices are deleted with it.
        let _gone = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// One end of a cable, which can be cut and restored.
#[derive(Debug)]
pub struct Cable {
    ns: String,
    device: String,
}

impl Cable {
    pub fn cut(&self) {
        ip(&["-n", &self.ns, "link", "set", &self.device, "down"]);
    }

    pub fn mend(&self) {
        ip(&["-n", &self.ns, "link", "set", &self.device, "up"]);
    }
}

/// A switch that connects any number of hosts.
#[derive(Debug)]
pub struct Bridge {
    ns: Namespace,
}

impl Bridge {
    #[expect(clippy::new_without_default, reason = "making a bridge is no default")]
    pub fn new() -> Self {
        let ns = Namespace::new();
        ns.ip(&["link", "add", "br0", "type", "bridge"]);
        ns.ip(&["link", "set", "br0", "up"]);
        Self { ns }
    }

    /// Connects a host, with an address and a multicast route.
    pub fn attach(&self, host: &Namespace, address: &str) -> Cable {
        let (inside, outside) = (unique("vh"), unique("vp"));
        ip(&[
            "link",
            "add",
            &inside,
            "netns",
            &host.name,
            "type",
            "veth",
            "peer",
            &outside,
            "netns",
            &self.ns.name,
        ]);
        self.ns.ip(&["link", "set", &outside, "master", "br0", "up"]);
        host.ip(&["addr", "add", address, "dev", &inside]);
        host.ip(&["link", "set", &inside, "up"]);
        host.ip(&["route", "add", "224.0.0.0/4", "dev", &inside]);
        Cable { ns: self.ns.name.clone(), device: outside }
    }
}
