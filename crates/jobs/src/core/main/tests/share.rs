//! Nodes of which training uses a part.

use super::*;
use phalanx_types::RunId;
use phalanx_wire::usage::{Holder, NodeUse, Shortage};

fn run(cores: u32) -> Vec<NodeUse> {
    let holder = Holder::Run { run: RunId(1), driver: "main-4f2a".parse().unwrap() };
    vec![NodeUse { holder, cores, memory: ByteSize(0) }]
}

fn in_use(nodes: u32, key: u64, needed: Needs, taken: Vec<NodeUse>) -> WaitReason {
    let capacity = Needs { cores: 2, memory: ByteSize::gib(8) };
    WaitReason::InUse { nodes, node: node(key), shortage: Shortage { needed, capacity, uses: taken } }
}

#[test]
fn a_node_that_trains_gets_no_jobs_and_they_say_why_they_wait() {
    let mut main = Main::with_jobs(1);
    main.up(1, Join { taken: run(2), ..join(2, 0) });
    let reason = in_use(1, 1, Needs::default(), run(2));
    let explained =
        MainCommand::Explain { kind: "square".into(), needs: Needs::default(), reason: reason.clone() };
    assert_eq!(main.dispatch(), [explained]);
    assert_eq!(
        reason.to_string(),
        format!("needs 1 core, 0 of 2 are free (run of main-4f2a uses 2) on {}", node(1))
    );
    assert_eq!(main.state(1), JobState::Waiting(reason));
    main.report(1, report());
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))], "the run is over");
}

#[test]
fn a_job_goes_only_where_it_fits_beside_training() {
    let two_cores = Needs { cores: 2, memory: ByteSize(0) };
    let mut main = Main::new();
    main.up(1, Join { taken: run(1), ..join(2, 9) });
    main.submit(JobSpec { needs: two_cores, ..spec() });
    main.submit(spec());
    let commands = main.dispatch();
    assert!(commands.contains(&offer(1, l(2, 1))), "the small one is not held up: {commands:?}");
    assert_eq!(main.state(1), JobState::Waiting(in_use(1, 1, two_cores, run(1))));
    main.up(2, join(2, 9));
    assert_eq!(main.dispatch(), [offer(2, l(1, 1))]);
}

#[test]
fn what_a_node_hands_back_because_it_trains_goes_to_another() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(2, 9));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    main.report(1, Report { taken: run(2), window: 0, handed_back: vec![l(1, 1)], ..report() });
    main.dispatch();
    assert_eq!(main.state(1), JobState::Waiting(in_use(1, 1, Needs::default(), run(2))));
    main.up(2, join(1, 9));
    assert_eq!(main.dispatch(), [offer(2, l(1, 2))]);
}
