//! Random events into a recorded core: its replay decides the same, from any snapshot on.

use super::*;
use phalanx_recording::{Comparison, Limits, Player, Recorded, read};
use phalanx_types::{ByteSize, RunId, Seed, Tensor};
use phalanx_wire::jobs::{
    Done, DoneResult, Held, Join, KeptSolution, MissingInput, ParcelRef, Progress, Report,
};
use phalanx_wire::usage::{Holder, NodeUse};
use std::time::Duration;

const EPOCH: Epoch = Epoch(2);
const SESSION: SessionId = SessionId(9);
const KINDS: [&str; 3] = ["echo", "square", "rare"];

/// Draws numbers from a seed, one after the other.
struct Draw(Seed);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.derive("next");
        self.0.0 % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn worker(&mut self) -> WorkerKey {
        WorkerKey(1 + self.below(5))
    }

    fn lease(&mut self, core: &MainCore) -> LeaseId {
        let job = JobId(1 + self.below(core.next_id().0 + 1));
        let number = core.jobs.get(job).map_or(1, |j| j.leases);
        LeaseId { job, number: if self.one_in(8) { number + 1 } else { number } }
    }

    fn leases(&mut self, core: &MainCore, most: u64) -> Vec<LeaseId> {
        (0..self.below(most + 1)).map(|_| self.lease(core)).collect()
    }

    fn specs(&mut self) -> Vec<JobSpec> {
        let alike = self.one_in(2);
        let first = self.spec();
        let rest: Vec<JobSpec> =
            (0..self.below(6)).map(|_| if alike { first.clone() } else { self.spec() }).collect();
        std::iter::once(first).chain(rest).collect()
    }

    fn solutions(&mut self, core: &MainCore) -> Vec<KeptSolution> {
        let leases = if self.one_in(2) { self.leases(core, 2) } else { Vec::new() };
        let head = Parcel::from_bytes("large").head();
        leases.into_iter().map(|l| KeptSolution { job: l.job, head: head.clone(), blob: BlobId(3) }).collect()
    }

    fn missing(&mut self, core: &MainCore) -> Vec<MissingInput> {
        let leases = self.leases(core, 2).into_iter();
        let missing = leases.map(|lease| MissingInput {
            lease,
            input: self.lease(core).job,
            node: NodeId::with_suffix("n", self.below(3) as u16).unwrap(),
            blob: BlobId(3),
            is_gone: self.one_in(2),
        });
        missing.collect()
    }

    fn spec(&mut self) -> JobSpec {
        let payload = Parcel::from_bytes(vec![7; self.below(40) as usize]);
        let needs = Needs { cores: self.below(4) as u32, memory: ByteSize(self.below(3) << 30) };
        JobSpec {
            priority: self.below(3) as i32 - 1,
            deadline: self.one_in(4).then(|| Duration::from_millis(self.below(400))),
            max_attempts: self.below(4) as u32,
            needs,
            keep: self.one_in(2),
            inputs: (0..self.below(3)).map(|_| JobId(1 + self.below(30))).collect(),
            ..JobSpec::new(KINDS[self.below(3) as usize], payload)
        }
    }

    fn done(&mut self, core: &MainCore) -> Vec<Done> {
        let leases = match self.one_in(3) {
            // As a worker reports a batch: every second job.
            true => {
                let first = 1 + self.below(core.next_id().0);
                (0..self.below(20)).map(|k| LeaseId { job: JobId(first + 2 * k), number: 1 }).collect()
            }
            false => self.leases(core, 4),
        };
        leases
            .into_iter()
            .map(|lease| Done { lease, result: self.result(), run_micros: self.below(900) })
            .collect()
    }

    fn result(&mut self) -> DoneResult {
        let tensor = Tensor::from_f32(vec![2], &[1.0, 2.0]).unwrap();
        let parcel = Parcel::from_bytes("solution");
        let parcel = if self.one_in(3) { parcel.with_tensor("t", tensor) } else { parcel };
        match self.below(8) {
            0 => DoneResult::Failed {
                reason: FailReason::Handler { message: "no".into() },
                retry: self.one_in(2),
            },
            1 => DoneResult::Solved(ParcelRef::Blob { head: parcel.head(), blob: BlobId(self.below(9)) }),
            2 => {
                let head = ParcelHead { bytes_len: 3, ..parcel.head() };
                DoneResult::Solved(ParcelRef::Inline { head, body: parcel.body() })
            }
            _ => DoneResult::Solved(ParcelRef::inline(&parcel)),
        }
    }

    fn taken(&mut self) -> Vec<NodeUse> {
        let driver = NodeId::with_suffix("driver", self.below(3) as u16).unwrap();
        let run = RunId(self.below(3));
        let holder = match self.one_in(2) {
            true => Holder::Run { run, driver },
            false => Holder::WaitingRun { run, driver },
        };
        let (cores, memory) = (1 + self.below(2) as u32, ByteSize(self.below(2) << 30));
        if self.one_in(3) { vec![NodeUse { holder, cores, memory }] } else { Vec::new() }
    }

    fn event(&mut self, core: &MainCore) -> MainEvent {
        let worker = self.worker();
        match self.below(14) {
            0 | 1 => MainEvent::Submitted { specs: self.specs() },
            2 if self.one_in(4) => MainEvent::AllCancelled,
            2 => MainEvent::Cancelled { jobs: self.leases(core, 3).iter().map(|l| l.job).collect() },
            3 if core.workers.contains_key(&worker) => {
                MainEvent::WorkerLost { worker, goodbye: self.one_in(2) }
            }
            3 => {
                let node = NodeId::with_suffix("n", self.below(3) as u16).unwrap();
                MainEvent::WorkerUp { worker, node }
            }
            4 => {
                let held = self.leases(core, 3).into_iter();
                let join = Join {
                    session: SESSION,
                    epoch: if self.one_in(9) { Epoch(1) } else { EPOCH },
                    kinds: KINDS[..1 + self.below(2) as usize].iter().map(|k| (*k).into()).collect(),
                    capacity: Needs {
                        cores: 1 + self.below(3) as u32,
                        memory: ByteSize::gib(1 + self.below(2)),
                    },
                    window: self.below(6) as u32,
                    taken: self.taken(),
                    held: held.map(|lease| Held { lease, running: self.one_in(2) }).collect(),
                    done: self.done(core),
                    kept: self.solutions(core),
                };
                MainEvent::Joined { worker, join }
            }
            5..=7 => {
                let progress = self.leases(core, 1).into_iter();
                let heard = core.workers.get(&worker).map_or(0, |w| w.heard);
                let report = Report {
                    epoch: EPOCH,
                    // One in four was heard before.
                    number: heard + self.below(4),
                    window: self.below(6) as u32,
                    draining: self.one_in(9),
                    taken: self.taken(),
                    asks: self.leases(core, 2),
                    started: self.leases(core, 3),
                    progress: progress
                        .map(|lease| Progress { lease, permille: 5, note: "n".into() })
                        .collect(),
                    done: self.done(core),
                    handed_back: self.leases(core, 2),
                    kept: self.solutions(core),
                    missing: self.missing(core),
                };
                MainEvent::Reported { worker, report }
            }
            8 => {
                let result =
                    if self.one_in(2) { Ok(Parcel::from_bytes("large")) } else { Err("gone".into()) };
                MainEvent::Taken { worker, lease: self.lease(core), result }
            }
            9 => MainEvent::Released { jobs: self.leases(core, 3).iter().map(|l| l.job).collect() },
            10 if self.one_in(2) => MainEvent::Wanted { job: self.lease(core).job },
            10 => {
                let result = if self.one_in(2) { Ok(Parcel::from_bytes("kept")) } else { Err("gone".into()) };
                MainEvent::Brought { worker, job: self.lease(core).job, result }
            }
            _ => MainEvent::TurnEnded,
        }
    }
}

/// Replays a file and gives all commands in text; every decision must be the recorded one.
fn replay(path: &std::path::Path) -> (Vec<String>, MainCounts) {
    let (mut said, mut counts) = (Vec::new(), MainCounts::default());
    for section in read(path).unwrap().sections() {
        let mut player = Player::<MainCore>::new(section).unwrap();
        while let Some(pending) = player.next_event().unwrap() {
            let step = player.apply(pending).unwrap();
            assert_eq!(step.comparison, Comparison::Same, "entry {}", step.entry);
            said.extend(step.commands.iter().map(ToString::to_string));
        }
        player.core().check_invariants();
        counts = player.core().counts();
    }
    (said, counts)
}

/// Runs random events through a recorded core; gives its commands in text.
fn run(seed: u64, events: u64, path: &std::path::Path, limits: Limits) -> (Vec<String>, MainCounts) {
    let mut draw = Draw(Seed(seed));
    let mut core = Recorded::resume(MainCore::new(SESSION, EPOCH), path, limits).unwrap();
    let (mut out, mut said, mut now) = (Outbox::default(), Vec::new(), Time(5));
    for _ in 0..events {
        now += Duration::from_micros(draw.below(30_000));
        let event = draw.event(&core);
        core.feed(now, event, &mut out);
        core.check_invariants();
        said.extend(out.drain().map(|command| command.to_string()));
    }
    assert!(core.is_recording());
    (said, core.counts())
}

#[test]
fn a_replay_of_random_events_decides_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..60 {
        let path = dir.path().join(format!("{seed}.recording"));
        let (said, counts) = run(seed, 300, &path, Limits::default());
        assert!(counts.ended() > 0 && said.len() > 50, "seed {seed} decides something");
        assert_eq!(replay(&path), (said, counts), "seed {seed}");
    }
}

#[test]
fn a_replay_from_a_snapshot_decides_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut rotated = 0;
    for seed in 0..20 {
        let path = dir.path().join(format!("{seed}.recording"));
        // Small enough for several segments, large enough for a snapshot to fit half of one.
        let (said, counts) = run(seed, 2_000, &path, Limits { segment: 40 << 10 });
        let (tail, end) = replay(&path);
        assert_eq!(end, counts, "seed {seed}");
        assert!(said.ends_with(&tail), "seed {seed}");
        rotated += u32::from(tail.len() < said.len());
    }
    assert!(rotated > 10, "{rotated} recordings began with a snapshot of a core that had lived");
}
