//! Waiting for the library: the one way in which a call that takes time is made.

use crate::errors::Failure;
use crate::logs;
use phalanx::train::Stop;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting thread looks for Ctrl-C, logs and progress.
const TICK: Duration = Duration::from_millis(50);
/// How long work that was asked to stop may take before its caller goes on without it.
const GRACE: Duration = Duration::from_millis(100);

/// Something that a worker wants to be done by the thread that waits for it.
pub(crate) type Call = Box<dyn FnOnce(Python<'_>) -> PyResult<()> + Send>;

enum Message<T> {
    Call(Call),
    Done(T),
}

/// The way to the thread that waits.
#[derive(Clone)]
pub(crate) struct Caller {
    send: Arc<dyn Fn(Call) -> bool + Send + Sync>,
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

impl Caller {
    /// Has the waiting thread do something; `false` if it waits no more. A call may also be dropped undone.
    pub(crate) fn call(&self, call: Call) -> bool {
        (self.send)(call)
    }
}

/// Does work on another thread and waits for it without the interpreter's lock.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Caller) -> Result<T, Failure> + Send + 'static,
) -> PyResult<T> {
    wait_for(py, work, None, &mut |_| Ok(()))
}

/// The same of work that can be asked to stop; `tick` is called now and then meanwhile.
///
/// An exception, be it of Ctrl-C or of a callback, ends the waiting at once. Work that does not stop in time goes on by
/// itself, and its result is dropped.
pub(crate) fn wait_with<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Caller) -> Result<T, Failure> + Send + 'static,
    stop: &Stop,
    tick: &mut dyn FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    wait_for(py, work, Some(stop), tick)
}

fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce(Caller) -> Result<T, Failure> + Send + 'static,
    stop: Option<&Stop>,
    tick: &mut dyn FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    check_fork()?;
    keep_panics();
    logs::listen(py)?;
    let (sender, receiver) = channel();
    // Only one thread uses it; the lock lets it be used without that of the interpreter.
    let receiver = Mutex::new(receiver);
    start(work, sender, stop)?;
    let ended = until_done(py, &receiver, tick);
    if ended.is_err() {
        if let Some(stop) = stop {
            stop.stop();
        }
        py.detach(|| give_up(receiver));
    }
    logs::deliver(py)?;
    Ok(ended??)
}

fn start<T: Send + 'static>(
    work: impl FnOnce(Caller) -> Result<T, Failure> + Send + 'static,
    sender: Sender<Message<Result<T, Failure>>>,
    stop: Option<&Stop>,
) -> PyResult<()> {
    let calls = Mutex::new(sender.clone());
    let send = move |call| {
        let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.send(Message::Call(call)).is_ok()
    };
    let caller = Caller { send: Arc::new(send) };
    let running = stop.map(Running::new);
    let body = move || {
        let _running = running;
        let done = catch_unwind(AssertUnwindSafe(|| work(caller)));
        let done = done.unwrap_or_else(|_panic| Err(Failure::bug(last_panic())));
        // Nobody listens after Ctrl-C.
        let _unheard = sender.send(Message::Done(done));
    };
    let thread = std::thread::Builder::new().name("phalanx".to_owned()).spawn(body);
    thread.map(drop).map_err(|error| Failure::bug(format!("could not start a thread: {error}")).into())
}

fn until_done<T: Send>(
    py: Python<'_>,
    receiver: &Mutex<Receiver<Message<T>>>,
    tick: &mut dyn FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<T> {
    let mut ticked = Instant::now();
    loop {
        let message = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(TICK)
        });
        let done = match message {
            Ok(Message::Call(call)) => call(py).map(|()| None)?,
            Ok(Message::Done(done)) => Some(done),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::bug(last_panic()).into()),
        };
        py.check_signals()?;
        if done.is_some() || ticked.elapsed() >= TICK {
            ticked = Instant::now();
            logs::deliver(py)?;
            tick(py)?;
        }
        if let Some(done) = done {
            return Ok(done);
        }
    }
}

/// Waits a moment for work that was asked to stop. Calls are dropped undone.
fn give_up<T>(receiver: Mutex<Receiver<Message<T>>>) {
    let receiver = receiver.into_inner().unwrap_or_else(PoisonError::into_inner);
    let until = Instant::now() + GRACE;
    while let Ok(Message::Call(_)) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {}
}

/// Refuses to work in a process that was forked after threads had been started.
pub(crate) fn check_fork() -> Result<(), Failure> {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    let me = std::process::id();
    match OWNER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Err(owner) if owner != me => Err(Failure::forked()),
        _ => Ok(()),
    }
}

static PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps the text of a panic for the exception, in the place of printing it.
fn keep_panics() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string().replace('\n', " ");
        }));
    });
}

fn last_panic() -> String {
    PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Work with something to save that is being done, and how to stop it.
static WORKERS: Mutex<BTreeMap<u64, Stop>> = Mutex::new(BTreeMap::new());
static ENDED: Condvar = Condvar::new();

fn workers() -> MutexGuard<'static, BTreeMap<u64, Stop>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stands for a worker for as long as it runs.
#[derive(Debug)]
struct Running {
    number: u64,
}

impl Running {
    fn new(stop: &Stop) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        workers().insert(number, stop.clone());
        Self { number }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        workers().remove(&self.number);
        ENDED.notify_all();
    }
}

/// Stops all runs and waits for their end, so that runs are saved before the interpreter ends; at most `seconds`.
#[pyfunction]
pub(crate) fn finish(py: Python<'_>, seconds: f64) -> PyResult<()> {
    if check_fork().is_err() {
        return Ok(());
    }
    workers().values().for_each(Stop::stop);
    let until = Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or_default();
    while Instant::now() < until {
        let idle = py.detach(|| {
            let waited = ENDED.wait_timeout_while(workers(), TICK, |workers| !workers.is_empty());
            waited.unwrap_or_else(PoisonError::into_inner).0.is_empty()
        });
        py.check_signals()?;
        if idle {
            break;
        }
    }
    Ok(())
}
