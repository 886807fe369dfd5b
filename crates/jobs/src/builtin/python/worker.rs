//! One worker process, as the node sees it.

use super::lent::LentSegments;
use super::packets::{receive, send};
use super::protocol::{
    Broken, BufferHead, CallHead, Control, FromPython, INLINE, MAX_MESSAGE, POOLED, Place, ToPython, VERSION,
    aligned, decode_from, decode_to,
};
use super::segments::{ArgumentSegment, Freed, FreedSegments, ResultSegment};
use bytes::Bytes;
use phalanx_wire::python::{FunctionHash, PythonCall, PythonResult};
use phalanx_wire::reason::Raised;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a worker may take to start and import what it needs.
const START: Duration = Duration::from_secs(60);
/// How long to look for an answer without going to sleep, from a worker that answers quickly.
const SPIN: Duration = Duration::from_micros(50);
/// Functions that a worker keeps.
const FUNCTIONS: usize = 256;
/// Calls in segments that are on their way to a worker at once.
const IN_SEGMENTS: usize = 2;
/// Segments kept for a worker.
const SEGMENTS: usize = 4;
/// Parts of a call that go into one system call as they are.
const PARTS: usize = 64;

/// Which call a worker is at, for those who may kill it.
#[derive(Debug)]
pub(super) struct Running {
    /// The oldest call that has not been answered.
    pub(super) call: Option<u64>,
    group: Option<Pid>,
}

impl Running {
    pub(super) fn kill(&self) {
        if let Some(group) = self.group {
            // Gone already is as good as killed.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}

/// What became of sending a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Yes {
        segment: Option<u32>,
    },
    /// There is no room for it now.
    Full,
}

/// What a worker said, or why it said nothing.
#[derive(Debug)]
pub(super) enum Heard {
    Answer { id: u64, kept: bool, result: Answer },
    Raised { id: u64, kept: bool, raised: Box<Raised> },
    Unknown { id: u64 },
    Nothing,
    Ended,
}

/// The result of a call, of which parts may lie in its arguments.
#[derive(Debug)]
pub(super) struct Answer {
    buffers: Vec<BufferHead>,
    /// What does not lie in the arguments: the result, then the buffers.
    parts: Vec<Bytes>,
}

/// One worker process.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    pidfd: OwnedFd,
    socket: OwnedFd,
    /// The worker's end, from which calls that it has not taken can be taken back.
    far: OwnedFd,
    pub(super) running: Arc<Mutex<Running>>,
    known: BTreeSet<FunctionHash>,
    known_order: VecDeque<FunctionHash>,
    arguments: Vec<ArgumentSegment>,
    lent: LentSegments,
    results: BTreeMap<u32, ResultSegment>,
    freed: Freed,
    pending: VecDeque<Control>,
    next_segment: u32,
    next_call: u64,
    /// How many calls may be on their way to it at once.
    pub(super) ahead: usize,
    head: Vec<u8>,
    buffer: Vec<u8>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    /// Starts a worker and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, ends at once, or speaks another protocol.
    pub(super) fn start(words: &[String]) -> io::Result<Self> {
        let (socket, far) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (program, arguments) =
            words.split_first().ok_or_else(|| io::Error::other("there is no program for a worker"))?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::from(far.try_clone()?)).stdout(Stdio::from(io::stderr()));
        let child = command.process_group(0).spawn()?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = group.ok_or_else(|| io::Error::other("the worker has no process id"))?;
        let mut worker = Self {
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            child,
            freed: Arc::new(FreedSegments { list: Mutex::default(), socket: socket.try_clone()? }),
            socket,
            far,
            running: Arc::new(Mutex::new(Running { call: None, group })),
            known: BTreeSet::new(),
            known_order: VecDeque::new(),
            arguments: Vec::new(),
            lent: LentSegments::default(),
            results: BTreeMap::new(),
            pending: VecDeque::new(),
            next_segment: 1,
            next_call: 1,
            ahead: 1,
            head: Vec::new(),
            buffer: vec![0; MAX_MESSAGE],
        };
        match worker.packet(Some(START))? {
            Packet::Some { len, .. } => match decode_from(&worker.buffer[..len]) {
                Ok(FromPython::Hello { version: VERSION }) => Ok(worker),
                Ok(FromPython::Hello { version }) => Err(io::Error::other(format!(
                    "the worker speaks version {version} of the protocol, this node {VERSION}"
                ))),
                Ok(_) => Err(io::Error::other(Broken("no greeting"))),
                Err(broken) => Err(io::Error::other(broken)),
            },
            Packet::None => Err(io::Error::other("the worker does not get ready")),
            Packet::Ended => {
                let status = worker.end()?;
                Err(io::Error::other(format!("the worker ended before it was ready ({status})")))
            }
        }
    }

    /// The number that the next call gets.
    pub(super) fn next_call(&mut self) -> u64 {
        self.next_call += 1;
        self.next_call - 1
    }

    /// Sends a call, and whatever else there is to say before it.
    ///
    /// # Errors
    /// The socket is broken, or there is no memory to share.
    pub(super) fn send(&mut self, id: u64, call: &PythonCall) -> io::Result<Sent> {
        self.lent.sweep(&mut self.pending);
        let buffers = self.lent.place(call, &mut self.next_segment, &mut self.pending);
        if !self.send_controls()? {
            return Ok(Sent::Full);
        }
        let has_function = !self.known.contains(&call.hash);
        let function: &[u8] = if has_function { &call.function } else { &[] };
        let mut head = CallHead {
            id,
            hash: call.hash,
            function_len: function.len(),
            has_function,
            arguments_len: call.arguments.len(),
            buffers,
            segment: None,
            inputs: call.inputs,
        };
        let among_the_data: Vec<&[u8]> = call
            .buffers
            .iter()
            .zip(&head.buffers)
            .filter(|(_, head)| head.placed.is_none())
            .map(|(buffer, _)| &buffer[..])
            .collect();
        let parts = || [function, &call.arguments].into_iter().chain(among_the_data.iter().copied());
        let data = head.lengths().fold(0usize, usize::saturating_add);
        let inline = data <= INLINE && head.encoded_len() + data <= MAX_MESSAGE;
        let at = if inline { None } else { Some(self.segment(&head)?) };
        let at = match at {
            None => None,
            Some(None) => return Ok(Sent::Full),
            Some(Some(at)) => {
                self.arguments[at].write(parts());
                head.segment = Some(self.arguments[at].id);
                Some(at)
            }
        };
        self.head.clear();
        head.encode(&mut self.head);
        let many = among_the_data.len() > PARTS;
        if inline && many {
            parts().for_each(|part| self.head.extend_from_slice(part));
        }
        let mut slices = vec![IoSlice::new(&self.head)];
        if inline && !many {
            slices.extend(parts().map(IoSlice::new));
        }
        let file = at.and_then(|at| (!self.arguments[at].known).then(|| self.arguments[at].fd()));
        if !send(self.socket.as_fd(), &slices, file, false)? {
            return Ok(Sent::Full);
        }
        if let Some(at) = at {
            (self.arguments[at].known, self.arguments[at].busy) = (true, true);
        }
        if has_function {
            self.learned(call.hash);
        }
        self.lent.sent(id, &head.buffers);
        Ok(Sent::Yes { segment: head.segment })
    }

    /// Has an idle worker give back memory that is not used any more.
    ///
    /// # Errors
    /// The socket is broken.
    pub(super) fn tidy(&mut self) -> io::Result<()> {
        self.lent.sweep(&mut self.pending);
        // What it cannot take now it is told before its next call.
        self.send_controls().map(|_all| ())
    }

    fn learned(&mut self, hash: FunctionHash) {
        if self.known.insert(hash) {
            self.known_order.push_back(hash);
        }
        if self.known.len() > FUNCTIONS
            && let Some(oldest) = self.known_order.pop_front()
            && self.known.remove(&oldest)
        {
            self.pending.push_back(Control::Forget(oldest));
        }
    }

    /// The worker does not know a function: it is sent again with the next call of it.
    pub(super) fn unknown(&mut self, hash: &FunctionHash) {
        self.known.remove(hash);
        self.known_order.retain(|known| known != hash);
    }

    fn send_controls(&mut self) -> io::Result<bool> {
        let freed = std::mem::take(&mut *lock(&self.freed.list));
        self.pending.extend(freed.into_iter().map(Control::Free));
        while let Some(control) = self.pending.front() {
            let file = match control {
                Control::Map(number) => self.lent.get(*number),
                Control::Forget(_) | Control::Free(_) | Control::Close(_) => None,
            };
            let file = file.as_ref().map(|segment| segment.fd());
            if !send(self.socket.as_fd(), &[IoSlice::new(&control.encode())], file, false)? {
                return Ok(false);
            }
            self.pending.pop_front();
        }
        Ok(true)
    }

    /// The place of a segment with room for a call; `None` when too many are in use.
    fn segment(&mut self, head: &CallHead) -> io::Result<Option<usize>> {
        let need = head.lengths().fold(0usize, |at, len| aligned(at.saturating_add(len)));
        if self.arguments.iter().filter(|segment| segment.busy).count() >= IN_SEGMENTS {
            return Ok(None);
        }
        let fits = |segment: &ArgumentSegment| !segment.busy && segment.len() >= need;
        if let Some(at) = self.arguments.iter().position(fits) {
            return Ok(Some(at));
        }
        if self.arguments.len() >= SEGMENTS
            && let Some(at) = self.arguments.iter().position(|segment| !segment.busy)
        {
            let old = self.arguments.swap_remove(at);
            self.pending.push_back(Control::Close(old.id));
        }
        let id = self.next_segment;
        self.next_segment += 1;
        self.arguments.push(ArgumentSegment::new(id, need)?);
        Ok(Some(self.arguments.len() - 1))
    }

    /// A call was answered. Its segment is given up if the worker keeps something of the arguments.
    pub(super) fn answered(&mut self, id: u64, segment: Option<u32>, kept: Option<&PythonCall>) {
        if let Some(call) = kept {
            self.lent.keep(call);
        }
        self.lent.ended(id);
        self.free_arguments(segment, kept.is_some());
    }

    fn free_arguments(&mut self, segment: Option<u32>, is_kept: bool) {
        let Some(at) = segment.and_then(|id| self.arguments.iter().position(|s| s.id == id)) else { return };
        if is_kept {
            // The worker closes it when it has let go of what it kept.
            let old = self.arguments.swap_remove(at);
            self.pending.push_back(Control::Close(old.id));
        } else {
            self.arguments[at].busy = false;
        }
    }

    /// What the worker says next, within this time.
    ///
    /// # Errors
    /// The socket or the protocol is broken.
    pub(super) fn hear(&mut self, within: Option<Duration>) -> io::Result<Heard> {
        loop {
            let (len, file) = match self.packet(within)? {
                Packet::Some { len, file } => (len, file),
                Packet::None => return Ok(Heard::Nothing),
                Packet::Ended => return Ok(Heard::Ended),
            };
            match decode_from(&self.buffer[..len]).map_err(io::Error::other)? {
                FromPython::Answer { id, kept, result_len, buffers, place } => {
                    let result = self.result(len, result_len, buffers, (place, file))?;
                    return Ok(Heard::Answer { id, kept, result });
                }
                FromPython::Raised { id, kept, raised } => return Ok(Heard::Raised { id, kept, raised }),
                FromPython::Unknown { id } => return Ok(Heard::Unknown { id }),
                FromPython::Released { segment } => {
                    self.lent.released(segment);
                    self.free_arguments(Some(segment), false);
                }
                FromPython::Hello { .. } => return Err(io::Error::other(Broken("a second greeting"))),
            }
        }
    }

    fn result(
        &mut self,
        len: usize,
        result_len: usize,
        buffers: Vec<BufferHead>,
        (place, file): (Place, Option<OwnedFd>),
    ) -> io::Result<Answer> {
        let short = || io::Error::other(Broken("an answer is longer than its data"));
        let among_the_data = || buffers.iter().filter(|buffer| buffer.placed.is_none());
        let lengths = || std::iter::once(result_len).chain(among_the_data().map(|buffer| buffer.len));
        let (mut data, step) = match place {
            Place::Message { from } => {
                (Bytes::copy_from_slice(self.buffer.get(from..len).ok_or_else(short)?), 1)
            }
            Place::Segment { id } => {
                let mapped = file.map(|file| ResultSegment::map(id, file)).transpose()?;
                if let Some(segment) = mapped.as_ref().filter(|segment| segment.len() <= POOLED) {
                    self.results.insert(id, segment.clone());
                }
                let segment = mapped.as_ref().or_else(|| self.results.get(&id));
                let segment = segment.ok_or_else(|| io::Error::other(Broken("an unknown segment")))?;
                let need =
                    lengths().try_fold(0usize, |at, len| at.checked_next_multiple_of(64)?.checked_add(len));
                let data = need.and_then(|need| segment.bytes(need, &self.freed));
                (data.ok_or_else(short)?, super::protocol::ALIGN)
            }
        };
        let mut parts = Vec::with_capacity(1 + buffers.len());
        let mut past = 0usize;
        for len in lengths() {
            let skip = past.next_multiple_of(step) - past;
            if data.len() < skip.checked_add(len).ok_or_else(short)? {
                return Err(short());
            }
            drop(data.split_to(skip));
            parts.push(data.split_to(len));
            past += skip + len;
        }
        Ok(Answer { buffers, parts })
    }

    /// The whole result of a call, with what lies in its arguments.
    ///
    /// # Errors
    /// The call has no such argument.
    pub(super) fn complete(&self, answer: Answer, call: &PythonCall) -> io::Result<PythonResult> {
        let broken = || io::Error::other(Broken("an answer names arguments that the call does not have"));
        let mut parts = answer.parts.into_iter();
        let value = parts.next().unwrap_or_default();
        let buffers = answer.buffers.iter().map(|buffer| match buffer.placed {
            Some(placed) => self.lent.same(call, placed, buffer.len).ok_or_else(broken),
            None => parts.next().ok_or_else(broken),
        });
        Ok(PythonResult { value, buffers: buffers.collect::<io::Result<_>>()? })
    }

    /// Takes back the calls that the worker has not taken; gives their numbers.
    pub(super) fn take_back(&mut self) -> BTreeSet<u64> {
        let mut calls = BTreeSet::new();
        while let Ok(Some((len, file))) = receive(self.far.as_fd(), &mut self.buffer, false) {
            match decode_to(self.buffer.get(..len).unwrap_or_default()) {
                Ok(ToPython::Call(call)) => {
                    if call.has_function {
                        self.unknown(&call.hash);
                    }
                    let segment = call.segment.and_then(|id| self.arguments.iter_mut().find(|s| s.id == id));
                    if let Some(segment) = segment {
                        segment.busy = false;
                        segment.known &= file.is_none();
                    }
                    self.lent.ended(call.id);
                    calls.insert(call.id);
                }
                Ok(ToPython::Control(control)) => self.pending.push_back(control),
                Err(_own) => {}
            }
        }
        calls
    }

    /// Kills the worker, if it still runs, and says how it ended.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        let mut running = lock(&self.running);
        running.kill();
        running.group = None;
        self.child.wait()
    }

    fn packet(&mut self, within: Option<Duration>) -> io::Result<Packet> {
        let spin_until = (self.ahead > 1).then(|| Instant::now() + SPIN);
        loop {
            if let Some((len, file)) = receive(self.socket.as_fd(), &mut self.buffer, false)? {
                return Ok(Packet::Some { len, file });
            }
            if spin_until.is_none_or(|until| Instant::now() >= until) {
                break;
            }
            std::thread::yield_now();
        }
        let timeout = within.and_then(|within| Timespec::try_from(within).ok());
        let ended = {
            let mut watched =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut watched, timeout.as_ref()) {
                Ok(0) => return Ok(Packet::None),
                Ok(_) => !watched[1].revents().is_empty(),
                Err(rustix::io::Errno::INTR) => return Ok(Packet::None),
                Err(error) => return Err(error.into()),
            }
        };
        // What it said before it ended counts.
        match receive(self.socket.as_fd(), &mut self.buffer, false)? {
            Some((len, file)) => Ok(Packet::Some { len, file }),
            None if ended => Ok(Packet::Ended),
            None => Ok(Packet::None),
        }
    }
}

/// A message in the buffer.
enum Packet {
    Some { len: usize, file: Option<OwnedFd> },
    None,
    Ended,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // How it ended does not matter to anybody.
        let _status = self.end();
    }
}
