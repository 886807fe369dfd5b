use crate::line::{integer, line_end, number_line_end};
use crate::{LARGE, LargeBulk, ProtocolError, Reply};
use bytes::{Buf, Bytes, BytesMut};

/// The longest line of text in a reply: a simple string or an error.
const MAX_TEXT: usize = 1 << 20;

/// How deep arrays may lie in arrays.
const MAX_DEPTH: usize = 64;

/// How far a parser got with the bytes it was given.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyProgress {
    /// A whole reply.
    Reply(Reply),
    /// More bytes are needed.
    More,
    /// More bytes are needed, and they belong to [`ReplyParser::large`].
    Large,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Array,
    Map,
    Set,
    Push,
    /// Remarks about the reply that follows; nobody here needs them.
    Attribute,
}

/// A collection whose elements are arriving.
#[derive(Debug)]
struct Open {
    shape: Shape,
    missing: u64,
    items: Vec<Reply>,
}

impl Open {
    fn close(self) -> Option<Reply> {
        match self.shape {
            Shape::Array => Some(Reply::Array(self.items)),
            Shape::Set => Some(Reply::Set(self.items)),
            Shape::Push => Some(Reply::Push(self.items)),
            Shape::Attribute => None,
            Shape::Map => {
                let mut items = self.items.into_iter();
                let mut pairs = Vec::with_capacity(items.len() / 2);
                while let (Some(name), Some(value)) = (items.next(), items.next()) {
                    pairs.push((name, value));
                }
                Some(Reply::Map(pairs))
            }
        }
    }
}

#[derive(Debug)]
struct ArrivingBulk {
    bulk: LargeBulk,
    verbatim: bool,
}

/// Cuts the bytes of a server into replies.
#[derive(Debug, Default)]
pub struct ReplyParser {
    open: Vec<Open>,
    large: Option<ArrivingBulk>,
    /// How much of a line of text was already searched for its end.
    searched: usize,
}

impl ReplyParser {
    /// The large bulk string whose bytes come next.
    pub fn large(&mut self) -> Option<&mut LargeBulk> {
        self.large.as_mut().map(|arriving| &mut arriving.bulk).filter(|bulk| bulk.missing() > 0)
    }

    /// Takes bytes from `input` until there is something to say.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub fn parse(&mut self, input: &mut BytesMut) -> Result<ReplyProgress, ProtocolError> {
        loop {
            if let Some(arriving) = &mut self.large {
                arriving.bulk.take_from(input);
                if arriving.bulk.missing() > 0 {
                    return Ok(ReplyProgress::Large);
                }
            }
            let Some(item) = self.item(input)? else { return Ok(ReplyProgress::More) };
            if let Some(reply) = item.and_then(|reply| self.settle(reply)) {
                return Ok(ReplyProgress::Reply(reply));
            }
            if let Some(reply) = self.close_full() {
                return Ok(ReplyProgress::Reply(reply));
            }
        }
    }

    /// Puts a reply where it belongs; gives it back when it belongs to nothing.
    fn settle(&mut self, reply: Reply) -> Option<Reply> {
        match self.open.last_mut() {
            Some(open) => {
                open.items.push(reply);
                open.missing = open.missing.saturating_sub(1);
                None
            }
            None => Some(reply),
        }
    }

    /// Closes the collections that are complete.
    fn close_full(&mut self) -> Option<Reply> {
        while self.open.last().is_some_and(|open| open.missing == 0) {
            let closed = self.open.pop().and_then(Open::close);
            if let Some(reply) = closed.and_then(|reply| self.settle(reply)) {
                return Some(reply);
            }
        }
        None
    }

    /// Reads one element. `None` without more bytes, `Some(None)` when it opened a collection or a large bulk.
    #[expect(clippy::option_option, reason = "both levels have a meaning, said above")]
    fn item(&mut self, input: &mut BytesMut) -> Result<Option<Option<Reply>>, ProtocolError> {
        if self.large.is_some() {
            return self.finish_large(input);
        }
        let Some(kind) = input.first().copied() else { return Ok(None) };
        let text = matches!(kind, b'+' | b'-' | b'(' | b',');
        let end = if text { self.text_end(input)? } else { number_line_end(input)? };
        let Some(end) = end else { return Ok(None) };
        let line = input.get(1..end).unwrap_or_default();
        if matches!(kind, b'$' | b'=' | b'!') {
            return self.bulk(kind, end, input);
        }
        if let Some(shape) = shape(kind) {
            let count = integer(line).ok_or(ProtocolError::ArrayLength)?;
            input.advance(end + 2);
            return self.begin(shape, count).map(Some);
        }
        let reply = match kind {
            b'+' => Reply::Simple(Bytes::copy_from_slice(line)),
            b'-' => Reply::Error(Bytes::copy_from_slice(line)),
            b'(' => Reply::BigNumber(Bytes::copy_from_slice(line)),
            b':' => Reply::Integer(integer(line).ok_or(ProtocolError::BadValue)?),
            b',' => Reply::Double(double(line).ok_or(ProtocolError::BadValue)?),
            b'_' if line.is_empty() => Reply::Null,
            b'#' if line == b"t" => Reply::Bool(true),
            b'#' if line == b"f" => Reply::Bool(false),
            b'_' | b'#' => return Err(ProtocolError::BadValue),
            other => return Err(ProtocolError::UnknownType(other)),
        };
        input.advance(end + 2);
        Ok(Some(Some(reply)))
    }

    fn text_end(&mut self, input: &BytesMut) -> Result<Option<usize>, ProtocolError> {
        match line_end(input, self.searched) {
            Some(end) => {
                self.searched = 0;
                Ok(Some(end))
            }
            None if input.len() > MAX_TEXT => Err(ProtocolError::LongLine),
            None => {
                self.searched = input.len().saturating_sub(1);
                Ok(None)
            }
        }
    }

    fn begin(&mut self, shape: Shape, count: i64) -> Result<Option<Reply>, ProtocolError> {
        let Ok(count) = u64::try_from(count) else {
            let null = count == -1 && shape == Shape::Array;
            return if null { Ok(Some(Reply::NullArray)) } else { Err(ProtocolError::ArrayLength) };
        };
        if self.open.len() == MAX_DEPTH {
            return Err(ProtocolError::TooDeep);
        }
        let pairs = matches!(shape, Shape::Map | Shape::Attribute);
        let missing = count.checked_mul(if pairs { 2 } else { 1 }).ok_or(ProtocolError::ArrayLength)?;
        // Room for what was announced only as far as a few bytes could have announced it.
        let items = Vec::with_capacity(usize::try_from(missing.min(16)).unwrap_or(0));
        self.open.push(Open { shape, missing, items });
        Ok(None)
    }

    #[expect(clippy::option_option, reason = "as in `item`")]
    fn bulk(
        &mut self,
        kind: u8,
        end: usize,
        input: &mut BytesMut,
    ) -> Result<Option<Option<Reply>>, ProtocolError> {
        let len = integer(input.get(1..end).unwrap_or_default()).ok_or(ProtocolError::BulkLength)?;
        if len == -1 && kind == b'$' {
            input.advance(end + 2);
            return Ok(Some(Some(Reply::Null)));
        }
        let len = usize::try_from(len).ok().ok_or(ProtocolError::BulkLength)?;
        if len >= LARGE && kind != b'!' {
            input.advance(end + 2);
            self.large = Some(ArrivingBulk { bulk: LargeBulk::new(len), verbatim: kind == b'=' });
            return Ok(Some(None));
        }
        if len > MAX_TEXT {
            return Err(ProtocolError::BulkLength);
        }
        let whole = end + 2 + len;
        if input.len() < whole + 2 {
            return Ok(None);
        }
        if input.get(whole..whole + 2) != Some(b"\r\n") {
            return Err(ProtocolError::ExpectedLineEnd);
        }
        input.advance(end + 2);
        let data = Bytes::copy_from_slice(&input.split_to(len));
        input.advance(2);
        let reply = match kind {
            b'!' => Reply::Error(data),
            b'=' => verbatim(data)?,
            _ => Reply::Bulk(data),
        };
        Ok(Some(Some(reply)))
    }

    #[expect(clippy::option_option, reason = "as in `item`")]
    fn finish_large(&mut self, input: &mut BytesMut) -> Result<Option<Option<Reply>>, ProtocolError> {
        if input.len() < 2 {
            return Ok(None);
        }
        if input.get(..2) != Some(b"\r\n") {
            return Err(ProtocolError::ExpectedLineEnd);
        }
        input.advance(2);
        let Some(mut arriving) = self.large.take() else { return Ok(None) };
        let data = arriving.bulk.finish();
        Ok(Some(Some(if arriving.verbatim { verbatim(data)? } else { Reply::Bulk(data) })))
    }
}

fn shape(kind: u8) -> Option<Shape> {
    match kind {
        b'*' => Some(Shape::Array),
        b'%' => Some(Shape::Map),
        b'~' => Some(Shape::Set),
        b'>' => Some(Shape::Push),
        b'|' => Some(Shape::Attribute),
        _ => None,
    }
}

/// Takes off the three letters and the colon that say the format.
fn verbatim(data: Bytes) -> Result<Reply, ProtocolError> {
    if data.get(3) != Some(&b':') {
        return Err(ProtocolError::BadValue);
    }
    Ok(Reply::Verbatim(data.slice(4..)))
}

fn double(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
#[path = "reply_parser_tests.rs"]
mod tests;
