//! Segments of other processes that the node has a worker map, so that arguments are read where their owner wrote them.

use super::protocol::{BufferHead, Control, Placed};
use bytes::Bytes;
use phalanx_shared::{Segment, Token, WORTH_SHARING, locate};
use phalanx_wire::python::PythonCall;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Segments that a worker keeps mapped.
const MAPPED: usize = 32;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct LentSegments {
    /// In the order of their last use.
    mapped: Vec<Mapped>,
    /// The segments of calls that are not answered, by the number of the call.
    flights: BTreeMap<u64, Vec<u32>>,
    /// Arguments that the worker still refers to after the call that brought them.
    kept: BTreeMap<u32, Vec<Bytes>>,
}

/// A segment that the worker has mapped.
#[derive(Debug)]
struct Mapped {
    number: u32,
    token: Token,
    /// The node maps it only for as long as it is used.
    segment: Weak<Segment>,
}

impl LentSegments {
    /// Has the worker unmap what is not used in this node any more.
    pub(super) fn sweep(&mut self, controls: &mut impl Extend<Control>) {
        let (flights, kept) = (&self.flights, &self.kept);
        self.mapped.retain(|mapped| {
            let number = &mapped.number;
            let is_used = mapped.segment.strong_count() > 0
                || kept.contains_key(number)
                || flights.values().flatten().any(|other| other == number);
            if !is_used {
                controls.extend([Control::Close(*number)]);
            }
            is_used
        });
    }

    /// Where the buffers of a call lie; those that lie nowhere in particular go among the data. What the worker has to
    /// be told before the call is added to `controls`, and `next` is the number of the next segment.
    pub(super) fn place(
        &mut self,
        call: &PythonCall,
        next: &mut u32,
        controls: &mut impl Extend<Control>,
    ) -> Vec<BufferHead> {
        let place = |buffer: &Bytes| {
            let located = locate(buffer).filter(|_| buffer.len() >= WORTH_SHARING);
            let placed = located.map(|located| {
                let segment = self.number(&located.segment, next, controls);
                Placed { segment, offset: located.offset as u64 }
            });
            BufferHead { len: buffer.len(), placed }
        };
        let heads: Vec<BufferHead> = call.buffers.iter().map(place).collect();
        let used = |number: &u32| {
            let here = heads.iter().any(|head| head.placed.is_some_and(|placed| placed.segment == *number));
            here || self.kept.contains_key(number)
                || self.flights.values().flatten().any(|other| other == number)
        };
        while self.mapped.len() > MAPPED
            && let Some(at) = self.mapped.iter().position(|mapped| !used(&mapped.number))
        {
            controls.extend([Control::Close(self.mapped.remove(at).number)]);
        }
        heads
    }

    fn number(&mut self, segment: &Arc<Segment>, next: &mut u32, controls: &mut impl Extend<Control>) -> u32 {
        let token = segment.token();
        if let Some(at) = self.mapped.iter().position(|mapped| mapped.token == token) {
            let number = self.mapped.remove(at).number;
            self.mapped.push(Mapped { number, token, segment: Arc::downgrade(segment) });
            return number;
        }
        let number = *next;
        *next += 1;
        self.mapped.push(Mapped { number, token, segment: Arc::downgrade(segment) });
        controls.extend([Control::Map(number)]);
        number
    }

    /// A call is on its way to the worker.
    pub(super) fn sent(&mut self, call: u64, heads: &[BufferHead]) {
        let segments: Vec<u32> =
            heads.iter().filter_map(|head| head.placed).map(|placed| placed.segment).collect();
        if !segments.is_empty() {
            self.flights.insert(call, segments);
        }
    }

    /// A call was answered, or was taken back.
    pub(super) fn ended(&mut self, call: u64) {
        self.flights.remove(&call);
    }

    /// The segment of a number, to send its file.
    pub(super) fn get(&self, number: u32) -> Option<Arc<Segment>> {
        self.mapped.iter().find(|mapped| mapped.number == number)?.segment.upgrade()
    }

    /// The worker still refers to arguments of a call that it has answered.
    pub(super) fn keep(&mut self, call: &PythonCall) {
        for buffer in call.buffers.iter().filter(|buffer| buffer.len() >= WORTH_SHARING) {
            let segment = locate(buffer).map(|located| located.segment.token());
            let mapped = self.mapped.iter().find(|mapped| Some(mapped.token) == segment);
            if let Some(Mapped { number, .. }) = mapped {
                self.kept.entry(*number).or_default().push(buffer.clone());
            }
        }
    }

    /// The worker does not refer to a segment any more.
    pub(super) fn released(&mut self, number: u32) {
        self.kept.remove(&number);
    }

    /// Bytes of an argument that a worker gave back as they are; `None` if the call had no such argument.
    pub(super) fn same(&self, call: &PythonCall, placed: Placed, len: usize) -> Option<Bytes> {
        let segment = self.get(placed.segment)?;
        let offset = usize::try_from(placed.offset).ok()?;
        let end = offset.checked_add(len)?;
        call.buffers.iter().find_map(|buffer| {
            let located = locate(buffer).filter(|located| located.segment.token() == segment.token())?;
            let start = offset.checked_sub(located.offset)?;
            (end <= located.offset + located.len).then(|| buffer.slice(start..start + len))
        })
    }
}
