//! The side of a node: claims cores for ranks of launchers, runs the ranks, sends their output.
//!
//! A rank lives as long as the stream to its launcher. When the stream ends the rank is killed; when the rank ends the
//! stream does, too.

use crate::core::supervisor::ProcessExit;
use crate::frames::{MessageReader, write_message};
use crate::output::pass_on_to;
use crate::process::{Signals, run_process};
use bytes::{Bytes, BytesMut};
use phalanx_account::{ClaimGuard, Holder, NodeAccount, Shortage};
use phalanx_fabric::{Fabric, StreamKey, StreamSocket};
use phalanx_types::{ByteSize, Needs, NodeId};
use phalanx_wire::codec;
use phalanx_wire::detail::Detail;
use phalanx_wire::launch::{
    FromRankHost, LAUNCH_SERVICE, RankProgram, RankSignal, Reserve, ReserveReply, ToRankHost,
};
use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The kind of job that says that a node runs programs of others.
pub const PROGRAMS: &str = "exec";

/// How long the stream of a rank may take to arrive. The launcher opens it before it asks.
const STREAM: Duration = Duration::from_secs(5);
/// The longest wait for free cores that a launcher may ask for.
const MAX_PATIENCE: Duration = Duration::from_secs(10);

/// Runs ranks of launchers of the domain, for as long as the fabric lives. `wrapper` is put before every program; it
/// ties the life of a rank to that of this process.
pub fn serve_ranks(fabric: &Fabric, account: &NodeAccount, wrapper: Vec<OsString>) {
    let host = Arc::new(RankHost { fabric: fabric.clone(), account: account.clone(), wrapper });
    fabric.serve(LAUNCH_SERVICE, move |from, body| {
        let host = host.clone();
        async move {
            let ask: Reserve = codec::decode(&body).map_err(|error| error.to_string())?;
            let mut reply = BytesMut::new();
            codec::encode_into(&host.reserve(from, ask).await, &mut reply)
                .map_err(|error| error.to_string())?;
            Ok(Bytes::from(reply))
        }
    });
}

struct RankHost {
    fabric: Fabric,
    account: NodeAccount,
    wrapper: Vec<OsString>,
}

impl RankHost {
    async fn reserve(self: Arc<Self>, launcher: NodeId, ask: Reserve) -> ReserveReply {
        let no_stream =
            |error: &dyn std::fmt::Display| ReserveReply::NoStream { detail: error.to_string().into() };
        // Taken in any case: a stream that is not accepted would be kept for a while.
        let stream = match self.fabric.accept_stream(&launcher, StreamKey(ask.stream), STREAM).await {
            Ok(stream) => stream,
            Err(error) => return no_stream(&error),
        };
        let claim = match self.claim(&launcher, ask).await {
            Ok(claim) => claim,
            Err(shortage) => return ReserveReply::Shortage(shortage),
        };
        self.publish();
        let name = format!("rank of {launcher}");
        let run = move || self.run(&stream, claim);
        match std::thread::Builder::new().name(name).spawn(run) {
            Ok(_thread) => ReserveReply::Reserved,
            Err(error) => no_stream(&error),
        }
    }

    /// Claims cores; if they are not free, waits a moment for them, in which jobs make room.
    async fn claim(&self, launcher: &NodeId, ask: Reserve) -> Result<ClaimGuard, Shortage> {
        // A rank without cores would be one of any number.
        let needs = Needs { cores: ask.cores.max(1), memory: ByteSize(0) };
        let holder = || Holder::Rank { launcher: launcher.clone() };
        let shortage = match self.account.try_claim(holder(), needs) {
            Ok(claim) => return Ok(claim),
            Err(shortage) if shortage.is_permanent() => return Err(shortage),
            Err(shortage) => shortage,
        };
        let patience = Duration::from_millis(ask.patience_ms.into()).min(MAX_PATIENCE);
        let until = Instant::now() + patience;
        let mut freed = self.account.freed_changes();
        let turn = self.account.wait_for(Holder::WaitingRank { launcher: launcher.clone() }, needs);
        loop {
            if let Ok(claim) = turn.try_claim(holder()) {
                return Ok(claim);
            }
            if !matches!(tokio::time::timeout_at(until, freed.changed()).await, Ok(Ok(()))) {
                return Err(shortage);
            }
        }
    }

    /// Tells other nodes who uses this one.
    fn publish(&self) {
        self.fabric.update_status(|status| status.uses = self.account.uses());
    }

    /// Runs one rank from its start to the end of its stream.
    fn run(&self, stream: &StreamSocket, claim: ClaimGuard) {
        let mut orders = MessageReader::new(stream);
        let program = match orders.next() {
            Ok(Some(ToRankHost::Start(program))) => Some(program),
            Ok(Some(ToRankHost::Signal(_)) | None) => None,
            Err(error) => {
                tracing::warn!(%error, "a launcher sent what is no message");
                None
            }
        };
        let signals = Signals::default();
        std::thread::scope(|scope| {
            let listener = scope.spawn(|| obey(&mut orders, &signals));
            let sender = Mutex::new(stream);
            let last = match program {
                Some(program) => self.run_program(program, &signals, &sender),
                None => FromRankHost::Signaled { signal: rustix::process::Signal::TERM.as_raw() },
            };
            drop(claim);
            self.publish();
            send(&sender, &last);
            // Nothing more comes from here. The launcher closes its end when it has read all.
            let _ended = stream.shutdown(Shutdown::Write);
            let _ended = listener.join();
        });
    }

    fn run_program(
        &self,
        program: RankProgram,
        signals: &Signals,
        to: &Mutex<&StreamSocket>,
    ) -> FromRankHost {
        let command = match self.command(program) {
            Ok(command) => command,
            Err(detail) => return FromRankHost::NotStarted { detail },
        };
        let exit = run_process(
            command,
            signals,
            |out| pass_on_to(out, None, &mut |line| send_line(to, &FromRankHost::Out(line.to_vec()))),
            |err| pass_on_to(err, None, &mut |line| send_line(to, &FromRankHost::Err(line.to_vec()))),
        );
        match exit {
            Ok(ProcessExit::Code(code)) => FromRankHost::Exited { code },
            Ok(ProcessExit::Signal(signal)) => FromRankHost::Signaled { signal },
            Ok(ProcessExit::Lost) => FromRankHost::Signaled { signal: 9 },
            Err(error) => FromRankHost::NotStarted { detail: error.to_string().into() },
        }
    }

    fn command(&self, program: RankProgram) -> Result<Command, Detail> {
        let words = program.command.into_iter().map(OsString::from_vec);
        let mut words = self.wrapper.iter().cloned().chain(words);
        let first = words.next().ok_or_else(|| Detail::new("there is no program to start"))?;
        let directory = PathBuf::from(OsString::from_vec(program.directory));
        if !directory.is_dir() {
            return Err(format!("there is no directory {} on the node", directory.display()).into());
        }
        let mut command = Command::new(first);
        let named = |(name, value)| (OsString::from_vec(name), OsString::from_vec(value));
        command.args(words).current_dir(directory).envs(program.variables.into_iter().map(named));
        for (name, value) in program.defaults.into_iter().map(named) {
            if std::env::var_os(&name).is_none() {
                command.env(name, value);
            }
        }
        Ok(command)
    }
}

/// Carries out signals until the launcher closes the stream, and then ends the rank.
fn obey(orders: &mut MessageReader<&StreamSocket>, signals: &Signals) {
    loop {
        match orders.next() {
            Ok(Some(ToRankHost::Signal(signal))) => signals.send(signal),
            Ok(Some(ToRankHost::Start(_))) => {}
            Ok(None) | Err(_) => return signals.send(RankSignal::Kill),
        }
    }
}

fn send_line(to: &Mutex<&StreamSocket>, message: &FromRankHost) -> io::Result<()> {
    // Held for the whole message, so that lines of both outputs do not mix.
    let guard = to.lock().unwrap_or_else(PoisonError::into_inner);
    write_message(*guard, message)
}

fn send(to: &Mutex<&StreamSocket>, message: &FromRankHost) {
    // A launcher that is gone hears nothing more.
    if let Err(error) = send_line(to, message) {
        tracing::debug!(%error, "could not tell a launcher how its rank ended");
    }
}
