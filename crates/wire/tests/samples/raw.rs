//! Samples of what has no frame of its own: prefaces, chunks, what ranks send each other, and what jobs carry.

use super::trial;
use bytes::BytesMut;
use phalanx_wire::ballot::{Asking, Ballot, Greeting, PassBallot};
use phalanx_wire::codec;
use phalanx_wire::frame::chunk_header;
use phalanx_wire::handshake::{Purpose, preface};
use phalanx_wire::stage_frame::{Carries, FrameHead};
use phalanx_wire::state_frame::{CopyHead, CopyReply, StateHead, StateLength};
use phalanx_wire::train::{Ops, SealedPass, StageReport};
use phalanx_wire::vote::{Standing, Vote, Wish};

/// Names and bytes. Those that begin with `raw-` have no header either.
pub(crate) fn raw() -> Vec<(String, Vec<u8>)> {
    let chunk = [&chunk_header(5, 4)[..], b"blob"].concat();
    let mut all = vec![
        ("preface-node".to_owned(), preface(Purpose::Node).to_vec()),
        ("preface-relay".to_owned(), preface(Purpose::Relay).to_vec()),
        ("chunk".to_owned(), chunk),
    ];
    let mut add = |name: &str, bytes: &[u8]| all.push((format!("raw-{name}"), bytes.to_vec()));
    add("vote", &vote().to_bytes());
    for (name, standing) in [("catching", Standing::Catching), ("late", Standing::Late)] {
        let vote = Vote { standing, finite: false, wish: Wish::Reform, ..vote() };
        add(&format!("vote-{name}"), &vote.to_bytes());
    }
    add("ballot", &encoded(&ballot()));
    add("ballot-empty", &encoded(&Ballot::new(&[], StageReport::default(), Vec::new())));
    let sealed = SealedPass { pass: 2, start: 180, steps: 50, samples: 3190, base: 0, horizon: 3190 };
    for (name, sealed) in [("sealed", Some(sealed)), ("waits", None)] {
        let ballot = PassBallot { sealed, ended: false, wish: 1, save: true, saved: false };
        add(&format!("pass-ballot-{name}"), &encoded(&ballot));
    }
    add("greeting", &Greeting { step: Some(200), cost: 12.5 }.to_bytes());
    add("greeting-new", &Greeting { step: None, cost: 0.0 }.to_bytes());
    let carried = [
        ("activations", Carries::Activations),
        ("gradients", Carries::Gradients),
        ("validation", Carries::Validation),
        ("asked", Carries::Asked),
    ];
    for (name, carries) in carried {
        let head = FrameHead { carries, part: 3, len: 16, step: 200, seen: 1 << 60, bytes: 4096 };
        add(&format!("frame-head-{name}"), &head.to_bytes());
    }
    let head = StateHead { optimizer_steps: 200, weights_bytes: 7 };
    add("state", &[&head.to_bytes()[..], b"weightsoptimizer"].concat());
    add("state-length", &StateLength(1 << 20).to_bytes());
    add("state-taken", &StateLength::TAKEN);
    let head = CopyHead { step: 200, ops: Ops { start: 2, end: 5 }, bytes: 1 << 20 };
    add("copy-head", &head.to_bytes());
    add("copy-kept", &CopyReply::Kept.to_bytes());
    add("copy-not-kept", &CopyReply::NotKept.to_bytes());
    for (name, task) in ["train", "program"].into_iter().zip(trial::tasks()) {
        add(&format!("trial-task-{name}"), &encoded(&task));
    }
    add("trial-solution", &encoded(&trial::solution()));
    all
}

fn vote() -> Vote {
    Vote {
        step: 200,
        loss: 0.25,
        samples: 16,
        finite: true,
        wish: Wish::Stop,
        compute_us: 900,
        exchange_us: 40,
        wait_us: 10,
        seen: 1 << 60,
        hash: 0x1234,
        standing: Standing::Level,
    }
}

fn ballot() -> Ballot {
    let report = StageReport { replica: 0, stage: 1, memory: 4096, sent: 100, idle_us: 30, staleness: 2 };
    let votes = [vote(), Vote { step: 201, ..vote() }];
    let asking = Some(Asking { number: 3, samples: 100, batch: 64 });
    Ballot { copying: true, late: true, asking, ..Ballot::new(&votes, report, vec![0.5, 1.5]) }
}

fn encoded(message: &impl serde::Serialize) -> BytesMut {
    let mut out = BytesMut::new();
    codec::encode_into(message, &mut out).expect("a sample can be encoded");
    out
}
