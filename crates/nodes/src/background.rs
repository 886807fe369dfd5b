//! A runtime on a thread of its own, for programs that have none.

use crate::error::NodesError;
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A runtime that another thread drives until this value is dropped.
#[derive(Debug)]
pub struct Background {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts a thread of this name with a runtime.
    ///
    /// # Errors
    /// The system gives no thread or runtime.
    pub fn start(name: &str) -> Result<Self, NodesError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(NodesError::Runtime)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let drive = move || {
            // Ends when the sender is used or gone.
            let _asked = runtime.block_on(ended);
            // A handler that ignores its cancellation must not keep the thread.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(drive);
        let thread = thread.map_err(NodesError::Thread)?;
        Ok(Self { handle, end: Some(end), thread: Some(thread) })
    }

    /// Runs a future to its end on the runtime; must not be called from a task of a runtime.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// The runtime, for tasks that go on by themselves.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // Its panic was reported on its own thread.
            let _ended = thread.join();
        }
    }
}
