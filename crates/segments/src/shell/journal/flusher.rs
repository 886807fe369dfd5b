//! The thread that brings the journal to disk every second.

use super::shared::{JournalShared, lock};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Flusher {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(crate) fn start(shared: Arc<JournalShared>) -> std::io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let own = stop.clone();
        let thread = std::thread::Builder::new().name("segments-flush".to_owned()).spawn(move || {
            let (stop, changed) = &*own;
            loop {
                let waited = changed.wait_timeout_while(lock(stop), PERIOD, |stop| !*stop);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
                // A failure is kept in the health of the journal, and the next append is told.
                if shared.sync().is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread that flushes a journal panicked");
        }
    }
}
