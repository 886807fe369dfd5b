//! Running models beside the threads that serve clients.

use super::hub::Hub;
use crate::core::{Effects, ModelCall};
use phalanx_resp::{Reply, ReplyQueue, Version};
use phalanx_types::Tensor;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

/// Runs models that are kept in the store.
///
/// It is called on a thread of its own, one call per request, several at a time.
pub trait ModelRunner: Send + Sync {
    /// Computes the outputs of a model, in order.
    ///
    /// # Errors
    /// The model cannot be read, the inputs do not fit, or computing failed.
    fn run(&self, call: &ModelCall) -> Result<Vec<Tensor>, ModelFailure>;
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
const PADDING_INTERVAL: Duration = Duration::from_millis(100);

/// The announced length of the padding: an hour of it. What is not needed goes out at the end.
const PADDING: usize = 36_000;

type ModelResult = Result<Vec<Tensor>, ModelFailure>;

/// A model that is being run for a client.
pub(crate) struct ModelRun {
    call: Arc<ModelCall>,
    task: JoinHandle<ModelResult>,
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
        let (runner, shared) = (hub.runner(), call.clone());
        let task = tokio::task::spawn_blocking(move || match runner {
            Some(runner) => runner.run(&shared),
            None => Err(ModelFailure { reason: "there is no model runner".to_owned() }),
        });
        Self { call, task, timer: Box::pin(sleep(FIRST_PADDING)), padded: None }
    }

    /// Waits for the result and keeps a client without patience waiting: an array is begun whose first element
    /// trickles in, and whose second is the reply. SmartRedis looks only for an error in it.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        hub: &Hub,
        effects: &mut Effects,
        output: &mut ReplyQueue,
        version: Version,
    ) -> Poll<()> {
        if let Poll::Ready(result) = Pin::new(&mut self.task).poll(context) {
            let reply = hub.finish(&self.call, flat(result), effects);
            if let Some(padded) = self.padded {
                output.push_encoded(" ".repeat(PADDING.saturating_sub(padded)).as_bytes());
                output.push_encoded(b"\r\n");
            }
            output.push(reply, version);
            return Poll::Ready(());
        }
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

    /// Waits for the result without a connection to keep alive.
    pub(crate) async fn result(self, hub: &Hub, effects: &mut Effects) -> Reply {
        let result = self.task.await;
        hub.finish(&self.call, flat(result), effects)
    }
}

fn flat(result: Result<ModelResult, tokio::task::JoinError>) -> Result<Vec<Tensor>, String> {
    match result {
        Ok(outputs) => outputs.map_err(|failure| failure.reason),
        Err(_panicked) => Err("the model runner failed".to_owned()),
    }
}
