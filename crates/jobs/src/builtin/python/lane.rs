//! A batch of calls on its way through one worker.

use super::Python;
use super::worker::{Heard, Sent, Worker};
use crate::{HandlerError, JobContext, JobFeed};
use phalanx_types::Parcel;
use phalanx_wire::python::PythonCall;
use phalanx_wire::reason::{FailReason, Raised};
use std::collections::VecDeque;
use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The most calls on their way to a worker.
const MOST_AHEAD: usize = 64;
/// Workers that may end, one after the other, without having taken a call.
const MOST_WORKERS: u32 = 3;
/// Calls that take less are worth sending ahead.
const QUICK: Duration = Duration::from_micros(500);
/// A call that takes longer gives back those behind it.
const SLOW: Duration = Duration::from_millis(2);

/// A call that was sent and not answered.
struct Flight {
    id: u64,
    job: JobContext,
    call: PythonCall,
    segment: Option<u32>,
}

type Solved = Result<Parcel, HandlerError>;

/// A job with its answer.
type Answered = (JobContext, Solved);

/// Why a worker is of no use any more.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the Python worker ended during the call")]
    Ended,
    #[error("the Python worker takes no call")]
    Full,
    #[error("the Python worker was given up: {0}")]
    Broken(#[from] io::Error),
}

/// See the module.
pub(super) struct Lane<'a> {
    python: &'a Python,
    jobs: &'a JobFeed<'a>,
    flights: VecDeque<Flight>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(python: &'a Python, jobs: &'a JobFeed<'a>) -> Self {
        Self { python, jobs, flights: VecDeque::new() }
    }

    /// Has all jobs of the batch answered, with as many workers as it takes.
    pub(super) fn run(mut self) {
        let mut blameless = 0;
        loop {
            let Some(job) = self.jobs.take() else { return };
            let mut worker = match self.python.worker() {
                Ok(worker) => worker,
                Err(error) => {
                    let message = format!("could not start a Python worker: {error}");
                    return self.jobs.finish(job, Err(HandlerError::retry(message)));
                }
            };
            self.jobs.put_back(job);
            match self.answer(&mut worker) {
                // First the worker, then the answer: whatever the answer sets off finds the worker idle.
                Ok(last) => {
                    self.python.give_back(worker);
                    return last.map_or((), |(job, result)| self.jobs.finish(job, result));
                }
                Err(lost) => blameless = if self.lost(worker, &lost) { 0 } else { blameless + 1 },
            }
            // Workers that end before they take a call would be started for ever.
            if blameless >= MOST_WORKERS
                && let Some(job) = self.jobs.take()
            {
                blameless = 0;
                let message = "Python workers end before they take the call";
                self.jobs.finish(job, Err(HandlerError::retry(message)));
            }
        }
    }

    /// Sends and hears until the batch is empty; the last answer is left to the caller.
    fn answer(&mut self, worker: &mut Worker) -> Result<Option<Answered>, Lost> {
        let mut last: Option<Answered> = None;
        loop {
            let filled = self.fill(worker);
            if self.flights.is_empty() && filled.is_ok() {
                return Ok(last);
            }
            if let Some((job, result)) = last.take() {
                self.jobs.finish(job, result);
            }
            filled?;
            let asked = Instant::now();
            let within = (self.flights.len() > 1).then_some(SLOW);
            match worker.hear(within)? {
                Heard::Nothing => {
                    worker.ahead = 1;
                    self.take_back(worker);
                }
                Heard::Ended => return Err(Lost::Ended),
                Heard::Answer { id, kept, result } => {
                    self.pace(worker, asked);
                    let Some(flight) = self.flights.iter().find(|flight| flight.id == id) else { continue };
                    let parcel = worker.complete(result, &flight.call)?.into_parcel();
                    let result = parcel.map_err(|error| HandlerError::failed(error.to_string()));
                    last = self.end(worker, id, kept, result);
                }
                Heard::Raised { id, kept, raised } => {
                    self.pace(worker, asked);
                    last = self.end(worker, id, kept, Err(HandlerError::raised(raised)));
                }
                Heard::Unknown { id } => self.send_again(worker, id),
            }
        }
    }

    /// Sends calls ahead, as many as the worker is quick enough for.
    fn fill(&mut self, worker: &mut Worker) -> Result<(), Lost> {
        while self.flights.len() < worker.ahead {
            let Some(job) = self.jobs.take() else { break };
            let call = PythonCall::from_parcel(job.payload()).and_then(|call| call.with_inputs(job.inputs()));
            let call = match call {
                Ok(call) => call,
                Err(error) => {
                    self.jobs.finish(job, Err(HandlerError::failed(error.to_string())));
                    continue;
                }
            };
            let id = worker.next_call();
            match worker.send(id, &call) {
                Ok(Sent::Yes { segment }) => {
                    self.kill_if_cancelled(worker, id, &job);
                    self.flights.push_back(Flight { id, job, call, segment });
                    self.point_at_first(worker);
                }
                Ok(Sent::Full) if !self.flights.is_empty() => {
                    self.jobs.put_back(job);
                    break;
                }
                Ok(Sent::Full) => {
                    self.jobs.put_back(job);
                    return Err(Lost::Full);
                }
                Err(error) => {
                    self.jobs.put_back(job);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// Has the worker killed when the call that it is at is cancelled.
    fn kill_if_cancelled(&self, worker: &Worker, id: u64, job: &JobContext) {
        let running = worker.running.clone();
        job.on_cancel(Box::new(move || {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            if running.call == Some(id) {
                running.kill();
            }
        }));
    }

    /// Notes which call the worker is at. One that was cancelled while it waited is not worth waiting for.
    fn point_at_first(&self, worker: &Worker) {
        let first = self.flights.front();
        let mut running = worker.running.lock().unwrap_or_else(PoisonError::into_inner);
        let id = first.map(|flight| flight.id);
        if running.call != id {
            running.call = id;
            if first.is_some_and(|flight| flight.job.is_cancelled()) {
                running.kill();
            }
        }
    }

    fn pace(&self, worker: &mut Worker, asked: Instant) {
        worker.ahead = match asked.elapsed() {
            time if time < QUICK => (worker.ahead * 2).min(MOST_AHEAD),
            time if time < SLOW => worker.ahead,
            _ => 1,
        };
    }

    fn end(&mut self, worker: &mut Worker, id: u64, kept: bool, result: Solved) -> Option<Answered> {
        let at = self.flights.iter().position(|flight| flight.id == id)?;
        let flight = self.flights.remove(at)?;
        worker.answered(id, flight.segment, kept.then_some(&flight.call));
        self.point_at_first(worker);
        Some((flight.job, result))
    }

    /// Gives back what the worker has not taken: the rest of the batch may run elsewhere.
    fn take_back(&mut self, worker: &mut Worker) {
        let taken = worker.take_back();
        let flights = std::mem::take(&mut self.flights).into_iter();
        let (back, stay): (VecDeque<Flight>, _) = flights.partition(|f| taken.contains(&f.id));
        self.flights = stay;
        self.point_at_first(worker);
        back.into_iter().rev().for_each(|flight| self.jobs.put_back(flight.job));
    }

    /// The worker lacks the function of a call: the call waits again, and goes with the function.
    fn send_again(&mut self, worker: &mut Worker, id: u64) {
        let Some(at) = self.flights.iter().position(|flight| flight.id == id) else { return };
        let Some(flight) = self.flights.remove(at) else { return };
        worker.unknown(&flight.call.hash);
        worker.answered(id, flight.segment, None);
        self.point_at_first(worker);
        self.jobs.put_back(flight.job);
    }

    /// The worker is gone or of no use. The call that it was at is lost, the others have another worker; tells
    /// whether there was such a call.
    fn lost(&mut self, mut worker: Worker, lost: &Lost) -> bool {
        let status = worker.end();
        self.take_back(&mut worker);
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let blamed = std::mem::take(&mut self.flights);
        let any = !blamed.is_empty();
        for flight in blamed {
            let error = match flight.job.is_cancelled() {
                true => HandlerError::cancelled(),
                false => HandlerError::retry(format!("{lost} ({status})")),
            };
            self.jobs.finish(flight.job, Err(error));
        }
        any
    }
}

impl HandlerError {
    /// A function raised an exception.
    fn raised(raised: Box<Raised>) -> Self {
        Self::because(FailReason::Raised(raised))
    }
}
