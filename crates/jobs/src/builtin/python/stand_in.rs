//! A worker that speaks the protocol without Python, for tests and benchmarks.
//!
//! The bytes of a function are a command for it: `echo` gives back arguments and buffers, `raise` raises an exception
//! with the arguments as its message, `sleep` sleeps that number of milliseconds, `exit` ends the process with this code,
//! `pid` gives the id of the process, `hold` writes it to a file and never ends.

use super::packets::{receive, send};
use super::protocol::{
    CallHead, Control, FIXED_CALL, FromPython, INLINE, MAX_MESSAGE, Place, ToPython, VERSION, aligned,
    decode_to,
};
use super::segments::{OwnResults, map_arguments};
use memmap2::Mmap;
use phalanx_wire::python::FunctionHash;
use phalanx_wire::reason::Raised;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// With these arguments a program is asked to be a worker.
pub const STAND_IN_ARGUMENTS: [&str; 2] = ["-m", "phalanx.worker"];

/// Answers calls on standard input, which must be a socket of a node, until the node is gone.
///
/// # Errors
/// Standard input is no such socket, or what came through it means nothing.
pub fn stand_in_worker() -> io::Result<()> {
    let mut worker = StandIn {
        socket: io::stdin().as_fd().try_clone_to_owned()?,
        functions: BTreeMap::new(),
        arguments: BTreeMap::new(),
        results: Vec::new(),
        free: Vec::new(),
    };
    worker.say(&FromPython::Hello { version: VERSION }, &[], None)?;
    let mut buffer = vec![0; MAX_MESSAGE];
    while let Some((len @ 1.., file)) = receive(worker.socket.as_fd(), &mut buffer, true)? {
        match decode_to(&buffer[..len]).map_err(io::Error::other)? {
            ToPython::Control(control) => worker.control(control),
            ToPython::Call(call) => worker.call(&call, &buffer[..len], file)?,
        }
    }
    Ok(())
}

struct StandIn {
    socket: OwnedFd,
    functions: BTreeMap<FunctionHash, Vec<u8>>,
    arguments: BTreeMap<u32, Mmap>,
    results: Vec<OwnResults>,
    /// Result segments that may be written to.
    free: Vec<u32>,
}

impl StandIn {
    fn control(&mut self, control: Control) {
        match control {
            Control::Forget(hash) => drop(self.functions.remove(&hash)),
            Control::Free(id) => self.free.push(id),
            Control::Close(id) => drop(self.arguments.remove(&id)),
        }
    }

    fn say(&self, message: &FromPython, data: &[&[u8]], file: Option<&OwnedFd>) -> io::Result<()> {
        let mut head = Vec::new();
        message.encode(&mut head);
        let mut parts = vec![IoSlice::new(&head)];
        parts.extend(data.iter().map(|part| IoSlice::new(part)));
        send(self.socket.as_fd(), &parts, file.map(AsFd::as_fd), true).map(|_sent| ())
    }

    fn call(&mut self, call: &CallHead, message: &[u8], file: Option<OwnedFd>) -> io::Result<()> {
        if let (Some(id), Some(file)) = (call.segment, file) {
            self.arguments.insert(id, map_arguments(file)?);
        }
        let segment = call.segment.and_then(|id| self.arguments.remove(&id).map(|map| (id, map)));
        let (data, step) = match &segment {
            Some((_, map)) => (&map[..], super::protocol::ALIGN),
            None => (message.get(FIXED_CALL + 8 * call.buffers.len()..).unwrap_or_default(), 1),
        };
        let mut parts = Vec::new();
        let mut at = 0usize;
        for len in call.lengths() {
            at = at.next_multiple_of(step);
            let part = data.get(at..at + len).ok_or_else(|| io::Error::other("a call is cut short"))?;
            parts.push(part);
            at += len;
        }
        let (function, values) = parts.split_first().ok_or_else(|| io::Error::other("an empty call"))?;
        if call.has_function {
            self.functions.insert(call.hash, function.to_vec());
        }
        match self.functions.get(&call.hash).cloned() {
            None => self.say(&FromPython::Unknown { id: call.id }, &[], None)?,
            Some(function) => self.run(call.id, &function, values)?,
        }
        if let Some((id, map)) = segment {
            self.arguments.insert(id, map);
        }
        Ok(())
    }

    fn run(&mut self, id: u64, function: &[u8], values: &[&[u8]]) -> io::Result<()> {
        let text = String::from_utf8_lossy(values.first().copied().unwrap_or_default()).into_owned();
        let number = || text.parse().unwrap_or(0);
        match function {
            b"echo" => self.answer(id, values),
            b"pid" => self.answer(id, &[std::process::id().to_string().as_bytes()]),
            b"sleep" => {
                std::thread::sleep(Duration::from_millis(number()));
                self.answer(id, &[])
            }
            b"hold" => {
                std::fs::write(&text, std::process::id().to_string())?;
                loop {
                    std::thread::park();
                }
            }
            b"exit" => std::process::exit(i32::try_from(number()).unwrap_or(1)),
            _ => {
                let raised = Raised {
                    exception: "ValueError".to_owned(),
                    traceback: format!("Traceback (most recent call last):\nValueError: {text}\n"),
                    message: text,
                    pickled: bytes::Bytes::from_static(b"pickled"),
                };
                self.say(&FromPython::Raised { id, kept: false, raised: Box::new(raised) }, &[], None)
            }
        }
    }

    fn answer(&mut self, id: u64, values: &[&[u8]]) -> io::Result<()> {
        let lens: Vec<usize> = values.iter().map(|value| value.len()).collect();
        let (result_len, buffers) = lens.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        let answer =
            |place| FromPython::Answer { id, kept: false, result_len, buffers: buffers.to_vec(), place };
        if lens.iter().sum::<usize>() <= INLINE {
            return self.say(&answer(Place::Message { from: 0 }), values, None);
        }
        let need = lens.iter().fold(0usize, |at, len| aligned(at + len));
        let fits =
            |results: &[OwnResults], id: &u32| results.iter().any(|r| r.id == *id && r.map.len() >= need);
        let free = self.free.iter().position(|id| fits(&self.results, id));
        let (segment, new) = match free {
            Some(at) => (self.free.swap_remove(at), false),
            None => {
                let segment = u32::try_from(self.results.len() + 1).unwrap_or(u32::MAX);
                self.results.push(OwnResults::new(segment, need)?);
                (segment, true)
            }
        };
        let Some(own) = self.results.iter_mut().find(|r| r.id == segment) else { return Ok(()) };
        let mut at = 0;
        for value in values {
            own.map[at..at + value.len()].copy_from_slice(value);
            at = aligned(at + value.len());
        }
        let file = new.then(|| own.file.try_clone()).transpose()?;
        self.say(&answer(Place::Segment { id: segment }), &[], file.as_ref())
    }
}
