//! Workers that lie: what they say must not end jobs of others, and cost the main node little.

use super::*;
use phalanx_wire::reason::MAX_REPORTED;

#[test]
fn a_worker_gets_no_more_leases_than_any_node_of_its_size_could_use() {
    let mut m = Main::new();
    m.up(1, Join { window: u32::MAX, ..join(2, 9) });
    for _ in 0..5_000 {
        m.submit(spec());
    }
    let given = m.dispatch().iter().filter(|command| matches!(command, MainCommand::Offer { .. })).count();
    assert!((1..=1_026).contains(&given), "{given} leases");
    let more = m.report(1, Report { window: u32::MAX, ..report() });
    assert_eq!(more, []);
    let again = m.dispatch().iter().filter(|command| matches!(command, MainCommand::Offer { .. })).count();
    assert_eq!(again, 0);
}

#[test]
fn a_worker_may_claim_any_size() {
    let mut m = Main::new();
    let capacity = Needs { cores: u32::MAX, memory: ByteSize(u64::MAX) };
    m.up(1, Join { capacity, ..join(2, u32::MAX) });
    for _ in 0..3 {
        let needs = Needs { cores: 1, memory: ByteSize(1 << 49) };
        m.submit(JobSpec { needs, ..spec() });
    }
    m.dispatch();
}

#[test]
fn a_worker_that_never_had_the_lease_solves_nothing() {
    let mut m = Main::new();
    m.up(1, join(1, 1));
    m.submit(spec());
    assert_eq!(m.dispatch(), [offer(1, l(1, 1))]);
    m.up(2, join(1, 1));
    // It names the lease of the other, one that never was, and a large solution.
    for lie in [solved(l(1, 1)), solved(l(1, 7)), solved_large(l(1, 1))] {
        let lease = lie.lease;
        assert_eq!(m.report(2, Report { done: vec![lie], ..report() }), [ack(2, lease)]);
    }
    let held = vec![Held { lease: l(1, 1), running: true }];
    assert_eq!(m.up(3, Join { held, ..join(1, 1) }), [cancel(3, l(1, 1))]);
    let done = Report { done: vec![solved(l(1, 1))], ..report() };
    assert_eq!(m.report(1, done), [solved_by(1, 1), ack(1, l(1, 1))]);
}

#[test]
fn a_reason_that_no_worker_has_or_of_any_length_ends_its_link() {
    let long = FailReason::Handler { message: "x".repeat(MAX_REPORTED + 1) };
    for reason in [long, FailReason::NodesLost { attempts: 1, nodes: vec![] }] {
        let mut m = Main::new();
        m.up(1, join(1, 1));
        m.submit(spec());
        m.dispatch();
        let result = DoneResult::Failed { reason, retry: false };
        let done = vec![Done { lease: l(1, 1), result, run_micros: 5 }];
        let told = m.report(1, Report { done, ..report() });
        assert!(matches!(told[..], [MainCommand::CutOff { .. }]), "{told:?}");
    }
}

#[test]
fn reasons_of_many_failed_jobs_take_bounded_memory() {
    let mut m = Main::new();
    m.up(1, join(1, 1));
    let reason = FailReason::Handler { message: "x".repeat(MAX_REPORTED) };
    for number in 1..=1_000 {
        m.submit(spec());
        m.dispatch();
        let result = DoneResult::Failed { reason: reason.clone(), retry: false };
        let done = vec![Done { lease: l(number, 1), result, run_micros: 5 }];
        m.report(1, Report { done, ..report() });
    }
    assert_eq!(m.core.counts().failed, 1_000);
    let bytes: usize = m.core.failed.values().map(FailReason::text_len).sum();
    assert!(bytes < 33 << 20, "{bytes} bytes");
}
