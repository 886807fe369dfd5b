//! Jobs of one kind that are worth running together, whichever main nodes they come from.
//!
//! A batch takes what is there and waits for nothing: while one batch runs the next one gathers, so batches grow with
//! the load by themselves. Main nodes take turns within a batch, and the one served least begins.

use super::lease::Order;
use super::{LeaseState, Run, RunKey, WorkerCommand, WorkerCore, pace};
use phalanx_types::{JobId, LeaseId, Needs, Outbox, SessionId, Time};
use smol_str::SmolStr;

/// The jobs of one main node that could be in a batch, best first.
#[derive(Debug)]
struct Line {
    session: SessionId,
    /// Core-microseconds given to this main node so far.
    served: u64,
    jobs: Vec<(Order, JobId)>,
}

/// Chooses at most `most` jobs: better priorities first, then main nodes in turn.
fn choose(mut lines: Vec<Line>, most: usize) -> Vec<(SessionId, JobId)> {
    lines.sort_by_key(|line| (line.served, line.session));
    // Every job has a place: its priority, its turn among equal ones of its main node, the place of the main node.
    let mut places = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (mut turn, mut level) = (0_usize, None);
        for ((priority, _), job) in &line.jobs {
            turn = if level == Some(*priority) { turn + 1 } else { 0 };
            level = Some(*priority);
            places.push(((*priority, turn, at), (line.session, *job)));
        }
    }
    places.sort_by_key(|(place, _)| *place);
    places.into_iter().take(most).map(|(_, job)| job).collect()
}

impl WorkerCore {
    /// Two batches: one that runs and one that gathers.
    pub(super) fn gathering_window(&self) -> u32 {
        let most = self.gathered.values().max().map_or(0, |most| 2 * most);
        u32::try_from(most.min(pace::max_window(self.share.cores))).unwrap_or(u32::MAX)
    }

    /// Starts jobs of a gathered kind on one thread, leaving as many for each other free lane.
    pub(super) fn start_together(
        &mut self,
        now: Time,
        kind: &SmolStr,
        needs: Needs,
        (most, lanes): (usize, usize),
        out: &mut Outbox<WorkerCommand>,
    ) {
        let lines = self.lines(kind, needs, most.saturating_mul(lanes));
        let waiting: usize = lines.iter().map(|line| line.jobs.len()).sum();
        let chosen = choose(lines, most.min(waiting.div_ceil(lanes.max(1))));
        let charge = self.pace.expected(kind) * u64::from(needs.cores);
        let mut runs = Vec::with_capacity(chosen.len());
        for (id, job) in chosen {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let Some(number) = session.leases.get(&job).map(|lease| lease.number) else { continue };
            let lease = LeaseId { job, number };
            let Some(inputs) = session.inputs_of(lease) else {
                session.fetch_again(id, lease, out);
                continue;
            };
            let Some(lease) = session.leases.get_mut(&job) else { continue };
            let LeaseState::Ready { payload } = &mut lease.state else { continue };
            let payload = std::mem::take(payload);
            lease.state = LeaseState::Running;
            session.ready.remove(&lease.order);
            session.served += charge;
            let lease = LeaseId { job, number: lease.number };
            runs.push(Run { key: RunKey { session: id, lease }, kind: kind.clone(), payload, inputs });
        }
        if runs.is_empty() {
            return;
        }
        let keys = runs.iter().map(|run| (run.key, run.kind.clone())).collect();
        let batch = self.batches.start(now, needs, keys, charge, false);
        self.batches.run_together(batch);
        out.push(WorkerCommand::Start { batch, runs });
    }

    /// What each main node has waiting of a kind, up to a limit for each.
    fn lines(&self, kind: &SmolStr, needs: Needs, most: usize) -> Vec<Line> {
        let linked = self.sessions.iter().filter(|(_, session)| session.main.is_some());
        let line = linked.map(|(id, session)| {
            let alike = |job: &JobId| {
                session.leases.get(job).is_some_and(|l| !l.careful && l.kind == *kind && l.needs == needs)
            };
            let jobs = session.ready.iter().filter(|(_, job)| alike(job)).take(most);
            Line { session: *id, served: session.served, jobs: jobs.map(|(o, job)| (*o, *job)).collect() }
        });
        line.filter(|line| !line.jobs.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    /// A main node and its jobs by priority; arrivals and ids count up.
    fn line(session: u64, served: u64, priorities: &[i32]) -> Line {
        let jobs = (1..).zip(priorities).map(|(n, p)| ((Reverse(*p), n), JobId(n))).collect();
        Line { session: SessionId(session), served, jobs }
    }

    fn chosen(lines: Vec<Line>, most: usize) -> Vec<(u64, u64)> {
        choose(lines, most).into_iter().map(|(session, job)| (session.0, job.0)).collect()
    }

    #[test]
    fn all_that_wait_are_taken_when_there_is_room() {
        assert_eq!(chosen(vec![line(1, 0, &[0, 0, 0])], 64), [(1, 1), (1, 2), (1, 3)]);
        assert_eq!(chosen(vec![], 64), []);
    }

    #[test]
    fn main_nodes_take_turns_and_the_one_served_least_begins() {
        let lines = vec![line(1, 500, &[0; 100]), line(2, 100, &[0]), line(3, 300, &[0, 0])];
        assert_eq!(chosen(lines, 5), [(2, 1), (3, 1), (1, 1), (3, 2), (1, 2)]);
    }

    #[test]
    fn better_priorities_go_first_and_have_turns_of_their_own() {
        let lines = vec![line(1, 0, &[5, 5, 0]), line(2, 9, &[5, 0])];
        assert_eq!(chosen(lines, 4), [(1, 1), (2, 1), (1, 2), (1, 3)]);
    }

    #[test]
    fn more_main_nodes_than_places_share_batch_after_batch() {
        let lines = || (0..10).map(|n| line(n, n, &[0; 3])).collect::<Vec<_>>();
        assert_eq!(chosen(lines(), 4), [(0, 1), (1, 1), (2, 1), (3, 1)]);
    }
}
