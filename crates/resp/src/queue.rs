use crate::{Reply, Version};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::IoSlice;

/// Bulk strings of so many bytes or more are sent from where they lie; smaller ones are copied.
pub const REFERENCED: usize = 16 << 10;

/// Encoded replies that wait to be sent, as chunks for vectored writes.
///
/// Short replies are gathered in one buffer, so that a pipeline is answered with one write.
///
/// ```
/// use bytes::{Buf, Bytes};
/// use phalanx_resp::{Reply, ReplyQueue, Version};
///
/// let mut queue = ReplyQueue::default();
/// queue.push(Reply::OK, Version::Resp2);
/// queue.push(Reply::bulk("a"), Version::Resp2);
/// assert_eq!(queue.copy_to_bytes(queue.remaining()), "+OK\r\n$1\r\na\r\n");
/// ```
#[derive(Debug, Default)]
pub struct ReplyQueue {
    chunks: VecDeque<Bytes>,
    /// Bytes after all `chunks`.
    tail: BytesMut,
    len: usize,
}

impl ReplyQueue {
    /// Appends a reply.
    pub fn push(&mut self, reply: Reply, version: Version) {
        let before = self.tail.len();
        let mut chunked = 0;
        self.encode(reply, version, &mut chunked);
        self.len = self.len.wrapping_add(chunked).wrapping_add(self.tail.len()).wrapping_sub(before);
    }

    /// Fills in what to write next, at most `limit` bytes; says how many slices there are.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], limit: usize) -> usize {
        let chunks = self.chunks.iter().map(|chunk| &chunk[..]).chain(std::iter::once(&self.tail[..]));
        let mut left = limit;
        let mut filled = 0;
        for (chunk, slice) in chunks.filter(|chunk| !chunk.is_empty()).zip(slices) {
            let part = chunk.get(..left).unwrap_or(chunk);
            if part.is_empty() {
                break;
            }
            *slice = IoSlice::new(part);
            left -= part.len();
            filled += 1;
        }
        filled
    }

    /// Appends bytes that are already encoded.
    pub fn push_encoded(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// `chunked` counts the bytes that left the tail or never were in it.
    fn encode(&mut self, reply: Reply, version: Version, chunked: &mut usize) {
        let resp3 = version == Version::Resp3;
        match reply {
            Reply::Simple(text) => self.line(b'+', &text),
            Reply::Error(text) => self.line(b'-', &text),
            Reply::Integer(n) => self.number(b':', n),
            Reply::Bulk(data) => self.bulk(data, chunked),
            Reply::Null | Reply::NullArray if resp3 => self.tail.put_slice(b"_\r\n"),
            Reply::Null => self.tail.put_slice(b"$-1\r\n"),
            Reply::NullArray => self.tail.put_slice(b"*-1\r\n"),
            Reply::Array(items) => self.items(b'*', items, version, chunked),
            Reply::Set(items) => self.items(if resp3 { b'~' } else { b'*' }, items, version, chunked),
            Reply::Push(items) => self.items(if resp3 { b'>' } else { b'*' }, items, version, chunked),
            Reply::Map(pairs) => {
                let count = if resp3 { pairs.len() } else { 2 * pairs.len() };
                self.count(if resp3 { b'%' } else { b'*' }, count);
                for (name, value) in pairs {
                    self.encode(name, version, chunked);
                    self.encode(value, version, chunked);
                }
            }
            Reply::Double(value) if resp3 => self.line(b',', double(value).as_bytes()),
            Reply::Double(value) => self.bulk(double(value).into(), chunked),
            Reply::Bool(value) if resp3 => self.line(b'#', if value { b"t" } else { b"f" }),
            Reply::Bool(value) => self.number(b':', i64::from(value)),
            Reply::BigNumber(digits) if resp3 => self.line(b'(', &digits),
            Reply::Verbatim(text) if resp3 => {
                self.count(b'=', text.len() + 4);
                self.tail.put_slice(b"txt:");
                self.body(text, chunked);
            }
            Reply::BigNumber(text) | Reply::Verbatim(text) => self.bulk(text, chunked),
        }
    }

    fn items(&mut self, kind: u8, items: Vec<Reply>, version: Version, chunked: &mut usize) {
        self.count(kind, items.len());
        for item in items {
            self.encode(item, version, chunked);
        }
    }

    fn bulk(&mut self, data: Bytes, chunked: &mut usize) {
        self.count(b'$', data.len());
        self.body(data, chunked);
    }

    fn body(&mut self, data: Bytes, chunked: &mut usize) {
        if data.len() < REFERENCED {
            self.tail.put_slice(&data);
        } else {
            *chunked = chunked.wrapping_add(self.tail.len()).wrapping_add(data.len());
            self.chunks.push_back(self.tail.split().freeze());
            self.chunks.push_back(data);
        }
        self.tail.put_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.tail.put_u8(kind);
        self.tail.put_slice(text);
        self.tail.put_slice(b"\r\n");
    }

    fn count(&mut self, kind: u8, n: usize) {
        self.number(kind, i64::try_from(n).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, n: i64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        let mut left = n.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.tail.put_u8(kind);
        if n < 0 {
            self.tail.put_u8(b'-');
        }
        self.tail.put_slice(&digits[at..]);
        self.tail.put_slice(b"\r\n");
    }
}

fn double(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    } else {
        value.to_string()
    }
}

impl Buf for ReplyQueue {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.chunks.iter().map(|chunk| &chunk[..]).find(|chunk| !chunk.is_empty()).unwrap_or(&self.tail)
    }

    fn advance(&mut self, mut n: usize) {
        assert!(n <= self.len, "cannot advance past the end of the queue");
        self.len -= n;
        while let Some(front) = self.chunks.front_mut() {
            if n < front.len() {
                front.advance(n);
                return;
            }
            n -= front.len();
            self.chunks.pop_front();
        }
        self.tail.advance(n);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.slices(slices, usize::MAX)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
