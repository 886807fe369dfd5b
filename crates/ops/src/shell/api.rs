//! What programs and bindings call.

use super::buffer::{Operation, RawTensor};
use super::completion::{Completion, OpHandle, Outcome};
use super::connect::{Connected, connect};
use super::execute::Work;
use super::numeric::wire_of;
use super::shared::{Request, Shared};
use crate::core::signature::{OpKind, OpSignature, SetId, TensorSpec};
use crate::core::tuner::TunedSample;
use crate::error::OpsError;
use crate::rendezvous::{Arrivals, Meeting, RendezvousServer};
use phalanx_collective::Reduction;
use phalanx_types::DType;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How operations are carried out.
#[derive(Debug, Clone)]
pub struct OpsOptions {
    /// The most bytes that are fused; the same on all ranks.
    pub bucket_bytes: usize,
    /// How long small operations wait for others to be fused with.
    pub hold: Duration,
    /// After this long an operation that waits is reported.
    pub stall_report: Duration,
    /// After this long it fails.
    pub stall_limit: Option<Duration>,
    /// Whether the bucket size is chosen by measuring the first steps.
    pub autotune: bool,
    /// Where the measurements are written.
    pub tuning_log: Option<PathBuf>,
    /// How long the ranks may take to find each other.
    pub timeout: Duration,
    /// Whether ranks of one host share memory.
    pub share: bool,
    /// How many cores the ranks of this host have together, if not all of this process.
    pub cores: Option<usize>,
    /// Whether processes may come later, as ranks of the next group; the same on all ranks.
    pub elastic: bool,
}

impl Default for OpsOptions {
    fn default() -> Self {
        Self {
            bucket_bytes: 16 << 20,
            hold: Duration::from_micros(100),
            stall_report: Duration::from_secs(60),
            stall_limit: None,
            autotune: false,
            tuning_log: None,
            timeout: Duration::from_secs(120),
            share: true,
            cores: None,
            elastic: false,
        }
    }
}

impl OpsOptions {
    /// The defaults, changed by `PHALANX_BUCKET_BYTES`, `PHALANX_HOLD_US`, `PHALANX_STALL_REPORT_S`,
    /// `PHALANX_STALL_LIMIT_S`, `PHALANX_AUTOTUNE`, `PHALANX_AUTOTUNE_LOG`, `PHALANX_LOCAL_CORES` and
    /// `PHALANX_ELASTIC`. What is no number is ignored with a warning.
    pub fn from_env() -> Self {
        let mut options = Self::default();
        let number = |name: &str| {
            let value = std::env::var(name).ok()?;
            let parsed = value.parse::<u64>();
            if parsed.is_err() {
                tracing::warn!(name, value, "a variable should be a whole number and is ignored");
            }
            parsed.ok()
        };
        if let Some(bytes) = number("PHALANX_BUCKET_BYTES").and_then(|bytes| usize::try_from(bytes).ok()) {
            options.bucket_bytes = bytes;
        }
        if let Some(micros) = number("PHALANX_HOLD_US") {
            options.hold = Duration::from_micros(micros);
        }
        if let Some(secs) = number("PHALANX_STALL_REPORT_S") {
            options.stall_report = Duration::from_secs(secs.max(1));
        }
        options.stall_limit =
            number("PHALANX_STALL_LIMIT_S").filter(|secs| *secs > 0).map(Duration::from_secs);
        options.autotune = number("PHALANX_AUTOTUNE").is_some_and(|on| on > 0);
        options.tuning_log = std::env::var_os("PHALANX_AUTOTUNE_LOG").map(PathBuf::from);
        options.cores = number("PHALANX_LOCAL_CORES").and_then(|cores| usize::try_from(cores).ok());
        options.elastic = number("PHALANX_ELASTIC").is_some_and(|on| on > 0);
        options
    }
}

/// An operation that waited for ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The name of the operation.
    pub name: String,
    /// The ranks that had not issued it.
    pub missing: Vec<u32>,
    /// How long it had waited.
    pub waited: Duration,
}

/// One rank of a program, and the operations that it computes together with the others.
///
/// Dropping it leaves the group in order.
#[derive(Debug)]
pub struct Ops {
    shared: Arc<Shared>,
    meeting: Meeting,
    options: OpsOptions,
    threads: Vec<JoinHandle<()>>,
    /// Of rank 0, where no launcher has one.
    server: Option<RendezvousServer>,
    /// Of rank 0: who waits to become a rank.
    arrivals: Option<Arrivals>,
}

impl Ops {
    /// Meets the other ranks.
    ///
    /// # Errors
    /// They do not come, or cannot be reached.
    pub fn init(meeting: Meeting, options: OpsOptions) -> Result<Self, OpsError> {
        Self::init_after(meeting, options, 0)
    }

    /// Meets the other ranks as the environment says.
    ///
    /// # Errors
    /// As [`Ops::init`], or the environment makes no sense.
    pub fn init_from_env() -> Result<Self, OpsError> {
        Self::init(Meeting::from_env()?, OpsOptions::from_env())
    }

    /// Meets the others until all of them are there at once: a rank may be lost while the group is formed.
    fn init_after(meeting: Meeting, options: OpsOptions, last_epoch: u64) -> Result<Self, OpsError> {
        let began = Instant::now();
        loop {
            let ops = Self::connect(meeting.clone(), options.clone(), last_epoch)?;
            // A rank that left before the others have mapped its memory would be out of reach.
            match ops.barrier("phalanx.init", SetId::WORLD) {
                Ok(()) => return Ok(ops),
                Err(OpsError::PeerLost { rank }) if began.elapsed() < ops.options.timeout => {
                    tracing::debug!(rank, "a rank was lost while the group was formed");
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn connect(meeting: Meeting, options: OpsOptions, last_epoch: u64) -> Result<Self, OpsError> {
        let Connected { place, engine, aborters, server, arrivals } =
            connect(&meeting, &options, last_epoch)?;
        let clone = |(rank, channel): (&u32, &super::channel::Channel)| {
            channel.try_clone_stream().map(|stream| (*rank, stream))
        };
        let streams = || engine.channels().iter().map(clone).collect::<Result<Vec<(u32, TcpStream)>, _>>();
        let refused = |error| OpsError::system("start the threads of operations", error);
        let (background, watch) = (streams().map_err(refused)?, streams().map_err(refused)?);
        let shared = Arc::new(Shared::new(place, engine, aborters, &options)?);
        let mut ops =
            Self { shared: Arc::clone(&shared), meeting, options, threads: Vec::new(), server, arrivals };
        let here = Arc::clone(&shared);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(refused)
        };
        ops.threads.push(spawn("phalanx ops", Box::new(move || here.run_background(&background)))?);
        ops.threads.push(spawn("phalanx watch", Box::new(move || shared.run_watch(watch)))?);
        Ok(ops)
    }

    /// Whether processes wait to become ranks, as far as this rank knows; only rank 0 is told. `None` if none can come:
    /// then no rank needs to ask.
    pub fn newcomers(&self) -> Option<bool> {
        self.options.elastic.then(|| self.arrivals.as_ref().is_some_and(Arrivals::are_here))
    }

    /// Whether processes wait to become ranks: the same answer on all ranks, which must all ask. [`Ops::reset`] lets
    /// them in.
    ///
    /// # Errors
    /// As [`Ops::run`].
    pub fn newcomers_wait(&self) -> Result<bool, OpsError> {
        let Some(here) = self.newcomers() else { return Ok(false) };
        let kind = OpKind::AllReduce { reduction: Reduction::Max };
        let signature = OpSignature::new(kind, TensorSpec::new(DType::U8, [1]));
        let mut flag = [u8::from(here)];
        self.run_on("phalanx.newcomers", signature, &mut flag)?;
        Ok(flag != [0])
    }

    /// Leaves what is left of the group and meets again the ranks that are alive, under a new epoch.
    ///
    /// # Errors
    /// As [`Ops::init`].
    pub fn reset(self) -> Result<Self, OpsError> {
        let (meeting, options, epoch) = (self.meeting.clone(), self.options.clone(), self.epoch());
        drop(self);
        Self::init_after(meeting, options, epoch)
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.shared.place.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.shared.place.size
    }

    /// The number of this rank among those of its host.
    pub fn local_rank(&self) -> u32 {
        self.shared.place.local_rank
    }

    /// How many ranks this host has.
    pub fn local_size(&self) -> u32 {
        self.shared.place.local_size
    }

    /// The number of this host.
    pub fn cross_rank(&self) -> u32 {
        self.shared.place.cross_rank
    }

    /// How many hosts there are.
    pub fn cross_size(&self) -> u32 {
        self.shared.place.cross_size
    }

    /// Which group of ranks this is; every reset makes a later one.
    pub fn epoch(&self) -> u64 {
        self.shared.place.epoch
    }

    /// The ranks of a set, if this rank is in it.
    pub fn set_members(&self, set: SetId) -> Option<Vec<u32>> {
        self.shared.engine().set_members(set)
    }

    /// Issues an operation. It happens when all ranks of its set have issued one of the same name.
    ///
    /// # Errors
    /// The operation makes no sense, or nothing more happens after a loss or a shutdown. Errors that ranks find
    /// together come from the handle.
    pub fn submit(&self, operation: Operation) -> Result<OpHandle, OpsError> {
        self.issue(operation, false)
    }

    /// Issues an operation and waits for its end.
    ///
    /// # Errors
    /// As [`Ops::submit`] and [`OpHandle::wait`].
    pub fn run(&self, operation: Operation) -> Result<Outcome, OpsError> {
        self.issue(operation, true)?.wait(None)
    }

    fn issue(&self, operation: Operation, waits: bool) -> Result<OpHandle, OpsError> {
        self.check_open()?;
        self.check(&operation)?;
        let Operation { name, signature, tensors, splits } = operation;
        let completion = Arc::new(Completion::default());
        let work = Work {
            name,
            signature,
            tensors: Some(tensors),
            splits,
            completion: Some(Arc::clone(&completion)),
            issued: Instant::now(),
        };
        self.shared.request(Request::Operate(work), waits);
        Ok(OpHandle { completion, shared: Arc::clone(&self.shared) })
    }

    /// Says that this rank has no more data. Until all ranks have said so it takes part in their sums and averages
    /// with zeros. The outcome names the rank that joined last.
    ///
    /// # Errors
    /// As [`Ops::submit`].
    pub fn join(&self) -> Result<OpHandle, OpsError> {
        self.check_open()?;
        let completion = Arc::new(Completion::default());
        self.shared.request(Request::Join(Arc::clone(&completion)), false);
        Ok(OpHandle { completion, shared: Arc::clone(&self.shared) })
    }

    /// Returns when all ranks of a set have called it.
    ///
    /// # Errors
    /// As [`Ops::run`].
    pub fn barrier(&self, name: &str, set: SetId) -> Result<(), OpsError> {
        let signature = OpSignature::of(OpKind::Barrier, Vec::new()).on(set);
        self.run(Operation::new(name, signature, Vec::new())).map(|_| ())
    }

    /// Makes a set of some ranks. All ranks call it with the same ones.
    ///
    /// # Errors
    /// As [`Ops::run`], or the ranks are none.
    pub fn add_set(&self, ranks: &[u32]) -> Result<SetId, OpsError> {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        let name = format!("add-set {ranks:?}");
        let signature = OpSignature::of(OpKind::AddSet { ranks }, Vec::new());
        let outcome = self.run(Operation::new(name, signature, Vec::new()))?;
        outcome.set.ok_or(OpsError::Protocol { rank: 0 })
    }

    /// Removes a set. All ranks call it.
    ///
    /// # Errors
    /// As [`Ops::run`], or there is no such set.
    pub fn remove_set(&self, set: SetId) -> Result<(), OpsError> {
        let signature = OpSignature::of(OpKind::RemoveSet { set }, Vec::new());
        self.run(Operation::new(format!("remove-set {set}"), signature, Vec::new())).map(|_| ())
    }

    /// Begins to record when operations wait and compute, as a Chrome trace.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn start_timeline(&self, path: &Path) -> Result<(), OpsError> {
        let started = self.shared.timeline.start(path, self.rank());
        started.map_err(|error| OpsError::system("write the timeline", error))
    }

    /// Ends the recording and writes it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stop_timeline(&self) -> Result<(), OpsError> {
        self.shared.timeline.stop().map_err(|error| OpsError::system("write the timeline", error))
    }

    /// The stalls that were reported since the last call.
    pub fn take_stalls(&self) -> Vec<Stall> {
        self.shared.take_stalls()
    }

    /// What was measured of bucket sizes; only rank 0 knows.
    pub fn tuned(&self) -> Vec<TunedSample> {
        self.shared.engine().tuned()
    }

    /// Whether no operation is under way.
    pub fn is_idle(&self) -> bool {
        self.shared.engine().is_idle()
    }

    /// Closes all connections without a word, as the death of the process would.
    #[doc(hidden)]
    pub fn sever_for_tests(&self) {
        let mut engine = self.shared.engine();
        self.shared.stop();
        engine.sever(&self.shared);
    }

    /// Keeps the engine from hearing other ranks while `work` runs, as a long collective would.
    #[doc(hidden)]
    pub fn busy_for_tests(&self, work: impl FnOnce(&dyn Fn() -> bool)) {
        let _engine = self.shared.engine();
        work(&|| self.shared.hung_up.load(std::sync::atomic::Ordering::Acquire));
    }

    fn check_open(&self) -> Result<(), OpsError> {
        if std::process::id() != self.shared.pid {
            return Err(OpsError::Forked { rank: self.rank() });
        }
        self.shared.over().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether an operation makes sense on this rank alone.
    fn check(&self, operation: &Operation) -> Result<(), OpsError> {
        let Operation { name, signature, tensors, splits } = operation;
        let length = |what, wanted: usize, got: usize| match wanted == got {
            true => Ok(()),
            false => Err(OpsError::Length { name: name.clone(), what, wanted, got }),
        };
        length("buffers", signature.tensors.len(), tensors.len())?;
        let in_memory = matches!(signature.kind, OpKind::AllReduce { .. } | OpKind::Broadcast { .. });
        for (spec, tensor) in signature.tensors.iter().zip(tensors) {
            length("bytes", spec.bytes().unwrap_or(usize::MAX), tensor.bytes())?;
            if in_memory && !tensor.has_output() {
                length("bytes of output", tensor.bytes(), 0)?;
            }
            if let Some(reduction) = signature.kind.reduction()
                && wire_of(spec.dtype, signature.wire, reduction).is_none()
            {
                let (name, dtype) = (name.clone(), spec.dtype);
                return Err(OpsError::Unsupported { name, reduction, dtype });
            }
        }
        if let OpKind::Broadcast { root } = signature.kind
            && root >= self.size()
        {
            return Err(OpsError::NoRank { rank: root, size: self.size() });
        }
        if signature.kind == OpKind::AllToAll {
            self.check_splits(operation, splits.as_deref())?;
        }
        Ok(())
    }

    fn check_splits(&self, operation: &Operation, splits: Option<&[u64]>) -> Result<(), OpsError> {
        let Operation { name, signature, .. } = operation;
        let set = signature.set;
        let members = self.set_members(set).ok_or(OpsError::NotInSet { set: set.0 })?.len();
        for rows in signature.tensors.iter().map(|spec| spec.rows() as usize) {
            let (what, wanted, got) = match splits {
                Some(splits) if splits.len() != members => ("splits", members, splits.len()),
                Some(splits) => ("rows in all splits", rows, splits.iter().sum::<u64>() as usize),
                None => ("rows, a multiple of the ranks,", rows.next_multiple_of(members), rows),
            };
            if wanted != got {
                return Err(OpsError::Length { name: name.clone(), what, wanted, got });
            }
        }
        Ok(())
    }
}

impl Drop for Ops {
    fn drop(&mut self) {
        if std::process::id() == self.shared.pid {
            self.shared.engine().leave(&self.shared);
            self.shared.stop();
            for thread in self.threads.drain(..) {
                // Its panic was reported on its own thread.
                let _ended = thread.join();
            }
            if let Err(error) = self.shared.timeline.stop() {
                tracing::warn!(%error, "could not write the timeline");
            }
        } else {
            // The threads and connections are those of the parent.
            self.threads.drain(..).for_each(std::mem::forget);
            std::mem::forget(self.server.take());
        }
    }
}

/// Memory of a slice for as long as the operation is waited for by [`Ops::run`].
#[expect(unsafe_code, reason = "the slice outlives the call, which waits for the operation")]
fn lend(bytes: &mut [u8]) -> RawTensor {
    // SAFETY: callers wait for the end of the operation while they hold the slice, and the engine does not touch the
    // memory after that.
    unsafe { RawTensor::in_place(bytes.as_mut_ptr(), bytes.len()) }
}

impl Ops {
    /// Runs an operation on one slice of bytes, in place, and waits for its end.
    ///
    /// # Errors
    /// As [`Ops::run`].
    pub fn run_on(&self, name: &str, signature: OpSignature, bytes: &mut [u8]) -> Result<Outcome, OpsError> {
        self.run(Operation::new(name, signature, vec![lend(bytes)]))
    }
}
