//! Jobs of a gathered kind.

use super::*;

fn together(batch: u64, runs: &[(u64, LeaseId)]) -> WorkerCommand {
    let run = |(main, lease): &(u64, LeaseId)| run(key(*main, *lease));
    WorkerCommand::Start { batch: BatchId(batch), runs: runs.iter().map(run).collect() }
}

fn gathering(mut worker: Worker, most: usize) -> Worker {
    worker.core.gather([("square".into(), most)]);
    worker
}

fn offers(jobs: std::ops::RangeInclusive<u64>) -> Vec<Offer> {
    jobs.map(|job| offer(l(job, 1))).collect()
}

#[test]
fn what_gathers_while_a_batch_runs_is_the_next_batch_from_all_main_nodes() {
    let mut worker = gathering(Worker::with_one_core(&[1, 2]), 4);
    assert_eq!(worker.offer(1, ONE_CORE, offers(1..=1)), [together(0, &[(1, l(1, 1))])]);
    assert_eq!(worker.offer(1, ONE_CORE, offers(2..=5)), []);
    assert_eq!(worker.offer(2, ONE_CORE, offers(1..=1)), []);
    worker.finish(1, l(1, 1), end(), 100);
    // The main node that was served less begins, then both take turns.
    let next = [(2, l(1, 1)), (1, l(2, 1)), (1, l(3, 1)), (1, l(4, 1))];
    assert_eq!(worker.room(), [together(1, &next)]);
    assert_eq!(worker.core.in_use(), ONE_CORE);
    for (main, lease) in next {
        assert_eq!(worker.room(), [], "the batch is not over");
        worker.finish(main, lease, end(), 100);
    }
    assert_eq!(worker.room(), [together(2, &[(1, l(5, 1))])]);
}

#[test]
fn free_cores_share_what_waits() {
    let mut worker = gathering(Worker::new(), 64);
    let halves = worker.offer(1, ONE_CORE, offers(1..=4));
    let pair = |a, b| [(1, l(a, 1)), (1, l(b, 1))];
    assert_eq!(halves, [together(0, &pair(1, 2)), together(1, &pair(3, 4))]);
}

#[test]
fn a_batch_that_runs_together_is_told_as_a_whole_and_never_taken_apart() {
    let mut worker = gathering(Worker::with_one_core(&[1]), 4);
    worker.offer(1, ONE_CORE, offers(1..=1));
    worker.offer(1, ONE_CORE, offers(2..=3));
    worker.finish(1, l(1, 1), end(), 100);
    worker.room();
    worker.flush();
    assert_eq!(worker.at(60_000).tick(), [], "nothing is taken back");
    let told = Report { started: vec![l(2, 1), l(3, 1)], ..Report::default() };
    assert_eq!(worker.flush(), [report(1, worker.core.window(), told)]);
    assert_eq!(worker.core.next_wake(), Time::NEVER);
}

#[test]
fn enough_is_held_to_fill_the_next_batch() {
    let worker = gathering(Worker::with_one_core(&[1]), 32);
    assert_eq!(worker.core.window(), 64);
}

#[test]
fn careful_jobs_run_alone() {
    let mut worker = gathering(Worker::with_one_core(&[1]), 4);
    worker.offer(1, ONE_CORE, offers(1..=1));
    let mut more = offers(2..=3);
    more.insert(1, careful(l(9, 1)));
    worker.offer(1, ONE_CORE, more);
    worker.finish(1, l(1, 1), end(), 100);
    assert_eq!(worker.room(), [together(1, &[(1, l(2, 1)), (1, l(3, 1))])]);
}
