//! What the threads of a rank share: callers, the background thread, and the thread that watches for losses.
//!
//! ```text
//!   submit ── request ──► inbox ──► engine ◄── driven by one thread: a caller that waits, else the background thread
//!   watch: streams that close end every collective at once
//! ```

use super::api::{OpsOptions, Stall};
use super::channel::{Channel, ended_in_order};
use super::completion::Completion;
use super::connect::{Place, locked};
use super::engine::Engine;
use super::execute::{Aborters, Work};
use super::timeline::Timeline;
use crate::error::OpsError;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

/// A caller looks for this long before it sleeps: longer than it takes to wake a thread.
const SPIN: Duration = Duration::from_micros(150);
/// The background thread looks no longer: the cores are for those who compute.
const SHORT_SPIN: Duration = Duration::from_micros(10);
/// How long a thread keeps its core from others.
const ALONE: Duration = Duration::from_micros(20);
/// Stalls that are kept for the user.
const MOST_STALLS: usize = 1000;

/// What a caller wants.
#[derive(Debug)]
pub(super) enum Request {
    Operate(Work),
    Join(Arc<Completion>),
}

impl Request {
    pub(super) fn completion(&self) -> Arc<Completion> {
        match self {
            Request::Operate(work) => work.completion.clone().unwrap_or_default(),
            Request::Join(completion) => Arc::clone(completion),
        }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) pid: u32,
    pub(super) timeline: Timeline,
    /// How often the leader looks for what waits too long.
    pub(super) look_interval: Duration,
    /// A stream has closed.
    pub(super) hung_up: AtomicBool,
    /// The engine reads streams: what it has read it may not have acted on.
    hearing: AtomicBool,
    requests: Mutex<Vec<Request>>,
    waiting_requests: AtomicUsize,
    engine: Mutex<Engine>,
    /// Callers that want to drive.
    callers: AtomicUsize,
    over: OnceLock<OpsError>,
    left: Vec<AtomicBool>,
    aborters: Aborters,
    stalls: Mutex<Vec<Stall>>,
    /// Ranks outnumber cores: a thread that looks lets others run at every turn.
    crowded: bool,
    bell: OwnedFd,
    watch_bell: OwnedFd,
    stop: AtomicBool,
    /// When the background thread wakes by itself, in microseconds since `origin`.
    wakes_at: AtomicU64,
    origin: Instant,
}

impl Shared {
    pub(super) fn new(
        place: Place,
        engine: Engine,
        aborters: Aborters,
        options: &OpsOptions,
    ) -> Result<Self, OpsError> {
        let bell = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|error| OpsError::system("make an event", error))
        };
        let cores =
            options.cores.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let crowded = place.local_size as usize > cores;
        let limit = options.stall_limit.unwrap_or(options.stall_report).min(options.stall_report);
        Ok(Self {
            place,
            pid: std::process::id(),
            timeline: Timeline::default(),
            look_interval: limit / 4,
            hung_up: AtomicBool::new(false),
            hearing: AtomicBool::new(false),
            requests: Mutex::new(Vec::new()),
            waiting_requests: AtomicUsize::new(0),
            engine: Mutex::new(engine),
            callers: AtomicUsize::new(0),
            over: OnceLock::new(),
            left: (0..place.size).map(|_| AtomicBool::new(false)).collect(),
            aborters,
            stalls: Mutex::new(Vec::new()),
            crowded,
            bell: bell()?,
            watch_bell: bell()?,
            stop: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            origin: Instant::now(),
        })
    }

    pub(super) fn take_requests(&self) -> Vec<Request> {
        if self.waiting_requests.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let requests = std::mem::take(&mut *locked(&self.requests));
        self.waiting_requests.fetch_sub(requests.len(), Ordering::AcqRel);
        requests
    }

    /// Hands a request to the engine. Unless the caller waits at once, the leader is told now.
    pub(super) fn request(&self, request: Request, waits: bool) {
        locked(&self.requests).push(request);
        self.waiting_requests.fetch_add(1, Ordering::AcqRel);
        if !waits && let Some(mut engine) = self.try_engine() {
            engine.rouse();
            engine.turn(self, false);
            self.release(engine);
        }
    }

    fn try_engine(&self) -> Option<MutexGuard<'_, Engine>> {
        match self.engine.try_lock() {
            Ok(engine) => Some(engine),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        locked(&self.engine)
    }

    /// Drives the engine until an operation is done, as long as something happens.
    pub(super) fn drive_for(&self, completion: &Completion, until: Option<Instant>) {
        self.callers.fetch_add(1, Ordering::AcqRel);
        let began = Instant::now();
        while !completion.is_done() {
            if let Some(mut engine) = self.try_engine() {
                engine.rouse();
                self.spin(&mut engine, SPIN, until, || completion.is_done());
                self.callers.fetch_sub(1, Ordering::AcqRel);
                return self.release(engine);
            }
            if began.elapsed() >= SPIN {
                break;
            }
            std::thread::yield_now();
        }
        self.callers.fetch_sub(1, Ordering::AcqRel);
        // The thread that drives may have looked for requests before this one came.
        if self.waiting_requests.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

    fn spin(&self, engine: &mut Engine, spin: Duration, until: Option<Instant>, done: impl Fn() -> bool) {
        engine.set_spin(spin);
        let mut idle: Option<Instant> = None;
        while !done() {
            if engine.turn(self, true) {
                idle = None;
                continue;
            }
            let now = Instant::now();
            let since = now - *idle.get_or_insert(now);
            if engine.is_over() || since >= spin || until.is_some_and(|until| now >= until) {
                return;
            }
            if self.crowded || since >= ALONE {
                engine.ring_bells();
                std::thread::yield_now();
            } else {
                (0..16).for_each(|_| std::hint::spin_loop());
            }
        }
    }

    /// Lets the background thread take over what is left to do. What only has to be noted is noted here: often it is
    /// the other ranks' next operation, for which the thread need not wake.
    fn release(&self, mut engine: MutexGuard<'_, Engine>) {
        engine.ring_bells();
        while !engine.has_work() && !engine.doze() {
            engine.turn(self, false);
            engine.ring_bells();
        }
        let work = engine.has_work();
        let wake = engine.next_wake().map(|after| self.micros() + after.as_micros() as u64);
        drop(engine);
        let earlier = wake.is_some_and(|at| at < self.wakes_at.load(Ordering::Acquire));
        if work || earlier || self.waiting_requests.load(Ordering::Acquire) > 0 {
            self.ring();
        }
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn ring(&self) {
        ring(&self.bell);
    }

    /// Sleeps until a stream has something, at most for so long.
    pub(super) fn sleep_on<'a>(&self, channels: impl Iterator<Item = &'a Channel>, most: Duration) {
        let mut fds: Vec<PollFd<'_>> = channels.map(|channel| PollFd::new(channel, PollFlags::IN)).collect();
        wait(&mut fds, Some(most));
    }

    pub(super) fn has_left(&self, rank: u32) -> bool {
        self.left.get(rank as usize).is_some_and(|left| left.load(Ordering::Acquire))
    }

    pub(super) fn set_left(&self, rank: u32) {
        if let Some(left) = self.left.get(rank as usize) {
            left.store(true, Ordering::Release);
        }
    }

    pub(super) fn set_hearing(&self, hearing: bool) {
        self.hearing.store(hearing, Ordering::SeqCst);
    }

    /// Whether a rank whose stream has closed said before that it leaves. The engine, which reads what ranks say, may
    /// be in a collective for long.
    fn left_in_order(&self, rank: u32, stream: &TcpStream) -> bool {
        if self.has_left(rank) {
            return true;
        }
        ended_in_order(stream).unwrap_or_else(|| {
            // The engine has read the end, now or long ago.
            while self.hearing.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            self.has_left(rank)
        })
    }

    pub(super) fn over(&self) -> Option<&OpsError> {
        self.over.get()
    }

    pub(super) fn set_over(&self, error: &OpsError) {
        // The first error counts.
        let _first = self.over.set(error.clone());
    }

    pub(super) fn note_stall(&self, stall: Stall) {
        let mut stalls = locked(&self.stalls);
        if stalls.len() < MOST_STALLS {
            stalls.push(stall);
        }
    }

    pub(super) fn take_stalls(&self) -> Vec<Stall> {
        std::mem::take(&mut *locked(&self.stalls))
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        ring(&self.watch_bell);
    }

    /// The background thread: drives the engine when no caller does.
    pub(super) fn run_background(&self, streams: &[(u32, TcpStream)]) {
        let mut again = false;
        while !self.stop.load(Ordering::Acquire) {
            if !again {
                self.sleep_in_background(streams);
            }
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let mut engine = self.engine();
            engine.rouse();
            engine.look_at_streams();
            self.spin(&mut engine, SHORT_SPIN, None, || self.callers.load(Ordering::Acquire) > 0);
            engine.ring_bells();
            again = engine.has_work() | !engine.doze();
            let next = engine.next_wake().unwrap_or(self.look_interval).min(self.look_interval);
            let wakes_at = self.micros() + next.as_micros() as u64;
            self.wakes_at.store(wakes_at, Ordering::Release);
            drop(engine);
            again |= self.waiting_requests.load(Ordering::Acquire) > 0;
            if again && self.callers.load(Ordering::Acquire) > 0 {
                // A caller wants to drive, and rings when it has done so and something is left.
                std::thread::yield_now();
            }
        }
    }

    fn sleep_in_background(&self, streams: &[(u32, TcpStream)]) {
        let left = self.wakes_at.load(Ordering::Acquire).saturating_sub(self.micros());
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        if self.over().is_none() {
            let open = streams.iter().filter(|(rank, _)| !self.has_left(*rank));
            fds.extend(open.map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
        }
        let most = self.over().is_none().then_some(Duration::from_micros(left));
        wait(&mut fds, most);
        drain(&self.bell);
    }

    /// The thread that watches: a stream that closes although its rank has not left ends every collective.
    pub(super) fn run_watch(&self, streams: Vec<(u32, TcpStream)>) {
        let mut streams = streams;
        while !self.stop.load(Ordering::Acquire) && !streams.is_empty() {
            let mut fds = vec![PollFd::new(&self.watch_bell, PollFlags::IN)];
            fds.extend(streams.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::RDHUP)));
            wait(&mut fds, None);
            let closed: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            let mut closed = closed.into_iter();
            streams.retain(|(rank, stream)| {
                let closed = closed.next().unwrap_or(false);
                if closed && !self.left_in_order(*rank, stream) {
                    for aborter in locked(&self.aborters).iter() {
                        aborter.abort(format!("rank {rank} is lost"));
                    }
                }
                if closed {
                    self.hung_up.store(true, Ordering::Release);
                    self.ring();
                }
                !closed
            });
        }
    }
}

fn ring(bell: &OwnedFd) {
    // It can fail only when it has rung more often than can be counted.
    let _rung = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

fn drain(bell: &OwnedFd) {
    // Fails when it has not rung.
    let _drained = rustix::io::read(bell, &mut [0_u8; 8]);
}

fn wait(fds: &mut [PollFd<'_>], most: Option<Duration>) {
    let most = most.and_then(|most| Timespec::try_from(most).ok());
    if let Err(error) = poll(fds, most.as_ref())
        && error != rustix::io::Errno::INTR
    {
        tracing::warn!(%error, "could not wait for other ranks");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_rang_is_heard_once() {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        ring(&bell);
        ring(&bell);
        let mut fds = [PollFd::new(&bell, PollFlags::IN)];
        wait(&mut fds, Some(Duration::from_secs(5)));
        assert!(!fds[0].revents().is_empty());
        drain(&bell);
        let mut fds = [PollFd::new(&bell, PollFlags::IN)];
        wait(&mut fds, Some(Duration::ZERO));
        assert!(fds[0].revents().is_empty());
    }
}
