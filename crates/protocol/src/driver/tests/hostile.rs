//! Nodes that lie: what they say must neither end the driver nor change a run that they do not train.

use super::*;

fn a_state(step: u64) -> StateRef {
    StateRef { step, bytes: 1, blob: BlobId(9) }
}

fn sums() -> ValidSums {
    ValidSums { samples: 1, loss: 0.5, metrics: Vec::new() }
}

#[test]
fn a_node_outside_the_group_changes_nothing_of_the_run() {
    let mut run = Run::running();
    run.on(DriverEvent::NodeUp { node: node("liar") });
    let (epoch, recorded) = (run.core.epoch(), run.core.recorded());
    let report = |step| StepReport { step, epoch, ..StepReport::default() };
    let failure = RankFailure::Error { detail: "it cannot go on".into() };
    let why = LeftWhy::Failed(failure);
    let lies = [
        FromReplica::Steps { run: RUN, epoch, steps: (1..=10).map(report).collect() },
        FromReplica::Validated { run: RUN, epoch, step: 1, sums: sums() },
        FromReplica::StreamEnded { run: RUN, epoch, step: 1, ended: None },
        FromReplica::Left { run: RUN, epoch, step: Some(9), why, holds: Vec::new() },
    ];
    for lie in lies {
        assert_eq!(run.says("liar", lie.clone()), [], "{lie:?}");
        assert_eq!((run.core.phase(), run.core.recorded()), (DriverPhase::Running, recorded), "{lie:?}");
    }
    // Its state is not fetched either; it may let go of it.
    let snapshot = FromReplica::Snapshot { run: RUN, epoch, ops: None, state: a_state(4) };
    let message = ToReplica::Taken { run: RUN, blob: BlobId(9) };
    assert_eq!(run.says("liar", snapshot), [DriverCommand::Send { node: node("liar"), message }]);
    // The run goes on as if nothing had been said.
    run.steps("a", 1..=4);
    assert_eq!(steps_in(&run.steps("a", 5..=5)), [1, 2, 3, 4]);
}

/// Every message in which a member can name a step, with that step in all places.
fn extremes(epoch: Epoch, step: u64) -> Vec<FromReplica> {
    let sealed =
        SealedPass { pass: step, start: step, steps: step, samples: step, base: step, horizon: step };
    let report = StepReport { step, epoch, pass: step, sealed: Some(sealed), ..StepReport::default() };
    let why = LeftWhy::Broken { reason: BreakReason::Failed { detail: "broken".into() } };
    let ops = phalanx_wire::train::Ops { start: 0, end: 6 };
    let holds = vec![HoldRef { ops, step, norm: Some(step), pending: true }];
    vec![
        FromReplica::Steps { run: RUN, epoch, steps: vec![report.clone(), report] },
        FromReplica::Validated { run: RUN, epoch, step, sums: sums() },
        FromReplica::Snapshot { run: RUN, epoch, ops: None, state: a_state(step) },
        FromReplica::StreamWaits { run: RUN, epoch, step, wait: "nothing".into(), ended: Some(sealed) },
        FromReplica::StreamEnded { run: RUN, epoch, step, ended: Some(sealed) },
        FromReplica::Waits { run: RUN, epoch, on: u32::MAX, millis: step },
        FromReplica::Enlisted { run: RUN, step: Some(step) },
        FromReplica::Restored { run: RUN, step },
        FromReplica::Left { run: RUN, epoch, step: Some(step), why, holds: holds.clone() },
        FromReplica::Left { run: RUN, epoch, step: Some(step), why: LeftWhy::Ended, holds },
    ]
}

#[test]
fn a_member_may_name_any_step_without_ending_the_driver() {
    for passes in [PassLengths::Fixed(100), PassLengths::Sealed] {
        for step in [u64::MAX, u64::MAX - 1, 1 << 60, (1 << 53) - 1, 0] {
            for only in 0..10 {
                let mut config = config(None);
                config.plan.passes = passes;
                config.validates = true;
                let mut run = Run::running_with(config);
                let said = extremes(run.core.epoch(), step).swap_remove(only);
                run.says("a", said);
                run.on(DriverEvent::Tick);
                run.on(DriverEvent::NodeDown { node: node("a"), loss: LostReason::Replaced });
                run.now += Duration::from_secs(60);
                run.on(DriverEvent::Tick);
            }
        }
    }
}
