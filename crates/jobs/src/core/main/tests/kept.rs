//! Copies of kept solutions: which of them the main node knows, and what makes it forget one.

use super::*;
use phalanx_wire::jobs::{KeptSolution, MissingInput};

fn kept_spec() -> JobSpec {
    JobSpec { keep: true, ..spec() }
}

fn copy(job: u64, blob: u64) -> KeptSolution {
    KeptSolution { job: JobId(job), head: parcel().head(), blob: BlobId(blob) }
}

/// Job 1 was solved by worker 1, which keeps the solution as blob 4 and takes no more jobs.
fn with_a_kept_solution() -> Main {
    let mut main = Main::new();
    main.submit(kept_spec());
    main.up(1, join(1, 1));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    let outcome = Outcome::Kept { len: parcel().len() };
    let keep = MainCommand::Keep { worker: w(1), lease: l(1, 1) };
    let finished = MainCommand::Finished { job: JobId(1), outcome, solver: Some(w(1)) };
    assert_eq!(main.done(1, solved_large(l(1, 1))), [keep, finished]);
    assert_eq!(main.report(1, Report { draining: true, ..report() }), []);
    main
}

#[test]
fn a_report_that_comes_again_late_does_not_bring_back_an_older_copy() {
    let mut main = with_a_kept_solution();
    main.up(2, join(1, 1));
    let first = Report { number: 10, kept: vec![copy(1, 7)], ..report() };
    assert_eq!(main.report_numbered(2, first.clone()), []);
    let second = Report { number: 11, kept: vec![copy(1, 8)], ..report() };
    assert_eq!(main.report_numbered(2, second), []);
    assert_eq!(main.report_numbered(2, first), []);
    assert_eq!(main.lost(1), []);
    let bring = MainCommand::Bring { worker: w(2), job: JobId(1), head: parcel().head(), blob: BlobId(8) };
    assert_eq!(main.feed(|core, _, out| core.on_wanted(JobId(1), out)), [bring]);
}

#[test]
fn a_report_that_comes_again_late_does_not_end_a_newer_lease() {
    let mut main = Main::with_jobs(1);
    main.up(1, join(1, 1));
    assert_eq!(main.dispatch(), [offer(1, l(1, 1))]);
    let full = Report { number: 10, window: 0, ..report() };
    assert_eq!(main.report_numbered(1, full.clone()), []);
    let back = Report { number: 11, handed_back: vec![l(1, 1)], ..report() };
    assert_eq!(main.report_numbered(1, back), []);
    assert_eq!(main.report_numbered(1, full), []);
    assert_eq!(main.dispatch(), [offer(1, l(1, 2))], "the older window is not believed");
}

#[test]
fn only_the_copy_that_was_asked_for_counts_as_gone() {
    let mut main = with_a_kept_solution();
    main.submit(JobSpec { inputs: vec![JobId(1)], ..spec() });
    main.up(2, join(1, 1));
    assert_eq!(main.dispatch(), [offer(2, l(2, 1))]);
    let missing = |number, blob| {
        let (lease, input, node, blob) = (l(2, number), JobId(1), node(1), BlobId(blob));
        Report { missing: vec![MissingInput { lease, input, node, blob, is_gone: true }], ..report() }
    };
    // What was named is not what the node has by now.
    assert_eq!(main.report(2, missing(1, 3)), []);
    assert_eq!(main.dispatch(), [offer(2, l(2, 2))]);
    // Worker 1 has it under this name, but it cannot be read there.
    let dropped = MainCommand::Drop { worker: w(1), job: JobId(1) };
    assert_eq!(main.report(2, missing(2, 4)), [dropped]);
    assert_eq!(main.dispatch(), [attempt(1, 1), offer(2, l(1, 2))], "it is made again");
}
