//! The stream of one rank, read on a thread of its own.

use super::PlacerCommand;
use crate::core::supervisor::ProcessExit;
use crate::frames::{MessageReader, write_message};
use crate::launch::LaunchError;
use crate::output::Sink;
use crate::place::RankEvent;
use phalanx_fabric::StreamSocket;
use phalanx_types::NodeId;
use phalanx_wire::launch::{FromRankHost, RankProgram, ToRankHost};
use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tokio::sync::mpsc::WeakUnboundedSender;

#[derive(Debug)]
pub(super) struct RankStream {
    pub(super) worker: u32,
    pub(super) node: NodeId,
    pub(super) stream: Arc<StreamSocket>,
    pub(super) prefix: Option<String>,
    pub(super) events: Sender<RankEvent>,
    pub(super) placer: WeakUnboundedSender<PlacerCommand>,
}

impl RankStream {
    /// Has the rank started, and passes on what it prints until it ends.
    pub(super) fn begin(self, program: RankProgram) -> io::Result<()> {
        std::thread::Builder::new().name(format!("rank {}", self.worker)).spawn(move || self.run(program))?;
        Ok(())
    }

    fn run(self, program: RankProgram) {
        let name = program.command.first().cloned().unwrap_or_default();
        let last = write_message(&*self.stream, &ToRankHost::Start(program)).and_then(|()| self.read());
        let (worker, node) = (self.worker, self.node.clone());
        let event = match last {
            Ok(Some(FromRankHost::NotStarted { detail })) => {
                let program = OsString::from_vec(name);
                RankEvent::NotStarted { error: LaunchError::StartOnNode { program, node, detail } }
            }
            Ok(Some(FromRankHost::Exited { code })) => {
                RankEvent::Exited { worker, exit: ProcessExit::Code(code) }
            }
            Ok(Some(FromRankHost::Signaled { signal })) => {
                RankEvent::Exited { worker, exit: ProcessExit::Signal(signal) }
            }
            Ok(Some(FromRankHost::Out(_) | FromRankHost::Err(_)) | None) => {
                RankEvent::NodeLost { worker, node }
            }
            Err(error) => {
                tracing::debug!(worker, %node, %error, "the stream of a rank broke");
                RankEvent::NodeLost { worker, node }
            }
        };
        // The node waits until this end is closed, too.
        let _ended = self.stream.shutdown(Shutdown::Both);
        // First the placer: the launcher may have the rank started again at once.
        if let Some(placer) = self.placer.upgrade() {
            let _heard = placer.send(PlacerCommand::Ended(worker));
        }
        let _heard = self.events.send(event);
    }

    /// Prints lines until the rank has ended; then the last message, if there was one.
    fn read(&self) -> io::Result<Option<FromRankHost>> {
        let mut messages = MessageReader::new(&*self.stream);
        let prefix = self.prefix.as_deref();
        loop {
            match messages.next()? {
                Some(FromRankHost::Out(line)) => Sink::Out.print(prefix, &line),
                Some(FromRankHost::Err(line)) => Sink::Err.print(prefix, &line),
                last => return Ok(last),
            }
        }
    }
}
