//! A worker that speaks the protocol without Python, for tests and benchmarks.
//!
//! The bytes of a function are a command for it: `echo` gives back arguments and buffers, `raise` raises an exception
//! with the arguments as its message, `sleep` sleeps that number of milliseconds, `exit` ends the process with this code,
//! `pid` gives the id of the process, `hold` writes it to a file and never ends. `same` is `echo` that names places in
//! the arguments where it can, and `elsewhere` names places that are not in them.

use super::packets::{receive, send};
use super::protocol::{
    BufferHead, CallHead, Control, FromPython, INLINE, MAX_MESSAGE, POOLED, Place, Placed, ToPython, VERSION,
    decode_to,
};
use super::segments::map_arguments;
use bytes::Bytes;
use memmap2::Mmap;
use phalanx_shared::{Token, copy_together, locate};
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
        results: BTreeMap::new(),
        numbers: BTreeMap::new(),
    };
    worker.say(&FromPython::Hello { version: VERSION }, &[], None)?;
    let mut buffer = vec![0; MAX_MESSAGE];
    while let Some((len @ 1.., file)) = receive(worker.socket.as_fd(), &mut buffer, true)? {
        match decode_to(&buffer[..len]).map_err(io::Error::other)? {
            ToPython::Control(control) => worker.control(control, file)?,
            ToPython::Call(call) => worker.call(&call, &buffer[..len], file)?,
        }
    }
    Ok(())
}

struct StandIn {
    socket: OwnedFd,
    functions: BTreeMap<FunctionHash, Vec<u8>>,
    arguments: BTreeMap<u32, Mmap>,
    /// Results that the node still uses, by the number of their segment.
    results: BTreeMap<u32, Bytes>,
    numbers: BTreeMap<Token, u32>,
}

impl StandIn {
    fn control(&mut self, control: Control, file: Option<OwnedFd>) -> io::Result<()> {
        match control {
            Control::Forget(hash) => drop(self.functions.remove(&hash)),
            Control::Free(id) => drop(self.results.remove(&id)),
            Control::Close(id) => drop(self.arguments.remove(&id)),
            Control::Map(id) => {
                let file = file.ok_or_else(|| io::Error::other("a segment came without its file"))?;
                self.arguments.insert(id, map_arguments(file)?);
            }
        }
        Ok(())
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
        let short = || io::Error::other("a call is cut short");
        let is_missing =
            |buffer: &BufferHead| buffer.placed.is_some_and(|p| !self.arguments.contains_key(&p.segment));
        if call.buffers.iter().any(is_missing) {
            return self.say(&FromPython::Unknown { id: call.id }, &[], None);
        }
        let maps = std::mem::take(&mut self.arguments);
        let (data, step) = match call.segment.and_then(|id| maps.get(&id)) {
            Some(map) => (&map[..], super::protocol::ALIGN),
            None => (message.get(call.encoded_len()..).unwrap_or_default(), 1),
        };
        let mut at = 0usize;
        let mut next = |len: usize| {
            at = at.next_multiple_of(step) + len;
            data.get(at - len..at).ok_or_else(short)
        };
        let function = next(call.function_len)?;
        let mut values = vec![next(call.arguments_len)?];
        for buffer in &call.buffers {
            values.push(match buffer.placed {
                None => next(buffer.len)?,
                Some(Placed { segment, offset }) => {
                    let from = usize::try_from(offset).map_err(io::Error::other)?;
                    maps.get(&segment).and_then(|map| map.get(from..from + buffer.len)).ok_or_else(short)?
                }
            });
        }
        if call.has_function {
            self.functions.insert(call.hash, function.to_vec());
        }
        match self.functions.get(&call.hash).cloned() {
            None => self.say(&FromPython::Unknown { id: call.id }, &[], None)?,
            Some(function) => self.run(call, &function, &values)?,
        }
        self.arguments = maps;
        Ok(())
    }

    fn run(&mut self, call: &CallHead, function: &[u8], values: &[&[u8]]) -> io::Result<()> {
        let id = call.id;
        let text = String::from_utf8_lossy(values.first().copied().unwrap_or_default()).into_owned();
        let number = || text.parse().unwrap_or(0);
        match function {
            b"echo" => self.answer(id, values),
            b"same" => self.answer_placed(call, values, 0),
            b"elsewhere" => self.answer_placed(call, values, 64),
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
        let (result_len, buffers) =
            values.split_first().map_or((0, &[][..]), |(first, rest)| (first.len(), rest));
        let buffers: Vec<BufferHead> =
            buffers.iter().map(|buffer| BufferHead { len: buffer.len(), placed: None }).collect();
        let answer =
            |place| FromPython::Answer { id, kept: false, result_len, buffers: buffers.clone(), place };
        if values.iter().map(|value| value.len()).sum::<usize>() <= INLINE {
            return self.say(&answer(Place::Message { from: 0 }), values, None);
        }
        let copies = copy_together(values)?;
        let located = copies.iter().find_map(|copy| locate(copy));
        let segment = located.ok_or_else(|| io::Error::other("results lie in no segment"))?.segment;
        let known = u32::try_from(self.numbers.len() + 1).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(segment.token()).or_insert(known);
        let is_sent = number == known || segment.len() > POOLED;
        let file = is_sent.then(|| segment.fd().try_clone_to_owned()).transpose()?;
        self.results.extend(copies.into_iter().find(|copy| !copy.is_empty()).map(|copy| (number, copy)));
        self.say(&answer(Place::Segment { id: number }), &[], file.as_ref())
    }

    /// Gives back the buffers of a call by naming the places where they lie, moved by some bytes.
    fn answer_placed(&mut self, call: &CallHead, values: &[&[u8]], moved: u64) -> io::Result<()> {
        let move_it = |placed: Placed| Placed { offset: placed.offset + moved, ..placed };
        let buffers = call.buffers.iter().map(|b| BufferHead { placed: b.placed.map(move_it), ..*b });
        let data: Vec<&[u8]> = std::iter::once(&values[0])
            .chain(values[1..].iter().zip(&call.buffers).filter(|(_, b)| b.placed.is_none()).map(|(v, _)| v))
            .copied()
            .collect();
        let (place, result_len) = (Place::Message { from: 0 }, values[0].len());
        let answer =
            FromPython::Answer { id: call.id, kept: false, result_len, buffers: buffers.collect(), place };
        self.say(&answer, &data, None)
    }
}
