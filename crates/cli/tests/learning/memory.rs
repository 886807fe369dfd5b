//! A model that fits on no single node: each may use 64 MiB, which the system enforces, and training needs 150 MiB.

use phalanx_testkit::{Process, Sandbox, read_json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: u64 = 64 << 20;
/// The memory that a node announces: the system also needs some for files on their way to a slow disk.
const SAID: &str = "48MiB";
const NODES: usize = 10;
const LAYERS: usize = 16;
const WIDTH: usize = 768;

/// A control group that limits the memory of its processes; a process that exceeds the limit is killed.
struct Confined(PathBuf);

impl Confined {
    fn new(name: &str) -> Self {
        let old = Path::new("/sys/fs/cgroup/memory");
        let is_old = old.join("memory.limit_in_bytes").exists();
        let place = if is_old { old } else { Path::new("/sys/fs/cgroup") };
        let group = place.join(format!("phalanx-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&group).expect("control groups, which need root");
        let limit = if is_old { "memory.limit_in_bytes" } else { "memory.max" };
        std::fs::write(group.join(limit), LIMIT.to_string()).expect("a limit of memory");
        Self(group)
    }

    /// The same command in this group.
    fn command(&self, inner: &Command) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        command.arg(inner.get_program()).args(inner.get_args());
        inner.get_envs().for_each(|(key, value)| _ = value.map(|value| command.env(key, value)));
        if let Some(dir) = inner.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }

    /// The peak memory.
    fn peak(&self) -> Option<u64> {
        let read = |name: &str| std::fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok();
        read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"))
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // A group that stays does no harm.
        let _removed = std::fs::remove_dir(&self.0);
    }
}

fn files(sandbox: &Sandbox) {
    let mut model = format!("name = \"wide\"\ninput = [{WIDTH}]\n");
    for _ in 0..LAYERS {
        write!(model, "[[layer]]\ntype = \"linear\"\nout = {WIDTH}\n[[layer]]\ntype = \"relu\"\n").unwrap();
    }
    writeln!(model, "[[layer]]\ntype = \"linear\"\nout = 10").unwrap();
    std::fs::write(sandbox.path().join("wide.toml"), model).unwrap();
    let names: Vec<String> = (0..WIDTH).map(|i| format!("x{i}")).collect();
    let mut data = format!("{},label\n", names.join(","));
    for row in 0..64 {
        let values: Vec<String> = (0..WIDTH).map(|i| format!("{}", (i * 7 + row * 13) % 17)).collect();
        writeln!(data, "{},{}", values.join(","), row % 10).unwrap();
    }
    std::fs::write(sandbox.path().join("data.csv"), data).unwrap();
    let run = "[model]\ntoml = \"wide.toml\"\n[data]\ntrain = { file = \"data.csv\", y = \"label\" }\nscale = 0.06\n\
               [train]\nloss = \"cross_entropy\"\noptimizer = { name = \"adam\", lr = 0.0003 }\nbatch = 32\n\
               steps = 12\nvalidate_every = \"never\"\n[formation]\nstages = \"auto\"\nreplicas = 1\nmicro_batches = 1\n\
               patience = \"3s\"\n";
    std::fs::write(sandbox.path().join("run.toml"), run).unwrap();
}

#[test]
fn nodes_train_together_what_none_of_them_could_hold() {
    let sandbox = Sandbox::alone(crate::BINARY);
    files(&sandbox);
    let parameters = LAYERS * (WIDTH * WIDTH + WIDTH) + 10 * WIDTH + 10;
    assert!(parameters * 16 > 144 << 20, "weights, gradients and two moments of {parameters} parameters");
    let groups: Vec<Confined> = (0..NODES).map(|number| Confined::new(&number.to_string())).collect();
    let nodes: Vec<Process> = (groups.iter().enumerate())
        .map(|(number, group)| {
            let name = format!("n{number}");
            let args = ["node", "--domain", "small", "--name", &name, "--memory", SAID, "--cores", "1"];
            let node =
                Process::start(group.command(&sandbox.command(&[&args[..], &["--output", "json"]].concat())));
            node.json();
            node
        })
        .collect();
    let mut driver =
        sandbox.start(&["train", "run.toml", "--domain", "small", "--run-dir", "wide", "--output", "json"]);
    let (status, said) = driver.finish_within(Duration::from_secs(120));
    let peaks: Vec<u64> = groups.iter().filter_map(Confined::peak).map(|peak| peak >> 20).collect();
    assert!(status.success(), "{}\npeaks in MiB: {peaks:?}", driver.stderr());
    let summary: serde_json::Value = serde_json::from_str(&said.join("\n")).unwrap();
    // One process without a limit learns the same, bit for bit.
    let alone = ["train", "run.toml", "--local", "1", "--run-dir", "alone", "--output", "json"];
    assert_eq!(summary["params_hash"], sandbox.json(&alone)["params_hash"], "{summary}");
    let formation = read_json(sandbox.path().join("wide/formation.json"));
    let epochs = formation["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 1, "no node was lost: {formation:#}");
    let stages = epochs[0]["replicas"][0]["stages"].as_array().unwrap().len();
    assert!(stages > 2, "{stages} stages");
    println!("{stages} stages, peaks in MiB: {peaks:?}");
    drop(nodes);
}
