//! A run under test: its driver, its records, and the nodes that it started.

use phalanx_protocol::mark;
use phalanx_testkit::{DEADLINE, Process, Sandbox, is_alive};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Training samples of the digits.
pub(crate) const SAMPLES: u64 = 1078;
/// Batches of 64 that make a pass over them; the last one has 54 samples.
pub(crate) const BATCHES: u64 = 17;
/// The directory of a run.
pub(crate) const RUN: &str = "replicated";
/// The interval of polling a run's records.
const LOOK: Duration = Duration::from_millis(2);

/// A process that trains in the directory [`RUN`] of its sandbox.
pub(crate) struct Run {
    pub(crate) process: Process,
    pub(crate) dir: PathBuf,
    /// Its records.
    lines: Vec<Value>,
    /// Bytes of complete lines that were read, and the last of these lines.
    read: u64,
    last: Vec<u8>,
}

/// A node on this machine that a driver started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalNode {
    pub(crate) pid: u32,
    /// Its id begins with it.
    pub(crate) name: String,
}

impl LocalNode {
    pub(crate) fn signal(&self, signal: Signal) {
        phalanx_testkit::signal(self.pid, signal);
    }

    pub(crate) fn is_alive(&self) -> bool {
        is_alive(self.pid)
    }

    /// Its id among the ids of replicas.
    pub(crate) fn among<'a>(&self, replicas: &[&'a str]) -> Option<&'a str> {
        replicas
            .iter()
            .copied()
            .find(|id| id.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('-')))
    }
}

impl Run {
    /// Starts `phalanx train run.toml` with these arguments.
    pub(crate) fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        let train = ["train", "run.toml", "--run-dir", RUN, "--output", "json"];
        Self::of(sandbox, sandbox.start(&[&train, args].concat()))
    }

    /// The same in a directory of this name.
    pub(crate) fn start_in(sandbox: &Sandbox, dir: &str, args: &[&str]) -> Self {
        let train = ["train", "run.toml", "--run-dir", dir, "--output", "json"];
        let run = Self::of(sandbox, sandbox.start(&[&train, args].concat()));
        Self { dir: sandbox.path().join(dir), ..run }
    }

    /// Starts `phalanx run resume` with these arguments.
    pub(crate) fn resume(sandbox: &Sandbox, args: &[&str]) -> Self {
        Self::of(sandbox, sandbox.start(&[&["run", "resume", RUN, "--output", "json"], args].concat()))
    }

    pub(crate) fn of(sandbox: &Sandbox, process: Process) -> Self {
        Self { process, dir: sandbox.path().join(RUN), lines: Vec::new(), read: 0, last: Vec::new() }
    }

    /// Reads what was recorded since the last time.
    fn look(&mut self) {
        let Ok(mut file) = File::open(self.dir.join("metrics.jsonl")) else { return };
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.read - self.last.len() as u64)).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        if bytes.starts_with(&self.last) {
            bytes.drain(..self.last.len());
        } else {
            // A run that goes back removes records.
            (self.lines, self.read, self.last) = (Vec::new(), 0, Vec::new());
            bytes.clear();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut bytes).unwrap();
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            self.lines.push(serde_json::from_slice(line).unwrap());
            self.read += line.len() as u64;
            self.last = line.to_vec();
        }
    }

    /// All its records.
    pub(crate) fn lines(&mut self) -> &[Value] {
        self.look();
        &self.lines
    }

    /// Polls the records until `see` returns something.
    pub(crate) fn until<T>(&mut self, what: &str, mut see: impl FnMut(&[Value]) -> Option<T>) -> T {
        let until = Instant::now() + DEADLINE;
        loop {
            let runs = self.process.is_running();
            self.look();
            if let Some(seen) = see(&self.lines) {
                return seen;
            }
            if !runs || Instant::now() > until {
                let last = self.lines.last();
                panic!("{what}: not seen (runs: {runs}); last {last:?}; stderr:\n{}", self.process.stderr());
            }
            std::thread::park_timeout(LOOK);
        }
    }

    /// Waits until it has recorded a step.
    pub(crate) fn reaches(&mut self, step: u64) {
        self.until(&format!("step {step}"), |lines| (last_step(lines) >= step).then_some(()));
    }

    /// Waits for a checkpoint of a later step; returns its step.
    pub(crate) fn saves_after(&mut self, step: u64) -> u64 {
        let checkpoints = self.dir.join("checkpoints");
        let number = |name: &str| name.strip_prefix("step-")?.parse::<u64>().ok();
        self.until(&format!("a checkpoint after step {step}"), |_| {
            let entries = std::fs::read_dir(&checkpoints).into_iter().flatten().flatten();
            let saved = entries.filter_map(|entry| number(entry.file_name().to_str()?));
            saved.max().filter(|saved| *saved > step)
        })
    }

    /// Waits until it has recorded this many further steps.
    pub(crate) fn goes_on(&mut self, steps: u64) {
        let now = last_step(self.lines());
        self.reaches(now + steps);
    }

    /// Waits for a matching step that is recorded from now on.
    pub(crate) fn until_step(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) {
        let seen = self.lines().len();
        let new =
            |lines: &[Value]| lines.get(seen..).unwrap_or(lines).iter().any(|l| is_step(l) && wanted(l));
        self.until(what, |lines| new(lines).then_some(()));
    }

    /// Waits for a step that is recorded from now on, with matching replicas.
    pub(crate) fn until_replicas(&mut self, what: &str, wanted: impl Fn(&[&str]) -> bool) {
        self.until_step(what, |line| wanted(&replicas(line)));
    }

    /// Waits for a step without a replica that took part before; returns how long that took.
    pub(crate) fn goes_on_without(&mut self, id: &str) -> Duration {
        let since = Instant::now();
        self.until_replicas(&format!("a step without {id}"), |replicas| !replicas.contains(&id));
        since.elapsed()
    }

    /// The living nodes that its driver started.
    pub(crate) fn nodes(&self) -> Vec<LocalNode> {
        let parent = self.process.id();
        let mut nodes: Vec<LocalNode> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| node_of(pid, parent))
            .collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    /// Waits until its driver has started this many nodes.
    pub(crate) fn until_nodes(&self, count: usize) -> Vec<LocalNode> {
        phalanx_testkit::eventually("the nodes", || Some(self.nodes()).filter(|nodes| nodes.len() == count))
    }

    /// The last step's replicas.
    pub(crate) fn members(&mut self) -> Vec<String> {
        let last = self.lines().iter().rev().find(|line| is_step(line));
        last.map_or_else(Vec::new, |line| replicas(line).into_iter().map(str::to_owned).collect())
    }

    /// Interrupts it as a user would; returns its number of steps.
    pub(crate) fn interrupt(&mut self) -> u64 {
        self.process.signal(Signal::INT);
        let (code, summary) = self.process.summary();
        let said = self.process.stderr();
        assert_eq!(code, Some(1), "{said}");
        let nothing = said.contains("there was nothing to save");
        assert!(said.contains("everything is saved") || nothing, "{said}");
        summary["steps"].as_u64().unwrap()
    }

    /// Waits for its successful end; returns its summary.
    pub(crate) fn ends(&mut self) -> Value {
        let (status, printed) = self.process.finish_within(3 * DEADLINE);
        assert!(status.success(), "{status}; stderr:\n{}", self.process.stderr());
        serde_json::from_str(printed.last().unwrap()).unwrap()
    }
}

/// Resumes an interrupted run to the end of a pass, and checks all its records.
pub(crate) fn resume_to_the_end(sandbox: &Sandbox, done: u64, args: &[&str]) -> Value {
    let steps = (done / BATCHES + 2) * BATCHES;
    let mut run = Run::resume(sandbox, &[&["--steps", &steps.to_string()], args].concat());
    let summary = run.ends();
    assert_whole(run.lines(), steps);
    sandbox.replay(run.dir.join("driver.recording"));
    summary
}

fn node_of(pid: u32, parent: u32) -> Option<LocalNode> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let (state, of) = (fields.next()?, fields.next()?);
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let name = words.split('\0').skip_while(|word| *word != "--name").nth(1)?.to_owned();
    (of == parent.to_string() && state != "Z").then_some(LocalNode { pid, name })
}

pub(crate) fn is_step(line: &Value) -> bool {
    line["val_loss"].is_null()
}

fn number(line: &Value, key: &str) -> u64 {
    line[key].as_u64().unwrap_or_else(|| panic!("{key} of {line}"))
}

pub(crate) fn last_step(lines: &[Value]) -> u64 {
    lines.iter().rev().find(|line| is_step(line)).map_or(0, |line| number(line, "step"))
}

/// The ids of the nodes that did a step.
pub(crate) fn replicas(line: &Value) -> Vec<&str> {
    line["replicas"].as_array().unwrap().iter().map(|replica| replica["node"].as_str().unwrap()).collect()
}

/// How many samples a node computed in a step.
pub(crate) fn samples(line: &Value, id: &str) -> u64 {
    let replica = line["replicas"].as_array().unwrap().iter().find(|replica| replica["node"] == id);
    replica.map_or(0, |replica| number(replica, "samples"))
}

/// Checks the records of a run on the digits in batches of 64, to the end of a pass: every step once and in order,
/// in every pass every sample once, a validation after every pass.
pub(crate) fn assert_whole(lines: &[Value], steps: u64) {
    let (done, valid): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| is_step(line));
    let numbers: Vec<u64> = done.iter().map(|line| number(line, "step")).collect();
    assert_eq!(numbers, (1..=steps).collect::<Vec<u64>>(), "every step once");
    let mut passes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for line in &done {
        let (seen, samples) = passes.entry(number(line, "pass")).or_default();
        *seen = seen.wrapping_add(u64::from_str_radix(line["seen"].as_str().unwrap(), 16).unwrap());
        *samples += line["replicas"].as_array().unwrap().iter().map(|of| number(of, "samples")).sum::<u64>();
    }
    let all = (0..SAMPLES).fold(0_u64, |sum, sample| sum.wrapping_add(mark(sample)));
    assert_eq!(passes.len() as u64, steps / BATCHES, "whole passes");
    for (pass, (seen, samples)) in &passes {
        assert_eq!((*samples, *seen), (SAMPLES, all), "every sample once in pass {pass}");
    }
    let validated: Vec<u64> = valid.iter().map(|line| number(line, "step")).collect();
    let expected: Vec<u64> = (1..=steps / BATCHES).map(|pass| pass * BATCHES).collect();
    assert_eq!(validated, expected, "validated after every pass");
}
