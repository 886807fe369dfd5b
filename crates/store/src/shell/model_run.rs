//! Running models beside the threads that serve clients.

use super::executed::Executed;
use super::hub::Hub;
use crate::core::{Effects, ModelCall};
use phalanx_resp::{ReplyQueue, Version};
use phalanx_types::Tensor;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::ThreadId;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

/// Runs models that are kept in the store.
pub trait ModelRunner: Send + Sync {
    /// Begins to compute the outputs of a model, in order, on threads of its own; must not wait. A `done` that is
    /// dropped without an answer is a failure.
    fn start(&self, call: Arc<ModelCall>, done: ModelDone);
}

/// Where the outputs of a model go.
#[derive(Debug)]
pub struct ModelDone {
    sender: oneshot::Sender<ModelResult>,
    /// The thread that serves the client, if it has a runtime.
    server: Option<(ThreadId, Handle)>,
}

/// The outputs of a model, when they are there.
#[derive(Debug)]
pub struct ModelAnswer(oneshot::Receiver<ModelResult>);

/// Outputs, and the clients that they are for.
type Answers = Vec<(ModelDone, ModelResult)>;

impl ModelDone {
    /// A place for outputs, and the one where they come out.
    pub fn new() -> (Self, ModelAnswer) {
        let (sender, receiver) = oneshot::channel();
        let server = Handle::try_current().ok().map(|handle| (std::thread::current().id(), handle));
        (Self { sender, server }, ModelAnswer(receiver))
    }

    /// Gives the outputs, or says why there are none.
    pub fn tell(self, result: ModelResult) {
        // The client may be gone.
        let _unheard = self.sender.send(result);
    }

    /// Gives outputs to several clients. Each thread that serves some of them is woken once.
    pub fn tell_all(answers: impl IntoIterator<Item = (Self, ModelResult)>) {
        let mut by_thread: Vec<(ThreadId, Handle, Answers)> = Vec::new();
        for (mut done, result) in answers {
            let Some((thread, handle)) = done.server.take() else {
                done.tell(result);
                continue;
            };
            match by_thread.iter_mut().find(|(other, ..)| *other == thread) {
                Some((.., told)) => told.push((done, result)),
                None => by_thread.push((thread, handle, vec![(done, result)])),
            }
        }
        for (_, handle, told) in by_thread {
            let tell = move || told.into_iter().for_each(|(done, result)| done.tell(result));
            // From its own thread a runtime is woken without a system call.
            handle.spawn(async move { tell() });
        }
    }

    /// Whether there is still a client that waits for them.
    pub fn is_awaited(&self) -> bool {
        !self.sender.is_closed()
    }
}

impl ModelAnswer {
    /// Waits on the calling thread, outside of a runtime.
    ///
    /// # Errors
    /// The model was not run.
    pub fn wait(self) -> ModelResult {
        self.0.blocking_recv().unwrap_or_else(|_dropped| Err(lost()))
    }
}

fn lost() -> ModelFailure {
    ModelFailure { reason: "the model runner failed".to_owned() }
}

/// Why a model was not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ModelFailure {
    /// For the client; must not repeat what the client sent.
    pub reason: String,
}

/// SmartRedis repeats a command when 250 ms pass without a byte; this leaves it a margin.
const FIRST_PADDING: Duration = Duration::from_millis(150);
/// SmartRedis asks for 17 hours when its user asked for nothing; timers need not last so long.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(8 * 3600);
const PADDING_INTERVAL: Duration = Duration::from_millis(100);

/// The announced length of the padding: an hour of it. What is not needed goes out at the end.
const PADDING: usize = 36_000;

/// The outputs of a model, or why there are none.
pub type ModelResult = Result<Vec<Tensor>, ModelFailure>;

/// A model that is being run for a client.
pub(crate) struct ModelRun {
    call: Arc<ModelCall>,
    answer: oneshot::Receiver<ModelResult>,
    /// When the client does not wait any longer.
    deadline: Option<Pin<Box<Sleep>>>,
    timer: Pin<Box<Sleep>>,
    /// Bytes of padding sent so far; none before the reply has begun.
    padded: Option<usize>,
}

impl fmt::Debug for ModelRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelRun")
            .field("key", &self.call.key)
            .field("padded", &self.padded)
            .finish_non_exhaustive()
    }
}

impl ModelRun {
    pub(crate) fn start(hub: &Hub, call: ModelCall) -> Self {
        let call = Arc::new(call);
        let (done, ModelAnswer(answer)) = ModelDone::new();
        match hub.runner() {
            Some(runner) => runner.start(call.clone(), done),
            None => done.tell(Err(ModelFailure { reason: "there is no model runner".to_owned() })),
        }
        let deadline = call.timeout.filter(|timeout| *timeout <= LONGEST_TIMEOUT);
        let deadline = deadline.map(|timeout| Box::pin(sleep(timeout)));
        Self { call, answer, deadline, timer: Box::pin(sleep(FIRST_PADDING)), padded: None }
    }

    /// Waits for the result and keeps a client without patience waiting: an array is begun whose first element
    /// trickles in, and whose second is the reply. SmartRedis looks only for an error in it.
    ///
    /// `output` is none while earlier replies wait for the journal: nothing may be sent before them.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        hub: &Hub,
        effects: &mut Effects,
        output: Option<&mut ReplyQueue>,
        version: Version,
    ) -> Poll<Executed> {
        if let Poll::Ready(result) = self.poll_result(context) {
            let executed = hub.finish(&self.call, result.map_err(|failure| failure.reason), effects);
            // What was begun is not behind other replies.
            if let Some((padded, output)) = self.padded.zip(output) {
                output.push_encoded(" ".repeat(PADDING.saturating_sub(padded)).as_bytes());
                output.push_encoded(b"\r\n");
            }
            return Poll::Ready(executed);
        }
        let Some(output) = output else { return Poll::Pending };
        let wanted = self.call.padding && version == Version::Resp2;
        while wanted
            && self.padded.is_none_or(|sent| sent < PADDING)
            && self.timer.as_mut().poll(context).is_ready()
        {
            if self.padded.is_none() {
                output.push_encoded(format!("*2\r\n${PADDING}\r\n").as_bytes());
            }
            output.push_encoded(b" ");
            self.padded = Some(self.padded.unwrap_or(0) + 1);
            let next = tokio::time::Instant::now() + PADDING_INTERVAL;
            self.timer.as_mut().reset(next);
        }
        Poll::Pending
    }

    /// The outputs, or that the client's time is up: what comes later is not stored.
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ModelResult> {
        if let Poll::Ready(answered) = Pin::new(&mut self.answer).poll(context) {
            return Poll::Ready(answered.unwrap_or_else(|_dropped| Err(lost())));
        }
        match &mut self.deadline {
            Some(deadline) => deadline.as_mut().poll(context).map(|()| {
                self.answer.close();
                Err(ModelFailure { reason: "it took longer than its TIMEOUT".to_owned() })
            }),
            None => Poll::Pending,
        }
    }

    /// Waits for the result without a connection to keep alive.
    pub(crate) async fn result(mut self, hub: &Hub, effects: &mut Effects) -> Executed {
        let result = poll_fn(|context| self.poll_result(context)).await;
        hub.finish(&self.call, result.map_err(|failure| failure.reason), effects)
    }
}
