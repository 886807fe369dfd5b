//! What the recording of a main node's core holds, byte by byte.

use phalanx_jobs::JobSpec;
use phalanx_jobs::core::{MainCore, MainEvent, WorkerKey};
use phalanx_recording::{Comparison, Limits, Player, Recorded, read};
use phalanx_types::{ByteSize, Epoch, JobId, LeaseId, Needs, NodeId, Outbox, Parcel, SessionId, Time};
use phalanx_wire::jobs::{Done, DoneResult, Join, ParcelRef, Report};

const EPOCH: Epoch = Epoch(2);
const SESSION: SessionId = SessionId(9);

#[test]
fn recordings_hold_no_bytes_of_users() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("main.recording");
    let mut core = Recorded::resume(MainCore::new(SESSION, EPOCH), &path, Limits::default()).unwrap();
    let (worker, mut out) = (WorkerKey(1), Outbox::default());
    let secret = || Parcel::from_bytes("a secret of users");
    let lease = LeaseId { job: JobId(1), number: 1 };
    let result = DoneResult::Solved(ParcelRef::inline(&secret()));
    let report = Report {
        done: vec![Done { lease, result, run_micros: 1 }],
        epoch: EPOCH,
        number: 1,
        ..Report::default()
    };
    let taken = LeaseId { job: JobId(2), number: 1 };
    let join = Join {
        session: SESSION,
        epoch: EPOCH,
        kinds: vec!["echo".into()],
        capacity: Needs { cores: 2, memory: ByteSize::gib(1) },
        window: 2,
        taken: Vec::new(),
        held: Vec::new(),
        done: Vec::new(),
        kept: Vec::new(),
    };
    for event in [
        MainEvent::Submitted { specs: vec![JobSpec::new("echo", secret()); 2] },
        MainEvent::WorkerUp { worker, node: NodeId::new("node").unwrap() },
        // Only a node that was given a job can solve it.
        MainEvent::Joined { worker, join },
        MainEvent::TurnEnded,
        MainEvent::Reported { worker, report },
        MainEvent::Taken { worker, lease: taken, result: Ok(secret()) },
    ] {
        core.feed(Time(1), event, &mut out);
    }
    assert_eq!(core.counts().solved, 2);
    drop(core);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"secret"));
    let recording = read(&path).unwrap();
    let mut player = Player::<MainCore>::new(recording.sections().next().unwrap()).unwrap();
    while let Some(pending) = player.next_event().unwrap() {
        assert_eq!(player.apply(pending).unwrap().comparison, Comparison::Same);
    }
    assert_eq!(player.core().counts().solved, 2);
}
